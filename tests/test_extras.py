"""Without the packages of an extra, one line names the command that installs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clawblox import extras
from clawblox.extras import EXTRAS, install_command, name_extra
from tests.support.sockets import free_port

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 60
ZSTD = "" if sys.version_info >= (3, 14) else ", zstandard"
"""Package that a server also needs if Python lacks the module."""

HIDING = """\
import importlib.machinery, os
hidden, find = os.environ["HIDDEN"].split(), importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = (
    lambda name, *rest: None if name.partition(".")[0] in hidden else find(name, *rest)
)
"""
"""A ``sitecustomize`` that hides packages from every interpreter of a process tree."""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which no package of an extra is installed."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(HIDING)
    hidden = {module for modules in EXTRAS.values() for module in modules}
    clean = {key: value for key, value in os.environ.items() if not key.startswith("WORLD_")}
    return {**clean, "PYTHONPATH": f"{site}:{ROOT}", "HIDDEN": " ".join(sorted(hidden))}


def run(*words: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=env, cwd=cwd, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_every_extra_lists_the_packages_that_pip_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]
    assert EXTRAS.keys() == wanted.keys() - {"bench", "test"}
    for extra, modules in EXTRAS.items():
        names = {re.split(r"[\[<>=]", text)[0] for text in wanted[extra]}
        if "clawblox[server]" in wanted[extra]:
            names |= EXTRAS["server"].keys()
        assert set(modules.values()) - {"numpy"} == names - {"clawblox"}
        assert ("rapier3d[numpy]" in str(wanted[extra])) == ("numpy" in modules)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("starlette.routing", "server"),
        ("rapier3d", "engine"),
        ("mujoco", "mujoco"),
        ("numpy", None),
        ("json", None),
    ],
)
def test_a_missing_module_names_the_smallest_extra_that_adds_it(
    module: str, extra: str | None
) -> None:
    assert name_extra(module) == extra


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'clawblox[play]'"),
        ({"url": "file:///no/such/clone", "dir_info": {}}, "pip install 'clawblox[play]'"),
        (
            {"url": "https://h.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "0a1"}},
            "pip install 'clawblox[play] @ git+https://h.org/x.git@0a1'",
        ),
        (
            {"url": "file:///d/clawblox.whl", "archive_info": {}},
            "pip install 'clawblox[play] @ file:///d/clawblox.whl'",
        ),
    ],
)
def test_the_command_installs_from_the_origin_of_the_package(
    origin: dict[str, Any] | None,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "of-a-stranger"\n')
    install(tmp_path, origin, monkeypatch)
    assert install_command("play") == command


def test_the_command_names_the_clone_or_the_current_directory_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    (clone / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    install(tmp_path, {"url": clone.as_uri(), "dir_info": {}}, monkeypatch)
    assert install_command("server") == f"pip install '{clone}[server]'"
    monkeypatch.chdir(clone)
    assert install_command("server") == "pip install '.[server]'"
    monkeypatch.setattr(extras, "_PACKAGE", clone / "clawblox")  # installed with -e
    assert install_command("server") == "pip install -e '.[server]'"


def install(site: Path, origin: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package's metadata into a directory like pip."""
    info = site / "clawblox-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: clawblox\nVersion: 0.1.0\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setattr(extras, "_PACKAGE", site / "clawblox")


def test_a_world_without_the_kit_fails_with_the_command_and_no_traceback(
    bare: dict[str, str], tmp_path: Path
) -> None:
    port, run_dir = str(free_port()), str(tmp_path / "run")
    words = ("-m", "clawblox", "run", "examples/marbles", "--port", port, "--run-dir", run_dir)
    failed = run(*words, env=bare, cwd=ROOT)
    assert failed.returncode == 1
    assert failed.stderr.startswith(
        "Error: w000: world 'marbles' needs the package starlette, which is not installed: "
        "pip install -e '.[server]'\n"
    )
    assert "Traceback" not in failed.stderr


@pytest.mark.thorough
def test_the_experiment_without_the_kit_fails_with_a_message(
    bare: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(2):  # started, then resumed
        failed = run(str(ROOT / "examples" / "fork_worlds.py"), env=bare, cwd=tmp_path)
        assert failed.returncode == 1
        assert "BatchError: 8 of 8 instances failed" in failed.stderr
        assert f"not installed: {install_command('server')}" in failed.stderr


def test_importing_the_kit_without_its_packages_ends_with_the_command(
    bare: dict[str, str], tmp_path: Path
) -> None:
    failed = run("-c", "import clawblox.server", env=bare, cwd=tmp_path)
    assert failed.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'starlette', which clawblox.server needs: "
        f"pip install -e '{ROOT}[server]'"
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("flags", "needs"),
    [
        ((), "starlette, uvicorn{zstd}: pip install -e '{root}[server]'"),
        (
            ("--engine",),
            "numpy, rapier3d, starlette, uvicorn, wsproto{zstd}: pip install -e '{root}[engine]'",
        ),
    ],
)
def test_a_starter_world_names_the_command_that_installs_its_packages(
    flags: tuple[str, ...], needs: str, bare: dict[str, str], tmp_path: Path
) -> None:
    written = run("-m", "clawblox", "init", *flags, "isle", env=bare, cwd=tmp_path)
    assert written.returncode == 0
    last = written.stdout.splitlines()[-2:]
    assert last == [f"It needs {needs.format(root=ROOT, zstd=ZSTD)}", "Run it: clawblox run isle"]
