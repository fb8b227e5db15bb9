"""Searching a file for a text or a regular expression, in slices that a request can wait for.

Upper and lower case are the same, and a match is within a line. Regular expressions need
``google-re2`` to be fast and to never run away. Without it, and for expressions that RE2 does not
have, the module :mod:`re` searches in a process of its own, which is killed when it takes too long.
Everything here blocks for a slice.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from clawblox.extras import install_command
from clawblox.system.helper import (
    HelperProcess,
    detach_from_parent,
    end_with_parent,
    import_paths,
)
from clawblox.web.files import decode

SLICE_S: Final = 0.5
MAX_MATCHES: Final = 200
_MAX_WANTED: Final = 1000
"""Maximum length of a text or an expression, in characters."""
_TEXT_BLOCK: Final = 1 << 20
_PATTERN_BLOCK: Final = 1 << 18
_LONG_LINE: Final = 4096
"""Bytes of a line longer than a block that are searched twice, as a match can be across its end."""
_EXCERPT: Final = 120
"""Bytes that are shown on each side of a match, and of the match itself."""
_BOOT_S: Final = 2.0
"""Longest time that a process needs to begin, in seconds."""

_Find: TypeAlias = Callable[[bytes], Iterator[tuple[int, int]]]


@attrs.frozen
class Match:
    """A place that matches.

    Attributes:
        start: Its offset in the file.
        end: The offset after it.
        before: The last part of its line before it.
        text: Its first part.
        after: The first part of its line after it.
    """

    start: int
    end: int
    before: str
    text: str
    after: str


@attrs.frozen
class Matches:
    """The result of a slice of a search.

    Attributes:
        found: The matches, in order.
        reached: Offset from which the next slice continues.
        size: Length of the file when the slice began, in bytes.
    """

    found: tuple[Match, ...]
    reached: int
    size: int

    @property
    def is_complete(self) -> bool:
        """Whether the file was searched to its end."""
        return self.reached >= self.size


def search(
    fd: int,
    wanted: str,
    start: int = 0,
    *,
    is_pattern: bool = False,
    max_matches: int = MAX_MATCHES,
    seconds: float = SLICE_S,
) -> Matches:
    """Search a file from an offset on, until the slice is over or has enough matches.

    Args:
        fd: Descriptor of the file; its position is neither used nor changed.
        wanted: The text or the regular expression; at most 1,000 characters.
        start: The offset, such as ``Matches.reached``.
        is_pattern: Whether it is a regular expression.
        max_matches: Maximum number of matches.
        seconds: Length of the slice. A regular expression may take two seconds more for its own
            process.

    Raises:
        ValueError: The text or the expression is empty, too long or not valid, or the expression
            takes too long.
        OSError: The file cannot be read.
    """
    if not 0 < len(wanted) <= _MAX_WANTED:
        raise ValueError(f"q: must have 1 to {_MAX_WANTED} characters, not {len(wanted)}")
    max_matches = min(max(max_matches, 1), MAX_MATCHES)
    if wanted.isascii() and not is_pattern:
        needle = wanted.encode().lower()
        find = partial(_find_text, needle)
        return _scan(fd, find, start, max_matches, seconds, overlap=len(needle) - 1)
    pattern = wanted if is_pattern else re.escape(wanted)
    compiled = _compile_re2(pattern)
    if compiled is None:
        return _search_apart(fd, pattern, start, max_matches, seconds)
    return _scan(fd, partial(_find_matches, compiled), start, max_matches, seconds)


def _scan(
    fd: int, find: _Find, start: int, max_matches: int, seconds: float, overlap: int | None = None
) -> Matches:
    """Search from an offset on.

    Args:
        fd: Descriptor of the file.
        find: Yields start and end of the matches in a block, in order.
        start: The offset.
        max_matches: Maximum number of matches.
        seconds: Length of the slice.
        overlap: Bytes of each block that are searched again with the next; None divides the file
            between lines.
    """
    end_at, size = time.monotonic() + seconds, os.fstat(fd).st_size
    place = reached = min(max(start, 0), size)
    block = _TEXT_BLOCK
    if overlap is None:
        place, block = _start_of_line(fd, reached), _PATTERN_BLOCK
    found: list[Match] = []
    while place < size and (data := os.pread(fd, block, place)):
        done = len(data) if len(data) < block else _end_of_block(data, overlap)
        for first, last in find(data):
            if first >= done:
                break
            if place + first >= reached:
                found.append(_cut_match(data, place, first, last))
                reached = place + last
                if len(found) == max_matches:
                    return Matches(tuple(found), reached, size)
        place += done
        reached = max(reached, place)
        if time.monotonic() >= end_at:
            break
    return Matches(tuple(found), reached, size)


def _start_of_line(fd: int, place: int) -> int:
    data = os.pread(fd, min(place, _LONG_LINE), max(place - _LONG_LINE, 0))
    return place - len(data) + data.rfind(b"\n") + 1


def _end_of_block(data: bytes, overlap: int | None) -> int:
    if overlap is not None:
        return len(data) - overlap
    return data.rfind(b"\n") + 1 or len(data) - _LONG_LINE


def _cut_match(data: bytes, place: int, first: int, last: int) -> Match:
    before = data[max(first - _EXCERPT, 0) : first].rpartition(b"\n")[2]
    text = data[first : min(last, first + _EXCERPT)]
    after = data[last : last + _EXCERPT].partition(b"\n")[0]
    return Match(place + first, place + last, decode(before), decode(text), decode(after))


def _find_text(needle: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    data, at = data.lower(), -1
    while (at := data.find(needle, at + 1)) >= 0:
        yield at, at + len(needle)


def _find_matches(compiled: Any, data: bytes) -> Iterator[tuple[int, int]]:  # noqa: ANN401
    return (match.span() for match in compiled.finditer(data) if match.end() > match.start())


def _compile_re2(pattern: str) -> Any:  # noqa: ANN401 - of a package that may be missing
    """Return an expression that RE2 has; None without RE2 or for any other expression."""
    try:
        re2 = importlib.import_module("re2")
        options = re2.Options()
    except (ImportError, AttributeError):  # it is missing, or is another package of that name
        return None
    options.case_sensitive = options.log_errors = False
    options.never_nl = True
    try:
        return re2.compile(b"(?m)" + pattern.encode(), options)
    except re2.error:
        return None


# -- expressions for the module re ---------------------------------------------------------------


def _search_apart(fd: int, pattern: str, start: int, max_matches: int, seconds: float) -> Matches:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"q: is no regular expression: {error}") from error
    paths = import_paths("clawblox", "attrs")
    helper = HelperProcess("clawblox-search", f"{__name__}:serve_search", paths=paths)
    try:
        request = json.dumps([pattern, start, max_matches, seconds]).encode()
        socket.send_fds(helper.channel, [request + b"\n"], [fd])
        helper.channel.settimeout(seconds + _BOOT_S)
        with helper.channel.makefile("rb") as answers:
            found, reached, size = json.loads(answers.read())
    except (TimeoutError, ValueError) as error:
        hint = f"shorten it, or install RE2: {install_command('re2')}"
        raise ValueError(f"q: the regular expression takes too long; {hint}") from error
    finally:
        helper.end()
    return Matches(tuple(Match(*match) for match in found), reached, size)


def serve_search(client: str) -> None:
    """Run the program that searches once with :mod:`re`, and is killed if that takes too long."""
    detach_from_parent()
    end_with_parent(int(client))
    with socket.socket(fileno=0) as channel:
        request, files, _, _ = socket.recv_fds(channel, 1 << 16, 1)
        pattern, *limits = json.loads(request)
        compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
        answer = _scan(files[0], partial(_find_in_text, compiled), *limits)
        channel.sendall(json.dumps(attrs.astuple(answer)).encode())


def _find_in_text(compiled: re.Pattern[str], data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offsets in bytes of the matches, which are in characters."""
    place = 0
    for line in data.split(b"\n"):
        text = line.decode(errors="surrogateescape")
        for match in compiled.finditer(text):
            if match.end() > match.start():
                start, end = (_count_bytes(text[:at]) for at in match.span())
                yield place + start, place + end
        place += len(line) + 1


def _count_bytes(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))
