"""Recordings of worlds in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawblox.recording.writer import create_next
from clawblox.server.hosted_world import HostedWorld
from clawblox.server.recording import RecordingWriter


def open_recording(directory: Path, world: HostedWorld, **start: Any) -> RecordingWriter:
    """Return a recorder whose first record is written, as a world's program makes it."""
    recorder = RecordingWriter(world, create_next(directory))
    recorder.start(**start)
    return recorder
