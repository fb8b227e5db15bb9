"""Spawns an orchestrator in the background, which sends messages to the command that spawned it.

The orchestrator is the same command again, in its own session, with ``--background-channel`` and a
socket. On the socket it sends one JSON object per line: for each instance that is ready or has
failed, and finally the result of the start. If the socket closes earlier, the orchestrator has
ended.
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

from clawblox.cli.parameters import CHANNEL_FLAG
from clawblox.cli.terminal.output import Outbox, note
from clawblox.concurrency.batch import Batch
from clawblox.concurrency.threads import run_blocking
from clawblox.results import StartedWorld, WorldEvent
from clawblox.rundir.control_client import Lines
from clawblox.rundir.paths import make_run_dir, state_dir
from clawblox.system.regular_files import closing_fd
from clawblox.telemetry.logs import last_lines, open_log
from clawblox.views.event_lines import describe_start_error

_LOG_NAME = "up.log"
_CLOSE_TIMEOUT_S = 1.0
_MAX_MESSAGE_BYTES = 1 << 20
_LAST_LINES = 20


class _Progress(msgspec.Struct, tag="progress"):
    """One more instance is ready or has failed."""

    is_ready: bool


class StartResult(msgspec.Struct, tag="result"):
    """The result of a start, sent when every instance is ready or has failed.

    Attributes:
        lines: Lines to print: the number of ready instances and the time that the start took, and
            facts such as addresses.
        ready: Number of ready instances.
        failed: Reasons of the failures, by name of the instance.
    """

    lines: list[str]
    ready: int
    failed: dict[str, str]


_decoder: msgspec.json.Decoder[_Progress | StartResult] = msgspec.json.Decoder(
    _Progress | StartResult
)


class StarterChannel:
    """Reports the progress of the start to the command that spawned this process.

    Args:
        fd: The socket.
    """

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._outbox = Outbox(Lines(self._socket).write)

    def send_event(self, event: WorldEvent) -> None:
        """Queue the progress that an event reports, if any."""
        if event.kind in ("ready", "start_failed"):
            self.send(_Progress(event.kind == "ready"))

    def send_result(self, lines: Sequence[str], batch: Batch[StartedWorld]) -> None:
        """Queue the result of the start. It is the last message."""
        reasons = {name: describe_start_error(error) for name, error in batch.failed.items()}
        self.send(StartResult(list(lines), len(batch), reasons))

    def send(self, message: _Progress | StartResult) -> None:
        """Queue a message; a result must be the last."""
        self._outbox.put(msgspec.json.encode(message) + b"\n")

    async def run(self) -> None:
        """Send queued messages until cancelled, or until the starter is gone.

        Cancellation: :meth:`finish` sends the remaining messages.
        """
        with contextlib.suppress(OSError):
            await self._outbox.run()

    async def finish(self) -> None:
        """Send the remaining messages for at most a second, and close the socket.

        Cancellation: some of the messages may have been sent.
        """
        with self._socket, anyio.move_on_after(_CLOSE_TIMEOUT_S), contextlib.suppress(OSError):
            await self._outbox.flush()


@attrs.frozen
class BackgroundProcess:
    """An orchestrator that was spawned in the background.

    Attributes:
        pid: Its process id.
        log_file: File with its output.
    """

    pid: int
    log_file: Path
    _log_start: int
    _process: subprocess.Popen[bytes]
    _channel: socket.socket

    async def wait_for_start(self, on_progress: Callable[[bool], None]) -> StartResult | None:
        """Wait until every instance is ready or has failed.

        Args:
            on_progress: Called for each instance; the argument is whether it is ready.

        Returns:
            The result; None if the orchestrator ended first.

        Raises:
            OSError: The channel broke.

        Cancellation: the start continues.
        """
        lines = Lines(self._channel)
        while (line := await lines.read(_MAX_MESSAGE_BYTES)).endswith(b"\n"):
            message = _decoder.decode(line)
            if isinstance(message, StartResult):
                return message
            on_progress(message.is_ready)
        return None

    def wait(self) -> tuple[int, tuple[str, ...]]:
        """Wait for the end; return the exit status and the last lines of output. Blocks."""
        status = self._process.wait()
        return status, last_lines(self.log_file, start=self._log_start, count=_LAST_LINES)

    def detach(self) -> None:
        """Close the channel; the orchestrator keeps running."""
        self._channel.close()
        if self._process.returncode is None:
            self._process.returncode = 0  # keeps Popen from warning that the child is still running


def spawn_in_background(
    command: Sequence[str], args: Sequence[str], run_dir: Path
) -> BackgroundProcess:
    """Run a command of this program again, in the background in its own session. Blocks.

    Args:
        command: The words of the command.
        args: Its arguments.
        run_dir: The run directory, which gets the output.

    Raises:
        ConfigError: The run directory cannot be used.
        OSError: The process cannot be spawned.
    """
    log_file = state_dir(make_run_dir(run_dir)) / _LOG_NAME
    channel, far_end = socket.socketpair()
    channel.setblocking(False)
    log, log_start = open_log(log_file)
    with far_end:
        words = (*command, CHANNEL_FLAG, str(far_end.fileno()), *args)
        with closing_fd(log):
            process = subprocess.Popen(
                # -P: nothing is imported from the current directory.
                [sys.executable, "-P", "-m", "clawblox", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[far_end.fileno()],
                start_new_session=True,
            )
    return BackgroundProcess(process.pid, log_file, log_start, process, channel)


async def start_in_background(
    background: BackgroundProcess,
    verb: str,
    count: int,
    on_started: Callable[[StartResult], None],
    watch: str,
) -> int:
    """Wait until an orchestrator in the background has started its work; return the exit status.

    Args:
        background: The orchestrator.
        verb: Word for the start, for example ``Starting``.
        count: Number of instances to start.
        on_started: Called with the result of the start.
        watch: Command that shows the work.

    Cancellation: the orchestrator continues.
    """
    from clawblox.cli.terminal.screen import progress_bar  # takes long to load

    try:
        async with progress_bar(verb, count) as bar:
            result = await background.wait_for_start(
                lambda is_ready: bar.advance(is_failed=not is_ready)
            )
        if result is None:
            status, lines = await run_blocking(background.wait)
            note("The orchestrator in the background has ended:")
            for line in lines:
                note(f"  | {line}")
            return status or 1
        on_started(result)
        return 1 if result.failed else 0
    except anyio.get_cancelled_exc_class():  # ended by Ctrl-C
        note(f"The start continues in the background. To watch it: {watch}")
        raise
    finally:
        background.detach()
