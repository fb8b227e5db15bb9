"""Mirrors the growing files of a run directory on a node to the driver, about a second later.

Both sides choose the files by the same patterns. The node identifies a version of a file by a mark:
a digest of its inode, its first bytes, and its last bytes before an offset. A file that was
replaced, truncated or overwritten there is sent again from its start. The mirror misses other
changes in a growing file and keeps deleted files; the pull of the whole directory corrects both.
All functions block.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from clawblox.experiment.cluster.chunks import TransferError
from clawblox.experiment.cluster.trees import check_name
from clawblox.system.copy_tree import CHANGED
from clawblox.system.files import PartialFile, write_all, write_all_at
from clawblox.system.regular_files import (
    closing_fd,
    find_files,
    open_file,
    open_own,
    opened_parent,
)

PATTERNS: Final = (
    "logs/[!.]*",
    "recordings/[!.]*.jsonl.zst",
    "agents/*/logs/[!.]*",
    "agents/*/events.jsonl",
    "agents/*/usage.json",
)
"""Mirrored files of a run directory: logs with their indexes and older segments, recordings, events
of agents, and their usage, which is replaced each time. Hidden files are incomplete."""

POLL_BYTES: Final = 4 << 20
"""Maximum bytes per poll."""

MAX_FILES: Final = 1000
MAX_FILE_BYTES: Final = 4 << 30
"""Maximum size of a copy; the rest of a larger file comes with the whole directory."""

_END_BYTES: Final = 4096
_DIGEST_BYTES: Final = 32
_IN_THE_WAY: Final = (*CHANGED, errno.EISDIR, errno.EMLINK)
"""Error numbers that mean that the copy was removed or replaced."""


class ReadMark(NamedTuple):
    """Position up to which one version of a file was read.

    Attributes:
        offset: Offset after the last byte read.
        digest: Digest of the version; only the node knows its meaning.
    """

    offset: int
    digest: bytes


class FileGrowth(NamedTuple):
    """New bytes of a file.

    Attributes:
        name: Its path in the run directory.
        offset: Their offset; 0 for a new, replaced or truncated file.
        data: The bytes.
        digest: Digest of the mark behind them.
    """

    name: str
    offset: int
    data: bytes
    digest: bytes


# -- the node's side -------------------------------------------------------------------------------


def read_growth(
    run_dir: Path, marks: Mapping[str, ReadMark], limit: int = POLL_BYTES
) -> list[FileGrowth]:
    """Return the bytes appended to the mirrored files since the last read.

    Files with few new bytes are sent first; the others share the rest of the limit.

    Args:
        run_dir: The run directory.
        marks: How far each file was read, by its path in the directory.
        limit: Maximum bytes to return.
    """
    waiting: dict[str, int] = {}
    for pattern in PATTERNS:
        for file in find_files(run_dir, pattern):
            name = file.path.relative_to(run_dir).as_posix()
            start = marks[name].offset if name in marks else 0
            waiting[name] = file.size - start if file.size >= start else file.size
    names = sorted(waiting, key=lambda name: (name not in marks, name))[:MAX_FILES]
    growths: list[FileGrowth] = []
    for number, name in enumerate(sorted(names, key=waiting.__getitem__)):
        with contextlib.suppress(OSError):  # removed or replaced
            share = limit // (len(names) - number)
            if growth := _read_file(run_dir, name, marks.get(name), share):
                growths.append(growth)
                limit -= len(growth.data)
    return growths


def _read_file(run_dir: Path, name: str, mark: ReadMark | None, limit: int) -> FileGrowth | None:
    with closing_fd(open_file(run_dir, name)) as fd:
        inode = os.fstat(fd).st_ino
        offset = 0 if mark is None else mark.offset
        first = os.pread(fd, min(offset, _END_BYTES), 0)
        start = max(0, offset - _END_BYTES)
        last = os.pread(fd, offset - start, start)
        is_same = mark is not None and _digest(inode, first, last) == mark.digest
        if not is_same:
            offset, first, last = 0, b"", b""
        data = os.pread(fd, max(0, min(limit, MAX_FILE_BYTES - offset)), offset)
    if is_same and not data:
        return None
    # The mark of the version that was read; the file may have a newer version by now.
    return FileGrowth(name, offset, data, _digest(inode, first + data, last + data))


def _digest(inode: int, first: bytes, last: bytes) -> bytes:
    digest = hashlib.sha256(inode.to_bytes(8))
    digest.update(first[:_END_BYTES])
    digest.update(last[-_END_BYTES:])
    return digest.digest()


# -- the driver's side -----------------------------------------------------------------------------


class Mirror:
    """Copies of the growing files of a run directory on a node, whose contents are untrusted.

    Args:
        run_dir: The run directory of the driver.
        clock: Returns a time in seconds.

    Attributes:
        marks: How far each file was copied, by its path; the argument of the next poll.
        last_at: When the latest poll was applied, by the clock; None before the first.
    """

    def __init__(self, run_dir: Path, clock: Callable[[], float]) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self.marks: dict[str, ReadMark] = {}
        self.last_at: float | None = None

    def apply(self, growths: Iterable[FileGrowth]) -> None:
        """Copy the answer to a poll without following links.

        The next polls recreate copies that were changed or moved here.

        Args:
            growths: The answer, untrusted.

        Raises:
            TransferError: A growth is not allowed; those before it were copied.
            OSError: A copy cannot be written; the next polls recreate it.
        """
        left = POLL_BYTES
        for growth in growths:
            left -= len(growth.data)
            self._check(growth, left)
            mark = self.marks.pop(growth.name, None)
            if mark is None and len(self.marks) >= MAX_FILES:
                continue
            try:
                self._write(growth)
                end = growth.offset + len(growth.data)
                self.marks[growth.name] = ReadMark(end, growth.digest)
            except OSError as error:
                if error.errno not in _IN_THE_WAY:
                    raise
        self.last_at = self._clock()

    def _check(self, growth: FileGrowth, left: int) -> None:
        name, offset, data, digest = growth
        known = self.marks[name].offset if name in self.marks else 0
        if not is_mirrored(check_name(name)):
            raise TransferError(f"{name[:200]!r} is not a mirrored file")
        if offset not in (0, known):
            raise TransferError(f"{name!r} cannot continue at {offset}: its copy ends at {known}")
        if left < 0 or offset + len(data) > MAX_FILE_BYTES or len(digest) > _DIGEST_BYTES:
            raise TransferError(f"{name!r} has grown too much")

    def _write(self, growth: FileGrowth) -> None:
        with opened_parent(self._run_dir, growth.name, creates=True) as (parent, name):
            directory = f"/proc/self/fd/{parent}"  # rejects links
            if growth.offset == 0:
                with contextlib.closing(PartialFile(directory, "mirror")) as partial:
                    write_all(partial.fd, growth.data)
                    partial.publish(f"{directory}/{name}", overwrite=True, durable=False)
                return
            with closing_fd(open_own(f"{directory}/{name}", os.O_WRONLY)) as fd:
                if os.fstat(fd).st_size < growth.offset:
                    raise FileNotFoundError(errno.ENOENT, "was truncated", growth.name)
                write_all_at(fd, growth.data, growth.offset)


def is_mirrored(name: str) -> bool:
    """Return whether a path in a run directory matches the patterns of growing files."""
    parts = name.split("/")
    return any(
        len(parts) == len(wanted := pattern.split("/")) and all(map(fnmatchcase, parts, wanted))
        for pattern in PATTERNS
    )
