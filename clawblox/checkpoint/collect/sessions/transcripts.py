"""Transcripts: one JSON record a line, appended to while somebody else reads.

It knows lines and records, and how a file of them is read from its end and rewritten on its
way. What a record means is the session formats'.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.model import Transform
from clawblox.errors import CheckpointError, CheckpointLimitError

__all__ = [
    "Record",
    "newest_records",
    "no_record",
    "record_of",
    "rewriting_document",
    "rewriting_lines",
]

Record = dict[str, Any]

_BLOCK: Final = 64 << 10
_MAX_LINE: Final = 256 << 20
"""The longest line, or the largest document, that is rewritten; it is held in memory."""


def record_of(line: bytes) -> Record | None:
    """Return the record on a line; None when there is none."""
    try:
        value = json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@contextlib.contextmanager
def newest_records(root: Path, path: str) -> Iterator[Iterator[Record]]:
    """Open a transcript for reading its complete records, the newest first.

    Raises:
        CheckpointError: It cannot be read, or holds no complete record.
    """
    try:
        fd = tree.open_file(root, path)
    except OSError as error:
        raise unreadable(root / path, error) from None
    try:
        records = filter(None, map(record_of, _lines_backwards(fd)))
        newest = next(records, None)
        if newest is None:
            raise no_record(root / path)
        yield itertools.chain((newest,), records)
    finally:
        os.close(fd)


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """Return the error that says that a transcript cannot be read."""
    return CheckpointError(f"cannot be read: {error.strerror}", path=path)


def no_record(path: Path) -> CheckpointError:
    """Return the error that says that there is nothing in a transcript."""
    return CheckpointError("the transcript holds no complete record", path=path)


def rewriting_lines(rewrite: Callable[[bytes], bytes]) -> Transform:
    """Return a transform that hands over each line, with its end, and takes what comes back."""

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        rest: list[bytes] = []
        held = 0
        for chunk in chunks:
            *complete, last = chunk.split(b"\n")
            for line in complete:
                yield rewrite(b"".join((*rest, line, b"\n")))
                rest, held = [], 0
            rest.append(last)
            held = _held(held + len(last))
        if held:
            yield rewrite(b"".join(rest))

    return transform


def rewriting_document(rewrite: Callable[[bytes], bytes]) -> Transform:
    """Return a transform that hands over the whole content at once."""

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        parts: list[bytes] = []
        held = 0
        for chunk in chunks:
            held = _held(held + len(chunk))
            parts.append(chunk)
        yield rewrite(b"".join(parts))

    return transform


def _held(size: int) -> int:
    if size > _MAX_LINE:
        raise CheckpointLimitError(f"a record of a session is larger than {_MAX_LINE} bytes")
    return size


def _lines_backwards(fd: int) -> Iterator[bytes]:
    """Yield the complete lines, the last first; what follows the last newline is none."""
    return itertools.islice(_pieces_backwards(fd), 1, None)


def _pieces_backwards(fd: int) -> Iterator[bytes]:
    """Yield what newlines separate, the last piece first."""
    position = os.fstat(fd).st_size
    piece: list[bytes] = []  # its end first
    while position > 0:
        start = max(0, position - _BLOCK)
        first, *others = os.pread(fd, position - start, start).split(b"\n")
        for other in reversed(others):
            piece.append(other)
            yield b"".join(reversed(piece))
            piece = []
        piece.append(first)
        _held(sum(map(len, piece)))
        position = start
    yield b"".join(reversed(piece))
