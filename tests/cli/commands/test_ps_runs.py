"""``clawblox ps`` without a run directory: the runs of the user and runs below a directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.rundir import find_runs
from clawblox.rundir.experiments import JOURNAL_NAME
from clawblox.rundir.find_runs import (
    MAX_DEPTH,
    add_run,
    find_experiments_below,
    find_runs_below,
    find_user_runs,
    read_index,
)
from clawblox.rundir.records import write_records
from tests.cli.conftest import Command, Start, assert_nothing_runs, only_run
from tests.rundir.test_records import record_of
from tests.support.lineages import write_manifest
from tests.support.processes import marked_processes
from tests.support.terminals import CTRL_C, terminal
from tests.support.waiting import wait_until
from tests.support.worlds import make_world


def index() -> Path:
    return Path(os.environ["CLAWBLOX_HOME"]) / "runs.jsonl"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.fixture
def both(start: Start, world: Path, tmp_path: Path) -> dict[Path, Command]:
    """Run a world in two directories; return the orchestrators by run directory."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    one = start("run", str(world), "--port", "0", cwd=tmp_path / "a")
    two = start("up", str(world), "-n", "2", "--run-dir", "runs/exp8", cwd=tmp_path / "b")
    one.wait_for("Spectator frontend")
    two.wait_for("ready after")
    return {only_run(tmp_path / "a"): one, tmp_path / "b" / "runs" / "exp8": two}


def shown(call: Start, tmp_path: Path, *words: str) -> dict[Path, dict[str, str]]:
    """Return the states that ``ps`` shows for the runs of this test, by run and name."""
    found: dict[Path, dict[str, str]] = {}
    for one in json.loads(call("ps", *words, "--json").out):
        if Path(one["run_dir"]).is_relative_to(tmp_path):
            found.setdefault(Path(one["run_dir"]), {})[one["name"]] = one["state"]
    return found


# ------------------------------------------------------------------------------ on this machine


@pytest.mark.thorough
def test_ps_shows_the_running_instances_of_every_directory(
    both: dict[Path, Command], call: Start, tmp_path: Path
) -> None:
    one, two = both
    running = {one: {"w000": "ready"}, two: {"w000": "ready", "w001": "ready"}}
    assert shown(call, tmp_path) == running
    out = call("ps").out
    assert f"{one} · counter · 1 ready\nNAME  STATE" in out
    assert f"{two} · counter · 2 ready\nNAME  STATE" in out
    assert sorted(read_index()) == [one, two]

    index().unlink()  # found by the marks of the processes
    assert shown(call, tmp_path) == running

    both[two].send(signal.SIGKILL)
    both[two].wait()
    wait_until(lambda: two not in shown(call, tmp_path), what="its instances have ended")
    assert shown(call, tmp_path) == {one: {"w000": "ready"}}
    assert shown(call, tmp_path, "-a") == {one: {"w000": "ready"}}  # missing from the index
    add_run(two)
    ended = {"w000": "interrupted", "w001": "interrupted"}
    wait_until(lambda: shown(call, tmp_path, "--all") == {one: {"w000": "ready"}, two: ended})
    assert both[one].interrupt() == 130
    assert shown(call, tmp_path) == {}
    assert shown(call, tmp_path, "-a")[two] == ended


FORGED = [
    b'{"name": "/nowhere/at/all"}\n',
    b'{"name": "relative"}\n',
    b'{"name": "/proc/self/mem"}\n',
    b'{"name": "\\u0000"}\n',
    b'{"name": 5}\n',
    b"not json\n",
    b"\xff\xfe\n",
    b'{"name": "/to',  # incomplete line
]


@pytest.mark.thorough
def test_index_entries_without_a_valid_run_are_ignored(
    both: dict[Path, Command], call: Start, tmp_path: Path
) -> None:
    one, two = both
    empty, trap = tmp_path / "empty", tmp_path / "trap"
    empty.mkdir()
    (trap / ".clawblox" / "instances").mkdir(parents=True)
    os.mkfifo(trap / ".clawblox" / "instances" / "records.jsonl")
    for path in (empty, trap):
        add_run(path)
    with index().open("ab") as file:
        file.writelines(FORGED)
    assert set(shown(call, tmp_path)) == {one, two}
    assert set(shown(call, tmp_path, "-a")) == {one, two}
    assert sorted(read_index()) == [one, two, empty, trap]
    assert index().read_bytes().count(b"\n") == 4  # missing directories were dropped


