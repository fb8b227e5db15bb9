"""``clawblox up``: many instances in the foreground and in the background, and their ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from clawblox import RunLockedError, World
from clawblox.cli.commands.up import command as up_command
from clawblox.results import ProcessExit
from tests.cli.conftest import (
    Command,
    Start,
    assert_nothing_runs,
    choosy_world,
    environment,
    read_instances,
)
from tests.support.processes import is_alive, marked_processes
from tests.support.sockets import is_listening
from tests.support.terminals import CTRL_C, CTRL_S, terminal
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import ask, make_world

NAMES = ["w000", "w001", "w002"]


# ------------------------------------------------------------------------------ a line per event


def test_up_prints_a_line_per_event_without_a_terminal(
    up: Start, run_dir: Path, tmp_path: Path
) -> None:
    command = up()
    first, second, *_ = command.out.splitlines()
    assert first == f"Run directory: {run_dir}"
    assert second.startswith("Starting 3 instances.")
    for name in NAMES:
        assert re.search(rf"^20\S+Z {name} started on port \d+$", command.out, re.M)
        assert re.search(rf"^20\S+Z {name} ready at http://127.0.0.1:\d+ \(", command.out, re.M)
        assert (run_dir / "worlds" / name / ".clawblox" / "manifest.json").exists()
    assert re.search(r"^3 instances ready after [\d.]+s\. Ctrl-C ", command.out, re.M)
    assert command.interrupt() == 130
    assert command.out.count(" stopped: exit status 0\n") == 3
    assert command.err == ""
    assert not marked_processes()


@pytest.mark.thorough
def test_the_current_directory_is_the_world_by_default(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    command = start("up", cwd=world)
    command.wait_for("1 instance ready after")
    assert sorted(path.name for path in world.iterdir()) == [".clawblox", "world.toml"]
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_a_failed_start_does_not_affect_the_others_and_shows_its_reason(
    start: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = choosy_world(tmp_path, "w001", "--exit-at-once", "4")
    command = start("up", str(world), "-n", "3", "--run-dir", str(run_dir))
    command.wait_for("2 of 3 instances ready after")
    reason = "ended before it was ready: exit status 4 | cannot go on, exiting with 4\n"
    assert re.search(rf"Z w001 failed: world 'choosy' {re.escape(reason)}", command.out)
    assert call("stop", str(run_dir)).wait() == 0
    assert command.wait() == 1
    assert command.err.startswith(
        "Error: 1 of 3 instances failed\n  w001: WorldExitedBeforeReadyError: world 'choosy' ended "
    )
    assert command.err.endswith(f"hint: clawblox logs {run_dir} w001\n")


@pytest.mark.thorough
def test_on_failure_stop_all_ends_all_instances_after_a_failed_start(
    call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = choosy_world(tmp_path, "w001", "--exit-at-once", "4")
    words = ("-n", "3", "--run-dir", str(run_dir), "--on-failure", "stop_all")
    command = call("up", str(world), *words)
    assert command.wait() == 1
    assert "0 of 3 instances ready after" in command.out
    assert "Error: 1 of 3 instances failed\n  w001: WorldExitedBeforeReadyError: " in command.err
    assert not marked_processes()


@pytest.mark.parametrize(
    ("code", "status"), [(3, 1), pytest.param(0, 0, marks=pytest.mark.thorough)]
)
def test_up_ends_when_the_last_instance_has_ended(
    up: Start, run_dir: Path, code: int, status: int
) -> None:
    command = up()
    for one in read_instances(run_dir).values():
        assert command.process.poll() is None
        ask(one["port"], "POST", f"/__die?status={code}")
    assert command.wait() == status
    assert command.out.count(f" ended by itself: exit status {code}\n") == 3
    if status:
        text = "  w002: WorldExitedError: ended by itself: exit status 3\n"
        assert text in command.err


@pytest.mark.thorough
def test_up_succeeds_when_another_command_stops_the_instances(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    assert call("stop", str(run_dir), "w000", "w001").wait() == 0
    assert command.process.poll() is None
    assert call("stop", str(run_dir)).out.startswith("w000: was not running\nw001: was not")
    assert command.wait() == 0
    assert command.err == ""


@pytest.mark.thorough
def test_stopping_all_instances_also_cancels_starts(
    start: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path, "--slow-boot", "600")
    command = start("up", str(world), "-n", "18", "--run-dir", str(run_dir))
    wait_until(lambda: command.out.count(" started on port ") >= 4, what="some are starting")
    assert call("stop", str(run_dir)).wait() == 0
    assert command.wait() == 0
    assert "0 of 18 instances ready after" in command.out
    assert not marked_processes()


# ------------------------------------------------------------------------------------- options


def test_options_reach_the_worlds(up: Start, run_dir: Path) -> None:
    words = ("--record", "--base-path", "a/", "--env", "COLOUR=red", "--env", "X=a=b")
    command = up(*words)
    known = read_instances(run_dir)["w001"]
    assert known["state"] == "ready", command.out
    assert known["url"].endswith("/a")
    environment = Path(f"/proc/{known['pid']}/environ").read_text().split("\0")
    home = run_dir / "worlds" / "w001"
    expected = {"WORLD_RECORD=1", f"WORLD_RECORD_DIR={home}/recordings", "COLOUR=red", "X=a=b"}
    assert expected <= set(environment)
    assert command.interrupt() == 130


@pytest.mark.parametrize(
    "words",
    [
        ("--env", "COLOUR"),
        ("--env", "=red"),
        ("-n", "0"),
        ("--autosave", "0"),
        ("--keep", "0"),
        ("--restart", "always"),
        ("--max-restarts", "0"),
        ("--restart-window", "nan"),
        ("--health-timeout", "0"),
        ("--metrics-port", "65536"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(words: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter) as refusal:
        up_command.make_context("up", list(words))
    assert words[0] in refusal.value.format_message()


@pytest.mark.thorough
def test_a_run_directory_has_one_orchestrator(up: Start, call: Start, run_dir: Path) -> None:
    command = up(prefix=("env",))  # a separate interpreter, recognised by its command line
    again = call("up", str(run_dir.parent / "counter"), "--run-dir", str(run_dir))
    assert again.wait() == 1
    held = rf"Error: the run directory {run_dir} is held by pid {command.process.pid} \(.*up .*\)"
    assert re.match(held, again.err)
    assert "hint: stop it, or choose another run directory" in again.err
    assert command.process.poll() is None
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_metrics_are_served(up: Start) -> None:
    command = up("--metrics-port", "0")
    found = re.search(r"^metrics at (http://127\.0\.0\.1:\d+/metrics)$", command.out, re.M)
    assert found
    with urllib.request.urlopen(found[1]) as answer:
        families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
    assert families["clawblox_starts"].samples[0].value == 3
    states = {one.labels["state"]: one.value for one in families["clawblox_instances"].samples}
    assert states == {"ready": 3}
    assert command.interrupt() == 130


def test_a_dead_instance_is_restarted_from_its_last_save_and_its_log_is_followed(
    up: Start, start: Start, call: Start, run_dir: Path
) -> None:
    command = up("--restart", "checkpoint", "--autosave", "600")
    wait_until(lambda: command.out.count(" saved ") == 3, what="all are saved")
    following = start("logs", str(run_dir), "-f", "w001")
    following.wait_for("Spectator frontend")
    first = read_instances(run_dir)["w001"]
    os.kill(first["pid"], signal.SIGKILL)
    command.wait_for(" w001 restarting from w001-")
    wait_until(lambda: command.out.count(" w001 ready at ") == 2, what="it is back")
    second = read_instances(run_dir)["w001"]
    assert (second["state"], second["port"], second["restarts"]) == ("ready", first["port"], 1)
    assert second["pid"] != first["pid"]
    following.wait_for(f"restored {first['saved_path']}")
    wait_until(lambda: following.out.count("Spectator frontend") == 2, what="the log goes on")
    assert following.process.poll() is None
    assert command.interrupt() == 130
    assert following.wait() == 0
    assert following.out.endswith("stopped\n-- stopped: exit status 0 --\n")
    save = Path(first["saved_path"]).relative_to(run_dir / "worlds" / "w001")
    ours = [line for line in following.out.splitlines() if line.startswith("-- ")]
    assert ours[:-1] == [
        f"-- exited: {ProcessExit(signal='SIGKILL')} --",
        f"-- restarted from {save} --",
    ]
    again = call("logs", str(run_dir), "w001")
    assert again.out == following.out


@pytest.mark.thorough
def test_a_halt_is_a_failure_and_shows_its_reason(
    start: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = tmp_path / "tally"
    world.mkdir()
    argv = json.dumps([sys.executable, str(Path(__file__).parents[2] / "server" / "tally.py")])
    liveness = '[run.liveness]\npath = "/health"\nperiod = 0.05\ntimeout = 20\n'
    (world / "world.toml").write_text(f'name = "tally"\n[run]\ncommand = {argv}\n{liveness}')
    command = start("up", str(world), "-n", "2", "--run-dir", str(run_dir))
    command.wait_for("2 instances ready after")
    ask(read_instances(run_dir)["w001"]["port"], "POST", "/join?name=Jonah")
    command.wait_for("w001 was stopped because it had halted")
    assert "w001 halted: RuntimeError: no room on the ship\n" in command.out
    wait_until(
        lambda: read_instances(run_dir)["w001"]["state"] == "halted", what="its record says so"
    )
    assert "w001  halted: RuntimeError: no room on the ship" in call("ps", str(run_dir)).out
    assert call("stop", str(run_dir)).wait() == 0
    assert command.wait() == 1
    assert "1 of 2 instances failed" in command.err
    assert "halted: RuntimeError: no room on the ship" in command.err


@pytest.mark.thorough
def test_up_waits_for_the_restart_of_the_last_instance(
    start: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path)
    command = start("up", str(world), "--run-dir", str(run_dir), "--restart", "fresh")
    command.wait_for("1 instance ready after")
    ask(read_instances(run_dir)["w000"]["port"], "POST", "/__die?status=9")
    wait_until(lambda: command.out.count("w000 ready at") == 2, what="it is back")
    assert command.interrupt() == 130


# ------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.thorough),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.thorough),
    ],
)
def test_signal_stops_all_instances(up: Start, number: signal.Signals, status: int) -> None:
    command = up("--grace", "0.2", flags=("--daemon",))
    assert marked_processes()
    command.send(number)
    assert command.wait() == status
    assert not marked_processes()


@pytest.mark.thorough
def test_a_second_signal_kills_immediately(up: Start) -> None:
    command = up("--grace", "600", flags=("--ignore-sigterm",))
    command.send(signal.SIGINT)
    command.wait_for("Stopping all instances.")
    assert command.process.poll() is None
    assert command.interrupt() == 130
    assert len(re.findall(r"Z killed \d+ /", command.out)) == 3
    assert not marked_processes()


def test_a_signal_ends_a_slow_start(start: Start, tmp_path: Path, run_dir: Path) -> None:
    world = make_world(tmp_path, "--slow-boot", "600")
    command = start("up", str(world), "-n", "3", "--run-dir", str(run_dir))
    command.wait_for("w002 started on port")
    assert command.interrupt() == 130
    assert not marked_processes()


@pytest.mark.thorough
def test_with_save_at_end_instances_are_saved_before_they_are_stopped(
    up: Start, run_dir: Path
) -> None:
    command = up("--save-at-end")
    assert command.interrupt() == 130
    assert command.out.count(" saved ") == command.out.count(" stopped: ") == 3
    for one in read_instances(run_dir).values():
        assert Path(one["saved_path"]).is_file()
        assert one["state"] == "exited"


@pytest.mark.thorough
def test_an_instance_that_cannot_be_saved_runs_until_the_second_signal(
    up: Start, run_dir: Path
) -> None:
    command = up("--save-at-end")
    port = read_instances(run_dir)["w001"]["port"]
    ask(port, "POST", "/__set?snapshot=empty")
    command.send(signal.SIGINT)
    command.wait_for("Not saved, so still running: w001.")
    assert {name: one["state"] for name, one in read_instances(run_dir).items()} == {
        "w000": "exited",
        "w001": "ready",
        "w002": "exited",
    }
    assert command.process.poll() is None
    assert command.interrupt() == 130
    assert not marked_processes()


@pytest.mark.thorough
def test_instance_that_could_not_be_saved_may_end_on_its_own(up: Start, run_dir: Path) -> None:
    command = up("--save-at-end")
    port = read_instances(run_dir)["w001"]["port"]
    ask(port, "POST", "/__set?snapshot=empty")
    command.send(signal.SIGINT)
    command.wait_for("Not saved, so still running: w001.")
    ask(port, "POST", "/__die?status=0")
    assert command.wait() == 130


def test_killed_orchestrator_leaves_no_processes(up: Start, run_dir: Path) -> None:
    command = up()
    command.send(signal.SIGKILL)
    command.wait()
    assert_nothing_runs()
    # An ending process has lost its mark, but still exists for a moment.
    wait_until(
        lambda: {one["state"] for one in read_instances(run_dir).values()} == {"interrupted"}
    )


@pytest.mark.thorough
def test_up_runs_with_closed_standard_streams(start: Start, tmp_path: Path, run_dir: Path) -> None:
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    words = ("up", str(make_world(tmp_path)), "--run-dir", str(run_dir))
    command = start(*words, prefix=closing)
    wait_until(
        lambda: (
            [one["state"] for one in read_instances(run_dir).values()] == ["ready"]
            or command.process.poll() is not None
        ),
        what="the world is ready",
    )
    assert command.interrupt() == 130
    assert not marked_processes()


@pytest.mark.thorough
def test_up_ends_when_the_output_is_gone(start: Start, tmp_path: Path, run_dir: Path) -> None:
    world = make_world(tmp_path)
    words = ("up", str(world), "--run-dir", str(run_dir), "--autosave", "0.05")
    command = start(*words, stdout=subprocess.PIPE)
    assert command.process.stdout is not None
    command.process.stdout.readline()
    command.process.stdout.close()
    assert command.wait() == 1
    assert not marked_processes()


@pytest.mark.thorough
def test_full_disk_loses_output_lines_but_stops_no_world(
    start: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path)
    with open("/dev/full", "wb") as full:
        command = start("up", str(world), "--run-dir", str(run_dir), stdout=full)
    wait_until(marked_processes, what="the world's process has begun")
    (port,) = {one["port"] for one in wait_until(lambda: read_instances(run_dir)).values()}
    wait_until(lambda: is_listening(port), what="the world serves")
    assert command.process.poll() is None
    assert command.interrupt() == 130


# -------------------------------------------------------------------------------- the live table


@pytest.mark.thorough
def test_live_table_is_shown_and_the_terminal_restored(
    call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path)
    with terminal("up", str(world), "-n", "3", "--run-dir", str(run_dir)) as one:
        one.wait_for("3 instances ready after")
        one.wait_for("w002  ready  ")
        known = read_instances(run_dir)
        rows = {line.split()[0]: line.split() for line in one.screen if line.startswith("w0")}
        assert list(rows) == NAMES
        for name, (_, state, pid, *_, url) in rows.items():
            assert (state, pid, url) == ("ready", str(known[name]["pid"]), known[name]["url"])
        assert one.screen[1] == "3 ready"
        call("save", str(run_dir), "w001")
        wait_until(lambda: re.search(r"w001 .* MB .* \d+s +0\.0 +http", "\n".join(one.screen)))
        one.type(CTRL_C)
        assert one.wait() == 130
        one.assert_left_clean()
        assert one.screen[1] == "3 exited"
        below = one.screen[-4:]  # a table that is redrawn, the end, and the line of the cursor
        assert below[0] == "3 instances: 3 stopped."
        assert re.fullmatch(r"Last saves: 1 of 3, \d+s old, sim time 0\.0\.", below[1])
        assert below[2:] == [f"resume:  clawblox resume {run_dir}", ""]
        assert sum("NAME" in line for line in one.screen) == 1
    assert not marked_processes()


@pytest.mark.thorough
def test_the_table_shows_why_a_start_failed(tmp_path: Path, run_dir: Path) -> None:
    world = choosy_world(tmp_path, "w001", "--exit-at-once", "4")
    with terminal("up", str(world), "-n", "3", "--run-dir", str(run_dir)) as one:
        one.wait_for("2 of 3 instances ready after")
        one.wait_for("w001  failed: world 'choosy' ended before it was ready: exit status 4 | c")
        one.wait_for("w001  failed 4")
        assert one.screen[1] == "1 failed · 2 ready"


@pytest.mark.thorough
def test_the_table_shows_the_progress_of_a_slow_start(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--unavailable", "inf")
    with terminal("up", str(world), columns=80, lines=24) as one:
        one.wait_for("w000  starting")
        one.wait_for("      GET /api.md answered 503 | Spectator frontend: http://")
        assert max(map(len, one.screen)) < 80
        one.type(CTRL_C)
        assert one.wait() == 130
        one.wait_for("1 instance: 1 stopped.")
        one.wait_for("resume:  clawblox resume runs/counter-")


@pytest.mark.thorough
def test_the_table_follows_the_size_of_the_terminal(tmp_path: Path, run_dir: Path) -> None:
    world = make_world(tmp_path)
    with terminal("up", str(world), "-n", "8", "--run-dir", str(run_dir)) as one:
        one.wait_for("w007  ready")
        one.resize(60, 10)
        one.wait_for("… and 6 more: 6 ready")
        assert "\x1b[H\x1b[2J" in one.written  # since the terminal has moved the old lines
        assert len(one.screen) <= 10
        assert max(map(len, one.screen)) < 60
        one.type(CTRL_C)
        assert one.wait() == 130


@pytest.mark.thorough
def test_a_stopped_terminal_does_not_delay_ctrl_c(tmp_path: Path, run_dir: Path) -> None:
    world = make_world(tmp_path)
    with terminal("up", str(world), "-n", "2", "--run-dir", str(run_dir)) as one:
        one.wait_for("2 instances ready after")
        one.type(CTRL_S)
        frozen = one.read()
        ports = [int(port) for port in re.findall(r"ready +\d+ +(\d+) ", "\n".join(one.screen))]
        one.process.send_signal(signal.SIGINT)
        wait_until(lambda: not any(map(is_listening, ports)), what="the worlds are stopped")
        assert one.process.wait(HANG_S) == 130
        assert one.read() == frozen


@pytest.mark.thorough
def test_start_is_refused_in_a_run_directory_of_another_orchestrator(
    up: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    running = up()
    world = tmp_path / "counter"
    refused = call("run", str(world), "--port", "0", "--run-dir", str(run_dir))
    assert refused.wait() == 1
    assert refused.err.startswith(
        f"Error: the run directory {run_dir} is held by pid {running.process.pid} "
    )
    with World(dir=world) as other, pytest.raises(RunLockedError, match="is held by pid"):
        other.start(run_dir=run_dir, name="mine")
    assert sorted(read_instances(run_dir)) == ["w000", "w001", "w002"]
    assert running.interrupt() == 130
    with World(dir=world) as other:
        assert other.start(run_dir=run_dir, name="mine").name == "mine"


@pytest.mark.thorough
def test_error_before_the_start_is_the_only_output(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    (world / ".clawblox").write_text("a file where a directory should be")
    with terminal("up", str(world), "--run-dir", str(world)) as one:
        assert one.wait() == 2
        error, *details = filter(None, one.screen)
        assert error == "Error: --run-dir: the run directory cannot be used: Not a directory"
        assert details[0] == f"  file: {world}/.clawblox"
        assert all(line.startswith("  ") for line in details)


# --------------------------------------------------------------------------------- in background


@pytest.fixture
def detach(call: Start, run_dir: Path) -> Iterator[Start]:
    """Run ``up --detach``; stop the remaining instances at the end."""

    def detach_three(world: Path, *words: str) -> Command:
        return call("up", str(world), "-n", "3", "--run-dir", str(run_dir), "--detach", *words)

    yield detach_three
    if (run_dir / ".clawblox" / "instances").exists():
        call("stop", str(run_dir))


def orchestrator_of(run_dir: Path) -> int:
    return int((run_dir / ".clawblox" / "run.lock").read_text().split()[0])


@pytest.mark.thorough
def test_detached_up_returns_when_all_are_ready_and_ends_with_the_last_instance(
    detach: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    command = detach(make_world(tmp_path), "--metrics-port", "0")
    assert command.wait() == 0
    assert command.err == ""
    first, summary, metrics, *hints = command.out.splitlines()
    assert first == f"Run directory: {run_dir}"
    assert urllib.request.urlopen(metrics.removeprefix("metrics at ")).status == 200
    assert re.fullmatch(r"3 instances ready after [\d.]+s\.", summary)
    pid = orchestrator_of(run_dir)
    assert hints == [
        f"watch:  clawblox ps {run_dir} -w",
        f"stop:   clawblox stop {run_dir}",
        f"log:    {run_dir}/.clawblox/up.log (pid {pid})",
    ]
    known = read_instances(run_dir)
    assert {one["state"] for one in known.values()} == {"ready"}
    assert {one["orchestrator_pid"] for one in known.values()} == {pid}
    assert os.getsid(pid) == pid
    assert call("stop", str(run_dir)).wait() == 0
    wait_until(lambda: not is_alive(pid), what="the orchestrator has ended")
    log = run_dir / ".clawblox" / "up.log"
    assert log.read_text().count(" stopped: exit status 0\n") == 3
    assert "Ctrl-C" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.thorough
def test_background_process_imports_no_modules_from_the_current_directory(
    call: Start, tmp_path: Path, run_dir: Path
) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('somebody else')")
    words = ["up", str(make_world(tmp_path)), "--run-dir", str(run_dir), "--detach"]
    command = [sys.executable, "-P", "-m", "clawblox", *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    call("stop", str(run_dir))


@pytest.mark.thorough
def test_in_the_background_a_failed_start_is_reported_and_the_others_continue(
    detach: Start, tmp_path: Path, run_dir: Path
) -> None:
    command = detach(choosy_world(tmp_path, "w001", "--exit-at-once", "4"))
    assert command.wait() == 1
    assert "2 of 3 instances ready after" in command.out
    reason = "ended before it was ready: exit status 4 | cannot go on, exiting with 4"
    assert f"\n  w001: world 'choosy' {reason}\n" in command.out
    assert [one["state"] for one in read_instances(run_dir).values()] == [
        "ready",
        "failed",
        "ready",
    ]


@pytest.mark.thorough
def test_detached_up_leaves_no_process_if_every_start_fails(
    detach: Start, tmp_path: Path, run_dir: Path
) -> None:
    command = detach(make_world(tmp_path, "--exit-at-once", "4"))
    assert command.wait() == 1
    assert "0 of 3 instances ready after" in command.out
    assert "watch:" not in command.out
    found = re.search(r"\(pid (\d+)\)", command.out)
    assert found
    wait_until(lambda: not is_alive(int(found[1])), what="the orchestrator has ended")


@pytest.mark.thorough
def test_an_orchestrator_that_ends_early_is_reported_with_its_last_lines(
    detach: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path)
    assert detach(world).wait() == 0
    again = detach(world)
    assert again.wait() == 1
    assert again.out == f"Run directory: {run_dir}\n"
    assert again.err.startswith("The orchestrator in the background has ended:\n")
    assert f"  | Error: the run directory {run_dir} is held by pid " in again.err


@pytest.mark.thorough
def test_ctrl_c_does_not_end_a_start_in_the_background(
    start: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path, "--slow-boot", "600")
    command = start("up", str(world), "--run-dir", str(run_dir), "--detach")
    wait_until(marked_processes, what="the world's process has begun")
    assert command.interrupt() == 130
    assert (
        command.err
        == f"The start continues in the background. To watch it: clawblox ps {run_dir} -w\n"
    )
    pid = orchestrator_of(run_dir)
    assert is_alive(pid)
    assert marked_processes()
    assert call("stop", str(run_dir)).wait() == 0
    wait_until(lambda: not is_alive(pid), what="the orchestrator has ended")


@pytest.mark.thorough
def test_a_long_start_in_the_background_shows_a_bar(
    call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path, "--slow-boot", "1")
    with terminal("up", str(world), "-n", "3", "--run-dir", str(run_dir), "--detach") as one:
        wait_until(lambda: one.shows("Starting ────────────────────────"), what="a bar")
        assert one.wait() == 0
        one.assert_left_clean()
        assert one.screen[0] == f"Run directory: {run_dir}"
        assert one.screen[1].startswith("3 instances ready after")
    assert {found["state"] for found in read_instances(run_dir).values()} == {"ready"}
    assert call("stop", str(run_dir)).wait() == 0
