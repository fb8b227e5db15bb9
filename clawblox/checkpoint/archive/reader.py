"""Reads archives, which may come from a stranger.

Opening an archive reads and checks its directory, the header before each member and
``metadata.json``. A member's content is checked while it is read. ``layout`` parses the format, and
``load`` decides where content goes.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, Self

from clawblox.checkpoint.archive.intake import CHUNK_BYTES, read_range
from clawblox.checkpoint.archive.layout import (
    MAX_TAIL,
    STORED,
    ArchiveEntry,
    DirectoryEnd,
    DirectoryRecord,
    check_local_header,
    max_local_header,
    parse_directory,
    parse_end,
)
from clawblox.checkpoint.archive.metadata import (
    check_tree,
    compare_members,
    own_directories,
    parse_metadata,
    restore_paths,
)
from clawblox.checkpoint.model import Limits
from clawblox.checkpoint.names import METADATA_NAME
from clawblox.checkpoint.progress import Progress
from clawblox.concurrency.progress import Report
from clawblox.errors import CheckpointError, CheckpointFormatError, CheckpointLimitError
from clawblox.errors.checkpoint import os_errors_as
from clawblox.system.regular_files import closing_fd, open_regular

_WINDOW: Final = 4 << 10
"""Bytes to read at a time for headers; the headers of small members are close together."""
_RAW: Final = -15


class ArchiveMember(NamedTuple):
    """A member of an open archive.

    Attributes:
        entry: Its record in the directory.
        start: Offset of its packed content.
        sha256: Digest of its content, in hexadecimal; None if ``metadata.json`` does not list it.
    """

    entry: ArchiveEntry
    start: int
    sha256: str | None


class Archive:
    """An open archive; all its headers have been checked.

    Args:
        fd: The file, open for reading; the caller closes it. Its position is neither used nor
            changed.
        path: Its path, for messages.
        limits: Limits for its size.

    Raises:
        CheckpointError: As in :meth:`open`.

    Attributes:
        path: Its path, for messages.
        fd: The open file.
        entries: Its members: ``metadata.json``, then the others in their order in the file.
        directories: Paths of the directories with entries of their own.
        metadata: The content of ``metadata.json``.
        is_verified: Whether the metadata lists the digest of every member. Otherwise members have
            only checksums.
    """

    def __init__(self, fd: int, path: Path, limits: Limits = Limits()) -> None:  # noqa: B008
        self.path = path
        self.fd = fd
        with _reading(path):
            records = _read_directory(fd, limits)
            self._starts = _check_headers(fd, *records)
            members, directories = _split_entries(records[0])
            _check_sizes(members, limits)
            for entry in directories:
                _drain(stream_member(fd, ArchiveMember(entry, self._starts[entry.member], None)))
            self.metadata: dict[str, Any] = {}
            content = b"".join(self.stream(members[0]))
            self.metadata = parse_metadata(content, max_values=limits.metadata_values)
            self.is_verified = compare_members(self.metadata, members)
            self.entries = tuple(restore_paths(self.metadata, members))
            paths = (entry.member.removesuffix("/") for entry in directories)
            self.directories = tuple(own_directories(self.metadata, paths))
            check_tree(self.metadata, self.entries, self.directories, max_paths=limits.entries)

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, limits: Limits = Limits()) -> Iterator[Self]:  # noqa: B008 - frozen
        """Open the archive at ``path`` while the block runs; symbolic links are refused.

        Args:
            path: The file.
            limits: Limits for its size.

        Raises:
            CheckpointFormatError: The file is not an archive in the format of this package;
                subclasses: a name is not allowed, the file is too large, or too new.
            CheckpointError: The file cannot be opened or read.
        """
        with closing_fd(_open(path)) as fd:
            yield cls(fd, path, limits)

    def stream(self, entry: ArchiveEntry) -> Iterator[bytes]:
        """Yield the content of a member in pieces of at most 256 KiB.

        The content is verified when the last piece has been taken without an exception.

        Args:
            entry: One of ``entries``.

        Raises:
            CheckpointFormatError: The content is damaged, or differs from ``metadata.json``.
            CheckpointError: The archive cannot be read.
        """
        return read_member(self.fd, self.path, self.member(entry))

    def member(self, entry: ArchiveEntry) -> ArchiveMember:
        """Return the argument of :func:`read_member` for one of ``entries``."""
        recorded = self.metadata.get("files", {}).get(entry.member)
        sha256 = None if recorded is None else recorded["sha256"]
        return ArchiveMember(entry, self._starts[entry.member], sha256)

    def verify(self, progress: Report | None = None) -> None:
        """Read every member and check it.

        Args:
            progress: Called with the bytes done and the total; an exception from it ends the
                reading.

        Raises:
            CheckpointError: As in :meth:`stream`.
        """
        counter = Progress(progress, sum(entry.size for entry in self.entries))
        for entry in self.entries:
            _drain(counter.counted(self.stream(entry)))


def read_member(fd: int, path: Path, member: ArchiveMember) -> Iterator[bytes]:
    """Yield the content of a member, like :meth:`Archive.stream`.

    Args:
        fd: The archive, open for reading; it need not be complete.
        path: Its path, for messages.
        member: The member.

    Raises:
        CheckpointError: As in :meth:`Archive.stream`.
    """
    with _reading(path):
        yield from stream_member(fd, member)


def packed_sha256(fd: int, path: Path, member: ArchiveMember) -> bytes:
    """Return the digest of a member's packed content.

    Args:
        fd: The archive, open for reading; it need not be complete.
        path: Its path, for messages.
        member: The member.

    Raises:
        CheckpointError: The archive cannot be read.
    """
    digest = hashlib.sha256()
    with _reading(path):
        for chunk in _read_range(fd, member.start, member.entry.compressed_size, member.entry):
            digest.update(chunk)
    return digest.digest()


def stream_member(fd: int, member: ArchiveMember) -> Iterator[bytes]:
    """Yield the content of a member like :func:`read_member`, without the path in errors.

    Args:
        fd: The archive, open for reading.
        member: The member.

    Raises:
        CheckpointFormatError: As in :func:`read_member`.
        OSError: The archive cannot be read.
    """
    entry = member.entry
    digest, crc, size = hashlib.sha256(), 0, 0
    packed = _read_range(fd, member.start, entry.compressed_size, entry)
    for chunk in packed if entry.method == STORED else _inflated(packed, entry):
        digest.update(chunk)
        crc = zlib.crc32(chunk, crc)
        size += len(chunk)
        yield chunk
    if (size, crc) != (entry.size, entry.crc):
        _refuse("the content of an entry disagrees with its checksum or size", entry)
    if member.sha256 not in (None, digest.hexdigest()):
        _refuse("an entry disagrees with the file list of metadata.json", entry)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return ``metadata.json`` of the archive at ``path`` without extracting files.

    Raises:
        CheckpointError: As in :meth:`Archive.open`.
    """
    with Archive.open(path) as archive:
        return archive.metadata


