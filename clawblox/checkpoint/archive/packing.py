"""Packs a source for an archive: reads, hashes and, if useful, compresses it.

Small sources are packed in memory, so that threads can pack several concurrently. Large sources are
written to the file piece by piece. The compression depends only on the content.
"""

from __future__ import annotations

import hashlib
import stat
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, TypeAlias

import attrs

from clawblox.checkpoint.archive.earlier import PLAIN_MODE, EarlierArchives, Packed
from clawblox.checkpoint.archive.intake import CHUNK_BYTES, Intake, open_intake
from clawblox.checkpoint.archive.layout import DEFLATED, STORED, local_header_size
from clawblox.checkpoint.model import Source
from clawblox.system.files import write_all_at

Count: TypeAlias = Callable[[int], object]
"""Called with the number of further bytes read; an exception from it ends the packing."""

_RETRIES: Final = 3
"""Maximum number of rereads of a file that changes while it is read."""

_LEVEL: Final = 1
_RAW: Final = -15
_SAMPLE_BYTES: Final = 16 << 10
"""Size of the start of a file that shows whether compression is useful, in bytes."""


class FileSink:
    """The place of the next member in the file.

    Attributes:
        header_size: Size of the space reserved for its header.
    """

    def __init__(self, fd: int, name: str, start: int) -> None:
        self.header_size = 0
        self._fd = fd
        self._name = name
        self._start = start
        self._at = start

    def begin(self, size: int) -> None:
        """Start, or restart, with a source of this size; later writes replace earlier writes."""
        self.header_size = local_header_size(self._name, size)
        self._at = self._start + self.header_size

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        write_all_at(self._fd, data, self._at)
        self._at += len(data)


def is_small(source: Source, size: int) -> bool:
    """Return whether :func:`pack_small` can pack a source.

    Args:
        source: The source.
        size: Size of its file, in bytes.
    """
    return source.transform is None and size <= CHUNK_BYTES


def pack_small(source: Source, earlier: EarlierArchives) -> Packed | None:
    """Pack a small source in memory; return None if it is no longer small. Blocks.

    Raises:
        VanishedSource: The file has been removed or replaced.
        UnreadableSource: This process is not permitted to read the file.
        CheckpointError: The file cannot be read.
    """
    for _ in range(1 + _RETRIES):
        with open_intake(source) as intake:
            if not is_small(source, intake.length):
                return None
            content = b"".join(intake.chunks())
            packed = _pack_content(content, earlier, **_facts(source, intake))
        if not packed.is_unstable:
            break
    return packed


def pack_to(sink: FileSink, source: Source, earlier: EarlierArchives, count: Count) -> Packed:
    """Pack a source of any size into a sink. Blocks.

    Args:
        sink: Takes the packed bytes.
        source: The source.
        earlier: Archives that may already contain the content.
        count: Called with the number of further bytes read.

    Raises:
        VanishedSource: The file has been removed or replaced.
        UnreadableSource: This process is not permitted to read the file.
        CheckpointError: The file cannot be read.
    """
    for _ in range(1 + _RETRIES):
        with open_intake(source) as intake:
            packed = _Stream(sink, intake, earlier, count).pack()
            packed = attrs.evolve(packed, **_facts(source, intake))
        if not packed.is_unstable:
            break
    return packed


def _facts(source: Source, intake: Intake) -> dict[str, Any]:
    """Return the facts about a file that was read to its end."""
    is_executable = source.keeps_mode and intake.status.st_mode & stat.S_IXUSR
    return {
        "mode": 0o700 if is_executable else PLAIN_MODE,
        "mtime_ns": intake.status.st_mtime_ns,
        "is_unstable": intake.has_changed(),
    }


def new_deflater() -> zlib._Compress:
    """Return a raw deflater at the fastest level."""
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)


def _shrinks(content: bytes) -> bool:
    """Return whether compression makes the start of ``content`` smaller."""
    sample = content[:_SAMPLE_BYTES]
    return len(zlib.compress(sample, _LEVEL, _RAW)) < len(sample)


# Small sources


def _pack_content(content: bytes, earlier: EarlierArchives, **facts: Any) -> Packed:
    digest = hashlib.sha256(content).digest()
    if earlier.may_have(len(content)):
        parts: list[bytes] = []
        if copied := earlier.copy(digest, parts.append):
            return attrs.evolve(copied, is_copied=True, content=b"".join(parts), **facts)
    method, data = STORED, content
    if _shrinks(content):
        deflater = new_deflater()
        deflated = deflater.compress(content) + deflater.flush()
        if len(deflated) < len(content):
            method, data = DEFLATED, deflated
    return Packed(
        method=method,
        crc=zlib.crc32(content),
        size=len(content),
        packed_size=len(data),
        sha256=digest,
        packed_sha256=digest if method == STORED else hashlib.sha256(data).digest(),
        content=data,
        **facts,
    )


@attrs.frozen(eq=False, repr=False)
class _Stream:
    _sink: FileSink
    _intake: Intake
    _earlier: EarlierArchives
    _count: Count

    def pack(self) -> Packed:
        if self._earlier.may_have(self._intake.length) and (copied := self._copy()):
            return copied
        packed = self._write()
        if packed.method == DEFLATED and packed.packed_size >= packed.size:
            packed = self._write(may_deflate=False)
        return packed

    def _copy(self) -> Packed | None:
        digest = hashlib.sha256()
        for chunk in self._chunks():
            digest.update(chunk)
        self._sink.begin(self._intake.length)
        copied = self._earlier.copy(digest.digest(), self._sink.write)
        return copied and attrs.evolve(copied, is_copied=True)

    def _write(self, *, may_deflate: bool = True) -> Packed:
        chunks = self._chunks()
        beginning = next(chunks, b"")
        deflater = new_deflater() if may_deflate and _shrinks(beginning) else None
        digest, packed_digest = hashlib.sha256(), hashlib.sha256()
        crc = size = packed_size = 0

        def write(data: bytes) -> None:
            nonlocal packed_size
            packed_digest.update(data)
            packed_size += len(data)
            self._sink.write(data)

        self._sink.begin(self._intake.length)
        for chunk in chain([beginning], chunks):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
            write(deflater.compress(chunk) if deflater else chunk)
        if deflater:
            write(deflater.flush())
        return Packed(
            method=DEFLATED if deflater else STORED,
            crc=crc,
            size=size,
            packed_size=packed_size,
            sha256=digest.digest(),
            packed_sha256=packed_digest.digest(),
        )

    def _chunks(self) -> Iterator[bytes]:
        for chunk in self._intake.chunks():
            self._count(len(chunk))
            yield chunk
