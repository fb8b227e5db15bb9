"""``clawblox ps``, ``logs`` and ``stop``: runs of another process, running or ended."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.rundir.find_runs import add_run
from tests.cli.conftest import Served, Start, assert_nothing_runs, read_instances
from tests.rundir.support import make_record
from tests.rundir.test_records import written
from tests.support.lineages import write_manifest
from tests.support.processes import marked_processes, processes_in
from tests.support.sockets import is_listening
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

Serve = Callable[..., Served]


@pytest.fixture
def pair(start: Start, tmp_path: Path) -> Path:
    """Return a run directory with two running instances, each in a separate command."""
    world, run_dir = make_world(tmp_path), tmp_path / "run"
    words = ("run", str(world), "--port", "0", "--run-dir", str(run_dir))
    for command in [start(*words), start(*words)]:
        command.wait_for("Spectator frontend")
    return run_dir


# ----------------------------------------------------------------------------------------- ps


def test_ps_shows_a_running_instance(serve: Serve, call: Start) -> None:
    served = serve()
    command = call("ps", served.run_dir)
    headings, row = command.out.splitlines()
    assert headings.split() == ["NAME", "STATE", "PID", "UPTIME", "RSS", "CPU", "TIME", "URL"]
    name, state, pid, uptime, rss, unit, cpu, url = row.split()
    assert (name, state, unit) == ("w000", "ready", "MB")
    assert int(pid) in marked_processes()
    assert uptime[-1] == cpu[-1] == "s"
    assert float(rss) > 1
    assert url == f"http://127.0.0.1:{served.port}"
    here = call("ps", ".", cwd=served.world)
    assert here.out.splitlines()[1].split()[:3] == ["w000", "ready", pid]


@pytest.mark.thorough
def test_ps_prints_every_field_for_programs(serve: Serve, call: Start) -> None:
    served = serve()
    (found,) = json.loads(call("ps", served.run_dir, "--json").out)
    assert found["name"] == "w000"
    assert found["state"] == "ready"
    assert found["pid"] in marked_processes()
    assert found["port"] == served.port
    assert found["world_dir"] == found["run_dir"] == str(served.world)
    assert found["orchestrator_pid"] == served.command.process.pid
    assert 0 < found["uptime_s"] < 60
    assert found["exit"] is None
    assert found["ended_at"] is None


@pytest.mark.thorough
def test_ps_shows_how_a_finished_run_ended(serve: Serve, call: Start) -> None:
    served = serve()
    served.command.interrupt()
    (found,) = json.loads(call("ps", served.run_dir, "--json").out)
    assert (found["state"], found["pid"]) == ("exited", None)
    assert found["exit"] == {"status": 0, "signal": None}
    assert found["ended_at"] >= found["started_at"]
    name, state, status, *_ = call("ps", served.run_dir).out.splitlines()[1].split()
    assert (name, state, status) == ("w000", "exited", "0")


@pytest.mark.thorough
def test_ps_shows_a_start_that_failed(call: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--exit-at-once", "4")
    call("run", str(world), "--port", "0", "--run-dir", str(world))
    (found,) = json.loads(call("ps", str(world), "--json").out)
    assert (found["state"], found["exit"]["status"]) == ("failed", 4)


@pytest.mark.thorough
def test_ps_shows_a_start_in_progress(start: Start, call: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--slow-boot", "600", "--pid-file", "pid")
    command = start("run", str(world), "--port", "0", "--run-dir", str(world))
    wait_until((world / "pid").exists, what="the world's process has begun")

    def found() -> dict[str, object]:
        (only,) = json.loads(call("ps", str(world), "--json").out)
        return dict(only)

    wait_until(lambda: found()["pid"], what="the process is in the record")
    assert found()["state"] == "starting"
    assert command.interrupt() == 130


def test_ps_shows_interrupted_when_the_orchestrator_was_killed(serve: Serve, call: Start) -> None:
    served = serve()
    served.command.send(signal.SIGKILL)
    served.command.wait()
    assert_nothing_runs()
    (found,) = json.loads(call("ps", served.run_dir, "--json").out)
    assert (found["state"], found["pid"], found["uptime_s"]) == ("interrupted", None, None)


def test_ps_of_a_directory_without_runs_is_not_an_error(call: Start, tmp_path: Path) -> None:
    command = call("ps", str(tmp_path))
    assert command.wait() == 0
    assert command.out == f"Nothing has run in '{tmp_path}' or below.\n"
    assert json.loads(call("ps", str(tmp_path), "--json").out) == []


@pytest.mark.thorough
def test_a_missing_directory_is_named(call: Start) -> None:
    for name in ("ps", "logs", "save", "stop"):
        command = call(name, "runs/nowhere")
        assert command.wait() == 1, name
        assert command.err.startswith("Error: Path 'runs/nowhere' does not exist\n"), name


@pytest.mark.thorough
def test_the_hint_for_a_wrong_run_directory_names_the_runs_below(
    start: Start, tmp_path: Path
) -> None:
    written(tmp_path / "runs" / "r001", "w000")
    names = ("resume", "lineage", "logs", "save", "restart", "stop", "wait")
    commands = {name: start(name, "w000", cwd=tmp_path) for name in names}
    commands["logs alone"] = start("logs", cwd=tmp_path)
    hint = "\n  hint: give the run directory; there are: runs/r001\n"
    for name, command in commands.items():
        assert command.wait() == 1, name
        assert command.err.endswith(hint), name


def test_a_directory_without_runs_is_an_error(call: Start, tmp_path: Path) -> None:
    for name in ("logs", "save", "stop"):
        command = call(name, str(tmp_path))
        assert command.wait() == 1, name
        assert command.err.startswith(f"Error: Nothing has run in '{tmp_path}'\n"), name


def test_run_with_only_a_manifest_is_shown_by_ps_and_refused_by_other_commands(
    call: Start,
) -> None:
    write_manifest(Path("old"), {"run": {"status": "failed"}})
    assert call("ps", "old").out == "NAME  STATE\nold   failed\n"
    assert call("ps", "-a", ".").out.startswith("old · 1 failed\n")
    command = call("logs", "old")
    assert command.wait() == 1
    assert command.err == (
        "Error: 'old' has a manifest, but no records of its instances\n"
        "  hint: clawblox ps old shows what its manifest says\n"
    )


@pytest.mark.thorough
def test_an_unknown_instance_is_an_error_that_names_the_others(serve: Serve, call: Start) -> None:
    served = serve()
    for name in ("logs", "save", "stop"):
        command = call(name, served.run_dir, "w007")
        assert command.wait() == 2
        assert command.err.startswith("Error: no instance 'w007' in ")
        assert command.err.endswith("there are: w000\n")
    assert is_listening(served.port)


# --------------------------------------------------------------------------------------- logs


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def log_lines(run_dir: Path, name: str) -> list[str]:
    return (run_dir / "logs" / f"{name}.log").read_text().splitlines()


@pytest.mark.thorough
def test_logs_prints_the_output_of_an_instance_with_escapes(serve: Serve, call: Start) -> None:
    served = serve("--raw-bytes")
    text = (served.world / ".clawblox" / "logs" / "w000.log").read_text(errors="replace")
    assert "\x00" in text
    assert call("logs", served.run_dir).out == text.replace("\x00", r"\x00")
    served.command.interrupt()
    assert call("logs", served.run_dir).out.endswith("stopped\n-- stopped: exit status 0 --\n")


@pytest.mark.thorough
def test_log_lines_of_several_instances_start_with_instance_names(pair: Path, call: Start) -> None:
    expected = [f"{name} | {line}" for name in ("w000", "w001") for line in log_lines(pair, name)]
    assert call("logs", str(pair)).out.splitlines() == expected
    assert call("logs", str(pair), "w001").out.splitlines() == log_lines(pair, "w001")
    assert call("logs", str(pair), "-n", "1").out.splitlines() == [expected[1], expected[-1]]


def test_logs_prints_json_for_programs(serve: Serve, call: Start) -> None:
    served = serve()
    log = served.world / ".clawblox" / "logs" / "w000.log"
    first, second = log.read_text().splitlines()
    lines = call("logs", served.run_dir, "--json").out.splitlines()
    found = [json.loads(line) for line in lines]
    times = [line.pop("at") for line in found]
    assert found == [
        {"instance": "w000", "text": first, "offset": 0, "event": None},
        {"instance": "w000", "text": second, "offset": len(first) + 1, "event": None},
    ]
    assert all(time is None or TIME.fullmatch(time) for time in times)


@pytest.mark.thorough
def test_followed_logs_end_with_their_instances(pair: Path, start: Start, call: Start) -> None:
    following = start("logs", str(pair), "-f", "-n", "1")
    following.wait_for("w000 | Spectator frontend")
    following.wait_for("w001 | Spectator frontend")
    call("stop", str(pair), "w000")
    following.wait_for("w000 | stopped")
    assert following.process.poll() is None
    call("stop", str(pair))
    assert following.wait() == 0
    assert following.out.count(" | stopped\n") == 2


def test_ctrl_c_ends_logs_follow_and_leaves_the_instance_running(
    serve: Serve, start: Start
) -> None:
    served = serve()
    following = start("logs", served.run_dir, "-f")
    following.wait_for("Spectator frontend")
    assert following.interrupt() == 130
    assert following.err == ""
    assert is_listening(served.port)


@pytest.mark.thorough
def test_logs_ends_quietly_when_the_output_is_gone(serve: Serve, start: Start) -> None:
    served = serve("--flood-lines", "5000")
    command = start("logs", served.run_dir, stdout=subprocess.PIPE)
    assert command.process.stdout is not None
    command.process.stdout.readline()
    command.process.stdout.close()
    assert command.wait() == 0
    assert command.err == ""


@pytest.mark.thorough
def test_a_full_disk_is_an_error_of_logs(serve: Serve, call: Start) -> None:
    served = serve()
    with open("/dev/full", "wb") as full:
        command = call("logs", served.run_dir, stdout=full)
    assert command.wait() == 1
    assert command.err == "Error: No space left on device\n"


@pytest.mark.thorough
def test_a_missing_log_file_is_reported(serve: Serve, call: Start) -> None:
    served = serve()
    served.command.interrupt()
    log = served.world / ".clawblox" / "logs" / "w000.log"
    log.unlink()
    command = call("logs", served.run_dir)
    assert command.wait() == 0
    assert command.err == f"w000: log file is missing: {log}\n"


def test_log_path_of_a_foreign_run_outside_its_directory_is_not_shown(
    call: Start, tmp_path: Path
) -> None:
    run, outside = tmp_path / "sent", tmp_path / "secret"
    outside.write_text("secret\n")
    make_record(run, 0, state="exited", log_file=str(outside))
    command = call("logs", str(run))
    assert (command.wait(), command.out) == (0, "")
    place = "outside of the run directory, in which no world of yours has run"
    assert command.err == f"w000: log file is not shown: it is {place}: {outside}\n"
    add_run(run)
    assert call("logs", str(run)).out == "secret\n"


# --------------------------------------------------------------------------------------- stop


@pytest.mark.thorough
def test_stop_ends_a_world_that_another_command_runs(serve: Serve, call: Start) -> None:
    served = serve()
    command = call("stop", served.run_dir)
    assert command.wait() == 0
    assert command.out.startswith("w000: stopped in ")
    assert command.out.endswith(", exit status 0\n")
    assert not marked_processes()
    assert served.command.wait() == 0
    assert "World 'counter' was stopped by another process: exit status 0\n" in served.command.err
    assert "1 instance: 1 stopped.\n" in served.command.err
    assert "Error" not in served.command.err


@pytest.mark.thorough
def test_stopped_world_is_reported_as_stopped_even_if_its_child_takes_longer(
    serve: Serve, call: Start
) -> None:
    served = serve("--stubborn-child")
    assert call("stop", served.run_dir, "--grace", "0.5").wait() == 0
    assert served.command.wait() == 0
    assert "World 'counter' was stopped by another process: exit status 0\n" in served.command.err
    assert "1 instance: 1 stopped.\n" in served.command.err
    assert "Error" not in served.command.err


@pytest.mark.thorough
def test_stop_leaves_no_process_of_the_instance(serve: Serve, call: Start) -> None:
    served = serve("--ignore-sigterm", "--daemon", "--stubborn-child")
    (found,) = json.loads(call("stop", served.run_dir, "--grace", "0.2", "--json").out)
    assert (found["instance"], found["rung"]) == ("w000", "killed")
    assert len(found["killed"]) == 3
    assert found["exit"] == {"status": None, "signal": "SIGKILL"}
    assert not marked_processes()
    assert not is_listening(served.port)


@pytest.mark.thorough
def test_stop_ends_only_the_named_instances(pair: Path, call: Start) -> None:
    command = call("stop", str(pair), "w001")
    assert command.out.startswith("w001: stopped")
    states = {name: found["state"] for name, found in read_instances(pair).items()}
    assert states == {"w000": "ready", "w001": "exited"}


@pytest.mark.thorough
def test_stopping_twice_is_not_an_error(pair: Path, call: Start) -> None:
    assert call("stop", str(pair)).wait() == 0
    again = call("stop", str(pair))
    assert again.wait() == 0
    assert again.out == "w000: was not running\nw001: was not running\n"
    assert {found["rung"] for found in json.loads(call("stop", str(pair), "--json").out)} == {
        "not_running"
    }


@pytest.mark.thorough
def test_stop_ends_a_start_in_progress(start: Start, call: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--slow-boot", "600", "--pid-file", "pid")
    command = start("run", str(world), "--port", "0", "--run-dir", str(world))
    wait_until((world / "pid").exists, what="the world's process has begun")
    assert call("stop", str(world)).wait() == 0
    assert command.wait() == 1
    assert "the start was stopped" in command.err
    assert not marked_processes()


@pytest.mark.thorough
def test_an_end_that_cannot_be_recorded_is_an_error(serve: Serve, call: Start) -> None:
    served = serve("--stubborn-child")
    served.command.send(signal.SIGKILL)
    served.command.wait()
    (served.world / ".clawblox" / "instances" / "w000.lock").unlink()
    (served.world / ".clawblox" / "instances" / "w000.lock").mkdir()
    command = call("stop", served.run_dir, "--grace", "0")
    assert command.wait() == 1
    assert command.err.endswith("/w000.lock: Is a directory\n")
    assert not marked_processes()


@pytest.mark.thorough
def test_a_name_is_free_again_when_stop_returns(serve: Serve, call: Start) -> None:
    served = serve(words=("--name", "panda"))
    call("stop", served.run_dir)
    again = call("run", served.run_dir, "--name", "panda", "--port", "0", "--resume", "nowhere")
    assert "the snapshot does not exist" in again.err
    (found,) = read_instances(served.world).values()
    assert found["state"] == "exited"


@pytest.mark.thorough
def test_a_detached_instance_is_shown_and_stopped(call: Start, tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    code = "import clawblox, sys; print(clawblox.World(sys.argv[1]).start(detach=True).pid)"
    words = [sys.executable, "-c", code, str(directory)]
    pid = int(subprocess.run(words, capture_output=True, check=True, timeout=HANG_S).stdout)
    (found,) = read_instances(directory).values()
    assert (found["state"], found["pid"], found["is_detached"]) == ("ready", pid, True)
    assert call("stop", str(directory)).out.startswith("w000: stopped in ")
    assert not processes_in(directory)
    (found,) = read_instances(directory).values()
    assert (found["state"], found["pid"]) == ("exited", None)
    assert found["ended_at"] is not None
