"""Text of agents, worlds, programs and strangers never controls the operator's terminal.

Every output channel of the command line is tried with the same text, on a terminal and in a pipe;
then every command, with that text in each file and answer that the command reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import termios
import unicodedata
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from clawblox.recording.blocks import Track
from tests.agents.support import write_status
from tests.agents.trajectory.support import make_agent
from tests.checkpoint.archives import renamed_checkpoint
from tests.cli.conftest import Command, Start, environment
from tests.recording.files import Recorded
from tests.support.all_commands import every_command
from tests.support.waiting import HANG_S

TITLE, CLIPBOARD, HIDDEN = "\x1b]0;title\x07", "\x1b]52;c;cm0gLXJm\x07", "\x1b[8mhidden\x1b[m"
HOSTILE = f"{TITLE}{CLIPBOARD}{HIDDEN}\x9b2J\x1b[2J\x1b[3A\u202eder\u2066\U000e0041\r"
OWN = re.compile(r"\r\x1b\[K|\x1b\[K\n|\x1b\[J|\r|\x1b\[(?:[0-2]|3[1-6])?(?:;3[1-6])?m")
"""Control sequences of clawblox itself, including readable colours."""


def unsafe(text: str) -> set[str]:
    """Return the characters that must not be in text for people, except newlines."""
    return {
        char
        for char in text
        if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")
    }


EXPERIMENT = Path(__file__).parent.parent / "golden" / "experiment" / "v1"


# ------------------------------------------------------------------------- every way of writing

CHANNELS = {
    "echo": "click.echo(TEXT)",
    "echo of an error": "click.echo(TEXT, err=True)",
    "echo of bytes": "click.echo(TEXT.encode())",
    "print": "print(TEXT)",
    "standard error": "sys.stderr.writelines([TEXT])",
    "bytes": "sys.stdout.buffer.write(TEXT.encode())",
    "a note": "note(TEXT)",
    "a usage error": "raise click.UsageError(TEXT)",
    "a wrong value": "raise click.BadParameter(TEXT)",
    "an error": "raise ClawbloxError(TEXT, hint=TEXT)",
    "an error of an instance": "raise WorldStartError(TEXT, instance=TEXT, log_lines=(TEXT,))",
    "a file": "Path(TEXT.replace('/', '')).open()",
    "a group": "raise ExceptionGroup('', [ClawbloxError(TEXT), OSError(TEXT)])",
    "a defect": "raise AssertionError(TEXT)",
    "a warning": "configure_logging(); OwnLog('x').warning(TEXT, reason=TEXT)",
    "a warning of Python": "import warnings; warnings.warn(TEXT)",
    "output past the loop": "anyio.run(write, sys.stdout)",
}
DRAWINGS = {
    "a progress line": "redraw(TEXT)",
    "a redrawn screen": "anyio.run(draw, sys.stdout)",
}
"""Channels for terminals only."""

PROGRAM = r"""
import json, os, sys
from pathlib import Path
import anyio, click
from clawblox.cli import main
from clawblox.cli.terminal.output import Output, note, redraw
from clawblox.cli.terminal.screen import Screen
from clawblox.cli.terminal.reports import configure_logging
from clawblox.errors import ClawbloxError, WorldStartError
from clawblox.telemetry.own_log import OwnLog

TEXT = json.loads(sys.argv.pop())

async def write(stream):
    with Output(stream) as output:
        await output.write_line(TEXT)

async def draw(stream):
    with Output(stream) as output:
        await Screen(output).draw([TEXT])

@main.command()
def trial():
    exec(CODE)

main.list_commands = lambda context: ["trial"]
main.get_command = lambda context, name: trial
for name, CODE in json.loads(sys.argv[1]).items():
    os.write(1, f"=== {name}\n".encode())
    if not (pid := os.fork()):
        main(["trial"], prog_name="clawblox")
    os.waitpid(pid, 0)
