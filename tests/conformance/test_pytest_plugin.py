"""The pytest plugin: checks are tests that run once together, without cost if no world is given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.provable import make_provable_world

RUN_TIMEOUT_S = 180

CANNED = """
from pathlib import Path

from clawblox.conformance import Report, CheckResult, Verdict, runner
from clawblox.errors import ConfigError

FAILURE = {"request": "curl -i http://127.0.0.1:1/", "path": "body.x", "expected": 1, "got": 2}
RESULTS = {
    "restore.trace": ("must", "failed", FAILURE),
    "restore.second": ("should", "failed", {}),
    "restore.again": ("must", "could_not_run", {}),
    "restore.landings": ("must", "not_applicable", {}),
    "restore.chat": ("must", "could_not_run", {"is_own_error": True}),
    "restore.sessions": ("must", "passed", {}),
}


async def check_world(target, names):
    with open(Path(__file__).parent / "calls", "a") as calls:
        calls.write(f"{target} {sorted(names)}\\n")
    if target == "nowhere":
        raise ConfigError("there is no such world", key="dir", value=target)
    results = [
        CheckResult(name, level, status, "It does.", f"evidence of {name}\\x1b[2J", 0.1, **fields)
        for name, (level, status, fields) in RESULTS.items()
        if name in names
    ]
    return Report(target, target, Verdict("exact", "Exact."), 7, tuple(results), 1.0)


runner.check_world = check_world
"""
"""A conftest.py with fixed results for each check, without running a world."""
SELECTED = ("trace", "second", "again", "landings", "chat", "sessions")

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest in a separate project, with the packages of other projects."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")

    def run_one(
        *words: str, conftest: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "conftest.py").write_text(conftest)
        command = [sys.executable, "-m", "pytest", f"--basetemp={tmp_path / 'inner'}", *words]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )

    return run_one


ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""No other plugin is loaded, which takes half of the time of such a run."""


def canned(
    run: Run, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    names = [f"--clawblox-check=restore.{name}" for name in SELECTED]
    words = ("-p", "clawblox.conformance.pytest_plugin", *names, *words)
    return run("--clawblox-world=panda", *words, conftest=CANNED, env={**ALONE, **(env or {})})


def test_the_checks_of_a_real_world_are_tests(run: Run, tmp_path: Path) -> None:
    world = make_provable_world(tmp_path, clock="lockstep")
    words = (f"--clawblox-world={world}", "--clawblox-check=contract.ready", "-v")
    ended = run(*words, "-p", "no:xdist", "-W", "error")
    assert "clawblox::contract.ready PASSED" in ended.stdout, ended
    assert ended.returncode == 0


def test_a_result_becomes_the_outcome_of_its_test(run: Run, tmp_path: Path) -> None:
    ended = canned(run, "-v", "-rsf", "-p", "no:xdist")
    assert ended.returncode == 1
    outcomes = re.findall(r"^clawblox::restore\.(\w+) ([A-Z]+)", ended.stdout, re.MULTILINE)
    assert dict(outcomes) == {
        "trace": "FAILED",
        "second": "PASSED",
        "again": "SKIPPED",
        "landings": "SKIPPED",
        "chat": "FAILED",
        "sessions": "PASSED",
    }
    for text in (
        "CheckWarning: restore.second: evidence of restore.second",
        "could not run: evidence of restore.again",
        "not applicable: evidence of restore.landings",
        "where: body.x",
        "request: curl -i http://127.0.0.1:1/",
        "repeat: clawblox check panda restore.trace --seed 7",
        "evidence of restore.chat",
        "__ restore.trace of panda __",
        "FAILED clawblox::restore.trace - evidence of restore.trace",
    ):
        assert text in ended.stdout, text
    assert "\x1b[2J" not in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_only_the_tests_that_were_selected_run_and_each_world_once(
    run: Run, tmp_path: Path
) -> None:
    worlds = ("--clawblox-world=orchard", "--clawblox-world=nowhere")
    ended = canned(run, *worlds, "-k", "sessions", "-v", "-p", "no:xdist")
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"{world} ['restore.sessions']" for world in ("panda", "orchard", "nowhere")
    ]
    assert "clawblox::orchard::restore.sessions PASSED" in ended.stdout
    assert "clawblox::nowhere::restore.sessions FAILED" in ended.stdout
    assert "there is no such world" in ended.stdout


@pytest.mark.thorough
def test_one_xdist_process_runs_the_checks_for_all(run: Run, tmp_path: Path) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    ended = canned(run, "-p", "xdist", "-n", "2", env={"TMPDIR": str(scratch)})
    assert "2 failed, 2 passed, 2 skipped, 1 warning" in ended.stdout, ended
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert list(scratch.iterdir()) == []


@pytest.mark.thorough
def test_a_misspelled_check_is_a_usage_error(run: Run) -> None:
    ended = run("--clawblox-world=panda", "--clawblox-check=restore.tracee")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "did you mean restore.trace?" in ended.stderr


def test_checks_are_not_imported_without_a_world(run: Run) -> None:
    conftest = (
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    print('loaded', *(name for name in sys.modules if name.startswith('clawblox')))\n"
    )
    ended = run("-p", "no:xdist", "-s", conftest=conftest)
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("loaded"))
    plugin = {"clawblox", "clawblox.conformance", "clawblox.conformance.pytest_plugin"}
    plugin.add("clawblox.lazy_exports")
    assert set(line.split()[1:]) == plugin
