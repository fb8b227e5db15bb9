"""``save``, ``fork``, ``stop --save`` and ``ps -w``: instances controlled from another process."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import (
    Command,
    Start,
    assert_nothing_runs,
    choosy_world,
    only_run,
    read_instances,
)
from tests.support.processes import is_alive, marked_processes
from tests.support.sockets import is_listening
from tests.support.terminals import CTRL_C, terminal
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import ask, make_world

NAMES = ["w000", "w001", "w002"]


@pytest.fixture
def detached(tmp_path: Path, run_dir: Path, call: Start) -> Iterator[Path]:
    """Return a run directory with two detached running instances."""
    world = make_world(tmp_path)
    start = "start_many(2, run_dir=sys.argv[2], detach=True)"
    code = f"import clawblox, sys; clawblox.World(sys.argv[1]).{start}"
    subprocess.run(
        [sys.executable, "-c", code, str(world), str(run_dir)], check=True, timeout=HANG_S
    )
    yield run_dir
    call("stop", str(run_dir))


def manifest_of(instance_dir: str | Path) -> Any:
    return json.loads((Path(instance_dir) / ".clawblox" / "manifest.json").read_text())


def wait_for_end(command: Command) -> None:
    assert command.interrupt() == 130
    assert not marked_processes()


# --------------------------------------------------------------------------------------- save


@pytest.mark.thorough
def test_save_prints_where_each_snapshot_is(up: Start, call: Start, run_dir: Path) -> None:
    command = up()
    saved = call("save", str(run_dir))
    assert (saved.wait(), saved.err) == (0, "")
    pattern = rf"(w\d+): saved ({run_dir}/worlds/\1/checkpoints/\S+) \((\d+) B, sim time 0\.0\)"
    found = [re.fullmatch(pattern, line) for line in sorted(saved.out.splitlines())]
    assert [one and one[1] for one in found] == NAMES
    for one in found:
        assert one
        assert Path(one[2]).stat().st_size == int(one[3])
        (entry,) = manifest_of(run_dir / "worlds" / one[1])["checkpoints"]
        assert one[2].endswith(entry["path"])
    assert [one["saved_path"] for one in read_instances(run_dir).values()] == [
        one[2] for one in found
    ]
    wait_for_end(command)


@pytest.mark.thorough
def test_save_saves_the_named_instances_to_the_given_directory(
    up: Start, call: Start, run_dir: Path, tmp_path: Path
) -> None:
    command = up()
    words = ("w002", "w000", "--dir", "backup", "--json")
    saved = json.loads(call("save", str(run_dir), *words, cwd=tmp_path).out)
    assert [one["instance"] for one in saved] == ["w000", "w002"]
    for one in saved:
        assert Path(one["path"]).parent == tmp_path / "backup"
        assert one["sha256"] == hashlib.sha256(Path(one["path"]).read_bytes()).hexdigest()
        assert one["error"] is None
    wait_for_end(command)


@pytest.mark.thorough
def test_a_failed_save_does_not_affect_the_others(up: Start, call: Start, run_dir: Path) -> None:
    command = up()
    ask(read_instances(run_dir)["w001"]["port"], "POST", "/__set?snapshot=empty")
    saved = call("save", str(run_dir))
    assert saved.wait() == 1
    assert sorted(line.split(":")[0] for line in saved.out.splitlines()) == ["w000", "w002"]
    assert saved.err == "w001: not saved: the snapshot is empty\n"
    in_json = call("save", str(run_dir), "w001", "--json")
    assert json.loads(in_json.out) == [{"instance": "w001", "error": "the snapshot is empty"}]
    wait_for_end(command)


@pytest.mark.thorough
def test_an_instance_that_is_not_ready_does_not_affect_the_others(
    start: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = choosy_world(tmp_path, "w001", "--slow-boot", "600")
    command = start("up", str(world), "-n", "2", "--run-dir", str(run_dir))
    command.wait_for("w000 ready at")
    command.wait_for("w001 started on")
    assert call("save", str(run_dir)).out.startswith("w000: saved ")
    saved = call("save", str(run_dir), "w000", "w001")
    assert saved.wait() == 1
    assert saved.out.startswith("w000: saved ")
    assert saved.err == "w001: not saved: instance 'w001' is not ready\n"
    wait_for_end(command)


@pytest.mark.thorough
def test_save_includes_detached_instances(detached: Path, call: Start) -> None:
    assert call("save", str(detached)).wait() == 0
    for one in read_instances(detached).values():
        assert Path(one["saved_path"]).is_file()


@pytest.mark.thorough
def test_saving_is_an_error_if_nothing_is_ready(up: Start, call: Start, run_dir: Path) -> None:
    wait_for_end(up())
    saved = call("save", str(run_dir))
    assert saved.wait() == 1
    assert saved.err.startswith(f"Error: Nothing in '{run_dir}' is ready, so there is nothing")
    named = call("save", str(run_dir), "w001")
    assert named.wait() == 1
    assert named.err == "w001: not saved: instance 'w001' is not running\n"


@pytest.mark.thorough
def test_slow_saves_show_a_bar_and_remove_it(up: Start, run_dir: Path) -> None:
    command = up(flags=("--snapshot", "slow-loris", "--drip-bytes", "40", "--drip-interval", "0.2"))
    with terminal("save", str(run_dir)) as one:
        wait_until(lambda: one.shows("Saving ──"), what="a bar")
        assert one.wait() == 0
        one.assert_left_clean()
        assert sorted(line.split(":")[0] for line in one.screen) == ["", *NAMES]
    wait_for_end(command)


# --------------------------------------------------------------------------------------- fork


def counter_of(port: int, session: str) -> Any:
    return ask(port, "GET", "/observe", headers={"X-Session": session}).json()


def play(port: int) -> str:
    """Join a counter world and add to its number; return the session."""
    session = str(ask(port, "POST", "/join?name=Rocky").json()["session"])
    body = json.dumps({"type": "add", "data": 41}).encode()
    assert ask(port, "POST", "/input", body=body, headers={"X-Session": session}).status == 200
    return session


def test_running_instance_is_saved_and_forked_by_its_orchestrator(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    source = read_instances(run_dir)["w001"]
    session = play(source["port"])
    forked = call("fork", str(run_dir), "w001", "-n", "2", "--restart", "fresh", "--env", "A=b")
    assert forked.wait() == 0
    known = read_instances(run_dir)
    lines = [f"{name}: ready at {known[name]['url']}" for name in ("w003", "w004")]
    assert forked.out.splitlines() == lines
    assert forked.err.startswith(f"Forking w001, saved as {run_dir}/worlds/w001/checkpoints/")
    for name in ("w003", "w004"):
        one = known[name]
        assert one["orchestrator_pid"] == source["orchestrator_pid"]
        assert counter_of(one["port"], session) == counter_of(source["port"], session)
        run = manifest_of(one["instance_dir"])["run"]
        assert Path(run["resume_from"]).name == Path(known["w001"]["saved_path"]).name
        assert run["parent_sha256"] == known["w001"]["saved_sha256"]
        assert b"A=b" in Path(f"/proc/{one['pid']}/environ").read_bytes()
    ask(known["w003"]["port"], "POST", "/__die?signal=SIGKILL")
    wait_until(lambda: "w003 restarting" in command.out, what="the fork is brought back")
    wait_for_end(command)


@pytest.mark.thorough
def test_forks_are_reseeded_with_consecutive_seeds(up: Start, call: Start, run_dir: Path) -> None:
    command = up(toml_extra="reseed = true")
    assert call("fork", str(run_dir), "w000", "-n", "2", "--reseed", "7").wait() == 0
    known = read_instances(run_dir)
    seeds = [
        re.search(rb"WORLD_RESEED=(\d+)", Path(f"/proc/{known[name]['pid']}/environ").read_bytes())
        for name in ("w003", "w004")
    ]
    assert [seed and seed[1] for seed in seeds] == [b"7", b"8"]
    wait_for_end(command)


@pytest.mark.thorough
def test_a_world_that_cannot_be_reseeded_is_an_error(up: Start, call: Start, run_dir: Path) -> None:
    command = up()
    forked = call("fork", str(run_dir), "w000", "--reseed", "7")
    assert forked.wait() == 1
    assert "Error: run.reseed: this world does not support reseeding\n" in forked.err
    wait_for_end(command)


@pytest.mark.thorough
def test_an_ended_instance_is_forked_from_its_last_save_by_the_command_itself(
    up: Start, start: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    session = play(read_instances(run_dir)["w001"]["port"])
    call("save", str(run_dir), "w001")
    play(read_instances(run_dir)["w001"]["port"])  # later changes are not in the save
    wait_for_end(command)
    forking = start("fork", str(run_dir), "w001", "-n", "2")
    forking.wait_for("2 instances ready after")
    known = read_instances(run_dir)
    assert [name for name, one in known.items() if one["state"] == "ready"] == ["w003", "w004"]
    assert known["w004"]["orchestrator_pid"] == forking.process.pid
    assert counter_of(known["w004"]["port"], session)["counter"] == 41
    source = known["w001"]
    assert forking.err == f"Forking {source['saved_path']} (run {source['run_id']})\n"
    wait_for_end(forking)


@pytest.mark.thorough
def test_fork_uses_the_save_of_the_latest_or_the_named_run(
    start: Start, call: Start, run_dir: Path, tmp_path: Path
) -> None:
    world = str(make_world(tmp_path))
    first = start("up", world, "-n", "2", "--run-dir", str(run_dir))
    first.wait_for("ready after")
    assert call("save", str(run_dir), "w001").wait() == 0
    before = read_instances(run_dir)["w001"]
    wait_for_end(first)
    second = start("up", world, "-n", "2", "--run-dir", str(run_dir), "--fresh")
    second.wait_for("ready after")
    wait_for_end(second)
    now = read_instances(run_dir)["w001"]
    assert now["run_id"] != before["run_id"]
    assert now["saved_path"] is None
    gone = call("fork", str(run_dir), "w001")
    assert gone.wait() == 1
    assert gone.err.endswith(f"or an earlier run with --run-id: {before['run_id']}\n")
    unknown = call("fork", str(run_dir), "w001", "--run-id", "r9")
    assert unknown.wait() == 2
    assert unknown.err.startswith("Error: Instance 'w001' has no save from run 'r9'; ")
    assert unknown.err.endswith(f"it has saves from: {before['run_id']}\n")
    file = call("fork", str(run_dir), before["saved_path"], "--run-id", before["run_id"])
    assert file.wait() == 2
    forking = start("fork", str(run_dir), "w001", "--run-id", before["run_id"])
    forking.wait_for("1 instance ready after")
    assert forking.err == f"Forking {before['saved_path']} (run {before['run_id']})\n"
    assert read_instances(run_dir)["w002"]["resume_path"] == before["saved_path"]
    wait_for_end(forking)


@pytest.mark.thorough
def test_a_fork_can_have_its_own_run_directory_and_run_in_the_background(
    up: Start, call: Start, run_dir: Path, tmp_path: Path
) -> None:
    command = up()
    new = tmp_path / "other"
    forked = call("fork", str(run_dir), "w001", "--run-dir", str(new), "--detach")
    assert forked.wait() == 0
    assert forked.out.startswith(f"Run directory: {new}\n1 instance ready after ")
    (one,) = read_instances(new).values()
    assert (one["name"], one["state"]) == ("w000", "ready")
    assert len(list((run_dir / "worlds" / "w001" / "checkpoints").iterdir())) == 1
    wait_for_end_of = one["orchestrator_pid"]
    assert command.interrupt() == 130
    assert is_alive(one["pid"])
    assert call("stop", str(new)).wait() == 0
    wait_until(lambda: not is_alive(wait_for_end_of), what="the orchestrator has ended")


@pytest.mark.thorough
def test_a_snapshot_file_is_forked(up: Start, call: Start, run_dir: Path) -> None:
    command = up()
    (saved,) = json.loads(call("save", str(run_dir), "w000", "--json").out)
    forked = call("fork", str(run_dir), saved["path"])
    assert forked.wait() == 0
    assert forked.out.startswith("w003: ready at http://")
    wait_for_end(command)


@pytest.mark.thorough
def test_a_source_that_cannot_be_forked_is_an_error(up: Start, call: Start, run_dir: Path) -> None:
    command = up()
    unknown = call("fork", str(run_dir), "w009")
    assert unknown.wait() == 2
    text = f"SOURCE: must be an instance of {run_dir} or a file, not 'w009'; there are: "
    text += ", ".join(NAMES)
    assert unknown.err.startswith(f"Error: {text}\n")
    own = call("fork", str(run_dir), "w001", "--autosave", "5")
    assert own.wait() == 2
    text = (
        f"--autosave: must be left out, as the orchestrator that runs in '{run_dir}' starts the "
        "instances"
    )
    assert own.err.startswith(f"Error: {text}\n")
    wait_for_end(command)
    gone = call("fork", str(run_dir), "w001")
    assert gone.wait() == 1
    text = "Instance 'w001' is not ready (exited) and has no save"
    assert gone.err.startswith(f"Error: {text}\n")
    missing = call("fork", f"{run_dir}-2", "w001")
    assert missing.err.startswith(f"Error: Path '{run_dir}-2' does not exist\n")


@pytest.mark.thorough
def test_a_failed_fork_is_an_error_with_its_reason(up: Start, call: Start, run_dir: Path) -> None:
    command = up()
    snapshot = run_dir / "foreign.json"
    snapshot.write_text(json.dumps({"scene_hash": "scene-other", "counter": 1}))
    forked = call("fork", str(run_dir), str(snapshot))
    assert forked.wait() == 1
    assert "w003: failed: world 'counter' ended while restoring" in forked.err
    wait_for_end(command)


@pytest.mark.thorough
def test_a_world_in_the_foreground_of_run_can_be_forked_and_ends_with_its_forks(
    start: Start, call: Start, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    command = start("run", str(world), "--port", "0")
    command.wait_for("Spectator frontend")
    assert call("fork", str(only_run(Path.cwd())), "w000", "-n", "2").wait() == 0
    assert len(marked_processes()) == 3
    wait_for_end(command)


# --------------------------------------------------------------------------------------- stop


@pytest.mark.thorough
def test_stop_with_save_saves_first(up: Start, call: Start, run_dir: Path) -> None:
    command = up()
    stopped = call("stop", str(run_dir), "--save")
    assert stopped.wait() == 0
    lines = stopped.out.splitlines()
    assert all(": saved " in line for line in lines[:3])
    assert [line.split(" in ")[0] for line in lines[3:]] == [f"{name}: stopped" for name in NAMES]
    assert command.wait() == 0


@pytest.mark.thorough
def test_an_instance_that_cannot_be_saved_is_not_stopped(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    port = read_instances(run_dir)["w001"]["port"]
    ask(port, "POST", "/__set?snapshot=empty")
    stopped = call("stop", str(run_dir), "--save")
    assert stopped.wait() == 1
    assert stopped.err.endswith("Not saved, so still running: w001\n")
    assert {name: one["state"] for name, one in read_instances(run_dir).items()} == {
        "w000": "exited",
        "w001": "ready",
        "w002": "exited",
    }
    again = call("stop", str(run_dir), "w001", "w000", "--save")
    assert again.wait() == 1
    assert "w000: was not running\n" in again.out
    assert is_listening(port)
    wait_for_end(command)


@pytest.mark.thorough
def test_stopping_a_restarting_instance_ends_it_for_good(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up("--restart", "fresh")
    ask(read_instances(run_dir)["w001"]["port"], "POST", "/__die?signal=SIGKILL")
    command.wait_for("w001 restarting fresh")
    assert call("stop", str(run_dir)).wait() == 0
    assert command.wait() == 0
    assert not marked_processes()


@pytest.mark.thorough
def test_suspended_orchestrator_is_named_and_its_instances_keep_running(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    command.send(signal.SIGSTOP)
    try:
        stopped = call("stop", str(run_dir))
        assert stopped.wait() == 1
        assert f"pid {command.process.pid}, is suspended and cannot answer" in stopped.err
        assert {one["state"] for one in read_instances(run_dir).values()} == {"ready"}
    finally:
        command.send(signal.SIGCONT)
    wait_for_end(command)


@pytest.mark.thorough
def test_a_long_stop_shows_a_bar(up: Start, run_dir: Path) -> None:
    command = up(flags=("--ignore-sigterm",))
    with terminal("stop", str(run_dir), "--grace", "1") as one:
        wait_until(lambda: one.shows("Stopping ─"), what="a bar")
        assert one.wait() == 0
        one.assert_left_clean()
        assert one.screen[0].startswith("w000: killed in ")
    assert command.wait() == 0


# -------------------------------------------------------------------------------------- ps --watch


@pytest.mark.thorough
def test_ps_watch_shows_the_live_table_of_another_process(up: Start, run_dir: Path) -> None:
    command = up()
    with terminal("ps", "-w", str(run_dir)) as one:
        one.wait_for("w002  ready  ")
        assert one.screen[0].startswith(f"counter · {run_dir}"[:60])
        assert one.screen[1] == "3 ready"
        known = read_instances(run_dir)
        ask(known["w001"]["port"], "POST", "/__die?status=9")
        one.wait_for("w001  exited 9  ")
        one.wait_for("w001  exited 9 | Spectator frontend")
        one.type(CTRL_C)
        assert one.wait() == 130
        one.assert_left_clean()
    assert is_listening(known["w000"]["port"])
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_a_followed_run_ends_with_its_last_instance(
    up: Start, start: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    following = start("ps", "-w", str(run_dir))
    following.wait_for("w002 ready at http://127.0.0.1:")
    call("stop", str(run_dir))
    assert command.wait() == 0
    assert following.wait() == 0
    assert following.out.count(" exited 0\n") == 3
    assert following.err == ""
    again = call("ps", "-w", str(run_dir))
    assert again.wait() == 0
    ended = r"(20\S+Z w00[012] exited 0\n){3}3 instances: 3 exited 0\.\n"
    assert re.fullmatch(ended, again.out)


@pytest.mark.thorough
def test_ps_watch_reports_an_interrupted_run_and_ends(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    command.send(signal.SIGKILL)
    command.wait()
    assert_nothing_runs()
    followed = call("ps", "-w", str(run_dir))
    assert followed.wait() == 0
    assert followed.out.count(" interrupted | ") == 3


@pytest.mark.thorough
def test_ps_shows_saves_and_restarts(up: Start, call: Start, run_dir: Path) -> None:
    command = up("--restart", "checkpoint", "--autosave", "600")
    wait_until(lambda: command.out.count(" saved ") == 3, what="all are saved")
    ask(read_instances(run_dir)["w001"]["port"], "POST", "/__die?signal=SIGKILL")
    wait_until(lambda: command.out.count("w001 ready at") == 2, what="it is back")
    shown = call("ps", str(run_dir), env={"COLUMNS": "100"}).out.splitlines()
    headings = "NAME STATE PID UPTIME RSS CPU TIME SAVED SIM TIME RESTARTS URL"
    assert " ".join(shown[0].split()) == headings
    assert re.search(r" \d+s +0\.0 +1 +http://", shown[2])
    assert re.search(r" \d+s +0\.0 +http://", shown[1])
    assert max(map(len, shown)) <= 100
    wait_for_end(command)


def test_watch_and_json_cannot_be_combined(call: Start, tmp_path: Path) -> None:
    command = call("ps", str(tmp_path), "-w", "--json")
    assert command.wait() == 2
    assert command.err.endswith("Error: --watch, --tree and --json cannot be combined.\n")
