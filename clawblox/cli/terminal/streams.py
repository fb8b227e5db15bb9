"""The standard streams of the command line, with control characters of foreign text escaped.

All output passes :func:`guard_text`: the output of ``click``, ``print`` and ``output``, usage
errors, warnings and tracebacks. It shows control characters as escapes, on terminals and in
pipes, since a pager or ``grep`` would pass them on. Our own colours pass on a terminal; none of
them can hide text. Constants that move the cursor are written with :func:`write_control`.
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

_COLOUR: Final = r"(\x1b\[(?:[0-2]|3[1-6]|9[1-6])?(?:;(?:[0-2]|3[1-6]|9[1-6]))*m)"
"""Reset, bold, faint, and colours that are readable on light and dark backgrounds."""


def guard_text(text: str, *, has_colours: bool) -> str:
    """Return text with control characters as escapes, except newlines and tabs.

    Args:
        text: The text to write.
        has_colours: Whether colours are left as they are.
    """
    if not has_colours or "\x1b" not in text:
        return printable_lines(text)
    parts = re.split(_COLOUR, text)
    parts[::2] = map(printable_lines, parts[::2])
    return "".join(parts)


class _GuardedStream:
    """Wraps a text stream; output passes :func:`guard_text`, all else is delegated.

    Attributes:
        raw: The wrapped stream.
        buffer: Accepts text as bytes, which also passes the guard.
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
        # The finalizer also flushes, perhaps after the stream is closed.
        if not self._stream.raw.closed:
            self._stream.raw.flush()


def guard_streams() -> None:
    """Put the guard permanently in front of this process's standard output and standard error."""
    atexit.register(_give_up_lost_terminals)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _GuardedStream):
            setattr(sys, name, _GuardedStream(stream))


def _give_up_lost_terminals() -> None:
    """Drop output for a closed terminal, since Python would else change the exit status to 120."""
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
    """Return the stream behind the guard. The caller must escape foreign text."""
    guarded: object = stream
    return guarded.raw if isinstance(guarded, _GuardedStream) else stream


def write_control(stream: TextIO, sequence: str) -> None:
    """Write a constant that controls the terminal, for example to clear the line."""
    raw_stream(stream).write(sequence)
