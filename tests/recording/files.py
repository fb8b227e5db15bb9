"""Recordings for the tests of their readers."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from clawblox.recording.blocks import Moment, Track
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
