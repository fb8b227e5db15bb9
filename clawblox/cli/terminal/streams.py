"""The standard streams of the command line, through which no foreign text reaches a terminal raw.

Every character of the output passes :func:`guard_text`: what ``click`` and ``print`` write, what
goes past a blocked event loop (``output``), usage errors, warnings and tracebacks. It shows
control characters as escapes, on terminals and in pipes alike, since a pager or ``grep`` passes
them on. Colours of our own pass on a terminal; none of them can hide text. What moves the cursor
is written by :func:`write_control`, for constants only.
"""

from __future__ import annotations

import atexit
import codecs
import errno
import io
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, Final, TextIO

from clawblox.printable import printable_lines

_COLOUR: Final = re.compile(r"(\x1b\[(?:[0-2]|3[1-6]|9[1-6])?(?:;(?:[0-2]|3[1-6]|9[1-6]))*m)")
"""Reset, bold, faint, and colours that are read on light and dark backgrounds."""


def guard_text(text: str, *, has_colours: bool) -> str:
    """Return text with its control characters as escapes; its lines and tabs stay.

    Args:
        text: The text to write.
        has_colours: Whether colours are left as they are.
    """
    if not has_colours or "\x1b" not in text:
        return printable_lines(text)
    parts = _COLOUR.split(text)
    parts[::2] = map(printable_lines, parts[::2])
    return "".join(parts)


class _GuardedStream:
    """A text stream whose output passes :func:`guard_text`; else as the stream itself.

    Attributes:
        raw: The stream itself.
        buffer: Takes text as bytes, and guards it as well.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        self.buffer = _GuardedBuffer(self)
        self._has_colours = raw.isatty()

    def write(self, text: str) -> int:
        visible = guard_text(text, has_colours=self._has_colours)
        encoding = self.raw.encoding or "utf-8"
        self.raw.write(visible.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the stream's own
        return getattr(self.raw, name)


class _GuardedBuffer(io.RawIOBase):
    def __init__(self, stream: _GuardedStream) -> None:
        self._stream = stream
        encoding = stream.raw.encoding or "utf-8"
        self._decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._stream.write(self._decoder.decode(data))
        return len(data)

    def flush(self) -> None:
        if not self._stream.raw.closed:  # its finalizer flushes it as well, perhaps later
            self._stream.raw.flush()


def guard_streams() -> None:
    """Put the guard in front of standard output and standard error of this process, for good."""
    atexit.register(_give_up_lost_terminals)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _GuardedStream):
            setattr(sys, name, _GuardedStream(stream))


def _give_up_lost_terminals() -> None:
    """Drop output that no terminal will show, or Python would replace the exit status by 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal was closed
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream behind the guard. Its user must escape foreign text itself."""
    guarded: object = stream
    return guarded.raw if isinstance(guarded, _GuardedStream) else stream


def write_control(stream: TextIO, sequence: str) -> None:
    """Write a constant that controls the terminal, for example to clear the line."""
    raw_stream(stream).write(sequence)
