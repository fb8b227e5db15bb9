"""Writing the members of an archive, one after the other, into an open file.

``metadata.json`` comes first in the file and is known last: its place is kept free, as large as
it can become, and filled by :meth:`ArchiveWriter.finish`. What the members are is the plan's
business, the bytes of the format that of ``layout``.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

import attrs

from clawblox.checkpoint.archive.intake import Intake, open_intake
from clawblox.checkpoint.archive.layout import (
    DEFLATED,
    STORED,
    Entry,
    central_directory,
    local_header,
    local_header_size,
)
from clawblox.checkpoint.model import Source
from clawblox.checkpoint.names import METADATA_NAME
from clawblox.checkpoint.progress import Progress
from clawblox.errors import CheckpointError

__all__ = ["ArchiveWriter"]

_LEVEL: Final = 1
_RAW: Final = -15
_SAMPLE_BYTES: Final = 16 << 10
"""So much of a file tells whether it is compressed already."""

_RETRIES: Final = 3
"""So often a file that changed while it was read is read again."""

_PLAIN_MODE: Final = 0o600
_EXECUTABLE_MODE: Final = 0o700
_INT64: Final = 2**63


@attrs.frozen
class _Packed:
    """The content of a member as it stands in the archive."""

    method: int
    crc: int
    size: int
    compressed_size: int
    sha256: str

    @property
    def is_wasteful(self) -> bool:
        """Whether it would have been smaller as it is."""
        return self.method == DEFLATED and self.compressed_size >= self.size


class ArchiveWriter:
    """Writes an archive into ``fd``; what that file held before is lost.

    Args:
        fd: The file, open for writing.
        metadata_bytes: How large ``metadata.json`` can become.
        progress: Counts the bytes that are read.

    Attributes:
        files: What ``metadata.json`` says of each member, by its name.
    """

    def __init__(self, fd: int, *, metadata_bytes: int, progress: Progress) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self._fd = fd
        self._metadata_bytes = metadata_bytes
        self._progress = progress
        self._entries: list[Entry] = []
        self._end = local_header_size(METADATA_NAME, metadata_bytes) + metadata_bytes

    def add(self, source: Source) -> None:
        """Append a file; one that changes again and again is marked as unstable.

        Raises:
            VanishedSource: It is gone; nothing was appended.
            UnreadableSource: It may not be read; nothing was appended.
            CheckpointError: It cannot be read.
            OSError: The archive cannot be written.
        """
        for _ in range(1 + _RETRIES):
            with open_intake(source) as intake:
                entry, packed = self._write(source.name, intake)
                is_unstable = intake.has_changed()
            if not is_unstable:
                break
        # Only now: until it counts, whatever is read next is written over it.
        self._entries.append(entry)
        self._end += local_header_size(entry.name, entry.size) + entry.compressed_size
        self.files[source.name] = {
            "size": entry.size,
            "sha256": packed.sha256,
            "mode": entry.mode,
            "mtime_ns": max(-_INT64, min(intake.status.st_mtime_ns, _INT64 - 1)),
            **({"unstable": True} if is_unstable else {}),
        }

    def finish(self, document: bytes) -> None:
        """Complete the archive with ``document`` as its ``metadata.json``.

        It may be called again, with another document.

        Raises:
            OSError: The archive cannot be written.
        """
        content = document.ljust(self._metadata_bytes)
        if len(content) > self._metadata_bytes:
            raise CheckpointError("metadata.json became larger than it could become")
        crc, size = zlib.crc32(content), len(content)
        entry = Entry(METADATA_NAME, STORED, crc, size, size, _PLAIN_MODE, 0)
        directory = central_directory((entry, *self._entries), self._end)
        self._put(local_header(entry) + content, 0)
        self._put(directory, self._end)
        os.ftruncate(self._fd, self._end + len(directory))

    def _write(self, name: str, intake: Intake) -> tuple[Entry, _Packed]:
        """Write a member behind the others, where the next one would be written too."""
        header_size = local_header_size(name, intake.length)
        packed = self._pack(intake.chunks(), self._end + header_size)
        if packed.is_wasteful:
            packed = self._pack(intake.chunks(), self._end + header_size, may_deflate=False)
        if local_header_size(name, packed.size) != header_size:
            raise CheckpointError("a file became too large as it was rewritten", entry=name)
        mode = _EXECUTABLE_MODE if intake.status.st_mode & stat.S_IXUSR else _PLAIN_MODE
        entry = Entry(
            name, packed.method, packed.crc, packed.compressed_size, packed.size, mode, self._end
        )
        self._put(local_header(entry), self._end)
        return entry, packed

    def _pack(self, chunks: Iterable[bytes], start: int, *, may_deflate: bool = True) -> _Packed:
        chunks = iter(chunks)
        sample = next(chunks, b"")
        method = DEFLATED if may_deflate and _shrinks(sample) else STORED
        deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
        digest = hashlib.sha256()
        crc = size = 0
        end = start
        for chunk in chain([sample], chunks):
            self._progress.advance(len(chunk))
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
            end = self._put(chunk if method == STORED else deflater.compress(chunk), end)
        if method == DEFLATED:
            end = self._put(deflater.flush(), end)
        return _Packed(method, crc, size, end - start, digest.hexdigest())

    def _put(self, data: bytes, offset: int) -> int:
        """Write all of ``data``; return where it ends."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, offset)
            view = view[written:]
            offset += written
        return offset


def _shrinks(content: bytes) -> bool:
    sample = content[:_SAMPLE_BYTES]
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    return len(deflater.compress(sample)) + len(deflater.flush()) < len(sample)
