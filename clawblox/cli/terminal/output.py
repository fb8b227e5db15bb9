"""Writes to standard output and standard error without blocking the event loop."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Self, TextIO, TypeVar

import anyio
import anyio.lowlevel
import click

from clawblox.cli.terminal.streams import guard_text, write_control

CLEAR_LINE = "\r\x1b[K"

_Answer = TypeVar("_Answer")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class OutputGone(Exception):  # noqa: N818 - names the condition
    """The reader of the output is gone: a closed pipe, or a terminal that hung up."""


class Output:
    """A standard stream for code in an event loop; a context manager.

    A stopped terminal, or a pager that has stopped reading, must not delay the handling of signals.
    A write is therefore attempted only when there is room, and never exceeds the room.

    Args:
        stream: ``sys.stdout`` or ``sys.stderr``.

    Attributes:
        is_terminal: Whether it is a terminal that can be drawn on.
    """

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._encoding = stream.encoding
        self._fd = stream.fileno()
        self._own_fd = -1
        self._has_colours = stream.isatty()
        self.is_terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        if stream.isatty():
            # A terminal does not report how much room it has. A separate file description can be
            # non-blocking, since the shell does not share it; if it cannot be opened, writes may
            # block.
            flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            with contextlib.suppress(OSError):
                self._fd = self._own_fd = os.open(f"/proc/self/fd/{self._fd}", flags)
        self._room = select.poll()
        self._room.register(self._fd, select.POLLOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the separate file description of the terminal, if any."""
        if self._own_fd >= 0:
            os.close(self._own_fd)

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines of the terminal; 80 by 24 if unknown."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._fd)
            if size.columns and size.lines:
                return size
        return os.terminal_size((80, 24))

    async def write_line(self, text: str) -> None:
        """Write a line.

        Raises:
            OutputGone: The reader is gone.
            OSError: The output is a file, and the disk is full.

        Cancellation: part of it may have been written.
        """
        await self.write(f"{text}\n")

    async def write(self, text: str) -> None:
        """Write text with control characters as escapes.

        Raises:
            OutputGone: The reader is gone.
            OSError: The output is a file, and the disk is full.

        Cancellation: part of it may have been written.
        """
        await self.write_control(self.guard(text))

    def guard(self, text: str) -> str:
        """Return text with the escapes that :meth:`write` uses."""
        return guard_text(text, has_colours=self._has_colours)

    async def write_control(self, text: str) -> None:
        """Write trusted control sequences, and text that :meth:`guard` returned.

        Raises:
            OutputGone: The reader is gone.
            OSError: The output is a file, and the disk is full.

        Cancellation: part of it may have been written.
        """
        data = memoryview(text.encode(self._encoding, errors="replace"))
        while data:
            if not self._room.poll(0):
                await anyio.wait_writable(self._fd)
            try:
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
            except BlockingIOError:  # the terminal was stopped since the poll
                await anyio.lowlevel.checkpoint()
            except OSError as error:
                if error.errno in _DISK_FULL:
                    raise
                raise OutputGone(error.strerror) from error


def note(text: str) -> None:
    """Print a message on standard error unless it is closed."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def ask(question: Callable[[], _Answer]) -> _Answer | None:
    """Ask a question on standard error and return the answer; None if the input ends first.

    Args:
        question: Asks the question, such as ``click.confirm`` with ``err=True``.

    Raises:
        click.Abort: Ctrl-C was pressed.
    """
    try:
        return question()
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            raise
        note("")
        return None


def redraw(text: str) -> None:
    """Replace the last line of the terminal of standard error with a message."""
    with contextlib.suppress(OSError):
        write_control(sys.stderr, CLEAR_LINE)
        click.echo(text, err=True, nl=False)


_MAX_LINES = 4096
_Line = TypeVar("_Line")


class Outbox(Generic[_Line]):
    """A queue of lines that a single task writes. Beyond 4096 lines the oldest are dropped.

    Args:
        write: Writes a line.
    """

    def __init__(self, write: Callable[[_Line], Awaitable[None]]) -> None:
        self._write = write
        self._lines: deque[_Line] = deque(maxlen=_MAX_LINES)
        self._has_news = anyio.Event()

    def put(self, line: _Line) -> None:
        """Queue a line."""
        self._lines.append(line)
        self._has_news.set()

    async def run(self) -> None:
        """Write lines until cancelled.

        Raises:
            Exception: The exception that ``write`` raised.

        Cancellation: part of a line may have been written.
        """
        while True:
            self._has_news = anyio.Event()
            await self.flush()
            await self._has_news.wait()

    async def flush(self) -> None:
        """Write the queued lines; must not be called while :meth:`run` is running.

        Raises:
            Exception: The exception that ``write`` raised.

        Cancellation: part of a line may have been written.
        """
        while self._lines:
            await self._write(self._lines.popleft())