"""


def write_by(channels: Mapping[str, str], text: str, *, on_a_terminal: bool) -> dict[str, str]:
    """Return the output of a text by channel."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(channels), json.dumps(text)]
    env = environment({"TERM": "xterm-256color"})
    if on_a_terminal:
        written = run_on_a_terminal(command, env)
    else:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        written = subprocess.run(command, env=env, timeout=HANG_S, check=True, **streams).stdout
    _, *parts = written.decode().split("=== ")
    return dict(part.split("\n", 1) for part in parts)


def run_on_a_terminal(command: list[str], env: dict[str, str], *, status: int = 0) -> bytes:
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (40, 300))
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST  # newlines are not translated
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, master)
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        written = b""
        with contextlib.suppress(OSError):  # the program has ended
            while chunk := os.read(master, 65536):
                written += chunk
        assert process.wait(HANG_S) == status
    return written


@pytest.mark.parametrize(
    "on_a_terminal",
    [pytest.param(False, id="pipe", marks=pytest.mark.thorough), pytest.param(True, id="terminal")],
)
def test_every_way_of_writing_escapes_control_characters(on_a_terminal: bool) -> None:
    channels = {**CHANNELS, **(DRAWINGS if on_a_terminal else {})}
    for channel, text in write_by(channels, HOSTILE, on_a_terminal=on_a_terminal).items():
        assert "der" in text, channel
        assert r"\x1b]0;title\x07" in text.replace("\\\\", "\\"), channel
        assert not unsafe(OWN.sub("", text) if on_a_terminal else text), channel


@pytest.mark.thorough
def test_error_text_cannot_imitate_lines_of_clawblox() -> None:
    forged = {"Error: forged", "  hint: rm -r ~"}
    text = "\n".join(["it failed", *forged])
    several = ("an error", "an error of an instance", "a group", "a warning")
    channels = {channel: CHANNELS[channel] for channel in several}
    for channel, written in write_by(channels, text, on_a_terminal=False).items():
        assert forged.isdisjoint(written.splitlines()), channel


# ---------------------------------------------------------------------------------- every command

WORLD = r"""
import http.server, json, os, signal, sys

HOSTILE = os.environ["HOSTILE"]
OBSERVED = {HOSTILE: [HOSTILE], "text": HOSTILE}
MESSAGES = {"messages": [{"id": 1, "agent_id": "b", "agent_name": HOSTILE, "content": HOSTILE}]}
ANSWERS = {
    "/api.md": HOSTILE + '\n{"type": "Move", "data": {"' + HOSTILE + '": 1}}\n',
    "/join": {"session": "s", "agent_id": "a", HOSTILE: HOSTILE},
    "/observe": OBSERVED,
    "/chat/messages": MESSAGES,
    "/snapshot": {"format": HOSTILE, "time": 1.0},
}

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        found = ANSWERS.get(path)
        text = found if isinstance(found, str) else json.dumps(found)
        self.send_response(400 if path == "/input" else 200)
        data = (HOSTILE if path == "/input" else text).encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        sys.stderr.write(f"{HOSTILE}\n-- stopped: exit status 0 --\n")
        sys.stderr.flush()

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass

print(HOSTILE, flush=True)
if FAILS:
    sys.exit(HOSTILE)
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
address = ("127.0.0.1", int(os.environ["WORLD_PORT"]))
http.server.ThreadingHTTPServer(address, Handler).serve_forever()
"""


def toml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(char):08x}" for char in text) + '"'


def make_hostile_world(parent: Path, *, fails: bool = False) -> Path:
    """Write a world with the text in all its files and answers."""
    directory = parent / f"w\x1b[2J\u202e{fails:d}"
    directory.mkdir()
    text = WORLD.replace('os.environ["HOSTILE"]', ascii(HOSTILE)).replace("FAILS", str(fails))
    lines = [
        'name = "w"',
        f"description = {toml(HOSTILE)}",
        "[run]",
        f"command = [{toml(sys.executable)}, '-c', {toml(text)}]",
    ]
    (directory / "world.toml").write_text("\n".join(lines))
    return directory


