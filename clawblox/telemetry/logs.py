"""World output: a file that the world writes directly.

A world's standard output and error are the log file's own descriptor, opened for appending.
Without a pipe, a stalled or dead orchestrator never blocks a world and never loses its last lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from clawblox.protocol import MASK
from clawblox.system.regular_files import open_own, open_regular
from clawblox.telemetry.log_times import cutting

DEFAULT_MAX_BYTES = 1 << 30
"""Size at which a log is cut to its newer half, in bytes."""

_MAX_READ_BYTES = 1 << 40
"""Maximum size of a log in bytes; a longer log is sparse, and reading it would take days."""

LAST_LINES = 50
_TAIL_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024
_LINE_BYTES = 64 * 1024


def open_log(path: Path) -> tuple[int, int]:
    """Open a log for appending; the file is created private.

    Returns:
        Its descriptor, and the offset at which the new output starts.

    Raises:
        OSError: The log cannot be created or written.
    """
    fd = open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return fd, os.fstat(fd).st_size


def open_to_read(path: Path) -> BinaryIO:
    """Open a log for reading; the world may have replaced the file.

    Raises:
        OSError: The file cannot be opened, is not regular, or is larger than 1 TiB.
    """
    return os.fdopen(open_regular(path, max_bytes=_MAX_READ_BYTES), "rb")


def last_lines(
    path: Path, *, start: int = 0, count: int = LAST_LINES, secrets: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the last lines of a log, at most 64 KiB. Blocks.

    Args:
        path: The log; a missing log has no lines.
        start: Offset of the first byte to return, which excludes lines of an older run.
        count: Maximum number of lines.
        secrets: Values to mask.
    """
    secrets = tuple(secrets)
    # Read and drop a margin, so that no secret starts before the text.
    margin = max(map(len, secrets), default=0)
    try:
        with open_to_read(path) as file:
            size = file.seek(0, os.SEEK_END)
            start = start if start <= size else 0
            first = max(start, size - _TAIL_BYTES - margin)
            file.seek(first)
            text = file.read(_TAIL_BYTES + margin).decode(errors="replace")
    except OSError:
        return ()
    for secret in secrets:
        text = text.replace(secret, MASK)
    if first > start:
        text = text[margin:]
    return tuple(line[:1000] for line in text.splitlines()[-count:])


class Cut(NamedTuple):
    """Effect of a cut: the bytes of the log from ``start`` on are now at ``to``."""

    start: int
    to: int


def trim_log(path: Path, max_bytes: int) -> Cut | None:
    """Cut a log longer than ``max_bytes`` to its newer half, and mark the cut. Blocks.

    The world continues to append to the same file. Writes during the copy are lost with the older
    half; the mark in the log states that lines were removed.

    Returns:
        The cut; None if the log was not cut.

    Raises:
        OSError: The log cannot be read or written.
    """
    try:
        if path.stat().st_size <= max_bytes:
            return None
        with cutting(path) as file:
            return trim_file(file, max_bytes)
    except FileNotFoundError:
        return None


def trim_file(file: BinaryIO, max_bytes: int) -> Cut | None:
    """Cut an open log like :func:`trim_log`; its readers must wait. Blocks."""
    size = file.seek(0, os.SEEK_END)
    if size <= max_bytes:
        return None
    newer = _skip_hole(file.fileno(), size - max_bytes // 2, size)
    return _move_to_start(file, newer, max_bytes)


def _skip_hole(fd: int, position: int, end: int) -> int:
    """Return the start of the data at or after ``position``, because a copied hole takes space."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError:  # only a hole follows, or the file system does not report holes.
        return end if os.fstat(fd).st_blocks == 0 else position


def _move_to_start(file: BinaryIO, source: int, max_bytes: int) -> Cut:
    """Copy the bytes from ``source`` on to the start, after a mark; truncate the file."""
    target = 0
    file.seek(source)
    source += len(file.readline(_LINE_BYTES))
    chunk = f"[clawblox] log over {max_bytes} bytes, older half removed\n".encode()
    cut = Cut(source, len(chunk))
    while chunk:
        file.seek(target)
        target += file.write(chunk)
        file.seek(source)
        chunk = file.read(_CHUNK_BYTES)
        source += len(chunk)
    file.truncate(target)
    file.flush()
    return cut