@contextlib.contextmanager
def located(path: Path) -> Iterator[None]:
    """Add the path to checkpoint errors without a path that are raised in the block."""
    try:
        yield
    except CheckpointError as error:
        error.path = error.path or path
        raise


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    with os_errors_as("the archive cannot be read", path), located(path):
        yield


def _open(path: Path) -> int:
    try:
        return open_regular(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL):
            message = "an archive must be a regular file"
            raise CheckpointFormatError(message, path=path) from error
        message = f"the archive cannot be opened: {error.strerror}"
        raise CheckpointError(message, path=path) from error


# Headers


def _read_directory(fd: int, limits: Limits) -> tuple[list[DirectoryRecord], DirectoryEnd]:
    file_size = os.fstat(fd).st_size
    tail = os.pread(fd, MAX_TAIL, max(0, file_size - MAX_TAIL))
    end = parse_end(tail, file_size)
    if end.members > limits.entries:
        _exceed(f"the archive has {end.members} entries, more than {limits.entries}")
    if end.size > limits.directory_bytes:
        _exceed(f"the archive's directory is larger than {limits.directory_bytes} bytes")
    return list(parse_directory(os.pread(fd, end.size, end.offset), end.members)), end


def _split_entries(
    records: Iterable[DirectoryRecord],
) -> tuple[list[ArchiveEntry], list[ArchiveEntry]]:
    """Return the members, ``metadata.json`` first, and the entries for directories.

    Programs that write entries for directories keep the order of the file system.
    """
    entries = [record.entry for record in records]
    directories = [entry for entry in entries if entry.is_directory]
    members = [entry for entry in entries if not entry.is_directory]
    if directories:
        members.sort(key=lambda entry: entry.member != METADATA_NAME)
    if not members or members[0].member != METADATA_NAME:
        _refuse("metadata.json is not the first entry")
    return members, directories