def make_hostile_agent(directory: Path) -> Path:
    """Write the files of an agent, with the text in each field."""
    agent = make_agent(directory, "2.1.330")
    write_status(directory, state="failed", reason=HOSTILE, window=HOSTILE)
    events = {"operation": "agent", "type": "error", "data": {"kind": HOSTILE, "message": HOSTILE}}
    agent.events_file.write_text(json.dumps(events) + "\n")
    return directory


def make_hostile_archive(path: Path) -> Path:
    metadata = {
        "schema_version": 1,
        HOSTILE: HOSTILE,
        "note": HOSTILE,
        "agents": {HOSTILE: HOSTILE},
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps(metadata))
        archive.writestr(f"agents/x/workspace/{HOSTILE.replace('/', '')}", HOSTILE)
    return path


def make_odd_archive(path: Path, *names: str) -> Path:
    """Write a valid archive with files, a link and a directory with hostile names."""
    below = "agents/x/workspace/"
    members = {f"{below}.renamed/{number}": below + name for number, name in enumerate(names)}
    links = [{"path": f"{below}link{names[0]}", "target": HOSTILE}]
    directories = [f"{below}directory{names[0]}"]
    excluded = [{"path": f"{below}excluded{names[0]}", "reason": HOSTILE}]
    keys = {"symlinks": links, "directories": directories, "excluded": excluded}
    path.write_bytes(renamed_checkpoint(members, **keys))
    return path


