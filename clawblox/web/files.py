"""Files that pages show: opened below one directory only, read in windows, searched in slices.

A path may come from untrusted records. It is therefore resolved, must be below the directory of the
pages, and is opened without following links or blocking, and only if it is a regular file. Windows
contain whole lines; a match is within a line. All functions block, a search for its slice of time.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import importlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from clawblox.extras import install_command
from clawblox.system.regular_files import closing_fd, open_file
from clawblox.telemetry.log_segments import LogSegment
from clawblox.telemetry.tail import pass_hole

WINDOW_BYTES: Final = 64 << 10
"""Usual size of a window."""
MAX_WINDOW_BYTES: Final = 256 << 10
MAX_WANTED: Final = 1000
"""Maximum length of a searched text, in characters."""
_END: Final = 1 << 62
_BLOCK: Final = 1 << 18
_LONG_LINE: Final = 1 << 14
"""Overlap in bytes of the blocks of a long line, since a match can cross the end of a block."""
_EXCERPT: Final = 120
"""Maximum bytes to show on each side of a match, and of the match itself."""

Finder: TypeAlias = Callable[[bytes], Iterable[tuple[int, int]]]
"""Yields the start and end of each match in a block, in order."""


@contextlib.contextmanager
def opened_below(root: Path, path: Path) -> Iterator[int]:
    """Open a regular file for reading while the block runs, and yield its descriptor.

    Args:
        root: The directory that must contain the file, after resolving the links in both paths.
        path: The file; a relative path starts from ``root``.

    Raises:
        OSError: The file is outside ``root``, cannot be opened, or is not a regular file. The error
            names the path.
    """
    try:
        top, place = Path(os.path.realpath(root)), Path(os.path.realpath(root / path))
    except ValueError as error:  # the path contains a NUL byte
        raise OSError(errno.EINVAL, "is no path", str(path)) from error
    if not place.is_relative_to(top):
        raise OSError(errno.EACCES, f"is not below {top}", str(path))
    # Refuse directories that have been replaced by links since the path was resolved.
    with closing_fd(open_file(top, str(place.relative_to(top)))) as fd:
        yield fd


@attrs.frozen
class FileWindow:
    """A part of a file.

    Attributes:
        start: Offset of its first byte.
        data: Its bytes.
        size: Length of the whole file when the window was read, in bytes.
        starts_line: Whether a line starts at ``start``.
    """

    start: int
    data: bytes = attrs.field(repr=False)
    size: int
    starts_line: bool

    @property
    def end(self) -> int:
        """Offset after its last byte, where the next window starts."""
        return self.start + len(self.data)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the offset and the text of each line, as :func:`decode` shows it."""
        position = self.start
        for line in self.data.split(b"\n"):
            if position < self.end:  # no line follows the last newline
                yield position, decode(line)
            position += len(line) + 1


def decode(data: bytes) -> str:
    r"""Return bytes as text; a byte that is not UTF-8 is shown as an escape like ``\xff``."""
    return data.decode(errors="backslashreplace")


def read_from(fd: int, start: int, max_bytes: int = WINDOW_BYTES, at: int = 0) -> FileWindow:
    """Return the window that starts at an offset and ends at the end of a line.

    If the line is longer than the window, or the file ends, the window ends within the line, but
    not within a character. Consecutive windows cover the whole file.

    Args:
        fd: Descriptor of the file.
        start: The offset, such as ``FileWindow.end``; capped at the end of the file.
        max_bytes: Maximum size of the window, at least 8.
        at: Offset of a byte that the window must include.

    Raises:
        OSError: The file cannot be read.
    """
    window = _read(fd, start, start + max_bytes)
    end, data = len(window.data), window.data
    if window.end < window.size:
        end = data.rfind(b"\n", max(at - window.start, 0)) + 1 or end - _cut_bytes(data)
    return attrs.evolve(window, data=data[:end])


def read_before(fd: int, end: int = _END, max_bytes: int = WINDOW_BYTES) -> FileWindow:
    """Return the window that ends at an offset and starts at the start of a line.

    Args:
        fd: Descriptor of the file.
        end: The offset, such as ``FileWindow.start``; capped at the end of the file.
        max_bytes: Maximum size of the window, at least 8.

    Raises:
        OSError: The file cannot be read.
    """
    end = min(end, os.fstat(fd).st_size)
    window = _read(fd, end - max_bytes, end)
    if window.starts_line:
        return window
    data = window.data
    line = data.find(b"\n", 0, -1) + 1
    skipped = line or next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    return FileWindow(window.start + skipped, data[skipped:], window.size, line > 0)


