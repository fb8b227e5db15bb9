"""The command line as a separate process, with output that can be read while it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest

from clawblox.rundir.status import read_run
from tests.agents.standins import install
from tests.support.processes import marked_processes
from tests.support.sockets import free_port
from tests.support.template import COMMAND_LINE, ForkedProgram, Template
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world, world_command

API_KEY = "sk-not-a-key-0001"


@attrs.define
class Command:
    """A running or ended ``clawblox`` command."""

    process: subprocess.Popen[bytes] | ForkedProgram
    directory: Path

    @property
    def out(self) -> str:
        """Standard output so far."""
        return (self.directory / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        """Standard error so far."""
        return (self.directory / "err").read_text(errors="replace")

    def wait(self) -> int:
        """Wait for the end and return the exit status, negative for a signal."""
        return self.process.wait(HANG_S)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for(self, text: str) -> None:
        """Wait until the command has written ``text`` to either stream."""
        wait_until(
            lambda: text in self.out + self.err or self.process.poll() is not None,
            HANG_S,
            what=f"output of {text!r}",
        )
        assert text in self.out + self.err, f"{self.out}\n{self.err}"

    def interrupt(self) -> int:
        """Send SIGINT like Ctrl-C; return the exit status."""
        self.send(signal.SIGINT)
        return self.wait()


Start: TypeAlias = Callable[..., Command]


@pytest.fixture(autouse=True)
def _in_a_directory_to_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give commands a current directory for their run directories."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without variables of an outer world or a terminal."""
    left = ("WORLD_", "COLUMNS", "LINES")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(left)}
    return {**clean, **(env or {})}


@pytest.fixture
def start(tmp_path: Path, template: Template) -> Iterator[Start]:
    """Start ``clawblox`` commands, and kill running commands at the end.

    A command with a prefix or options of :class:`subprocess.Popen` is a separate interpreter. Other
    commands get ``typed`` on their standard input.
    """
    commands: list[Command] = []

    def start_one(
        *words: str, env: Mapping[str, str] | None = None, typed: str = "", **options: Any
    ) -> Command:
        directory = tmp_path / f"command-{len(commands)}"
        directory.mkdir()
        (directory / "in").write_text(typed)
        process: subprocess.Popen[bytes] | ForkedProgram
        with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
            if options.keys() <= {"cwd"}:
                with (directory / "in").open("rb") as lines:
                    streams = [stream.fileno() for stream in (lines, out, err)]
                    process = template.start(
                        COMMAND_LINE, words, streams, environment(env), **options
                    )
            else:
                process = subprocess.Popen(
                    [*options.pop("prefix", ()), sys.executable, "-m", "clawblox", *words],
                    env=environment(env),
                    **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **options},
                )
        commands.append(Command(process, directory))
        return commands[-1]

    yield start_one
    for command in commands:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()
        for stream in (command.process.stdout, command.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def call(start: Start) -> Start:
    """Run ``clawblox`` commands to their end."""

    def call_one(*words: str, **options: Any) -> Command:
        command = start(*words, **options)
        command.wait()
        assert "Traceback" not in command.err
        return command

    return call_one


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def up(start: Start, tmp_path: Path, run_dir: Path) -> Start:
    """Start three instances with ``up``; return when all of them are ready or have failed."""

    def up_three(
        *words: str, flags: tuple[str, ...] = (), toml_extra: str = "", **options: Any
    ) -> Command:
        directory = make_world(tmp_path, *flags, toml_extra=toml_extra)
        words = ("up", str(directory), "-n", "3", "--run-dir", str(run_dir), *words)
        command = start(*words, **options)
        command.wait_for("ready after")
        return command

    return up_three


def choosy_world(parent: Path, name: str, *flags: str) -> Path:
    """Write a world that gives flags only to its instance ``name``."""
    directory = make_world(parent, name="choosy")
    choice = f'*/{name}/*) set -- "$@" {" ".join(flags)}'
    script = f'case "$CLAWBLOX_MANIFEST_PATH" in {choice};; esac; exec "$@"'
    command = ["/bin/sh", "-c", script, "sh", *world_command()]
    toml = directory / "world.toml"
    toml.write_text(toml.read_text().replace(json.dumps(world_command()), json.dumps(command)))
    return directory


def only_run(directory: Path) -> Path:
    """Return the run directory that a command made in its current directory."""
    (found,) = (directory / "runs").iterdir()
    return found


def read_instances(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the facts of ``clawblox ps --json`` by instance name, without running the command."""
    found = json.loads(json.dumps([*map(attrs.asdict, read_run(run_dir).instances)], default=str))
    return {one["name"]: one for one in found}


def find_port(run: str) -> int:
    """Return the port of the first instance of a run."""
    return int(read_instances(Path(run))["w000"]["port"])


@attrs.define
class Served:
    """A world in the foreground of a ``clawblox run``."""

    command: Command
    world: Path
    port: int

    @property
    def run_dir(self) -> str:
        return str(self.world)


@pytest.fixture
def serve(start: Start, tmp_path: Path) -> Callable[..., Served]:
    """Run misbehaving worlds in the foreground; return when they are ready."""

    def serve_one(*flags: str, words: tuple[str, ...] = (), name: str = "counter") -> Served:
        world = make_world(tmp_path, *flags, name=name)
        port = free_port()
        words = ("--port", str(port), "--run-dir", str(world), *words)
        command = start("run", str(world), *words)
        command.wait_for("Spectator frontend")
        return Served(command, world, port)

    return serve_one


def assert_nothing_runs() -> None:
    """Require that all processes of instances have ended."""
    wait_until(lambda: not marked_processes(), what="no process of a world is left")


@pytest.fixture
def claude_env(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a stand-in for Claude Code."""
    binary = install(tmp_path / "bin", "claude")
    return {"PATH": f"{binary.parent}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": API_KEY}


def transcript(agent: Path) -> Path:
    """Return the only conversation of Claude Code below an agent's directory."""
    (path,) = (agent / "session" / "projects").glob("*/*.jsonl")
    return path
