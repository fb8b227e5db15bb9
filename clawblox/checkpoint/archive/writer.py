"""Writes the members of an archive, one after another, into an open file.

``metadata.json`` is first in the file but written last: space for its maximum size is reserved, and
:meth:`ArchiveWriter.finish` fills it. The plan chooses the members, ``packing`` packs a source, and
``layout`` serialises the headers.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from clawblox.checkpoint.archive.earlier import (
    EarlierArchives,
    EarlierMember,
    Packed,
    earlier_members,
)
from clawblox.checkpoint.archive.intake import UnreadableSource, VanishedSource
from clawblox.checkpoint.archive.layout import (
    STORED,
    ArchiveEntry,
    central_directory,
    local_header,
    local_header_size,
)
from clawblox.checkpoint.archive.metadata import path_field
from clawblox.checkpoint.archive.packing import (
    FileSink,
    is_small,
    pack_small,
    pack_to,
)
from clawblox.checkpoint.archive.reader import ArchiveMember
from clawblox.checkpoint.model import RejectedContent, Source
from clawblox.checkpoint.names import METADATA_NAME
from clawblox.checkpoint.progress import Progress
from clawblox.errors import CheckpointError
from clawblox.system.files import write_all_at

LostSource: TypeAlias = VanishedSource | UnreadableSource | RejectedContent
"""Reason for a source without a member in the archive."""

_METADATA_MODE: Final = 0o600
_INT64: Final = 2**63


@attrs.define(eq=False, repr=False)
class ArchiveWriter:
    """Writes an archive into ``fd`` and overwrites the file's content.

    Args:
        fd: The file, open for writing.
        metadata_bytes: Maximum size of ``metadata.json``.
        progress: Counts the bytes that are read.
        earlier: Archives whose members can be copied.
        on_added: Called with digest and size of each appended member.

    Attributes:
        files: The entry of each member in ``metadata.json``, by its name in the archive.
        copied: Digest of the packed content of each member that was copied from an earlier
            archive, by its path in the checkpoint.
    """

    _fd: int
    _metadata_bytes: int = attrs.field(kw_only=True)
    _progress: Progress = attrs.field(kw_only=True)
    _earlier: EarlierArchives = attrs.field(kw_only=True)
    _on_added: Callable[[str, int], object] = attrs.field(
        default=lambda _sha256, _size: None, kw_only=True
    )
    files: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)
    copied: dict[str, bytes] = attrs.field(factory=dict, init=False)
    _entries: list[ArchiveEntry] = attrs.field(factory=list, init=False)
    _packed: list[Packed] = attrs.field(factory=list, init=False)
    _end: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        reserved = self._metadata_bytes
        self._end = local_header_size(METADATA_NAME, reserved) + reserved

    @property
    def members(self) -> list[ArchiveMember]:
        """Return the members so far, without ``metadata.json``."""
        return [
            ArchiveMember(entry, _content_start(entry), packed.sha256.hex())
            for entry, packed in zip(self._entries, self._packed, strict=True)
        ]

    def add_all(
        self,
        sources: Sequence[SizedSource],
        on_lost: Callable[[Source, LostSource], object],
    ) -> None:
        """Append files in order; a file that keeps changing is marked as unstable.

        Two threads pack the small files if there is much to pack.

        Args:
            sources: The files and their expected sizes, in bytes.
            on_lost: Called for a file that was not appended because it is gone, unreadable, or does
                not have the content that its name promises.

        Raises:
            CheckpointError: A file cannot be read.
            OSError: The archive cannot be written.
        """
        with contextlib.closing(pack_ahead(sources, self._earlier)) as outcomes:
            for source, outcome in outcomes:
                try:
                    packed = outcome()
                    if packed is None:
                        self.add(source)
                except (VanishedSource, UnreadableSource, RejectedContent) as error:
                    on_lost(source, error)
                    continue
                if packed is not None:
                    self._progress.advance(packed.size)
                    self._append(source, packed)

    def add(self, source: Source) -> None:
        """Append a file of any size in this thread.

        Raises:
            VanishedSource: The file has been removed or replaced; it was not appended.
            UnreadableSource: This process is not permitted to read the file; it was not appended.
            RejectedContent: The transform refuses the content; the file was not appended.
            CheckpointError: The file cannot be read.
            OSError: The archive cannot be written.
        """
        sink = FileSink(self._fd, source.member, self._end)
        packed = pack_to(sink, source, self._earlier, self._progress.advance)
        if local_header_size(source.member, packed.size) != sink.header_size:
            message = "a file became too large when it was rewritten for the archive"
            raise CheckpointError(message, entry=source.name)
        self._append(source, packed)

    def finish(self, document: bytes) -> None:
        """Complete the archive with ``document`` as its ``metadata.json``.

        It may be called again with another document.

        Raises:
            CheckpointError: The document is larger than ``metadata_bytes``.
            OSError: The archive cannot be written.
        """
        content = document.ljust(self._metadata_bytes)
        if len(content) > self._metadata_bytes:
            raise CheckpointError("metadata.json is larger than its reserved space")
        crc, size = zlib.crc32(content), len(content)
        entry = ArchiveEntry(METADATA_NAME, STORED, crc, size, size, _METADATA_MODE, 0)
        directory = central_directory((entry, *self._entries), self._end)
        write_all_at(self._fd, local_header(entry) + content, 0)
        write_all_at(self._fd, directory, self._end)
        os.ftruncate(self._fd, self._end + len(directory))

    def remember(self, path: Path) -> None:
        """Allow later archives to copy the members of this verified archive.

        Args:
            path: Path of the published archive.
        """
        for entry, packed in zip(self._entries, self._packed, strict=True):
            member = EarlierMember(path, _content_start(entry), packed)
            earlier_members.remember(packed.sha256, member)

    def _append(self, source: Source, packed: Packed) -> None:
        """Write a member's header, and its content unless a sink has it; record the member."""
        entry = ArchiveEntry(
            source.name,
            packed.method,
            packed.crc,
            packed.packed_size,
            packed.size,
            packed.mode,
            self._end,
            source.member,
        )
        header = local_header(entry)
        write_all_at(self._fd, header + (packed.content or b""), self._end)
        # Last, because the next member overwrites an unrecorded member.
        self._entries.append(entry)
        packed.content = None
        self._packed.append(packed)
        self._end += len(header) + packed.packed_size
        if packed.is_copied:
            self.copied[source.name] = packed.packed_sha256
        self.files[source.member] = {
            **path_field(source),
            "size": packed.size,
            "sha256": packed.sha256.hex(),
            "mode": packed.mode,
            "mtime_ns": max(-_INT64, min(packed.mtime_ns, _INT64 - 1)),
            **({"unstable": True} if packed.is_unstable else {}),
        }
        self._on_added(packed.sha256.hex(), packed.size)


