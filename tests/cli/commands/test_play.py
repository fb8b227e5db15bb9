"""``clawblox play``: a person or a script acts as an agent in a world."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.extras import install_command
from tests.cli.conftest import Command, Start, assert_nothing_runs, find_port, read_instances
from tests.support.terminals import CTRL_C, Terminal, terminal
from tests.support.waiting import wait_until
from tests.support.worlds import ask, make_world

CTRL_D = "\x04"
TAB, UP = "\t", "\x1b[A"


@pytest.fixture
def run(start: Start, tmp_path: Path, run_dir: Path) -> Iterator[str]:
    """Run one instance of a counter world; return its run directory."""
    words = ("-n", "1", "--run-dir", str(run_dir))
    command = start("up", str(make_world(tmp_path)), *words)
    command.wait_for("ready after")
    yield str(run_dir)
    command.interrupt()
    assert_nothing_runs()


@pytest.fixture
def pipe(start: Start) -> Iterator[Any]:
    """Start ``play`` with a pipe to type into."""
    commands: list[Command] = []

    def start_one(*words: str, **options: Any) -> Command:
        commands.append(start("play", *words, stdin=subprocess.PIPE, **options))
        return commands[-1]

    yield start_one
    for command in commands:
        assert isinstance(command.process, subprocess.Popen)
        if command.process.stdin is not None:
            command.process.stdin.close()


def type_line(command: Command, line: str) -> None:
    assert isinstance(command.process, subprocess.Popen)
    assert command.process.stdin is not None
    os.write(command.process.stdin.fileno(), f"{line}\n".encode())


def list_paths(run: str) -> list[str]:
    """Return the paths of requests to an instance in order, without polls for chat messages."""
    received = ask(find_port(run), "GET", "/__requests").json()
    return [one["path"] for one in received if one["path"] not in ("/chat/messages", "/api.md")]


def join(run: str, name: str = "rocky") -> dict[str, str]:
    return {"X-Session": ask(find_port(run), "POST", f"/join?name={name}").json()["session"]}


def say(run: str, headers: dict[str, str], text: str) -> None:
    body = json.dumps({"content": text}).encode()
    assert ask(find_port(run), "POST", "/chat", body=body, headers=headers).status == 200


# ------------------------------------------------------------------------------------ scripts


def test_play_runs_the_lines_of_a_script_as_commands(run: str, call: Start) -> None:
    lines = ["# a comment", "observe", "add 2", "", "act add 3", "changes", "show counter"]
    lines += ["say hello", "chat", "quit", "add 7"]
    command = call("play", run, "--as", "lena", typed="\n".join(lines))
    assert (command.wait(), command.err) == (0, "Left w000; the run continues.\n")
    assert command.out.splitlines() == [
        'agent_id: "agent-1"',
        "time: 0",
        "counter: 0",
        "time: 0 -> 0.5",
        "counter: 0 -> 2",
        "time: 0.5 -> 1",
        "counter: 2 -> 5",
        "nothing changed",
        "5",
        "lena: hello",
    ]
    assert list_paths(run)[-1] == "/leave"


def test_a_failed_line_makes_the_status_1_and_later_lines_still_run(run: str, call: Start) -> None:
    command = call("play", run, typed="fly\nadd {\nshow x\nobserve it\nadd")
    assert command.wait() == 1
    assert command.err.splitlines() == [
        "line 1: refused (400): unknown type of input",
        "  'fly' was sent as an input; help lists the commands",
        "line 2: the data is not JSON: Expecting property name enclosed in double quotes after '{'",
        '  data looks like {"direction": [1, 0]}, "north" or 3',
        "line 3: the observation has no x",
        "  it has: agent_id, time, counter",
        "line 4: observe: must be typed alone, not with 'it'",
        "  to send an input of this type: act observe it",
        "Left w000; the run continues.",
    ]
    assert command.out.splitlines() == ["time: 0 -> 0.5", "counter: 0 -> 1"]


@pytest.mark.thorough
def test_help_and_api_describe_the_inputs(run: str, call: Start) -> None:
    command = call("play", run, typed="help\napi\n")
    assert "[act] TYPE [DATA]  Send an input, and show the changes." in command.out
    assert "POST /input {type: add, data: 1}" in command.out


@pytest.mark.thorough
def test_messages_of_others_are_shown_as_they_arrive(run: str, pipe: Start) -> None:
    rocky = join(run)
    say(run, rocky, "before")
    command = pipe(run, "--as", "lena")
    wait_until(lambda: "/observe" in list_paths(run), what="the session has begun")
    type_line(command, "chat")
    command.wait_for("rocky: before")
    for number in range(60):
        say(run, rocky, f"\x1b[31mmessage {number}\nhas two lines")
    command.wait_for(r"rocky: \x1b[31mmessage 59 has two lines")
    type_line(command, "say mine")
    wait_until(lambda: list_paths(run).count("/chat") == 62, what="it is said")
    say(run, rocky, "after")
    command.wait_for("rocky: after")
    assert "lena: mine" not in command.out
    type_line(command, "quit")
    assert command.wait() == 0
    assert "\x1b" not in command.out
    assert command.out.count("message 30 has two lines") == 1


@pytest.mark.thorough
def test_chat_shows_the_last_messages_of_any_number(run: str, call: Start) -> None:
    rocky = join(run)
    for number in range(60):  # more than a page
        say(run, rocky, f"message {number}")
    shown = call("play", run, typed="chat\n").out.splitlines()
    assert shown == [f"rocky: message {number}" for number in range(40, 60)]


@pytest.mark.thorough
def test_a_world_is_started_for_the_session_and_stopped_after_it(
    call: Start, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    command = call("play", str(world), typed="add\n", cwd=tmp_path)
    assert (command.wait(), command.out.splitlines()) == (0, ["time: 0 -> 0.5", "counter: 0 -> 1"])
    first, second, last, ends, resume = command.err.splitlines()
    shown = re.fullmatch(r"Run directory: (runs/counter-\d{8}T\d{6}Z)", first)
    assert shown
    assert re.fullmatch(r"World 'counter' is ready at http://127.0.0.1:\d+ \(.*s\)", second)
    assert last == "The world is stopped."
    assert (ends, resume) == (
        "1 instance: 1 stopped.",
        f"resume:  clawblox resume {shown[1]}",
    )
    assert_nothing_runs()
    status = read_instances(tmp_path / shown[1])["w000"]
    assert (status["state"], status["exit"]["status"]) == ("exited", 0)
    assert os.listdir(world) == ["world.toml"]
    again = call("play", str(world), "--run-dir", "mine", typed="quit", cwd=tmp_path)
    assert again.err.startswith("Run directory: mine\n")


@pytest.mark.thorough
def test_a_world_can_be_resumed_from_the_save_of_a_session(
    call: Start, start: Start, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    lines = "add 4\nsave\nadd 5\n"
    command = call("play", str(world), "--run-dir", "mine", typed=lines, cwd=tmp_path)
    assert command.wait() == 0
    saved = command.out.splitlines()[2]
    path = tmp_path / saved.removeprefix("w000: saved ").partition(" (")[0]
    assert json.loads(path.read_text())["counter"] == 4
    last_saves, resume = command.err.splitlines()[-2:]
    assert last_saves.startswith("Last saves: 1 of 1, ")
    assert resume == "resume:  clawblox resume mine"
    resumed = start("resume", "mine", cwd=tmp_path)
    resumed.wait_for("1 instance ready after")
    assert f"from {path.name}" in resumed.out
    seen = json.loads(call("act", "mine", cwd=tmp_path).out)
    assert seen["counter"] == 4
    assert resumed.interrupt() == 130


@pytest.mark.thorough
def test_save_command_of_a_session_saves_the_instance(run: str, call: Start) -> None:
    command = call("play", run, typed="add 3\nsave\n")
    assert command.wait() == 0
    assert command.out.splitlines()[-1].startswith("w000: saved ")
    failed = call("play", run, typed="save now\n")
    assert failed.wait() == 1
    assert "save: must be typed alone, not with 'now'" in failed.err


def test_a_world_that_does_not_start_is_an_error(call: Start, tmp_path: Path) -> None:
    world = make_world(tmp_path, "--exit-at-once", "4")
    command = call("play", str(world), typed="observe\n", cwd=tmp_path)
    assert command.wait() == 1
    assert "Error: w000: world 'counter' ended before it was ready: exit status 4" in command.err


@pytest.mark.thorough
def test_play_refuses_ambiguous_and_unready_instances(
    up: Start, call: Start, run_dir: Path, tmp_path: Path
) -> None:
    command = up()
    several = call("play", str(run_dir))
    assert several.wait() == 2
    assert several.err == (
        f"Error: Several instances in '{run_dir}' are ready: w000, w001, w002\n"
        f"  hint: name an instance: clawblox play {run_dir} w000\n"
    )
    assert call("play", str(run_dir), "w007").wait() == 2
    unwanted = call("play", str(run_dir), "--run-dir", "x")
    assert (unwanted.wait(), "--run-dir: must be left out, as '" in unwanted.err) == (
        2,
        True,
    )
    ask(read_instances(run_dir)["w001"]["port"], "POST", "/__die?signal=SIGKILL")
    wait_until(lambda: read_instances(run_dir)["w001"]["state"] == "exited", what="w001 has ended")
    dead = call("play", str(run_dir), "w001")
    assert dead.wait() == 1
    assert dead.err.startswith("Error: w001: the world has ended: killed by SIGKILL")
    assert call("play", str(run_dir), "w002", typed="add\n").out.endswith("counter: 0 -> 1\n")
    command.interrupt()
    over = call("play", str(run_dir))
    assert over.wait() == 1
    assert over.err.startswith(
        f"Error: Nothing in '{run_dir}' is ready, so there is nothing to join"
    )


# --------------------------------------------------------------------------- deaths and signals


@pytest.mark.thorough
def test_the_end_of_the_world_ends_the_session(run: str, pipe: Start) -> None:
    command = pipe(run)
    wait_until(lambda: "/observe" in list_paths(run), what="the session has begun")
    ask(find_port(run), "POST", "/__die?status=3")
    assert command.wait() == 1
    first, *log, last = command.err.splitlines()
    assert first == "w000: the world has ended: exit status 3"
    assert any("Spectator frontend" in line for line in log)
    assert all(line.startswith("  | ") for line in log)
    assert last == "It is not restarted."


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mode", "words", "counter"),
    [
        ("checkpoint", "with your session", 2),
        pytest.param(
            "fresh", "without your session: you are a new agent", 1, marks=pytest.mark.thorough
        ),
    ],
)
def test_an_agent_continues_in_a_restarted_world(
    start: Start, call: Start, pipe: Start, tmp_path: Path, mode: str, words: str, counter: int
) -> None:
    run = tmp_path / "run"
    up = start("up", str(make_world(tmp_path)), "--run-dir", str(run), "--restart", mode)
    up.wait_for("ready after")
    command = pipe(str(run))
    type_line(command, "add")
    command.wait_for("counter: 0 -> 1")
    assert call("save", str(run)).wait() == 0
    ask(find_port(str(run)), "POST", "/__die?signal=SIGKILL")
    command.wait_for(f"w000 is ready again, {words}")
    type_line(command, "add")
    type_line(command, "show counter")
    type_line(command, "quit")
    assert command.wait() == 0
    assert command.out.splitlines()[-1] == str(counter)
    assert "w000: the world has died and is being restarted" in command.err
    assert up.interrupt() == 130


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.thorough),
        pytest.param(signal.SIGHUP, marks=pytest.mark.thorough),
    ],
)
def test_signal_ends_the_session_and_the_agent_leaves(
    run: str, pipe: Start, number: signal.Signals
) -> None:
    command = pipe(run)
    wait_until(lambda: "/observe" in list_paths(run), what="the session has begun")
    command.send(number)
    assert command.wait() == 128 + number
    assert list_paths(run)[-1] == "/leave"


@pytest.mark.thorough
def test_end_of_a_world_started_by_play_ends_the_command(pipe: Start, tmp_path: Path) -> None:
    command = pipe(str(make_world(tmp_path)), cwd=tmp_path)
    command.wait_for("is ready at")
    (directory,) = (tmp_path / "runs").iterdir()
    wait_until(lambda: "/observe" in list_paths(str(directory)), what="the session has begun")
    ask(read_instances(directory)["w000"]["port"], "POST", "/__die?status=3")
    assert command.wait() == 1
    assert "w000: the world has ended: exit status 3\n" in command.err
    assert command.err.endswith("It is not restarted.\n")


@pytest.mark.thorough
def test_a_signal_stops_the_world_of_the_session(pipe: Start, tmp_path: Path) -> None:
    command = pipe(str(make_world(tmp_path)), cwd=tmp_path)
    command.wait_for("is ready at")
    command.send(signal.SIGTERM)
    assert command.wait() == 143
    assert "\nThe world is stopped.\n" in command.err
    assert_nothing_runs()


# ---------------------------------------------------------------------------------- terminals


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def wait_for_prompt(one: Terminal, count: int = 1) -> None:
    wait_until(
        lambda: (
            sum(line.startswith("lena@w000> ") or line == "lena@w000>" for line in one.screen)
            >= count
        ),
        what=f"prompt {count} on the terminal",
    )


@pytest.mark.thorough
def test_a_terminal_has_history_completion_and_messages_above_the_line(
    run: str, home: Path
) -> None:
    rocky = join(run)
    env = {"CLAWBLOX_HOME": str(home)}
    with terminal("play", run, "--as", "lena", env=env) as one:
        wait_for_prompt(one)
        assert "counter: 0" in one.screen
        one.type("obs" + TAB)
        one.wait_for("lena@w000> observe")
        one.type(CTRL_C)
        wait_for_prompt(one, 2)
        one.type("add 5\r")
        one.wait_for("counter: 0 -> 5")
        one.type("half a line")
        one.wait_for("lena@w000> half a line")
        say(run, rocky, "hello lena")
        one.wait_for("rocky: hello lena")
        wait_until(lambda: one.screen[-1] == "lena@w000> half a line", what="the line is back")
        one.type(CTRL_C + CTRL_D)
        assert one.wait() == 0
        assert one.shows("Left w000; the run continues.")
        assert one.modes_are_restored
    assert list_paths(run).count("/input") == 1
    assert list_paths(run)[-1] == "/leave"
    history = home / "play_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with terminal("play", run, "--as", "lena", env=env) as one:
        wait_for_prompt(one)
        one.type(UP)
        one.wait_for("lena@w000> add 5")
        ask(find_port(run), "POST", "/__die?signal=SIGKILL")
        assert one.wait() == 1
        assert one.shows("It is not restarted.")
        assert one.modes_are_restored


@pytest.mark.thorough
def test_ctrl_c_ends_a_command_that_takes_too_long(run: str, home: Path) -> None:
    with terminal("play", run, "--as", "lena", env={"CLAWBLOX_HOME": str(home)}) as one:
        wait_for_prompt(one)
        ask(find_port(run), "POST", "/__set?mute")
        one.type("add\r")
        wait_until(lambda: list_paths(run).count("/input") == 1, what="the input is sent")
        one.type(CTRL_C)
        one.wait_for("interrupted")
        wait_for_prompt(one, 2)
        one.type(CTRL_D)
        wait_until(lambda: list_paths(run)[-1] == "/leave", what="the agent leaves")
        one.type(CTRL_C)
        assert one.wait() == 130


@pytest.mark.thorough
def test_without_the_extra_the_terminal_edits_the_line(
    run: str, home: Path, tmp_path: Path
) -> None:
    absent = "raise ModuleNotFoundError('absent', name='prompt_toolkit')"
    (tmp_path / "prompt_toolkit.py").write_text(absent)
    env = {
        "CLAWBLOX_HOME": str(home),
        "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
    }
    with terminal("play", run, "--as", "lena", env=env) as one:
        one.wait_for(install_command("play"))
        wait_for_prompt(one)
        one.type("half")
        one.wait_for("lena@w000> half")
        one.type(CTRL_C)
        wait_until(lambda: one.shows("^C\r\x1b[Klena@w000> "), what="the line is cleared")
        one.type("add 5\n")
        one.wait_for("counter: 0 -> 5")
        say(run, join(run), "hello lena")
        one.wait_for("rocky: hello lena")
        one.type(CTRL_D)
        assert one.wait() == 0
        one.assert_left_clean()
    assert list_paths(run)[-1] == "/leave"
