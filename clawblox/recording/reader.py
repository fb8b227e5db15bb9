"""Reads untrusted recordings, with limits and checks.

A reader gets a descriptor of a regular file, reads windows of the file, and decompresses a block
only when one of its records is wanted. All functions block.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.errors import RecordingError
from clawblox.foreign_values import MAX_MEMBERS, parse_document
from clawblox.recording import FORMAT, OLD_FORMAT
from clawblox.recording.blocks import (
    MAGIC,
    MAX_BLOCK_BYTES,
    MAX_HEADER_BYTES,
    MAX_START_BYTES,
    MAX_START_MEMBERS,
    PREFIX,
    BlockHeader,
    Moment,
    Track,
    parse_header,
    read_moment,
    require_zstandard,
)

MAX_BLOCKS: Final = 1 << 20
"""Maximum number of blocks in a file."""
OBSERVATION: Final = b',"observation":'
"""Prefix of the answer in the record of an observation."""
VIEW: Final = b',"frame":'
"""Prefix of the view in the record of a frame."""
_UTC: Final = b'"utc":"'

_OLD_BLOCK_BYTES: Final = 1 << 20


@attrs.frozen
class BlockEntry:
    """A block in the index of a recording.

    Attributes:
        header: Its header.
        offset: Offset of its records in the file, in bytes.
        number: Number of records of its track in the blocks before it.
    """

    header: BlockHeader
    offset: int
    number: int


@attrs.frozen
class Record:
    """A record.

    Attributes:
        track: Its track.
        number: Number of records of the track before it.
        moment: When it was made.
        fields: All of its fields; optional ones are unchecked.
        line: The record in its form in the file, without its newline.
    """

    track: Track
    number: int
    moment: Moment
    fields: dict[str, Any] = attrs.field(repr=False)
    line: bytes = attrs.field(repr=False)

    @property
    def observation(self) -> bytes:
        """The answer sent to an agent, unchanged; empty if this is not an observation."""
        return self.line.partition(OBSERVATION)[2][:-1]

    @property
    def view(self) -> bytes:
        """The encoded view of a spectator, unchanged; empty if there is none."""
        return self.line.partition(VIEW)[2][:-1]

    @property
    def after(self) -> int:
        """Number of records on the track of inputs before it."""
        if self.track is Track.INPUTS:
            return self.number
        after = self.fields.get("after")
        return after if isinstance(after, int) else 0


class RecordingReader:
    """A recording, open for reading; later blocks are seen after :meth:`extend`.

    Args:
        fd: Descriptor of a regular file, owned by the caller.
        path: Path of the file, for errors.
        is_growing: Whether it may be without a complete record yet, because it is being written;
            :meth:`extend` then reads on.

    Raises:
        OSError: The file cannot be read.
        RecordingError: It is damaged, or not a recording; the error names the offset.
        ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.

    Attributes:
        path: Path of the file.
        size: Length of the part read so far, in bytes.
        index: Its blocks, in the order of the file.
        torn_at: Offset of an incomplete block, in bytes; None if the file ends with a block. The
            rest is ignored: it is being written, or its writer was killed.
        is_old: Whether it has the older format: without observations, frames and UTC times.
    """

    def __init__(self, fd: int, path: Path, *, is_growing: bool = False) -> None:
        self.path = path
        self._fd = fd
        status = os.fstat(fd)
        self._file = status.st_dev, status.st_ino
        self.size = status.st_size
        self._end = self._blocks = 0
        self._counts = dict.fromkeys(Track, 0)
        self.torn_at: int | None = None
        self.is_old = self._read(0, 1) == b"{"
        self._zstandard = None if self.is_old else require_zstandard()
        entries = self._index_lines() if self.is_old else self._index_blocks()
        self.index: list[BlockEntry] = list(entries)
        if not self.index and not is_growing:
            raise self._error("it has no complete record", 0)

    def reopen(self, fd: int) -> bool:
        """Continue with another descriptor of the same file, and add new blocks.

        Args:
            fd: The descriptor, owned by the caller.

        Returns:
            Whether it is the same file and has not become shorter; if not, the reader is unchanged.

        Raises:
            OSError: The file cannot be read.
            RecordingError: A block is damaged.
        """
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self._file or status.st_size < self.size:
            return False
        self._fd = fd
        self.extend()
        return True

    def extend(self) -> None:
        """Add newly appended blocks to the index, except in the older format.

        Raises:
            OSError: The file cannot be read.
            RecordingError: A block is damaged.
        """
        if not self.is_old:
            self.size = os.fstat(self._fd).st_size
            self.torn_at = None
            self.index += self._index_blocks()

    # Records

    def start(self) -> dict[str, Any]:
        """Return the fields of the first record.

        Raises:
            OSError: The file cannot be read.
            RecordingError: It is damaged, or not an event ``start`` of a known format.
        """
        record = next(self.read_block(self.index[0]), None)
        known = OLD_FORMAT if self.is_old else FORMAT
        if record is None or record.fields.get("event") != "start":
            raise self._error("it does not begin with the event 'start'", 0)
        if record.fields.get("format") != known:
            raise self._error(f"its format is not {known}", 0)
        return record.fields

    def read_track(self, track: Track, since: float = float("-inf")) -> Iterator[Record]:
        """Iterate over the records of a track, in their order.

        Args:
            track: The track.
            since: Begin with the first record at this time or later, in seconds of simulation time.

        Raises:
            OSError: The file cannot be read.
            RecordingError: A block is damaged.
        """
        blocks = (entry for entry in self.index if entry.header.track is track)
        for entry in blocks:
            if entry.header.last.time >= since:
                yield from (r for r in self.read_block(entry) if r.moment.time >= since)

    def read(
        self, tracks: Collection[Track] = tuple(Track), since: float = float("-inf")
    ) -> Iterator[Record]:
        """Iterate over the records of some tracks, in chronological order.

        Args:
            tracks: The tracks; all by default.
            since: Begin with the first records at this time or later, in seconds of simulation
                time.

        Raises:
            OSError: The file cannot be read.
            RecordingError: A block is damaged.
        """
        return heapq.merge(*(self.read_track(track, since) for track in tracks), key=record_order)

    def read_back(self, track: Track, until: float) -> Iterator[Record]:
        """Iterate over the records of a track up to a time, the last one first.

        Args:
            track: The track.
            until: The time of the last record, in seconds of simulation time.

        Raises:
            OSError: The file cannot be read.
            RecordingError: A block is damaged.
        """
        for entry in reversed(self.index):
            if entry.header.track is track and entry.header.first.time <= until:
                records = [r for r in self.read_block(entry) if r.moment.time <= until]
                yield from reversed(records)

    def read_block(self, entry: BlockEntry) -> Iterator[Record]:
        """Iterate over the records of a block of the index.

        Raises:
            OSError: The file cannot be read.
            RecordingError: The block is damaged.
        """
        for number, line in enumerate(self.read_lines(entry), entry.number):
            yield self.parse_line(entry, number, line)

    def read_lines(self, entry: BlockEntry) -> list[bytes]:
        """Return the records of a block in their form in the file, without newlines.

        Raises:
            OSError: The file cannot be read.
            RecordingError: The block is damaged.
        """
        content = self._content(entry)
        count = content.count(b"\n")
        if count != entry.header.records or not content.endswith(b"\n"):
            text = f"a block has {count} records, and its header declares {entry.header.records}"
            raise self._error(text, entry.offset)
        return content[:-1].split(b"\n")

    def parse_line(self, entry: BlockEntry, number: int, line: bytes) -> Record:
        """Return the record in a line of a block.

        Args:
            entry: The block.
            number: Number of records of its track before it.
            line: The line.

        Raises:
            RecordingError: It is not a record.
        """
        max_members = MAX_START_MEMBERS if entry is self.index[0] else MAX_MEMBERS
        try:
            fields = parse_document(line, max_members=max_members)
            if not isinstance(fields, dict):
                raise ValueError("it is not a JSON object")  # noqa: TRY301, RUF100
            moment = read_moment(fields)
        except ValueError as error:
            text = f"record {number} of the track {entry.header.track}: {error}"
            raise self._error(text, entry.offset) from None
        return Record(entry.header.track, number, moment, fields, line)

    def _content(self, entry: BlockEntry) -> bytes:
        data = self._read(entry.offset, entry.header.compressed)
        if self._zstandard is None:
            return data
        try:
            return self._zstandard.decompress_whole(data, entry.header.uncompressed)
        except ValueError as error:
            raise self._error(f"a block cannot be decompressed: {error}", entry.offset) from None

    # Index

    def _index_blocks(self) -> Iterator[BlockEntry]:
        while self._end < self.size:
            entry = self._entry(self._end, self._counts)
            if entry is None:
                self.torn_at = self._end
                return
            self._blocks += 1
            if self._blocks > MAX_BLOCKS:
                raise self._error(f"it has more than {MAX_BLOCKS} blocks", self._end)
            self._counts[entry.header.track] += entry.header.records
            self._end = entry.offset + entry.header.compressed
            yield entry

    def _entry(self, offset: int, counts: dict[Track, int]) -> BlockEntry | None:
        """Return the block at an offset; None if it is incomplete."""
        window = self._read(offset, PREFIX.size + MAX_HEADER_BYTES)
        if len(window) < PREFIX.size:
            return None
        magic, length = PREFIX.unpack_from(window)
        if magic != MAGIC:
            what = "damaged" if offset else "not a recording, or damaged"
            raise self._error(f"it is {what}: no header of a block", offset)
        if length > MAX_HEADER_BYTES:
            raise self._error(f"a header has {length} bytes, more than {MAX_HEADER_BYTES}", offset)
        data = window[PREFIX.size : PREFIX.size + length]
        if len(data) < length:
            return None
        try:
            header = parse_header(data, max_content=MAX_BLOCK_BYTES if offset else MAX_START_BYTES)
        except ValueError as error:
            raise self._error(f"the header of a block: {error}", offset) from None
        begin = offset + PREFIX.size + length
        if begin + header.compressed > self.size:
            return None
        return BlockEntry(header, begin, counts[header.track])

    def _index_lines(self) -> Iterator[BlockEntry]:
        """Divide a file of lines into blocks of complete lines."""
        offset = number = 0
        while offset < self.size:
            data = self._read(offset, _OLD_BLOCK_BYTES)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == _OLD_BLOCK_BYTES:
                data = self._read(offset, MAX_BLOCK_BYTES)
                end = data.find(b"\n") + 1
            if not end:
                if len(data) == MAX_BLOCK_BYTES:
                    text = f"a line has more than {MAX_BLOCK_BYTES} bytes"
                    raise self._error(text, offset)
                self.torn_at = offset
                return
            header = self._old_header(data[:end], offset)
            yield BlockEntry(header, offset, number)
            offset, number = offset + end, number + header.records

    def _old_header(self, data: bytes, offset: int) -> BlockHeader:
        lines = data[:-1].split(b"\n")
        moments = []
        for line in (lines[0], lines[-1]):
            try:
                fields = parse_document(line)
                moments.append(read_moment(fields if isinstance(fields, dict) else {}))
            except ValueError as error:
                raise self._error(f"a record: {error}", offset) from None
        first, last = moments
        return BlockHeader(Track.INPUTS, len(lines), first, last, len(data), len(data))

    def _read(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def _error(self, message: str, offset: int) -> RecordingError:
        return RecordingError(message, path=self.path, offset=offset)


def unstamped(line: bytes) -> bytes:
    """Return the line of a record without the time of the host."""
    before, key, rest = line.partition(_UTC)
    return before + rest.partition(b'"')[2] if key else before


def record_order(record: Record) -> tuple[int, bool, int, bool]:
    """Return the sort key of a record among the records of all tracks."""
    is_input = record.track is Track.INPUTS
    return record.after, is_input, record.moment.tick, record.track is not Track.FRAMES
