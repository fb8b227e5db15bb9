"""Sandboxes with real processes."""

from __future__ import annotations

import os
import socket
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.sandbox.bubblewrap import Bubblewrap
from clawblox.concurrency.threads import run_blocking
from clawblox.results import ProcessExit
from clawblox.supervision.tree import Grace, end_tree
from clawblox.system.process import Process, memory_log, spawn
from clawblox.system.process_tree import Mark
from tests.support.processes import INSTANCE_ENV
from tests.support.waiting import HANG_S

TIMEOUT_S = HANG_S
LABEL = "counter"
PYTHON = (sys.executable, "-I", "-S", "-c")


def make_directory(parent: Path) -> AgentDir:
    directory = AgentDir(parent / "agent")
    for path in (directory.workspace, directory.home, directory.state, directory.runtime):
        path.mkdir(parents=True)
    return directory


@contextmanager
def answering(listener: socket.socket, text: str) -> Iterator[list[str]]:
    """Answer each HTTP request with a text, in a thread; yield the first lines of requests."""
    seen: list[str] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the server was shut down
                return
            with connection:
                seen.append(connection.recv(65536).decode().partition("\r\n")[0])
                connection.sendall(f"HTTP/1.0 200 OK\r\n\r\n{text}".encode())

    listener.setblocking(True)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT_S)


@attrs.define
class Running:
    """A program that runs in a sandbox."""

    process: Process
    world: socket.socket
    mark: Mark
    _output: int

    @property
    def output(self) -> str:
        return os.pread(self._output, 1 << 20, 0).decode()

    async def end(self) -> str:
        """Wait until the program has exited with status 0; return its output."""
        with anyio.fail_after(TIMEOUT_S):
            assert await self.process.wait() == ProcessExit(status=0), self.output
        return self.output


@attrs.define
class Sandbox:
    """An open sandbox for programs in Python."""

    directory: AgentDir
    bubblewrap: Bubblewrap

    @classmethod
    def open(
        cls,
        parent: Path,
        *,
        settings: Mapping[str, Any] | None = None,
        binary: str = sys.executable,
        has_native: bool = False,
    ) -> Sandbox:
        directory = make_directory(parent)
        bubblewrap = Bubblewrap(
            api_hosts=["api.example.com"],
            host=lambda: LABEL,
            settings=lambda: settings or {},
            has_native=has_native,
        )
        bubblewrap.open(directory, Path(binary))
        return cls(directory, bubblewrap)

    @asynccontextmanager
    async def running(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        serve: bool = False,
        output: int | None = None,
    ) -> AsyncIterator[Running]:
        """Run a program in the sandbox like an agent, and end all its processes."""
        cookie = uuid.uuid4().hex  # concurrent tests end only their own processes
        whole = {"PATH": os.environ["PATH"], INSTANCE_ENV: cookie, **(env or {})}
        with memory_log("output") as memory:
            output = memory if output is None else output
            process = await run_blocking(self._spawn, argv, whole, output)
            mark = Mark(f"{INSTANCE_ENV}={cookie}".encode(), ((process.pid, process.start_time),))
            try:
                async with anyio.create_task_group() as tasks:
                    if serve:
                        tasks.start_soon(self.bubblewrap.relays.serve)
                    with anyio.fail_after(TIMEOUT_S):
                        world = await self.bubblewrap.after_spawn()
                    with world:
                        yield Running(process, world, mark, output)
                    tasks.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await end_tree(mark, process, Grace(0))
                process.release()
                with anyio.CancelScope(shield=True):
                    await self.bubblewrap.release()

    def _spawn(self, argv: tuple[str, ...], env: dict[str, str], output: int) -> Process:
        enclosed = self.bubblewrap.enclose(argv, env, Path("/workspace"))
        return spawn(
            enclosed.argv,
            cwd=self.directory.workspace,
            env=enclosed.env,
            output=output,
            pass_fds=enclosed.pass_fds,
        )

    async def run(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        """Return the output of a program, which must exit with status 0."""
        async with self.running(*argv, env=env) as running:
            return await running.end()