class Trial:
    """Runs commands, and records them and their output."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self.tried: set[str] = set()
        self.written: dict[str, str] = {}

    def begin(self, *words: str, **options: object) -> Command:
        plain = [word for word in words if word.isalpha()]
        self.tried |= {plain[0], " ".join(plain[:2])}
        return self._start(*words, **options)

    def run(self, *words: str, **options: object) -> str:
        return self.end(self.begin(*words, **options))

    def end(self, command: Command) -> str:
        command.wait()
        written = command.out + command.err
        assert "Traceback" not in written, written
        assert not unsafe(written), written
        return written


def make_hostile_experiment(place: Path) -> Path:
    """Copy a recorded experiment, with hostile text from all programs and worlds."""
    shutil.copytree(EXPERIMENT, place)
    journal = place / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        for key in ("text", "error", "account", "ended_by"):
            if key in line["data"]:
                line["data"][key] = HOSTILE
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return place


def make_hostile_plan(path: Path) -> Path:
    path.write_text(f"{json.dumps(HOSTILE)} = 1\nname = {json.dumps(HOSTILE)}\n")
    return path


def test_every_command_escapes_hostile_archive_paths(start: Start, tmp_path: Path) -> None:
    trial, name = Trial(start), f"new\nforged line {HOSTILE.replace('/', '')}"
    first = str(make_odd_archive(tmp_path / "a.ckpt", name, f".env.{name}"))
    second = str(make_odd_archive(tmp_path / "b.ckpt", f"other {name}"))
    for words in (
        *(("inspect", "--files", first), ("inspect", "--json", first), ("verify", first)),
        *(("scan", first), ("diff", first, second), ("diff", "--json", first, second)),
        *(("extract", first, "into"), ("extract", first, "elsewhere", "--json")),
    ):
        written = trial.run("ckpt", *words)
        assert "\nforged" not in written
        if words[0] in ("inspect", "diff", "extract"):
            assert "new\\nforged line" in written


@pytest.mark.thorough
def test_every_command_escapes_hostile_text(start: Start, tmp_path: Path) -> None:
    trial, run = Trial(start), str(tmp_path / "run")
    world, failing = make_hostile_world(tmp_path), make_hostile_world(tmp_path, fails=True)
    assert r"\x1b]0;title" in trial.run("run", str(failing), "--port", "0", "--run-dir", "failed")
    trial.run("ps", "failed")
    trial.run("resume", "failed", "--yes")
    assert r"\x1b]0;title" in trial.run("check", str(failing))
    assert "agent" in trial.run("check", str(world))
    up = trial.begin("up", str(world), "-n", "2", "--run-dir", run, "--label", "kind=ü")
    up.wait_for("2 instances ready after")
    assert r"\x1b]0;title\x07" in trial.run("act", run, "w000", "Move", "{}")
    session = trial.run("play", run, "w000", typed="api\nobserve\nchat\nhelp\nMove {}\nquit\n")
    assert r"\x1b]0;title\x07" in session
    trial.run("ps", run)
    trial.run("ps", run, "--json")
    trial.run("save", run)
    trial.run("fork", run, "w000", "-n", "1")
    trial.run("restart", run, "w001")
    trial.run("lineage", run)
    for words in ((), ("-t",), ("--json",), ("w000",)):
        assert "title" in trial.run("logs", run, *words)
    ours = re.findall("^-- .* --$", trial.run("logs", run, "w000"), re.MULTILINE)
    assert "-- stopped: exit status 0 --" not in ours
    trial.run("stop", run)
    trial.end(up)
    trial.run("wait", run)
    trial.run("clean", run, "--all")
    agent = str(make_hostile_agent(Path(run) / "agents" / "Eko"))
    assert r"\x1b]0;title" in trial.run("agent", "status", agent)
    for words in (("send", agent, "x"), ("stop", agent), ("trajectory", agent, "-")):
        trial.run("agent", *words)
    trial.run("trajectory", agent, "-")
    archive = str(make_hostile_archive(tmp_path / "a\x1b[2J.ckpt"))
    for words in (
        *(("inspect", archive), ("inspect", "--files", archive), ("verify", archive)),
        *(("scan", archive), ("diff", archive, archive), ("extract", archive, "into")),
        ("repair", run),
    ):
        trial.run("ckpt", *words)
    recorded = Recorded(tmp_path)
    recorded.add(Track.INPUTS, 1, event="chat", agent_id=HOSTILE, content=HOSTILE)
    recording = str(recorded.close())
    assert r"\u001b]0;title" in trial.run("replay", recording)
    assert "cannot be verified" in trial.run("verify", recording, "--world", str(world))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("claude", "codex", "tmux", "bwrap"):
        script = programs / name
        script.write_text(f"#!/bin/sh\nprintf '%s\\n' '{HOSTILE}'\n")
        script.chmod(0o755)
    assert r"\x1b]0;title" in trial.run("doctor", env={"PATH": str(programs)})
    trial.run("init", "a\x1b[2J\u202e")
    trial.run("app", run, "--bundle", "out\x1b[2J")
    trial.run("app", run, "--no-browser", "--port", "0", "--open", HOSTILE)
    experiment = str(make_hostile_experiment(tmp_path / "e\x1b[2Jx"))
    for words in (
        *(("status", experiment), ("status", experiment, "--json"), ("results", experiment)),
        *(("results", experiment, "--csv"), ("stop", experiment), ("clean", experiment)),
        *(("resume", experiment), ("fork", experiment, "r1"), ("rescore", experiment, "no:score")),
        *(("list", str(tmp_path)), ("show", experiment, "r1/g001")),
        *(("logs", experiment, "r1/g001"), ("list", str(tmp_path), "--json")),
        ("run", str(make_hostile_plan(tmp_path / "p\x1b[2J.toml"))),
    ):
        trial.run("experiment", *words)
    trial.run("generations", "--world-dir", "w\x1b[2J")
    leaves = {name for name, command in every_command() if not hasattr(command, "commands")}
    assert leaves <= trial.tried


@pytest.mark.thorough
def test_live_table_escapes_hostile_text(tmp_path: Path) -> None:
    failing, run = make_hostile_world(tmp_path, fails=True), str(tmp_path / "run")
    command = ("up", str(failing), "-n", "2", "--run-dir", run)
    env = environment({"TERM": "xterm-256color", "COLUMNS": "200"})
    program = [sys.executable, "-m", "clawblox", *command]
    text = run_on_a_terminal(program, env, status=1).decode()
    assert "der" in text
    assert not unsafe(re.sub(r"\x1b\[\d*A", "", OWN.sub("", text)))
