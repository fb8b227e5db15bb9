"""Transcripts: files with a JSON record on each line, which may grow while they are read.

This module reads a transcript from its end and rewrites its lines. The session formats interpret
the records.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.model import Transform
from clawblox.errors import CheckpointError, CheckpointLimitError
from clawblox.foreign_values import MAX_MEMBERS, parse_document
from clawblox.system import regular_files

Record = dict[str, Any]

_BLOCK: Final = 64 << 10
_MAX_LINE: Final = 64 << 20
"""Maximum size in bytes of a line or document; it is kept in memory."""

_MAX_TAIL: Final = 256 << 20
"""Maximum number of bytes to read from the end of a transcript."""


def parse_record(line: bytes, *, max_members: int = MAX_MEMBERS) -> Record | None:
    """Return the record on a line; None if the line is not a JSON object.

    Args:
        line: The line.
        max_members: Maximum number of values in it on all levels.
    """
    try:
        text = line.decode("utf-8", errors="replace")
        value = parse_document(text, max_members=max_members)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@contextlib.contextmanager
def newest_records(root: Path, path: str) -> Iterator[Iterator[Record]]:
    """Open a transcript and iterate over its complete records, the newest first.

    Records far from its end are left out.

    Args:
        root: The agent directory.
        path: Path of the transcript below ``root``.

    Raises:
        CheckpointError: It cannot be read, or has no complete record.
        CheckpointLimitError: A record is too large.
    """
    try:
        fd = regular_files.open_file(root, path)
    except OSError as error:
        raise tree.unreadable_error(root / path, error) from None
    try:
        complete = itertools.islice(_pieces_backwards(fd), 1, None)  # the last piece has no newline
        records = filter(None, map(parse_record, complete))
        newest = next(records, None)
        if newest is None:
            raise empty_transcript_error(root / path)
        yield itertools.chain((newest,), records)
    finally:
        os.close(fd)


def empty_transcript_error(path: Path) -> CheckpointError:
    """Return the error for a transcript without a complete record."""
    return CheckpointError("the transcript has no complete record", path=path)


def line_transform(rewrite: Callable[[bytes], bytes]) -> Transform:
    """Return a transform that rewrites a file line by line.

    Args:
        rewrite: Returns the replacement of a line; lines include their newline.

    Raises:
        CheckpointLimitError: A line is too large; raised by the transform itself.
    """

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        rest: list[bytes] = []
        held = 0
        for chunk in chunks:
            *complete, last = chunk.split(b"\n")
            for line in complete:
                yield rewrite(b"".join((*rest, line, b"\n")))
                rest, held = [], 0
            rest.append(last)
            held = _checked_size(held + len(last))
        if held:
            yield rewrite(b"".join(rest))

    return transform


def document_transform(rewrite: Callable[[bytes], bytes]) -> Transform:
    """Return a transform that rewrites the whole content of a file in a single step.

    Args:
        rewrite: Returns the replacement of the content.

    Raises:
        CheckpointLimitError: The content is too large; raised by the transform itself.
    """

    def transform(chunks: Iterable[bytes]) -> Iterator[bytes]:
        parts: list[bytes] = []
        held = 0
        for chunk in chunks:
            held = _checked_size(held + len(chunk))
            parts.append(chunk)
        yield rewrite(b"".join(parts))

    return transform


def _checked_size(size: int) -> int:
    if size > _MAX_LINE:
        raise CheckpointLimitError(f"a record of a session is larger than {_MAX_LINE} bytes")
    return size


def _pieces_backwards(fd: int) -> Iterator[bytes]:
    """Yield the pieces between newlines, the last first."""
    position = os.fstat(fd).st_size
    first_position = max(0, position - _MAX_TAIL)
    piece: list[bytes] = []  # parts of it, the last first
    while position > first_position:
        start = max(0, position - _BLOCK)
        first, *others = os.pread(fd, position - start, start).split(b"\n")
        for other in reversed(others):
            piece.append(other)
            yield b"".join(reversed(piece))
            piece = []
        piece.append(first)
        _checked_size(sum(map(len, piece)))
        position = start
    if not position:
        yield b"".join(reversed(piece))
