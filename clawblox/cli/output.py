"""Writing: standard output that never blocks a stop, notes on standard error, tables."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import click

__all__ = [
    "OutputGone",
    "StandardOutput",
    "format_seconds",
    "format_table",
    "note",
    "shorten_path",
]

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


class OutputGone(Exception):  # noqa: N818 - says the condition
    """Nobody reads standard output any more."""


class StandardOutput:
    """Standard output for code in an event loop.

    A terminal that was stopped, or a pager that does not read on, must not keep a signal from
    being served. So a write is only tried when there is room, and never for more than that.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._fd = sys.stdout.fileno()
        self._encoding = sys.stdout.encoding
        self._room = select.poll()
        self._room.register(self._fd, select.POLLOUT)

    async def write_line(self, text: str) -> None:
        """Write a line.

        Raises:
            OutputGone: Nobody reads.

        Cancellation: a part of the line may have been written.
        """
        data = memoryview(f"{text}\n".encode(self._encoding, errors="replace"))
        while data:
            if not self._room.poll(0):
                await anyio.wait_writable(self._fd)
            try:
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
            except OSError as error:
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


def shorten_path(path: Path) -> str:
    """Write a path relative to the current directory when it lies in it."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write rows in aligned columns below their headings."""
    table = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