def _content_start(entry: ArchiveEntry) -> int:
    return entry.offset + local_header_size(entry.member, entry.size)


SizedSource: TypeAlias = tuple[Source, int]
"""A source, and the expected size of its file in bytes."""

_Outcome: TypeAlias = Callable[[], Packed | None]

_THREADS: Final = 2
_FEW_BYTES: Final = 4 << 20
"""Maximum total size for which threads are not worthwhile."""

_AHEAD_BYTES: Final = 4 << 20
_AHEAD_SOURCES: Final = 256
"""Maximum number of sources packed ahead of the consumer."""


def pack_ahead(
    sources: Sequence[SizedSource], earlier: EarlierArchives
) -> Generator[tuple[Source, _Outcome], None, None]:
    """Yield each source with a function that returns the packed source, or None if it is not small.

    The function waits for a thread, or packs in the caller's thread if there is little to pack or
    no thread can be started. It raises the exceptions of :func:`pack_small`. A caller that stops
    early must close the iterator, which waits for the threads.
    """
    if sum(size for _, size in sources) <= _FEW_BYTES:
        yield from ((source, _here(source, size, earlier)) for source, size in sources)
        return
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="clawblox-pack")
    try:
        yield from _in_threads(pool, sources, earlier)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_threads(
    pool: ThreadPoolExecutor, sources: Sequence[SizedSource], earlier: EarlierArchives
) -> Generator[tuple[Source, _Outcome], None, None]:
    begun: deque[tuple[Source, int, _Outcome]] = deque()
    ahead = 0
    for source, size in sources:
        outcome = _here(source, size, earlier)
        if is_small(source, size):
            ahead += size
            # If no thread can be started, the consumer packs the source.
            with contextlib.suppress(RuntimeError):
                outcome = pool.submit(outcome).result
        begun.append((source, size, outcome))
        while ahead > _AHEAD_BYTES or len(begun) > _AHEAD_SOURCES:
            first, first_size, first_outcome = begun.popleft()
            yield first, first_outcome
            ahead -= first_size if is_small(first, first_size) else 0
    yield from ((source, outcome) for source, _, outcome in begun)


def _here(source: Source, size: int, earlier: EarlierArchives) -> _Outcome:
    return partial(pack_small, source, earlier) if is_small(source, size) else lambda: None