def _check_headers(fd: int, records: list[DirectoryRecord], end: DirectoryEnd) -> dict[str, int]:
    """Check all headers and that members are contiguous; return the offset of each content."""
    starts: dict[str, int] = {}
    window, window_start, position = b"", 0, 0
    for record in records:
        entry = record.entry
        if entry.offset != position or position >= end.offset:
            _refuse("an entry is not contiguous with the one before it", entry)
        if entry.name in starts:
            _refuse("an entry has the same name as another", entry)
        if position + max_local_header(record) > window_start + len(window):
            window = os.pread(fd, max(_WINDOW, max_local_header(record)), position)
            window_start = position
        in_window = position - window_start
        header = window[in_window : in_window + max_local_header(record)]
        starts[entry.name] = position + check_local_header(record, header)
        position = starts[entry.name] + entry.compressed_size
        if record.descriptor:
            if os.pread(fd, len(record.descriptor), position) != record.descriptor:
                _refuse("the data descriptor of an entry disagrees with the directory", entry)
            position += len(record.descriptor)
    if position != end.offset:
        _refuse("there are bytes between the last entry and the directory, or some are missing")
    return starts


def _check_sizes(entries: Iterable[ArchiveEntry], limits: Limits) -> None:
    total = 0
    for entry in entries:
        is_metadata = entry.name == METADATA_NAME
        most = limits.metadata_bytes if is_metadata else limits.file_bytes
        total += entry.size
        if entry.size > most:
            _exceed(f"an entry is larger than {most} bytes", entry)
        if entry.size > limits.ratio * entry.compressed_size:
            _exceed(f"an entry becomes more than {limits.ratio} times as large", entry)
        if total > limits.total_bytes:
            _exceed(f"the entries are larger than {limits.total_bytes} bytes together", entry)


# Content


def _drain(chunks: Iterator[bytes]) -> None:
    for _ in chunks:
        pass


def _read_range(fd: int, start: int, length: int, entry: ArchiveEntry) -> Iterator[bytes]:
    for chunk in read_range(fd, start, length):
        length -= len(chunk)
        yield chunk
    if length:
        _refuse("the archive became shorter while it was read", entry)


def _inflated(packed: Iterator[bytes], entry: ArchiveEntry) -> Iterator[bytes]:
    inflater = zlib.decompressobj(_RAW)
    left = entry.size
    while not inflater.eof:
        source = inflater.unconsumed_tail or next(packed, b"")
        try:
            # Ask for an extra byte to detect content that is too long.
            chunk = inflater.decompress(source, min(CHUNK_BYTES, left + 1))
        except zlib.error:
            _refuse("the content of an entry is damaged", entry)
        left -= len(chunk)
        if left < 0 or not (source or chunk):
            _refuse("the content of an entry does not have the recorded size", entry)
        if chunk:
            yield chunk
    if inflater.unused_data or next(packed, b""):
        _refuse("there are bytes after the content of an entry", entry)


def _refuse(message: str, entry: ArchiveEntry | None = None) -> NoReturn:
    raise CheckpointFormatError(message, entry=entry.name if entry else None)


def _exceed(message: str, entry: ArchiveEntry | None = None) -> NoReturn:
    raise CheckpointLimitError(message, entry=entry.name if entry else None)
