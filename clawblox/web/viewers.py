"""The viewers that people have started from a page: programs that end with this server."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.errors import ClawbloxError
from clawblox.printable import printable_lines
from clawblox.supervision.tree import SharedStop
from clawblox.world.viewer import HOST, ViewerCommand, leased_port, run_viewer

MAX_RUNNING: Final = 8
_CHUNK_BYTES: Final = 1 << 16
_KEPT_BYTES: Final = 4096

ViewerKey: TypeAlias = tuple[str, str]
"""A run's name in addresses, and the number of its recording."""


@attrs.define(eq=False)
class RunningViewer:
    """A viewer that was started.

    Attributes:
        port: The port that it was given.
        words: The command.
        state: Whether it runs.
        why: Why it failed, or how it ended.
        output: The end of what it has written.
    """

    port: int = 0
    words: list[str] = attrs.field(factory=list)
    state: Literal["running", "ended", "failed"] = "running"
    why: str = ""
    output: bytes = b""

    @property
    def address(self) -> str:
        """The address that it was given."""
        return f"http://{HOST}:{self.port}/"

    @property
    def text(self) -> str:
        """The end of what it has written, as text."""
        return printable_lines(self.output.decode(errors="replace"))


class Viewers:
    """The viewers of this server, at most one for each recording."""

    def __init__(self) -> None:
        self._viewers: dict[ViewerKey, RunningViewer] = {}
        self._lock = threading.Lock()
        self._tasks: Tasks | None = None

    def find(self, run: str, number: str) -> RunningViewer | None:
        """Return the viewer that was started last for a recording. Thread-safe."""
        with self._lock:
            return self._viewers.get((run, number))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Let viewers run while the block does; they have ended when it is left.

        Cancellation: ends them.
        """
        async with Tasks(on_error=lambda _error: None) as self._tasks:
            yield

    async def start(self, key: ViewerKey, viewer: ViewerCommand, recording: Path) -> None:
        """Start a viewer, unless it runs; :meth:`find` says what became of it.

        Args:
            key: The recording in addresses.
            viewer: Its command.
            recording: Its file, absolute.

        Raises:
            ClawbloxError: Too many run.

        Cancellation: it may have been started.
        """
        entry, is_begun = RunningViewer(), anyio.Event()
        with self._lock:
            known = self._viewers.get(key)
            if known is not None and known.state == "running":
                return
            if sum(one.state == "running" for one in self._viewers.values()) >= MAX_RUNNING:
                raise ClawbloxError(f"{MAX_RUNNING} viewers are running; end one of them first")
            self._viewers[key] = entry
        if self._tasks is not None:
            self._tasks.start_soon(_run, entry, viewer, recording, is_begun)
            await is_begun.wait()


async def _run(
    entry: RunningViewer, viewer: ViewerCommand, recording: Path, is_begun: anyio.Event
) -> None:
    async def read_output(source: int) -> None:
        while True:
            await anyio.wait_readable(source)
            data = os.read(source, _CHUNK_BYTES)
            entry.output = (entry.output + data)[-_KEPT_BYTES:]
            if not data:
                return

    try:
        with leased_port() as entry.port:
            entry.words = viewer.fill(recording, entry.port)
            is_begun.set()
            end = await run_viewer(entry.words, viewer.cwd, read_output, SharedStop())
        entry.state, entry.why = "ended", end.signal or f"status {end.status}"
    except ClawbloxError as error:
        entry.state, entry.why = "failed", error.headline
    finally:
        is_begun.set()
