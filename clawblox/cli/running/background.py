"""An orchestrator in the background: how it is begun, and what it tells whoever began it.

It is the same command again, in a session of its own, with ``--background-channel`` and a socket.
Over that it says, a JSON object a line, which instance is ready or has failed, and at last what
came of them all. When the socket ends before, the orchestrator has ended.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import attrs
import msgspec

from clawblox.cli.tables.event_lines import start_reason_of
from clawblox.cli.terminal.outbox import Outbox
from clawblox.concurrency.batch import Batch
from clawblox.results import StartedWorld, WorldEvent
from clawblox.rundir.control_client import Lines
from clawblox.rundir.paths import make_run_dir, state_dir
from clawblox.telemetry.logs import last_lines, open_log

__all__ = ["Background", "Reporter", "Settled", "spawn_in_background"]

_LOG_NAME = "up.log"
_PATIENCE_S = 1.0
_MESSAGE_BYTES = 1 << 20
_LAST_LINES = 20


class _Progress(msgspec.Struct, tag="progress"):
    """One more instance is ready, or has failed."""

    is_ready: bool


class Settled(msgspec.Struct, tag="settled"):
    """What came of the start.

    Attributes:
        lines: How many are ready, and after how long; and what else there is to know.
        ready: How many.
        failed: Reasons, by name of the instance.
    """

    lines: list[str]
    ready: int
    failed: dict[str, str]


class Reporter:
    """Tells whoever began this program how far the start is.

    Args:
        fd: The socket.
    """

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        lines = Lines(self._socket)

        async def write(line: str) -> None:
            await lines.write(f"{line}\n".encode())

        self._outbox = Outbox(write)

    def take(self, event: WorldEvent) -> None:
        """Tell of an event, if it belongs to a start."""
        if event.kind in ("ready", "start_failed"):
            self._put(_Progress(event.kind == "ready"))

    def settle(self, lines: Sequence[str], batch: Batch[StartedWorld]) -> None:
        """Tell what came of the start; nothing more is told after."""
        reasons = {name: start_reason_of(error) for name, error in batch.failed.items()}
        self._put(Settled(list(lines), len(batch), reasons))

    def _put(self, message: msgspec.Struct) -> None:
        self._outbox.put(msgspec.json.encode(message).decode())

    async def run(self) -> None:
        """Tell until it is cancelled, or until nobody listens any more.

        Cancellation: :meth:`finish` tells the rest.
        """
        with contextlib.suppress(OSError):
            await self._outbox.run()

    async def finish(self) -> None:
        """Tell the rest, and close the socket.

        Cancellation: a part of it may be told.
        """
        with self._socket, anyio.move_on_after(_PATIENCE_S), contextlib.suppress(OSError):
            await self._outbox.flush()


@attrs.frozen
class Background:
    """An orchestrator that was begun in the background.

    Attributes:
        pid: Its process.
        log_file: What it writes.
    """

    pid: int
    log_file: Path
    _log_start: int
    _process: subprocess.Popen[bytes]
    _channel: socket.socket

    async def wait_until_settled(self, on_progress: Callable[[bool], None]) -> Settled | None:
        """Wait until every instance is ready or has failed.

        Args:
            on_progress: Called for each, with whether it is ready.

        Returns:
            What came of them; None when the orchestrator ended before.

        Cancellation: it goes on.
        """
        lines = Lines(self._channel)
        while (line := await lines.read(_MESSAGE_BYTES)).endswith(b"\n"):
            message = msgspec.json.decode(line, type=_Progress | Settled)
            if isinstance(message, Settled):
                return message
            on_progress(message.is_ready)
        return None

    def wait(self) -> int:
        """Wait for its end and return its exit status. Blocks."""
        return self._process.wait()

    def last_words(self) -> tuple[str, ...]:
        """Return the last lines that it wrote. Blocks."""
        return last_lines(self.log_file, start=self._log_start, count=_LAST_LINES)

    def leave(self) -> None:
        """Let it go on alone."""
        self._channel.close()
        if self._process.returncode is None:
            self._process.returncode = 0  # it is nobody's child any more; Popen shall not warn


def spawn_in_background(words: Sequence[str], run_dir: Path) -> Background:
    """Begin a command of this program once more, in a session of its own. Blocks.

    Args:
        words: The command and its arguments.
        run_dir: The run directory, where its output goes.

    Raises:
        OSError: It cannot be begun.
    """
    log_file = state_dir(make_run_dir(run_dir)) / _LOG_NAME
    channel, far_end = socket.socketpair()
    channel.setblocking(False)
    log, log_start = open_log(log_file)
    command, *others = words
    with far_end:
        reporting = (command, "--background-channel", str(far_end.fileno()))
        try:
            process = subprocess.Popen(
                # Nothing is imported from the current directory, which may be anything.
                [sys.executable, "-P", "-m", "clawblox", *reporting, *others],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[far_end.fileno()],
                start_new_session=True,
            )
        finally:
            os.close(log)
    return Background(process.pid, log_file, log_start, process, channel)
