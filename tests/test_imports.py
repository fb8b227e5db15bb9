"""Imports load only the modules that the caller needs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.support.waiting import HANG_S

Rooms: TypeAlias = Mapping[str, str]
"""The modules of each room, separated by spaces."""

OURS = "clawblox"
ANYIO = {"anyio", "idna", "sniffio", "typing_extensions"}
SLOW = {
    *("asyncio", "concurrent.futures", "email", "http", "logging", "sqlite3", "ssl", "tempfile"),
    *("traceback", "urllib.request"),
}
"""Parts of the standard library that load slowly and that no start needs."""

WORLD_LOADS: Final[Rooms] = {
    "": (
        "extras foreign_values host_gate lazy_exports printable protocol recording results "
        "spelling typed_values world_keys"
    ),
    "checkpoint": "names",
    "concurrency": "batch deadlines per_loop progress tasks threads",
    "config": "agent_arguments arguments home options schema toml_text toml_words world_toml",
    "errors": "agent checkpoint general world",
    "instance": (
        "bookkeeping calls environment failures health instance launch launcher lifecycle "
        "listening local ramp restart_source running seeds supervisor watch"
    ),
    "rundir": (
        "blobs claims control_client control_server experiments find_runs interrupted journal "
        "leftovers listed listed_saves manifest manifest_entries manifest_file manifest_updates "
        "manifest_writer paths recordings records requests run_logs saves snapshot_files status"
    ),
    "snapshot": "capture checker header rows",
    "supervision": "lifecycle orphans tree",
    "system": (
        "append_log clock files guard helper locks port_leases ports process process_tree "
        "record_file regular_files request sock_diag sockets tmux"
    ),
    "telemetry": "events log_index log_reader log_times log_watch logs metrics own_log throttle",
    "world": (
        "access archives async_world control_handlers fleet handle http_clients instance_calls "
        "kept_sessions known_instances measured open_world players properties resume rosters save "
        "settling sources starts"
    ),
}
"""The modules that importing ``AsyncWorld`` loads, by room."""

PS_LOADS: Final[Rooms] = {
    "": "columns foreign_values lazy_exports printable protocol results spelling world_keys",
    "agents": "layout listing status values",
    "agents.programs": "program",
    "cli": "experiment_dirs field_options flags option_help parameters",
    "cli.commands": "ps",
    "cli.terminal": "streams width",
    "config": "arguments home",
    "errors": "agent checkpoint general world",
    "rundir": (
        "experiments find_runs journal listed listed_saves manifest manifest_entries paths "
        "records status"
    ),
    "system": (
        "amounts append_log clock files locks port_leases process_tree record_file regular_files"
    ),
    "telemetry": "log_index log_times logs metrics own_log",
    "views": "formatting rows",
}
"""The modules that ``clawblox ps`` loads, by room."""

CODE = """
import json, sys
before = set(sys.modules)
{statement}
print()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in a fresh interpreter."""
    code = CODE.format(statement=statement)
    words = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, check=True, timeout=HANG_S)
    return set(json.loads(result.stdout.splitlines()[-1]))


def third_parties(modules: set[str]) -> set[str]:
    tops = {module.partition(".")[0] for module in modules}
    return tops - sys.stdlib_module_names - {OURS}


def test_importing_clawblox_loads_no_other_modules() -> None:
    loaded = loaded_by("import clawblox")
    assert third_parties(loaded) == set()
    ours = {module for module in loaded if module.startswith(OURS)}
    assert ours == {OURS, "clawblox.lazy_exports"}


def test_the_help_of_the_command_line_loads_only_click() -> None:
    loaded = loaded_by("from clawblox.cli import main; main(['--help'], standalone_mode=False)")
    assert third_parties(loaded) == {"click"}
    ours = {module for module in loaded if module.startswith(OURS)}
    errors = {f"clawblox.errors.{name}" for name in ("agent", "checkpoint", "general", "world")}
    guard = {"clawblox.cli.terminal", "clawblox.cli.terminal.streams", "clawblox.printable"}
    top = {"clawblox", "clawblox.lazy_exports", "clawblox.cli", "clawblox.errors"}
    assert ours == {*top, *errors, *guard}
    assert not {"asyncio", "pathlib"} & loaded


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["AsyncWorld", "Manifest", "WorldError"])
def test_a_public_name_loads_neither_an_http_client_nor_a_logger(name: str) -> None:
    loaded = loaded_by(f"import clawblox; clawblox.{name}")
    assert third_parties(loaded) <= {"attr", "attrs", "msgspec", *ANYIO}
    assert loaded & SLOW == set()


def test_reading_a_run_loads_only_the_modules_that_read_its_files() -> None:
    loaded = loaded_by("from clawblox.cli.commands import ps")
    assert third_parties(loaded) <= {"attr", "attrs", "click", "msgspec", "rich", *ANYIO}
    assert "rich.console" not in loaded  # only the widths of characters are needed


@pytest.mark.parametrize("name", ["ps", "logs", "stop", "wait"])
def test_commands_on_a_run_load_neither_an_http_client_nor_the_orchestrator(name: str) -> None:
    loaded = loaded_by(f"from clawblox.cli.commands import {name}")
    logger = {"structlog", "pygments"} if name == "stop" else set()  # it configures logging
    assert third_parties(loaded) <= {"attr", "attrs", "click", "msgspec", "rich", *ANYIO, *logger}
    assert not loaded & {
        "clawblox.world.fleet",
        "clawblox.instance.supervisor",
        "clawblox.config.download",
    }


def check_loads(loaded: set[str], expected: Rooms) -> None:
    """Check that exactly these modules of ours were loaded, apart from packages."""
    names = {
        ".".join(filter(None, (OURS, room, name)))
        for room, listed in expected.items()
        for name in listed.split()
    }
    found = {name for name in loaded if name.startswith(OURS)}
    packages = {name.rpartition(".")[0] for name in found}
    packages |= {name for name in found if is_package(name)}
    newcomers, absent = sorted(found - packages - names), sorted(names - found)
    assert not newcomers, (
        "loaded without being listed: import them where they are used, or list them"
    )
    assert not absent, "listed, but no longer loaded: remove them from the list"


def is_package(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def test_importing_a_world_loads_the_listed_modules_alone() -> None:
    loaded = loaded_by("from clawblox import AsyncWorld")
    check_loads(loaded, WORLD_LOADS)
    assert third_parties(loaded) <= {"attr", "attrs", "msgspec", *ANYIO}
    assert loaded & SLOW == set()


def test_a_table_of_runs_loads_the_listed_modules_alone(tmp_path: Path) -> None:
    statement = (
        f"from clawblox.cli import main; main(['ps', {str(tmp_path)!r}], standalone_mode=False)"
    )
    loaded = loaded_by(statement)
    check_loads(loaded, PS_LOADS)
    assert third_parties(loaded) <= {
        "attr",
        "attrs",
        "click",
        "msgspec",
        "rich",
        "typing_extensions",
    }
    assert loaded & SLOW == set()


@pytest.mark.parametrize("package", ["clawblox", "clawblox.checkpoint", "clawblox.conformance"])
def test_all_names_of_a_stub_can_be_imported_and_no_others(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing
