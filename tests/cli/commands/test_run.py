"""``clawblox run``: address, signals, texts and exit statuses."""

from __future__ import annotations

import array
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import click
import pytest

from clawblox.cli.commands.run import command as run_command
from clawblox.rundir.records import read_records
from tests.cli.conftest import Served, Start, assert_nothing_runs, only_run
from tests.support.processes import marked_processes
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import wait_until
from tests.support.worlds import ask, make_world

SNAPSHOT = {"scene_hash": "scene-plain", "counter": 7, "ticks": 2, "sessions": [], "chat": []}

Serve = Callable[..., Served]


# -------------------------------------------------------------------------------------- output


def test_the_address_is_printed_before_the_output_of_the_world(serve: Serve) -> None:
    served = serve()
    lines = served.command.out.splitlines()
    assert lines[0] == f"Run directory: {served.world}"
    assert lines[1].startswith(f"World 'counter' is ready at http://127.0.0.1:{served.port} (")
    assert lines[2].startswith("counter world, process ")
    assert ask(served.port, "GET", "/api.md").status == 200
    assert served.command.interrupt() == 130


def test_the_world_of_the_current_directory_is_run_by_default(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    command = start("run", "--port", "0", cwd=world)
    command.wait_for("Spectator frontend")
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_the_recording_directory_is_printed(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--dump", "dump.json")
    words = ("run", str(world), "--port", "0", "--record", "--record-dir", "r001/recordings")
    command = start(*words, cwd=tmp_path)
    command.wait_for("Spectator frontend")
    place = tmp_path / "r001" / "recordings"
    assert f"Recording to: {place}\n" in command.out
    assert command.out.startswith("Run directory: r001\n")
    assert world_environment(world)["WORLD_RECORD_DIR"] == str(place)
    assert command.interrupt() == 130


def test_options_set_the_name_and_the_files(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    log, script, run_dir = (tmp_path / name for name in ("w.log", "w.sh", "run"))
    files = ("--log-file", str(log), "--command-file", str(script), "--run-dir", str(run_dir))
    command = start("run", str(world), "--port", "0", "--name", "panda-1", *files)
    command.wait_for("Spectator frontend")
    assert "counter world" in log.read_text()
    assert script.read_text().startswith("#!/bin/sh")
    assert [record.name for record in read_records(run_dir)] == ["panda-1"]
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_the_last_output_of_a_stopping_world_is_printed(serve: Serve) -> None:
    served = serve("--slow-stop", "0.2")
    assert served.command.interrupt() == 130
    assert served.command.out.endswith("stopped\n")


# -------------------------------------------------------------------------- flags, environment


def parse(*words: str, env: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the options that the command gets."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WORLD_")]:
            patch.delenv(name)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        params = run_command.make_context("run", list(words)).params
    objects = (params["options"], params["stop_options"])
    return {name: value for one in objects for name, value in attrs.asdict(one).items()}


OF_THE_ENVIRONMENT = [
    ("WORLD_HOST", "0.0.0.0", "host", "0.0.0.0"),
    ("WORLD_PORT", "9001", "port", 9001),
    ("WORLD_BASE_PATH", "/a", "base_path", "/a"),
    ("WORLD_RECORD", "1", "record", True),
    ("WORLD_RECORD_DIR", "/rec", "record_dir", Path("/rec")),
    ("WORLD_RESUME_PATH", "s.json", "resume", "s.json"),
]
FLAGS = {
    "host": ("--host", "::1"),
    "port": ("--port", "9002"),
    "base_path": ("--base-path", "/b"),
    "record": ("--no-record",),
    "record_dir": ("--record-dir", "other"),
    "resume": ("--resume", "t.json"),
}


@pytest.mark.parametrize(("variable", "value", "name", "meaning"), OF_THE_ENVIRONMENT)
def test_option_overrides_environment_which_overrides_default(
    variable: str, value: str, name: str, meaning: object
) -> None:
    default, env = parse()[name], {variable: value}
    assert parse(env=env)[name] == meaning != default
    assert parse(*FLAGS[name], env=env)[name] == parse(*FLAGS[name])[name] != meaning


@pytest.mark.parametrize(
    ("words", "env", "every"),
    [
        ((), {}, 900),
        ((), {"CHECKPOINT_EVERY": " "}, 900),
        ((), {"CHECKPOINT_EVERY": "0"}, 0),
        ((), {"CHECKPOINT_EVERY": "2.5"}, 2.5),
        (("--checkpoint-every", "7"), {"CHECKPOINT_EVERY": "0"}, 7),
    ],
)
def test_checkpoint_interval_is_read_from_the_environment(
    words: tuple[str, ...],
    env: dict[str, str],
    every: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CHECKPOINT_EVERY", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    params = run_command.make_context("run", list(words)).params
    assert params["agent_options"].checkpoint_every == every


@pytest.mark.parametrize("variable", [variable for variable, *_ in OF_THE_ENVIRONMENT])
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_variable_counts_as_unset(variable: str, blank: str) -> None:
    assert parse(env={variable: blank}) == parse()


def test_the_default_port_is_8080() -> None:
    assert parse()["port"] == 8080


def test_options_and_environment_reach_the_world(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--dump", "dump.json")
    port = free_port()
    env = {"WORLD_PORT": "1", "WORLD_BASE_PATH": "/env", "WORLD_RECORD": "1"}
    words = ("--port", str(port), "--base-path", "flag/", "--run-dir", str(world))
    command = start("run", str(world), *words, env=env)
    command.wait_for("Spectator frontend")
    found = world_environment(world)
    assert (found["WORLD_PORT"], found["WORLD_BASE_PATH"]) == (str(port), "/flag")
    assert found["WORLD_RECORD"] == "1"
    assert f"Recording to: {world / 'recordings'}\n" in command.out
    assert command.interrupt() == 130


@pytest.mark.parametrize(
    "words",
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--port", "http"),
        ("--grace", "nan"),
        ("--grace", "-1"),
        ("--port-wait", "-0.5"),
        ("--health-timeout", "nan"),
    ],
)
def test_error_of_a_wrong_number_names_its_option(words: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter) as refusal:
        parse(*words)
    assert words[0] in refusal.value.format_message()


# ------------------------------------------------------------------------------------- resume


@pytest.mark.thorough
def test_relative_snapshot_path_is_resolved_in_the_world_directory(
    start: Start, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    (world / "saved").mkdir()
    (world / "saved" / "s1.json").write_text(json.dumps(SNAPSHOT))
    command = start("run", str(world), "--port", "0", "--resume", "saved/s1.json", cwd=tmp_path)
    command.wait_for("Spectator frontend")
    assert f"restored {world / 'saved' / 's1.json'} at time 1.0" in command.out
    assert command.interrupt() == 130


@pytest.mark.parametrize("way", ["flag", pytest.param("variable", marks=pytest.mark.thorough)])
def test_a_missing_snapshot_never_becomes_a_fresh_run(
    call: Start, tmp_path: Path, way: str
) -> None:
    world = make_world(tmp_path)
    words = ("--resume", "s1.json") if way == "flag" else ()
    env = {} if way == "flag" else {"WORLD_RESUME_PATH": "s1.json"}
    command = call("run", str(world), "--port", "0", *words, env=env, cwd=tmp_path)
    assert command.wait() == 2
    assert command.err.startswith("Error: --resume: the snapshot does not exist: neither ")
    assert str(world / "s1.json") in command.err
    assert not (tmp_path / "runs").exists()


def test_a_refused_snapshot_is_an_error_with_the_world_s_reason(
    call: Start, tmp_path: Path
) -> None:
    world = make_world(tmp_path, "--scene", "other")
    (world / "s1.json").write_text(json.dumps(SNAPSHOT))
    command = call("run", str(world), "--port", "0", "--resume", "s1.json")
    assert command.wait() == 1
    assert "its scene is scene-plain, not scene-other" in command.err
    assert "is ready" not in command.out


# ------------------------------------------------------------------------------------ signals


def test_ctrl_c_stops_the_world_cleanly(serve: Serve) -> None:
    served = serve("--daemon", words=("--grace", "0.2"))
    assert served.command.interrupt() == 130
    assert not marked_processes()
    assert not is_listening(served.port)


# The parent of the tests may ignore HUP, and a child would inherit that.
WITH_HUP = {"prefix": ("env", "--default-signal=HUP")}


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGTERM, {}),
        pytest.param(signal.SIGHUP, WITH_HUP, marks=pytest.mark.thorough),
    ],
)
def test_sigterm_and_sighup_stop_the_world_like_ctrl_c(
    start: Start, tmp_path: Path, number: signal.Signals, options: dict[str, Any]
) -> None:
    command = start("run", str(make_world(tmp_path)), "--port", "0", **options)
    command.wait_for("Spectator frontend")
    command.send(number)
    assert command.wait() == 128 + number
    assert command.out.endswith("stopped\n")
    assert not marked_processes()


@pytest.mark.thorough
def test_a_run_under_nohup_outlives_its_terminal(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    command = start("run", str(world), "--port", "0", prefix=("env", "--ignore-signal=HUP"))
    command.wait_for("Spectator frontend")
    status = Path(f"/proc/{command.process.pid}/status").read_text()
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    assert int(ignored, 16) & 1 << signal.SIGHUP - 1
    assert command.interrupt() == 130


def test_a_second_ctrl_c_kills_immediately(serve: Serve) -> None:
    served = serve("--ignore-sigterm", "--stubborn-child", words=("--grace", "600"))
    served.command.send(signal.SIGINT)
    served.command.wait_for("Stopping the world")
    assert served.command.interrupt() == 130
    assert served.command.err.count("Killed ") == 2
    assert not marked_processes()
    assert not is_listening(served.port)


@pytest.mark.thorough
def test_two_signals_at_the_same_time_kill_the_world(serve: Serve) -> None:
    served = serve("--ignore-sigterm", words=("--grace", "600"))
    served.command.send(signal.SIGTERM)
    assert served.command.interrupt() in (130, 143)
    assert not marked_processes()


@pytest.mark.thorough
def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(serve: Serve) -> None:
    served = serve("--ignore-sigterm", words=("--grace", "0.2"))
    assert served.command.interrupt() == 130
    assert "Killed " in served.command.err
    assert not marked_processes()


def test_ctrl_c_ends_a_slow_start(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--slow-boot", "600", "--pid-file", "pid")
    port = free_port()
    command = start("run", str(world), "--port", str(port))
    wait_until((world / "pid").exists, what="the world's process has begun")
    assert command.interrupt() == 130
    assert not marked_processes()


def test_ctrl_c_ends_a_wait_for_a_port(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        words = ("--port", port, "--port-wait", "600", "--run-dir", str(world))
        command = start("run", str(world), *words)
        lock = world / ".clawblox" / "instances" / "w000.lock"
        wait_until(lock.exists, what="the name is taken, the port is not")
        assert command.interrupt() == 130
    assert not marked_processes()


def test_killed_run_command_leaves_no_processes(serve: Serve) -> None:
    served = serve()
    assert marked_processes()
    served.command.send(signal.SIGKILL)
    served.command.wait()
    assert_nothing_runs()
    assert not is_listening(served.port)


@pytest.mark.thorough
def test_a_full_pipe_does_not_delay_ctrl_c(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--flood-lines", "5000")
    port = free_port()
    command = start("run", str(world), "--port", str(port), stdout=subprocess.PIPE)
    wait_until(lambda: is_listening(port), what="the world serves")
    wait_until(lambda: pending(command.process.stdout) > 60_000, what="the pipe is full")
    assert command.interrupt() == 130
    assert not marked_processes()


def pending(stream: object) -> int:
    """Return the number of bytes that wait in a pipe."""
    size = array.array("i", [0])
    fcntl.ioctl(stream, termios.FIONREAD, size)
    return size[0]


@pytest.mark.thorough
def test_the_world_stops_when_the_output_is_gone(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--flood-rate", "100")
    command = start("run", str(world), "--port", "0", stdout=subprocess.PIPE)
    assert command.process.stdout is not None
    command.process.stdout.readline()
    command.process.stdout.close()
    assert command.wait() == 1
    assert command.err == ""
    assert not marked_processes()


# ----------------------------------------------------------------------------------- failures


def test_a_busy_port_is_an_error_with_its_owner_and_a_hint(call: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        command = call("run", str(world), "--port", str(port))
    assert command.wait() == 1
    first, second = command.err.splitlines()
    assert first == f"Error: Port {port} is already in use. Try --port <PORT>"
    assert f"pid {os.getpid()} (" in second


@pytest.mark.thorough
def test_port_leased_by_another_run_is_busy(serve: Serve, call: Start) -> None:
    served = serve()
    command = call("run", served.run_dir, "--port", str(served.port))
    assert command.wait() == 1
    text = f"Error: Port {served.port} is already in use. Try --port <PORT>\n"
    assert command.err.startswith(text)
    assert served.command.interrupt() == 130


@pytest.mark.parametrize("name", ["run", pytest.param("up", marks=pytest.mark.thorough)])
def test_a_misspelled_key_is_a_warning_on_standard_error(
    call: Start, tmp_path: Path, name: str
) -> None:
    world = make_world(tmp_path, "--exit-at-once", "3", toml_extra="[run.lifeness]\nperiod = 1")
    command = call(name, str(world), "--run-dir", str(tmp_path / "run"))
    assert command.wait() == 1
    assert command.err.count("run.lifeness: did you mean liveness?") == 1
    assert f"file={world}/world.toml:5" in command.err
    assert "lifeness" not in command.out


def test_a_missing_path_is_named_as_it_was_given(call: Start) -> None:
    command = call("run", "worlds/nowhere")
    assert command.wait() == 1
    assert command.err == "Error: Path 'worlds/nowhere' does not exist\n"


def test_a_directory_without_world_toml_is_an_error(call: Start, tmp_path: Path) -> None:
    command = call("run", str(tmp_path))
    assert command.wait() == 2
    assert command.err.startswith(f"Error: {tmp_path}: the directory has no world.toml\n")


def test_control_characters_in_an_error_are_escaped(call: Start, tmp_path: Path) -> None:
    world = tmp_path / "a\r\u202eb"
    world.mkdir()
    command = call("run", str(world))
    assert command.wait() == 2
    assert rf"{tmp_path}/a\r\u202eb" in command.err


def test_an_external_world_without_a_command_is_refused(call: Start, tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "w"\n[runtime]\nmode = "external"\n')
    command = call("run", str(tmp_path))
    assert command.wait() == 2
    assert command.err.startswith("Error: run.command: the world is external and has no command")
    assert f"{tmp_path / 'world.toml'}" in command.err


@pytest.mark.thorough
def test_an_engine_world_without_a_main_script_is_refused(call: Start, tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "w"\n')
    command = call("run", str(tmp_path), "--port", "0")
    assert command.wait() == 1
    missing = f"scripts.main points to missing file: {tmp_path / 'main.lua'}"
    assert f"python -m clawblox.engine: cannot load the world: {missing}" in command.err


@pytest.mark.thorough
def test_run_command_ends_when_the_world_ends(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--exit-after", "0.5", "--tell-token")
    command = start("run", str(world), "--port", "0", env={"WORLD_OPERATOR_TOKEN": "s3cret"})
    assert command.wait() == 1
    assert command.err.startswith("Error: w000: World 'counter' ended by itself: exit status 9\n")
    log_file = only_run(Path.cwd()) / "logs" / "w000.log"
    assert f"  log_file: {log_file}\n" in command.err
    assert "    | my token is ***\n" in command.err
    assert "s3cret" not in command.err
    assert command.out.endswith(log_file.read_text())
    run_dir = only_run(Path.cwd()).relative_to(Path.cwd())
    assert command.err.endswith(f"  hint: to continue: clawblox resume {run_dir}\n")


def test_the_signal_that_killed_a_world_is_named(serve: Serve) -> None:
    served = serve()
    ask(served.port, "POST", "/__die?signal=SIGKILL")
    assert served.command.wait() == 1
    assert "ended by itself: killed by SIGKILL" in served.command.err


@pytest.mark.thorough
def test_an_unresponsive_world_ends_the_command(start: Start, tmp_path: Path) -> None:
    liveness = "[run.liveness]\nperiod = 0.05\nfailure_threshold = 2\n"
    port = free_port()
    command = start("run", str(make_world(tmp_path, toml_extra=liveness)), "--port", str(port))
    command.wait_for("Spectator frontend")
    ask(port, "POST", "/__set?doc=status-500")
    assert command.wait() == 1
    words = "Error: w000: World 'counter' was stopped because it did not respond\n"
    assert command.err.startswith(words)


def test_a_world_that_exits_before_it_is_ready_is_an_error_with_its_log(
    call: Start, tmp_path: Path
) -> None:
    world = make_world(tmp_path, "--exit-at-once", "4", "--tell-token")
    command = call("run", str(world), "--port", "0", env={"WORLD_OPERATOR_TOKEN": "s3cret"})
    assert command.wait() == 1
    for text in ("exit status 4", f"world directory: {world}", "command_file:", "log_file:"):
        assert text in command.err
    assert "| my token is ***" in command.err
    assert "s3cret" not in command.err + command.out


@pytest.mark.thorough
def test_a_world_that_is_not_ready_in_time_is_an_error_with_the_last_probe(
    call: Start, tmp_path: Path
) -> None:
    world = make_world(tmp_path, "--unavailable", "inf")
    command = call("run", str(world), "--port", "0", "--health-timeout", "0.3")
    assert command.wait() == 1
    # On a busy machine the last probe may not have been answered yet.
    seen = r"(GET /api\.md answered 503|connected, no answer to GET /api\.md)"
    assert re.search(rf"not ready within 0\.3 s; last probe: {seen}", command.err)
    assert not marked_processes()


# -------------------------------------------------------------------------------------- token


@pytest.mark.thorough
def test_the_world_gets_the_operator_token_of_the_environment(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    port = free_port()
    env = {"WORLD_OPERATOR_TOKEN": "s3cret"}
    command = start("run", str(world), "--port", str(port), env=env)
    command.wait_for("Spectator frontend")
    headers = {"X-Operator-Token": "s3cret"}
    assert ask(port, "GET", "/snapshot", headers=headers).status == 200
    assert command.interrupt() == 130
    assert "s3cret" not in command.out + command.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert only_run(Path.cwd()) / "logs" / "w000.log" in files
    assert [path for path in files if b"s3cret" in path.read_bytes()] == []


# --------------------------------------------------------------------------------------- tmux


@pytest.mark.needs("tmux")
def test_world_runs_in_a_tmux_window(start: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    sockets = tmp_path / "tmux"
    sockets.mkdir()
    env = {**os.environ, "TMUX_TMPDIR": str(sockets)}
    env.pop("TMUX", None)
    command = start("run", str(world), "--port", "0", "--tmux", "demo", env=env)
    command.wait_for("Spectator frontend")
    listing = ["tmux", "list-windows", "-t", "demo", "-F", "#{window_name}"]
    assert subprocess.run(listing, env=env, capture_output=True).stdout == b"world-0\n"
    assert command.interrupt() == 130
    wait_until(
        lambda: subprocess.run(listing, env=env, capture_output=True).returncode,
        what="the window is gone",
    )


def world_environment(world: Path) -> dict[str, str]:
    """Return the environment of the world."""
    environment: dict[str, str] = json.loads((world / "dump.json").read_text())["env"]
    return environment
