"""Programs that start worlds in separate processes, for tests that kill or suspend them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.processes import (
    command_line,
    descendants,
    find_guards,
    kill_processes,
    marked_processes,
    processes_in,
)
from tests.support.waiting import wait_until

PRELUDE = """
import ctypes, multiprocessing, os, resource, signal, subprocess, sys, threading, time
from functools import partial
import anyio
from clawblox import AsyncWorld, World

world_dir, run_dir, *arguments = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def tell(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

hear_async = partial(anyio.to_thread.run_sync, hear)
"""

STAY = """
async def main():
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=run_dir, detach="detach" in arguments)
        tell(started.port)
        await anyio.sleep_forever()
anyio.run(main)
"""


def kill_with_guard(program: subprocess.Popen[str]) -> None:
    """Kill a program and its guards at the same moment, so that its processes are not ended."""
    guards = find_guards(program.pid, *descendants(program.pid))
    assert guards
    program.send_signal(signal.SIGSTOP)  # otherwise it would replace its guard
    for pid in (*guards, program.pid):
        os.kill(pid, signal.SIGKILL)
    program.wait()


class Orchestrator:
    """A program that starts worlds in a separate process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def hear(self) -> str:
        """Return the next line of the program's output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the orchestrator ended instead of saying something"
        return line.strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def guards(self) -> list[int]:
        return find_guards(self.pid, *descendants(self.pid))


@contextlib.contextmanager
def orchestrator(
    body: str, world: Path, run: Path, *arguments: str, **options: Any
) -> Iterator[Orchestrator]:
    program = PRELUDE + textwrap.dedent(body)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(world), str(run), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],  # so that a body can import these tests
        **options,
    ) as process:
        try:
            yield Orchestrator(process)
        finally:
            process.kill()


def worlds_in(directory: Path) -> dict[int, str]:
    """Return the live processes of worlds below a directory, without orchestrators and guards."""
    found = {pid: command_line(pid) for pid in processes_in(directory)}
    return {pid: text for pid, text in found.items() if "import ctypes" not in text}


def wait_for_nothing(directory: Path) -> None:
    try:
        wait_until(lambda: not worlds_in(directory) and not marked_processes())
    finally:
        left = worlds_in(directory)
        kill_processes(lambda: worlds_in(directory))
    assert not left


def world_pid(world: Path) -> int:
    """Return the process named in a world's ``--pid-file`` as soon as the file exists."""
    path = world / "world.pid"
    wait_until(path.exists)
    return int(path.read_text())
