"""One process of an agent's program: its standard input, its log, the polls of the log, its exit.

The program writes to the log directly, so no output is lost when this process is slow or dies.
"""

from __future__ import annotations

import math
import os
import signal  # noqa: TID251 - numbers only, nothing is sent
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import anyio
import attrs

from clawblox.agents.drivers.driver import Conversation
from clawblox.agents.layout import AgentDir
from clawblox.agents.running.hooks import Enclosed
from clawblox.agents.values import DriverReport
from clawblox.results import ProcessExit
from clawblox.system.process import Process, spawn
from clawblox.system.regular_files import closing_fd, open_own, open_regular
from clawblox.telemetry.log_index import LogIndex
from clawblox.telemetry.logs import last_lines
from clawblox.telemetry.own_log import OwnLog
from clawblox.telemetry.tail import FileLine, Tail

_log = OwnLog(__name__)

_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT

_FIRST_S: Final = 0.005
_WORKING_S: Final = 0.05
_QUIET_S: Final = 1.0
"""Maximum pauses between polls, in seconds."""

_LATE_S: Final = 2.0
"""Seconds between two polls above which this process must have been stopped."""

_LONGER: Final = 1.3
"""Factor by which each pause exceeds the previous pause."""


def spawn_program(
    enclosed: Enclosed, *, cwd: Path, directory: AgentDir, stdin: StdinWriter | None
) -> Process:
    """Start a process that writes to the agent's logs itself. Blocks.

    Args:
        enclosed: The command.
        cwd: Its working directory on this machine.
        directory: The agent's directory.
        stdin: Its standard input; None for an empty input.

    Raises:
        CannotExecute: The program cannot be executed.
        OSError: A log cannot be written, or no descriptor is left.
    """
    with ExitStack() as opened:
        if stdin is not None:
            opened.callback(stdin.close_read_end)
        output = opened.enter_context(closing_fd(open_own(directory.log_file, _APPEND)))
        errors = opened.enter_context(closing_fd(open_own(directory.errors_file, _APPEND)))
        return spawn(
            enclosed.argv,
            cwd=cwd,
            env=enclosed.env,
            output=output,
            errors=errors,
            stdin=None if stdin is None else stdin.read_end,
            pass_fds=enclosed.pass_fds,
        )


def exit_code(end: ProcessExit) -> int | None:
    """Return an exit status, negative for a signal; None if unknown."""
    if end.signal is None:
        return end.status
    number = signal.Signals.__members__.get(end.signal)
    return -int(end.signal.rpartition(" ")[2]) if number is None else -number


MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes queued for a program that does not read."""


class StdinFull(Exception):  # noqa: N818 - named after the condition
    """A program does not read its standard input."""


class StdinWriter:
    """Both ends of the pipe to a program's standard input.

    Raises:
        OSError: No descriptor is left.

    Attributes:
        read_end: The end that the program inherits as its standard input.
    """

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._unread = bytearray()
        self._news = anyio.Event()
        self._is_broken = False
        self._is_ended = False

    def put(self, data: bytes) -> None:
        """Queue ``data`` for the program.

        Raises:
            StdinFull: Too many bytes are queued already.
        """
        if not data or self._is_broken or self._is_ended:
            return
        if len(self._unread) + len(data) > MAX_UNREAD_BYTES:
            raise StdinFull
        self._unread += data
        self._news.set()

    def end(self) -> None:
        """Close the program's input after the queued bytes."""
        self._is_ended = True
        self._news.set()

    async def write_on(self) -> None:
        """Write queued bytes while the program reads; return once the input has ended or broken.

        Cancellation: keeps the unwritten bytes.
        """
        while not self._is_broken:
            await self._news.wait()
            self._news = anyio.Event()
            while self._unread and not self._is_broken:
                try:
                    written = os.write(self._write_end, self._unread)
                except BlockingIOError:
                    await anyio.wait_writable(self._write_end)
                except BrokenPipeError:  # the program's exit explains the failure
                    self._is_broken = True
                    self._unread.clear()
                else:
                    del self._unread[:written]
            if self._is_ended:
                self.close()
                return

    def close_read_end(self) -> None:
        """Close our copy of the program's end, after the spawn. Idempotent."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    def close(self) -> None:
        """Close both ends; :meth:`write_on` must have ended. Idempotent."""
        self.close_read_end()
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


class ErrorOutput:
    """Standard error of one process; the file starts with the output of earlier processes.

    Args:
        path: The file; it exists.

    Raises:
        OSError: The file cannot be opened.

    Attributes:
        start: Offset of the first byte of this process.
        size: Length of the file at the last call of :meth:`has_grown`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = open_regular(path)
        self.start = self.size = os.fstat(self._fd).st_size

    def has_grown(self) -> bool:
        """Return whether the file has grown since the last call. Cheap: the file is open."""
        before, self.size = self.size, os.fstat(self._fd).st_size
        return self.size > before

    def last_lines(self, count: int, secrets: Sequence[str]) -> tuple[str, ...]:
        """Return the last lines of this process, masked.

        Args:
            count: Maximum number of lines.
            secrets: Values to mask.
        """
        return last_lines(self._path, start=self.start, count=count, secrets=secrets)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