def read_around(fd: int, at: int, max_bytes: int = WINDOW_BYTES) -> FileWindow:
    """Return a window that starts with a line and has the byte at an offset near its middle.

    Args:
        fd: Descriptor of the file.
        at: The offset.
        max_bytes: Maximum size of the window, at least 16.

    Raises:
        OSError: The file cannot be read.
    """
    return read_from(fd, read_before(fd, at, max_bytes // 2).start, max_bytes, at)


def _read(fd: int, start: int, end: int) -> FileWindow:
    """Return a range of a file without adjusting it to lines."""
    size = os.fstat(fd).st_size
    start = min(max(start, 0), size)
    data = os.pread(fd, max(end - start, 0), start)
    is_line = start == 0 or os.pread(fd, 1, start - 1) == b"\n"
    return FileWindow(start, data, size, is_line)


def _cut_bytes(data: bytes) -> int:
    """Return the number of bytes of an incomplete character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return len(decoder.getstate()[0])


# -- search ----------------------------------------------------------------------------------------


@attrs.frozen
class TextMatch:
    """A match of a search.

    Attributes:
        start: Offset of the match in the log.
        before: Text before the match in its line, possibly cut.
        text: Text of the match, possibly cut.
        after: Text after the match in its line, possibly cut.
    """

    start: int
    before: str
    text: str
    after: str


@attrs.frozen
class Matches:
    """The result of a slice of a search.

    Attributes:
        found: The matches, in order.
        reached: Offset from which the next slice continues; None at the end of the log.
    """

    found: tuple[TextMatch, ...]
    reached: int | None


def make_finder(wanted: str, *, is_pattern: bool = False) -> Finder:
    """Return a finder for a text, both plain and escaped as in JSON, or for a regular expression.

    The search ignores case; for a text, only the case of ASCII letters. Regular expressions need
    ``google-re2``, whose running time is linear.

    Args:
        wanted: The text or the expression.
        is_pattern: Whether ``wanted`` is an expression.

    Raises:
        ValueError: ``wanted`` is empty, too long or not a valid expression, or the extra ``re2`` is
            missing.
    """
    if not 0 < len(wanted) <= MAX_WANTED:
        raise ValueError(f"q: must have 1 to {MAX_WANTED} characters, not {len(wanted)}")
    if is_pattern:
        return partial(_find, _compile(wanted))
    escaped = (json.dumps(wanted, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
    forms = {re.escape(form.encode(errors="replace").lower()) for form in (wanted, *escaped)}
    pattern = re.compile(b"|".join(sorted(forms)))
    return lambda data: _find(pattern, data.lower())


def search(
    root: Path,
    segments: Sequence[LogSegment],
    find: Finder,
    start: int = 0,
    *,
    most: int = 100,
    seconds: float = 1.0,
) -> Matches:
    """Search a log, starting at an offset, until the time slice is over or enough is found.

    Args:
        root: The directory that must contain the segments; see :func:`opened_below`.
        segments: The segments of the log, in order.
        find: Finds the matches in a block; see :func:`make_finder`.
        start: The offset, such as ``Matches.reached``.
        most: Maximum number of matches, at least 1.
        seconds: Length of the slice; at least one block is searched.

    Raises:
        OSError: A segment may not be shown, or cannot be read.
    """
    ends_at, found = time.monotonic() + seconds, list[TextMatch]()
    for segment in segments:
        if segment.end <= start:
            continue
        with opened_below(root, segment.path) as fd:
            for reached, match in _scan(fd, segment, find, max(start, segment.start)):
                found += [match] if match else []
                is_over = match is None and time.monotonic() >= ends_at
                if is_over or len(found) == most:
                    is_all = reached >= segments[-1].end
                    return Matches(tuple(found), None if is_all else reached)
    return Matches(tuple(found), None)


def _scan(
    fd: int, segment: LogSegment, find: Finder, reached: int
) -> Iterator[tuple[int, TextMatch | None]]:
    """Yield each match in a segment, and None after each block, with the offset after it."""

    def read(place: int, size: int) -> bytes:
        return os.pread(fd, min(size, segment.end - place), place - segment.start)

    line = max(segment.start, reached - _LONG_LINE)
    place = line + read(line, reached - line).rfind(b"\n") + 1
    while data := read(place := pass_hole(fd, place, segment.start, segment.end), _BLOCK):
        done = len(data)
        if done == _BLOCK:
            done = data.rfind(b"\n") + 1 or done - _LONG_LINE
        for first, last in find(data):
            if reached <= place + first < place + done:
                reached = place + last
                yield reached, cut_match(data, place, first, last)
        place += done
        reached = max(reached, place)
        yield reached, None


def cut_match(data: bytes, place: int, first: int, last: int) -> TextMatch:
    """Return a match with an excerpt of its line.

    Args:
        data: A block.
        place: Offset of the block in the log.
        first: Start of the match in the block.
        last: End of the match in the block.
    """
    before = data[max(first - _EXCERPT, 0) : first].rpartition(b"\n")[2]
    text = data[first : min(last, first + _EXCERPT)]
    after = data[last : last + _EXCERPT].partition(b"\n")[0]
    return TextMatch(place + first, decode(before), decode(text), decode(after))


def _find(compiled: Any, data: bytes) -> Iterable[tuple[int, int]]:  # noqa: ANN401
    return (match.span() for match in compiled.finditer(data) if match.end() > match.start())


def _compile(pattern: str) -> Any:  # noqa: ANN401 - of a package that may be missing
    try:
        re2 = importlib.import_module("re2")
        options = re2.Options()
    except (ImportError, AttributeError) as error:  # also raised if another package has that name
        words = f"q: a regular expression needs the extra re2: {install_command('re2')}"
        raise ValueError(words) from error
    options.case_sensitive = options.log_errors = False
    options.never_nl = True
    try:
        return re2.compile(b"(?m)" + pattern.encode(errors="replace"), options)
    except re2.error as error:
        raise ValueError(f"q: {pattern[:100]!r} is not a valid regular expression (RE2)") from error
