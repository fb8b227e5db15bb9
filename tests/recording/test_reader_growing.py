"""A reader follows a recording that is being written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawblox.errors import RecordingError
from clawblox.recording.blocks import Track
from clawblox.recording.reader import RecordingReader
from tests.recording.files import Recorded


def test_blocks_that_are_appended_are_read_once(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    fd = os.open(recorded.path, os.O_RDONLY)
    try:
        reader = RecordingReader(fd, recorded.path, is_growing=True)
        assert reader.index == []
        with pytest.raises(RecordingError, match="no complete record"):
            RecordingReader(fd, recorded.path)
        recorded.flush()
        reader.extend()
        recorded.observe(1, "a", {"x": 1})
        recorded.flush()
        whole = recorded.path.stat().st_size
        recorded.observe(2, "a", {"x": 2})
        recorded.close()
        os.truncate(recorded.path, whole + 30)  # the last block is being written
        reader.extend()
        reader.extend()
        assert [entry.header.track for entry in reader.index] == [Track.INPUTS, Track.OBSERVATIONS]
        assert reader.torn_at == whole
        assert [record.number for record in reader.read_track(Track.OBSERVATIONS)] == [0]
    finally:
        os.close(fd)
