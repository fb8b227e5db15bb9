"""``clawblox check``: checks a real world and leaves no processes or files."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clawblox.conformance import CHECKS
from clawblox.conformance.kept_check import read_check
from clawblox.views.check_page import render_page
from tests.cli.conftest import Start
from tests.support.provable import make_provable_world
from tests.support.sampling import sampled
from tests.support.waiting import wait_until

MARBLES = str(Path(__file__).parents[3] / "examples" / "marbles")
IDS = [check.id for check in CHECKS]


@pytest.fixture(autouse=True)
def _in_a_directory_for_scratch(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()


def make_shell_world(parent: Path, script: str) -> str:
    """Write a world that runs a line of shell and is never ready."""
    directory = parent / "shell"
    directory.mkdir()
    command = json.dumps(["/bin/sh", "-c", script])
    (directory / "world.toml").write_text(f'name = "shell"\n[run]\ncommand = {command}\n')
    return str(directory)


def test_check_of_a_real_world_passes_and_leaves_no_files(call: Start, tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    world = str(make_provable_world(tmp_path, clock="lockstep"))
    words = ("check", world, "restore.sessions", "-v", "--seed", "3")
    files = ("--html", "report.html", "--junit", "report.xml")
    command = call(*words, *files, env={"TMPDIR": str(scratch)})
    assert (command.wait(), command.err) == (0, "")
    assert "Orchard: Restore not shown: restore.trace was not run." in command.out
    assert "✓ restore.sessions: 2 sessions were accepted" in command.out
    assert "seed 3: 1 passed" in command.out
    assert list(scratch.iterdir()) == []
    assert "restore.sessions" in Path("report.html").read_text()
    assert ElementTree.parse("report.xml").find("testsuite/testcase[@name='sessions']") is not None
    assert {path.name for path in Path().iterdir()} == {"report.html", "report.xml"}
    left = read_check(Path(world))
    assert left is not None
    assert render_page(left.report) == Path("report.html").read_text()
    assert left.find_changes() == ()
    with (Path(world) / "API.md").open("a") as file:
        file.write("It rains.\n")
    assert left.find_changes() == ("API.md",)


def test_unwritable_directory_is_a_single_warning(call: Start, tmp_path: Path) -> None:
    world = make_provable_world(tmp_path, clock="lockstep")
    (world / ".clawblox").touch()
    command = call("check", str(world), "static.world_toml", "--json")
    assert command.wait() == 0
    assert command.err.count("report not kept") == 1
    assert f"{world}/.clawblox/check.json" in command.err
    assert json.loads(command.out)["checks"][0]["status"] == "passed"


@pytest.mark.parametrize(
    "files", sampled([(), ("--html", "report.html"), ("--junit", "report.xml")], every=3)
)
def test_pasted_request_command_runs_no_command_of_the_world(
    call: Start, tmp_path: Path, files: tuple[str, ...]
) -> None:
    world = make_provable_world(tmp_path, clock="lockstep", defect="input-answers-text")
    note = "'; touch owned; echo '" * 100
    with (world / "world.toml").open("a") as file:
        data = f"{{ force = 1, note = {json.dumps(note)} }}"
        file.write(f'[conformance]\nactions = [{{ type = "push", data = {data} }}]\n')
    words = ("check", str(world), "contract.input", *files)
    command = call(*words, env={"TMPDIR": str(tmp_path / "tmp")})
    assert command.wait() == 1
    (line,) = (line for line in command.out.splitlines() if "request   curl" in line)
    script = f"curl() {{ printf '%s\\n' \"$@\"; }}\n{line.replace('request', '', 1)}"
    arguments = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True)
    assert arguments.stderr == ""
    (file,) = (Path(word[1:]) for word in arguments.stdout.splitlines() if word.startswith("@"))
    assert json.loads(file.read_text()) == {"type": "push", "data": {"force": 1, "note": note}}
    assert file.parent.suffix == ".bodies" if files else file.parent.parent == tmp_path / "tmp"
    assert not Path("owned").exists()


def test_a_world_that_does_not_start_is_status_3_with_its_last_log_lines(
    call: Start, tmp_path: Path
) -> None:
    world = make_shell_world(tmp_path, "echo no gravity here; exit 7")
    command = call("check", world, "restore.trace", "restore.again")
    assert command.wait() == 3
    assert command.out.count("| no gravity here") == 1
    assert "restore.trace, restore.again" in command.out
    document = json.loads(call("check", world, "restore.trace", "--json").out)
    assert document["grade"] == "not_shown"
    (result,) = document["checks"]
    assert (result["id"], result["status"]) == ("restore.trace", "could_not_run")
    assert "exit status 7" in result["evidence"]


def test_strict_counts_checks_that_could_not_run(call: Start) -> None:
    words = ("check", "http://127.0.0.1:1", "restore.trace")  # this check needs a directory
    assert call(*words).wait() == 0
    assert call(*words, "--strict").wait() == 1


def test_address_without_an_answer_has_status_3(call: Start) -> None:
    command = call("check", "http://127.0.0.1:1", "contract.join")
    assert command.wait() == 3
    assert "no world answers at http://127.0.0.1:1" in command.out


def test_list_shows_the_checks_without_running_them(call: Start) -> None:
    out = call("check", "--list").out
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")] == IDS
    listed = json.loads(call("check", "nowhere", "restore.t*", "--list", "--json").out)
    assert [check["id"] for check in listed] == ["restore.trace"]
    assert listed[0].keys() == {"id", "level", "requirement"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nowhere",), "nowhere: the world directory does not exist"),
        ((MARBLES, "restore.tracee"), "did you mean restore.trace?"),
        ((MARBLES, "--seed", "-1"), "Invalid value for '--seed'"),
        ((MARBLES, "--html", "nowhere/a.html"), "--html: must be in a directory that exists"),
        ((MARBLES, "--junit", "/dev/null"), "--junit: must be a path for a file"),
        ((MARBLES, "--expected-failures", "known.txt"), "known.txt, line 1: must be the id"),
    ],
)
def test_wrong_usage_is_status_2(call: Start, words: tuple[str, ...], text: str) -> None:
    Path("known.txt").write_text("restore.nothing\n")
    command = call("check", *words)
    assert command.wait() == 2
    assert text in command.err


def test_an_expected_failure_does_not_count(call: Start, tmp_path: Path) -> None:
    Path("known.txt").write_text("static.world_toml # it was once wrong\n")
    words = ("check", MARBLES, "static.world_toml", "--expected-failures", "known.txt")
    command = call(*words)
    assert command.wait() == 1
    assert "listed as an expected failure: remove it there" in command.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_a_check_leaves_no_processes_or_files(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    scratch = tmp_path / "tmp"
    world = make_shell_world(tmp_path, "echo started; exec sleep 1000")
    command = start("check", world, "restore.trace", env={"TMPDIR": str(scratch)})
    wait_until(lambda: any(map(has_started, scratch.glob("*/run/logs/w000.log"))))
    command.send(number)
    assert command.wait() == 128 + number
    assert "check failed" not in command.out
    assert list(scratch.iterdir()) == []


def has_started(log: Path) -> bool:
    return "started" in log.read_text()