# -- its standard output ------------------------------------------------------------------------


def read_reports(
    conversation: Conversation, lines: Iterable[FileLine], agent: str
) -> list[tuple[int, DriverReport]]:
    """Return the reports in lines, each with the offset of its line.

    Args:
        conversation: Reads the lines.
        lines: The lines.
        agent: Full name of the agent.
    """
    reports: list[tuple[int, DriverReport]] = []
    for line in lines:
        if line.data is None:
            reports.append((line.offset, DriverReport("oversized", {"size_bytes": line.size})))
            continue
        try:
            for report in conversation.read(line.data):
                reports.append((line.offset, report))  # noqa: PERF401 - a generator costs more
        except Exception as error:  # noqa: BLE001 - an unreadable line has no reports
            _log.defect("line not understood", error, agent=agent, offset=line.offset)
    return reports


class OutputReader(Tail):
    """Reads the log of a process that is about to start, and keeps its index.

    Args:
        path: The log; it exists.
        offset: Offset of the first line of the process.
        begins_at: Offset of the first byte of the file; above 0 for a log with older segments.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path, offset: int, *, begins_at: int = 0) -> None:
        super().__init__(path, offset, begins_at=begins_at)
        self.open()
        self._index = LogIndex(path)
        self._index.begin_run()

    def read(self) -> list[FileLine]:
        """Return the next lines, and record their times in the index."""
        self._index.note_length()
        return super().read()

    def touch(self) -> None:
        """Set the modification time of the log to now, because the agent was active.

        Raises:
            OSError: The time cannot be set.
        """
        os.utime(self._fd)

    def finish(self, end: ProcessExit | None) -> list[FileLine]:
        """Note the end of the process in the index; return the last line if it lacks its newline.

        Args:
            end: The exit of the process; None if it still runs.
        """
        how = "was left running" if end is None else f"ended: {end}"
        self._index.note_end("exited", f"the program {how}")
        return self.take_rest()


@attrs.define(eq=False)
class LogPoller:
    """Chooses the pauses between polls of one log."""

    _pause_s: float = attrs.field(default=_FIRST_S, init=False)
    _polled_at: float = attrs.field(default=math.inf, init=False)

    def begin_poll(self, now: float) -> float:
        """Return the seconds for which this process was stopped since the last poll; usually 0.

        Args:
            now: Monotonic time in seconds.
        """
        since_s, self._polled_at = now - self._polled_at, now
        return since_s if since_s > _LATE_S else 0.0

    def reset(self) -> None:
        """Make the next poll come soon."""
        self._pause_s = _FIRST_S

    def next_pause(self, now: float, *, is_quiet: bool) -> float:
        """Return the seconds until the next poll.

        Args:
            now: Monotonic time in seconds.
            is_quiet: Whether no output is expected.
        """
        longest_s = _QUIET_S if is_quiet else _WORKING_S
        pause_s = min(self._pause_s, longest_s)
        self._pause_s = pause_s * _LONGER
        # All agents are polled at the same moments: the loop wakes up once, and one hop into a
        # thread reads all logs.
        return longest_s - now % longest_s if pause_s == longest_s else pause_s