def test_a_run_is_added_once_and_the_oldest_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawblox.rundir.find_runs._MAX_RUNS", 4)
    runs = [tmp_path / f"r{number}" for number in range(6)]
    for run in runs:
        run.mkdir()
        for _ in range(2):
            add_run(run)
    assert read_index() == runs[2:]
    assert index().stat().st_mode & 0o777 == 0o600


@pytest.mark.thorough
@pytest.mark.parametrize("home", ["/proc/nowhere", "file"])
def test_unwritable_home_does_not_prevent_a_start(
    start: Start, call: Start, world: Path, tmp_path: Path, home: str
) -> None:
    (tmp_path / "file").touch()
    env = {"CLAWBLOX_HOME": home if home.startswith("/") else str(tmp_path / home)}
    command = start("run", str(world), "--port", "0", env=env)
    command.wait_for("Spectator frontend")
    assert command.err == ""
    found = json.loads(call("ps", "--json", env=env).out)
    assert str(only_run(Path.cwd())) in {one["run_dir"] for one in found}
    assert command.interrupt() == 130


# --------------------------------------------------------------------------- foreign processes


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Any]:
    """Start processes with marks of an instance, and kill them at the end."""
    processes = []

    def spawn_one(run_dir: Path, cookie: str, *words: str, **options: Any) -> None:
        env = {
            "CLAWBLOX_INSTANCE": cookie,
            "CLAWBLOX_MANIFEST_PATH": str(run_dir / ".clawblox" / "manifest.json"),
        }
        words = words or ("/bin/sh", "-c", "echo up; exec sleep 600")
        process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, cwd="/", **options)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"

    yield spawn_one
    for process in processes:
        process.kill()
        process.communicate()


def make_run(run_dir: Path, cookie: str) -> Path:
    (run_dir / ".clawblox" / "instances").mkdir(parents=True)
    write_records(run_dir, record_of("w000", cookie=cookie))
    return run_dir


def test_process_is_shown_only_if_a_record_has_its_cookie(spawn: Any, tmp_path: Path) -> None:
    true, forged = make_run(tmp_path / "true", "a1"), make_run(tmp_path / "forged", "b2")
    spawn(true, "a1")
    spawn(forged, "another")
    spawn(tmp_path / "nowhere", "c3")
    spawn(Path("relative"), "d4")
    assert [run for run in find_user_runs() if run.is_relative_to(tmp_path)] == [true]


def test_run_is_found_by_the_process_of_its_instance(spawn: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "a1")
    spawn(run / ".clawblox" / "worlds" / "w000", "a1")
    assert run in find_user_runs()


HIDDEN = (
    "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); print('up', flush=True); time.sleep(600)"
)
"""A program that other processes of its user cannot inspect (PR_SET_DUMPABLE)."""


def test_unreadable_process_is_skipped(spawn: Any, tmp_path: Path) -> None:
    hidden, seen = make_run(tmp_path / "hidden", "a1"), make_run(tmp_path / "seen", "b2")
    spawn(hidden, "a1", sys.executable, "-I", "-S", "-c", HIDDEN)
    spawn(seen, "b2")
    assert seen in find_user_runs()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_processes_of_other_users_are_not_shown(spawn: Any, tmp_path: Path) -> None:
    theirs, ours = make_run(tmp_path / "theirs", "a1"), make_run(tmp_path / "ours", "b2")
    spawn(theirs, "a1", user=65534)
    spawn(ours, "b2")
    found = find_user_runs()
    assert ours in found
    assert theirs not in found


# ------------------------------------------------------------------------------- below a directory


@pytest.mark.thorough
def test_a_directory_shows_all_runs_below_it(
    both: dict[Path, Command], call: Start, tmp_path: Path
) -> None:
    one, two = both
    assert both[one].interrupt() == 130
    states = {one: {"w000": "exited"}, two: {"w000": "ready", "w001": "ready"}}
    assert shown(call, tmp_path, str(tmp_path)) == states
    here = call("ps", "runs", cwd=tmp_path / "b")
    assert here.out.startswith("runs/exp8 · counter · 2 ready\n")
    assert call("ps", str(two)).out.startswith("NAME  STATE")


