"""Writes recordings: collects records in memory, and writes complete blocks.

The collector never blocks and the file always does, so a program may add records in one thread and
write in another. Both have one user at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from clawblox.foreign_values import require_few_members
from clawblox.recording.blocks import (
    BLOCK_RECORDS,
    MAX_BLOCK_BYTES,
    MAX_START_BYTES,
    MAX_START_MEMBERS,
    SUFFIX,
    Block,
    Moment,
    Track,
    encode_block,
    require_zstandard,
)

BLOCK_BYTES: Final = 256 << 10
"""Content length at which a block ends."""
BLOCK_AGE_S: Final = {Track.INPUTS: 1.0, Track.OBSERVATIONS: 5.0, Track.FRAMES: 5.0}
"""Age of the first record at which a block ends, in seconds, by track."""


@attrs.define
class _OpenBlock:
    first: Moment
    due_at: float
    last: Moment
    lines: list[bytes] = attrs.Factory(list)
    size: int = 0


class BlockCollector:
    """Records that wait to be written.

    Attributes:
        counts: Number of records added to each track so far.
        waiting_bytes: Length of the records not yet taken.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Track, 0)
        self.waiting_bytes = 0
        self._open: dict[Track, _OpenBlock] = {}
        self._complete: list[Block] = []

    def start(self, moment: Moment, fields: bytes) -> None:
        """Add the first record as a separate block; it may be much longer than others.

        Args:
            moment: When the recording starts.
            fields: The other fields of the record ``start``, encoded like those of other records.

        Raises:
            ValueError: It is too long even for a first record, or has too many values for readers.
        """
        line = _line(moment, fields)
        if len(line) > MAX_START_BYTES:
            raise ValueError(f"it has {len(line)} bytes, more than {MAX_START_BYTES}")
        require_few_members(line, MAX_START_MEMBERS)
        self.counts[Track.INPUTS] += 1
        self.waiting_bytes += len(line)
        self._complete.append(Block(Track.INPUTS, 1, moment, moment, line))

    def add(self, track: Track, moment: Moment, fields: bytes, now: float) -> bool:
        """Add a record.

        Args:
            track: Its track.
            moment: When it was made.
            fields: Its other fields: a JSON object with at least one, encoded in one line.
            now: The time in seconds of any steady clock.

        Returns:
            Whether the record makes the next block due earlier.

        Raises:
            ValueError: The record is too long, or has too many values for readers; it is not added.
        """
        line = _line(moment, fields)
        if len(line) > MAX_BLOCK_BYTES:
            raise ValueError(f"a record of {len(line)} bytes is longer than {MAX_BLOCK_BYTES}")
        require_few_members(line)
        block = self._open.get(track)
        if block is not None and block.size + len(line) > MAX_BLOCK_BYTES:
            self._complete_block(track)
            block = None
        is_first = block is None
        if block is None:
            block = self._open[track] = _OpenBlock(moment, now + BLOCK_AGE_S[track], moment)
        block.lines.append(line)
        block.size += len(line)
        block.last = moment
        self.counts[track] += 1
        self.waiting_bytes += len(line)
        is_full = len(block.lines) >= BLOCK_RECORDS or block.size >= BLOCK_BYTES
        if is_full:
            self._complete_block(track)
        return is_first or is_full

    @property
    def due_at(self) -> float | None:
        """Time at which :meth:`take` next returns a block, in seconds; None without records."""
        if self._complete:
            return 0.0
        return min((block.due_at for block in self._open.values()), default=None)

    def take(self, now: float) -> list[Block]:
        """Remove and return the blocks that have ended, in the order in which they ended.

        Args:
            now: The time in seconds, of the same clock as for :meth:`add`; infinity ends all
                blocks.
        """
        for track, block in list(self._open.items()):
            if block.due_at <= now:
                self._complete_block(track)
        blocks, self._complete = self._complete, []
        self.waiting_bytes -= sum(len(block.content) for block in blocks)
        return blocks

    def _complete_block(self, track: Track) -> None:
        block = self._open.pop(track)
        content = b"".join(block.lines)
        self._complete.append(Block(track, len(block.lines), block.first, block.last, content))


def _line(moment: Moment, fields: bytes) -> bytes:
    stamp = f'{{"tick":{moment.tick},"time":{float(moment.time)!r},"utc":"{moment.utc}",'
    return stamp.encode("ascii") + fields[1:] + b"\n"


def observation_fields(agent_id: bytes, after: int, observation: bytes) -> bytes:
    """Return the fields of the record of an observation.

    Args:
        agent_id: The agent's id, encoded as JSON.
        after: Number of records on the track of inputs so far.
        observation: The body of the answer as it was sent: a JSON value in one line.
    """
    return b'{"agent_id":%b,"after":%d,"observation":%b}' % (agent_id, after, observation)


@attrs.frozen
class FileDigest:
    """The content of a finished recording, as evidence against later damage.

    Attributes:
        size_bytes: Length of the file.
        sha256: Its digest, in hexadecimal.
    """

    size_bytes: int
    sha256: str


class RecordingFile:
    """A recording, open for writing. All methods block.

    Args:
        path: Path of the file.
        file: The file, open for writing at its end.

    Raises:
        ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.

    Attributes:
        path: Path of the file.
        digest: Its digest, once it is closed; None before, and after an error.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.digest: FileDigest | None = None
        self._file = file
        self._zstandard = require_zstandard()
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._is_whole = True

    def write(self, blocks: Sequence[Block]) -> None:
        """Append blocks, and make them visible to other processes.

        Raises:
            OSError: They are not completely written; write no further blocks.
        """
        is_whole, self._is_whole = self._is_whole, False
        for block in blocks:
            encoded = encode_block(block, self._zstandard)
            self._hash.update(encoded)
            self._size_bytes += self._file.write(encoded)
        self._file.flush()
        self._is_whole = is_whole

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: Buffered data could not be written; the file is closed anyway.
        """
        self._file.close()
        if self._is_whole:
            self.digest = FileDigest(self._size_bytes, self._hash.hexdigest())


def create_next(directory: Path) -> RecordingFile:
    """Create the next free ``recording-NNNN.jsonl.zst``; recordings of the older format count too.

    Args:
        directory: Directory of the file; it must exist.

    Raises:
        OSError: The file cannot be created.
        ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.
    """
    require_zstandard()
    number = 1
    while True:
        stem = directory.resolve() / f"recording-{number:04d}"
        path = stem.with_name(stem.name + SUFFIX)
        number += 1
        if stem.with_suffix(".jsonl").exists():
            continue
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        return RecordingFile(path, os.fdopen(fd, "wb"))
