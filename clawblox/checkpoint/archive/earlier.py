"""Members of archives that this process has written, which the next archive can copy.

Compression is the slow part of packing, and most files of a workspace do not change between two
checkpoints. The digests are kept only in memory, and bytes from an earlier archive are used only if
their digest matches. Write access to the archives' directory can therefore only force a file to be
compressed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

import attrs

from clawblox.checkpoint.archive.intake import read_range
from clawblox.checkpoint.recent import RecentValues
from clawblox.system.regular_files import open_regular

_MOST_OPEN: Final = 8

PLAIN_MODE: Final = 0o600


@attrs.define(kw_only=True, eq=False, on_setattr=attrs.setters.frozen)
class Packed:
    """A packed source.

    Attributes:
        method: ``STORED`` or ``DEFLATED``.
        crc: CRC-32 of the content.
        size: Size of the content, in bytes.
        packed_size: Size of the packed content, in bytes.
        sha256: Digest of the content.
        packed_sha256: Digest of the bytes in the archive.
        is_copied: Whether these bytes were verified in an earlier archive.
        content: The bytes for the archive until they are written; None if a sink has them.
        mode: 0o700 for a file that its owner may execute, else 0o600.
        mtime_ns: Modification time of the file, in nanoseconds since 1970.
        is_unstable: Whether the file changed each time it was read.
    """

    method: int
    crc: int
    size: int
    packed_size: int
    sha256: bytes
    packed_sha256: bytes
    is_copied: bool = False
    content: bytes | None = attrs.field(default=None, repr=False, on_setattr=attrs.setters.NO_OP)
    mode: int = PLAIN_MODE
    mtime_ns: int = 0
    is_unstable: bool = False


@attrs.frozen
class EarlierMember:
    """A member of a verified and published archive.

    Attributes:
        archive: The archive.
        start: Offset of the member's packed content in it.
        packed: The member.
    """

    archive: Path
    start: int
    packed: Packed


earlier_members: Final = RecentValues[EarlierMember](capacity=1 << 15)
"""Members that this process has written, by their digests; about 16 MB when full."""


class EarlierArchives:
    """Reads packed members from earlier archives during a save.

    A context manager. Thread-safe.

    Args:
        members: The remembered members.
    """

    def __init__(self, members: RecentValues[EarlierMember] = earlier_members) -> None:
        self._members = members
        self._sizes = {member.packed.size for member in members.values()}
        self._files: dict[Path, int | None] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._files.values():
            if fd is not None:
                os.close(fd)

    def may_have(self, size: int) -> bool:
        """Return whether an earlier archive may have content of this size in bytes."""
        return size in self._sizes

    def copy(self, sha256: bytes, write: Callable[[bytes], object]) -> Packed | None:
        """Write the packed form of some content. Blocks.

        Args:
            sha256: Digest of the content.
            write: Takes the bytes piece by piece; they are invalid if the result is None.

        Returns:
            The copied member; None if no archive contains it or its bytes are damaged.
        """
        member = self._members.recall(sha256)
        fd = self._open(member.archive) if member else None
        if member is None or fd is None:
            return None
        digest = hashlib.sha256()
        for chunk in _read(fd, member.start, member.packed.packed_size):
            digest.update(chunk)
            write(chunk)
        return member.packed if digest.digest() == member.packed.packed_sha256 else None

    def _open(self, path: Path) -> int | None:
        with self._lock:
            if path not in self._files:
                # Archives stay open, so replacing one during the save has no effect.
                is_full = len(self._files) >= _MOST_OPEN
                self._files[path] = None if is_full else _open(path)
            return self._files[path]


def _open(path: Path) -> int | None:
    try:
        return open_regular(path)
    except OSError:
        return None


def _read(fd: int, start: int, size: int) -> Iterator[bytes]:
    """Yield the readable bytes; the caller's digest shows whether any are missing."""
    with contextlib.suppress(OSError):
        yield from read_range(fd, start, size)
