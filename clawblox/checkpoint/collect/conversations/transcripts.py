"""Transcripts: files with a JSON record on each line, which may grow while they are read.

This module reads a transcript from its end and rewrites its lines. The formats interpret the
records.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.model import MAX_RECORD_BYTES, Transform
from clawblox.errors import CheckpointError, CheckpointLimitError
from clawblox.foreign_values import parse_object
from clawblox.system import regular_files
from clawblox.system.regular_files import closing_fd

Record = dict[str, Any]

_BLOCK: Final = 64 << 10
_MAX_TAIL: Final = 256 << 20
"""Maximum number of bytes to read from the end of a transcript."""


@contextlib.contextmanager
def newest_records(root: Path, path: str) -> Iterator[Iterator[Record]]:
    """Open a transcript and iterate over its complete records, the newest first.

    Records far from the end are left out. The last record may lack its newline.

    Args:
        root: The agent directory.
        path: Path of the transcript below ``root``.

    Raises:
        CheckpointError: The transcript cannot be read, or has no complete record.
        CheckpointLimitError: A record is too large.
    """
    try:
        fd = regular_files.open_file(root, path)
    except OSError as error:
        raise tree.unreadable_error(root / path, error) from None
    with closing_fd(fd):
        records = filter(None, map(parse_object, _pieces_backwards(fd)))
        newest = next(records, None)
        if newest is None:
            raise empty_transcript_error(root / path)
        yield itertools.chain((newest,), records)


def empty_transcript_error(path: Path) -> CheckpointError:
    """Return the error for a transcript without a complete record."""
    return CheckpointError("the transcript has no complete record", path=path)


def whole_records(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Rewrite a transcript so that its last record is complete and has a newline.

    Programs append to the file. The part after the last newline gets a newline if it is a complete
    record; otherwise it is left out.

    Raises:
        CheckpointLimitError: A line is too large.
    """
    rest: list[bytes] = []
    held = 0
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield from (*rest, chunk[:end])
            rest, held = [], 0
        rest.append(chunk[end:])
        held = _checked_size(held + len(chunk) - end)
    last = b"".join(rest)
    if parse_object(last) is not None:
        yield last + b"\n"


def chain(first: Transform, second: Transform | None) -> Transform:
    """Return a transform that applies ``first``, then ``second`` if there is one."""
    return first if second is None else lambda chunks: second(first(chunks))


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
    if size > MAX_RECORD_BYTES:
        raise CheckpointLimitError(
            f"a record of a conversation is larger than {MAX_RECORD_BYTES} bytes"
        )
    return size


def _pieces_backwards(fd: int) -> Iterator[bytes]:
    """Yield the pieces between newlines, the last first."""
    position = os.fstat(fd).st_size
    first_position = max(0, position - _MAX_TAIL)
    piece: list[bytes] = []  # parts of the piece, the last first
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
