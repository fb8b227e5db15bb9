"""Recordings for the tests of their readers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from clawblox.recording.blocks import (
    BLOCK_RECORDS,
    Block,
    Moment,
    Track,
    encode_block,
    read_moment,
    require_zstandard,
)
from clawblox.recording.reader import RecordingReader
from clawblox.recording.writer import BlockCollector, RecordingFile, create_next

UTC = "2026-06-22T18:59:25.{:03}Z"
START = {"event": "start", "format": "clawblox-recording-v2", "clock": "lockstep"}


def moment(tick: int) -> Moment:
    return Moment(tick, tick / 10, UTC.format(tick % 1000))


class Recorded:
    """A recording in the making; a block ends where ``flush`` is called."""

    def __init__(self, directory: Path) -> None:
        self.collector = BlockCollector()
        self.file: RecordingFile = create_next(directory)
        self.path = self.file.path
        self.collector.start(moment(0), json.dumps(START).encode())

    def add(self, track: Track, tick: int, **fields: object) -> None:
        encoded = json.dumps(fields, separators=(",", ":")).encode()
        self.collector.add(track, moment(tick), encoded, 0.0)

    def observe(self, tick: int, agent_id: str, observation: object) -> None:
        after = self.collector.counts[Track.INPUTS]
        fields = {"agent_id": agent_id, "after": after, "observation": observation}
        self.add(Track.OBSERVATIONS, tick, **fields)

    def frame(self, tick: int, **fields: object) -> None:
        self.add(Track.FRAMES, tick, after=self.collector.counts[Track.INPUTS], **fields)

    def flush(self) -> None:
        self.file.write(self.collector.take(float("inf")))

    def close(self) -> Path:
        self.flush()
        self.file.close()
        return self.path


@contextlib.contextmanager
def reading(path: Path) -> Iterator[RecordingReader]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield RecordingReader(fd, path)
    finally:
        os.close(fd)


def read_all(path: Path) -> list[dict]:
    """Return the fields of all records, in the order in which they happened."""
    with reading(path) as recording:
        return [record.fields for record in recording.read()]


Records: TypeAlias = "list[tuple[Track, dict[str, Any]]]"
"""Records in the order in which they happened."""


def rewrite(source: Path, target: Path, edit: Callable[[Records], Records]) -> Path:
    """Write a recording with other records; ``after`` follows from their order.

    What a killed world wrote after an input that was lost is left out.
    """
    with reading(source) as recording:
        inputs = sum(1 for _ in recording.read_track(Track.INPUTS))
        known = [record for record in recording.read() if record.after <= inputs]
        records = edit([(record.track, record.fields) for record in known])
    lines: dict[Track, list[bytes]] = {track: [] for track in Track}
    last = Moment(0, 0.0, UTC.format(0))
    for track, fields in records:
        if "after" in fields:
            fields["after"] = len(lines[Track.INPUTS])
        lines[track].append(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
        with contextlib.suppress(TypeError, ValueError):
            last = max(last, read_moment(fields), key=lambda moment: moment.tick)
    blocks = [
        Block(track, len(part), moment(0), last, b"".join(part))
        for track in Track
        for part in batched(lines[track], BLOCK_RECORDS)
    ]
    first, *others = blocks
    start, *rest = first.content.splitlines(keepends=True)
    parts = [Block(Track.INPUTS, 1, moment(0), moment(0), start), *others]
    if rest:
        parts.insert(1, Block(Track.INPUTS, len(rest), moment(0), last, b"".join(rest)))
    zstandard = require_zstandard()
    with target.open("xb") as file:
        file.writelines(encode_block(block, zstandard) for block in parts)
    return target


def batched(items: list[bytes], size: int) -> Iterator[list[bytes]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def content(path: Path) -> dict[str, Any]:
    """Return size and digest of a file, as the entry of a finished recording has them."""
    data = path.read_bytes()
    return {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
