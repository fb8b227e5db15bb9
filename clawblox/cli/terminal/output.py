"""Writing: output that never blocks a signal, notes on standard error, tables, units."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shlex
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import anyio
import anyio.lowlevel
import click

from clawblox.results import WorldExit
from clawblox.rundir.status import InstanceStatus
from clawblox.system.clock import utc_now

__all__ = [
    "Output",
    "OutputGone",
    "format_age",
    "format_bytes",
    "format_end",
    "format_exit",
    "format_seconds",
    "format_table",
    "note",
    "printable",
    "printable_lines",
    "shorten_path",
    "suggest",
]

_NOT_PRINTABLE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[^\x20-\x7e\xa0-\U0010ffff]")
_REORDERING = ("Cf", "Zl", "Zp")
"""Characters that are not seen, and can make others be seen elsewhere: bidi overrides, say."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAX_REASON_CHARS = 40
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


class OutputGone(Exception):  # noqa: N818 - says the condition
    """Nobody reads the output any more."""


class Output:
    """A standard stream for code in an event loop; a context manager.

    A terminal that was stopped, or a pager that does not read on, must not keep a signal from
    being served. So a write is only tried when there is room, and never for more than that.

    Args:
        stream: ``sys.stdout`` or ``sys.stderr``.

    Attributes:
        is_terminal: Whether a person looks at it, on a terminal that can be drawn on.
    """

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._encoding = stream.encoding
        self._fd = stream.fileno()
        self._own_fd = -1
        self.is_terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        if stream.isatty():
            self._open_terminal()
        self._room = select.poll()
        self._room.register(self._fd, select.POLLOUT)

    def _open_terminal(self) -> None:
        # How much room a terminal has is not to be known. An opening of our own, which the shell
        # does not share, can be told not to wait; where that is refused, writes may.
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            self._fd = self._own_fd = os.open(f"/proc/self/fd/{self._fd}", flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._own_fd >= 0:
            os.close(self._own_fd)

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines of the terminal."""
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(self._fd)
            if found.columns and found.lines:
                return found
        return os.terminal_size((80, 24))

    async def write_line(self, text: str) -> None:
        """Write a line; see :meth:`write`."""
        await self.write(f"{text}\n")

    async def write(self, text: str) -> None:
        """Write text.

        Raises:
            OutputGone: Nobody reads.
            OSError: It goes to a file, and the disk is full.

        Cancellation: a part of it may have been written.
        """
        data = memoryview(text.encode(self._encoding, errors="replace"))
        while data:
            if not self._room.poll(0):
                await anyio.wait_writable(self._fd)
            try:
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
            except BlockingIOError:  # a terminal was stopped this instant
                await anyio.lowlevel.checkpoint()
            except OSError as error:
                if error.errno in _DISK_FULL:
                    raise
                raise OutputGone(error.strerror) from error


def note(text: str, *, ends_line: bool = True) -> None:
    """Say something on standard error; a terminal that was closed does not matter."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True, nl=ends_line)


def format_seconds(seconds: float | None) -> str:
    """Write a duration for a person: ``0.4s``, ``42s``, ``3m12s``, ``2h05m``, ``3d04h``."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for unit, name, part, part_name in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "m"),
        (_MINUTE_S, "m", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit}{name}{whole % unit // part:02}{part_name}"
    return f"{whole}s"


def format_age(at: str | None) -> str:
    """Write how long ago a UTC time of a manifest or record was, as a duration."""
    if at is None:
        return ""
    try:
        age = utc_now() - datetime.fromisoformat(at)
    except (TypeError, ValueError):  # somebody else wrote it
        return "?"
    return format_seconds(float(max(0, int(age.total_seconds())))).replace(".0s", "s")


def format_bytes(size: int | None) -> str:
    """Write a size for a person: ``512 B``, ``9.8 MB``, ``31 MB``, ``1.2 GB``."""
    if size is None:
        return ""
    value, units = float(size), iter(("B", "kB", "MB", "GB"))
    unit = next(units)
    while value >= 999.5 and (larger := next(units, None)):
        value, unit = value / 1000, larger
    digits = 1 if value < 9.95 and unit != "B" else 0
    return f"{value:.{digits}f} {unit}"


def format_exit(exit_: WorldExit | None) -> str:
    """Write how a process ended, in a word: a status, or the name of a signal."""
    if exit_ is None:
        return ""
    return exit_.signal or ("?" if exit_.status is None else str(exit_.status))


def format_end(status: InstanceStatus) -> str:
    """Write how an instance ended, in a word, or why it halted, in a few."""
    if status.halt is None:
        return format_exit(status.exit)
    reason = printable(status.halt)
    return reason if len(reason) <= _MAX_REASON_CHARS else f"{reason[: _MAX_REASON_CHARS - 1]}…"


def printable(text: str) -> str:
    """Return the first line of a text as it stands, whatever a terminal makes of it."""
    return _visible(text.strip().partition("\n")[0])


def printable_lines(text: str) -> str:
    """Return a text as it stands, line by line, whatever a terminal makes of it."""
    return "\n".join(map(_visible, text.split("\n")))


def _visible(line: str) -> str:
    seen = "".join(each for each in line if unicodedata.category(each) not in _REORDERING)
    return _NOT_PRINTABLE.sub("", seen.expandtabs())


def suggest(command: str, run_dir: Path, *names: str) -> str:
    """Return the words of a command that a person may want next."""
    return shlex.join(("clawblox", *command.split(), shorten_path(run_dir), *names))


def shorten_path(path: Path) -> str:
    """Write a path relative to the current directory when it lies in it."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write rows in aligned columns below their headings; columns with nothing in them go."""
    columns = [column for column in zip(headings, *rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in zip(*columns, strict=True)
    )
    return "\n".join(line.rstrip() for line in lines)
