"""The recordings of a line of descent: opened, matched with its lives, and read into lanes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import attrs

from clawblox.errors import ManifestError, RecordingError
from clawblox.recording.blocks import Track
from clawblox.recording.reader import BlockEntry, RecordingReader
from clawblox.rundir.recordings import find_recordings, opened_recording
from clawblox.views.recordings import Roster
from clawblox.web.axis import Axis, LanePoint
from clawblox.web.descent import DescentLife, find_life


@attrs.frozen
class RecordedLives:
    """The recordings of the lives of a line of descent.

    Attributes:
        readers: The open recordings of each life, by its index, in their order.
        problems: Errors of run directories and recordings that cannot be read.
    """

    readers: Mapping[int, Sequence[RecordingReader]]
    problems: Sequence[str]

    @property
    def blocks(self) -> Mapping[int, Sequence[BlockEntry]]:
        """The indexes of the recordings, for the axis."""
        return {
            life: [entry for reader in readers for entry in reader.index]
            for life, readers in self.readers.items()
        }


@contextlib.contextmanager
def opened_lives(lives: Sequence[DescentLife]) -> Iterator[RecordedLives]:
    """Open the recordings of a line of descent for the duration of the block. Blocks.

    Of each only the index is read. Yields them; what cannot be read is left out.

    Raises:
        ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.
    """
    readers: dict[int, list[RecordingReader]] = {}
    problems: list[str] = []
    with contextlib.ExitStack() as stack:
        for run_dir in dict.fromkeys(life.run_dir for life in lives):
            try:
                listed = find_recordings(run_dir)
            except ManifestError as error:
                listed = []
                problems.append(error.headline)
            for found in listed:
                try:
                    reader = stack.enter_context(opened_recording(found.path, run_dir))
                except RecordingError as error:
                    problems.append(error.headline)
                    continue
                life = find_life(lives, run_dir, found.instance, reader.index[0].header.first)
                if life is not None:
                    readers.setdefault(life, []).append(reader)
        yield RecordedLives(readers, problems)


def read_lanes(axis: Axis, recorded: RecordedLives) -> dict[str, list[LanePoint]]:
    """Return what each agent sent, by its name; each track is read once. Blocks.

    Raises:
        OSError: A file cannot be read.
        RecordingError: A block is damaged, or the first record is not a start.
    """
    lanes: dict[str, list[LanePoint]] = {}
    for life, readers in sorted(recorded.readers.items()):
        for reader in readers:
            roster = Roster(reader.start())
            for record in reader.read_track(Track.INPUTS):
                roster.note(record)
                event, time = record.fields.get("event"), record.moment.time
                is_lost = axis.is_lost(life, time)
                if event in ("input", "chat") and is_lost is not None:
                    name = roster.name(record.fields.get("agent_id"))
                    point = LanePoint(time, is_lost, event == "chat")
                    lanes.setdefault(name, []).append(point)
    return lanes