def test_search_for_runs_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = ["here", "worlds/panda", "a/b/c/d/e", "world/.clawblox/runs/r1"]
    outside = [".git/x", "node_modules/x", "venv/x", "a/b/c/d/e/f", "here/worlds/w000", "here/logs"]
    for name in inside + outside:
        make_run(tmp_path / name, "a")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b" / "c" / "d" / "e")
    assert MAX_DEPTH == 5
    assert find_runs_below(tmp_path) == sorted(tmp_path / name for name in inside)
    assert find_runs_below(tmp_path / "here") == [tmp_path / "here"]
    monkeypatch.setattr(find_runs, "_MAX_DIRECTORIES", 3)
    assert len(find_runs_below(tmp_path)) < len(inside)


def test_search_depth_starts_again_inside_an_experiment(tmp_path: Path) -> None:
    experiment = tmp_path / "a" / "experiments" / "X"
    for name in ("chains/C/runs/R", "chains/C/runs/R.failed-1", "runs/R"):
        make_run(experiment / name, "a")
    assert find_runs_below(tmp_path) == [experiment / "runs" / "R"]
    (experiment / JOURNAL_NAME).write_text("")
    assert len(find_runs_below(tmp_path)) == 3
    assert find_runs_below(tmp_path / "a") == find_runs_below(tmp_path)
    assert find_experiments_below(tmp_path) == [experiment]


def test_manifest_without_records_counts_as_a_run_except_for_members(tmp_path: Path) -> None:
    for name in ("old", "old/worlds/w000", "new/worlds/w000", "worlds/panda"):
        write_manifest(tmp_path / name, {})
    run = make_run(tmp_path / "new", "a")
    assert find_runs_below(tmp_path) == [run, tmp_path / "old", tmp_path / "worlds" / "panda"]
    assert find_runs_below(tmp_path / "old" / "worlds") == []
    assert find_runs_below(run / "worlds") == []


def test_unreadable_directory_is_skipped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "a")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    assert find_runs_below(tmp_path) == [run]
    assert find_runs_below(tmp_path / "missing") == []


def test_the_hint_for_a_directory_without_runs_names_the_latest_runs_below(call: Start) -> None:
    for number in range(7):
        run = make_run(Path.cwd() / "runs" / f"r{number}", "a")
        os.utime(run, (number, number))
    command = call("logs")
    assert command.wait() == 1
    assert command.err == (
        "Error: Nothing has run in '.'\n  hint: give the run directory; there are: "
        "runs/r6, runs/r5, runs/r4, runs/r3, runs/r2 and 2 more\n"
    )


# -------------------------------------------------------------------------------------- watching


@pytest.mark.thorough
def test_all_runs_below_a_directory_are_watched_until_all_have_ended(
    both: dict[Path, Command], start: Start, call: Start, tmp_path: Path
) -> None:
    one, two = both
    watching = start("ps", "--watch", str(tmp_path))
    watching.wait_for(f" {one.name} w000 ready at http://")
    watching.wait_for(" exp8 w001 ready at http://")
    assert call("stop", str(one)).wait() == 0
    watching.wait_for(f" {one.name} w000 exited 0\n")
    assert watching.process.poll() is None
    assert call("stop", str(two)).wait() == 0
    assert watching.wait() == 0
    assert watching.err == ""


@pytest.mark.thorough
def test_the_live_table_of_several_runs_names_them_and_omits_ended_instances(
    both: dict[Path, Command], call: Start, tmp_path: Path
) -> None:
    ended = make_run(tmp_path / "ended", "a")
    write_records(ended, record_of("w000", state="failed"))
    with terminal("ps", "-w", str(tmp_path)) as one:
        one.wait_for("NAME  STATE")
        one.wait_for("w001  ready")
        assert one.screen[0].startswith(str(tmp_path)[:60])
        assert one.screen[1] == "3 ready"
        assert one.screen[3].startswith("RUN ")
        one.type(CTRL_C)
        assert one.wait() == 130
        one.assert_left_clean()
    assert len(marked_processes()) == 3
    for command in both.values():
        assert command.interrupt() == 130
    assert_nothing_runs()
    nothing = call("ps", "-w", str(tmp_path))
    assert nothing.out == f"Nothing runs in '{tmp_path}' or below.\n"
    assert call("ps", "-w", "-a", str(tmp_path)).out.count(" ended w000 failed") == 1
