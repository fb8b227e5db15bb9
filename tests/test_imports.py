"""What importing costs: nothing is loaded that its user does not need."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from tests.support.waiting import HANG_S

OURS = "clawblox"
ANYIO = {"anyio", "idna", "sniffio", "typing_extensions"}
SLOW = {"asyncio", "concurrent.futures", "email", "http.client", "logging", "ssl", "urllib.request"}
"""Parts of the standard library that take long to load, and that no start needs."""

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
    assert "asyncio" not in loaded


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
    logger = {"structlog", "pygments"} if name == "stop" else set()  # it configures it
    assert third_parties(loaded) <= {"attr", "attrs", "click", "msgspec", "rich", *ANYIO, *logger}
    assert not loaded & {
        "clawblox.world.fleet",
        "clawblox.instance.supervisor",
        "clawblox.config.download",
    }


@pytest.mark.parametrize("package", ["clawblox", "clawblox.checkpoint", "clawblox.conformance"])
def test_all_names_of_a_stub_can_be_imported_and_no_others(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing
