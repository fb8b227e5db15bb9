"""Recordings of runs for pages: found by number, and kept so that a look reads only what is new."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.errors import ClawbloxError, ManifestError, RecordingError
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.rundir.recordings import FoundRecording, find_recordings, opened_recording
from clawblox.views.recordings import Roster

_MAX_KEPT: Final = 16
_MAX_STATES_BYTES: Final = 1 << 20
"""States of an answer; a single one may be larger."""
_COMINGS: Final = ("join", "leave", "removed")


@attrs.frozen
class Sent:
    """An input or a message of an agent.

    Attributes:
        time: When it was applied, in seconds of simulation time.
        name: Name of the agent.
        is_message: Whether it is a message.
    """

    time: float
    name: str
    is_message: bool


class OpenRecording:
    """A recording, open for the duration of a block of :meth:`Recordings.opened`.

    Attributes:
        reader: Its reader.
        start: The fields of its first record, without a large snapshot.
    """

    def __init__(self, reader: RecordingReader) -> None:
        start = reader.start()
        snapshot = start.pop("snapshot", None)
        sessions = snapshot.get("sessions") if isinstance(snapshot, dict) else None
        self.reader = reader
        self.start: dict[str, Any] = {**start, "snapshot": {"sessions": sessions}}
        self._sent: list[Sent] = []
        self._comings: list[Record] = []
        self._roster = Roster(self.start)
        self._blocks = 0

    @property
    def sent(self) -> Sequence[Sent]:
        """What its agents sent, in order. Blocks."""
        self._read_on()
        return self._sent

    def _read_on(self) -> None:
        """Read the inputs of new blocks."""
        for entry in self.reader.index[self._blocks :]:
            if entry.header.track is Track.INPUTS:
                for record in self.reader.read_block(entry):
                    self._note(record)
            self._blocks += 1

    def _note(self, record: Record) -> None:
        event = record.fields.get("event")
        if event in _COMINGS:
            self._comings.append(record)
            self._roster.note(record)
        elif event in ("input", "chat"):
            name = self._roster.name(record.fields.get("agent_id"))
            self._sent.append(Sent(record.moment.time, name, event == "chat"))

    @property
    def span(self) -> tuple[float, float]:
        """Its first and its last moment, in seconds of simulation time."""
        headers = [entry.header for entry in self.reader.index]
        return headers[0].first.time, max(header.last.time for header in headers)

    @property
    def has_frames(self) -> bool:
        """Whether it has states that a renderer can show."""
        return any(entry.header.track is Track.FRAMES for entry in self.reader.index)

    def roster(self, time: float) -> Roster:
        """Return the agents at a moment. Blocks."""
        self._read_on()
        roster = Roster(self.start)
        for record in self._comings:
            if record.moment.time > time:
                break
            roster.note(record)
        return roster

    def find_time(self, utc: str) -> float | None:
        """Return the simulation time at a time of the host; None if that is in no block."""
        for entry in self.reader.index:
            if entry.header.first.utc <= utc <= entry.header.last.utc:
                records = list(self.reader.read_block(entry))
                return max((r.moment.time for r in records if r.moment.utc <= utc), default=None)
        headers = [entry.header for entry in self.reader.index]
        if not any(header.first.utc <= utc for header in headers) or utc > headers[-1].last.utc:
            return None
        return max(header.last.time for header in headers if header.last.utc <= utc)

    def read_states(self, since: float, until: float) -> bytes:
        """Return states as JSON: ``[time, frame]`` each, the one at ``since`` first.

        ``next`` is where a further answer begins, null if this reaches ``until`` or the end.

        Args:
            since: The first moment, in seconds of simulation time.
            until: The last moment.
        """
        frames = (r for r in self.reader.read_back(Track.FRAMES, since) if r.view)
        first = next(frames, None)
        states = [] if first is None else [first]
        size, end = sum(len(record.view) for record in states), "null"
        for record in self.reader.read_track(Track.FRAMES, since):
            if record.moment.time > until or not record.view:
                continue
            if size > _MAX_STATES_BYTES:
                end = repr(record.moment.time)
                break
            if first is None or record.number > first.number:
                states.append(record)
                size += len(record.view)
        pairs = (b"[%r,%b]" % (record.moment.time, record.view) for record in states)
        return b'{"states":[%b],"next":%b}' % (b",".join(pairs), end.encode())


@attrs.define(eq=False)
class _Kept:
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    recording: OpenRecording | None = None


class Recordings:
    """Recordings that pages have looked at. Thread-safe; every method blocks."""

    def __init__(self) -> None:
        self._kept: dict[Path, _Kept] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, found: FoundRecording, run_dir: Path) -> Iterator[OpenRecording]:
        """Open a recording for the duration of the block.

        Raises:
            ClawbloxError: It cannot be read, or Zstandard is missing.
        """
        with self._lock:
            kept = self._kept.pop(found.path, None) or _Kept()
            self._kept[found.path] = kept
            for oldest in [*self._kept][:-_MAX_KEPT]:
                del self._kept[oldest]
        with kept.lock, _explaining(found.path):
            known = None if kept.recording is None else kept.recording.reader
            with opened_recording(found.path, run_dir, known) as reader:
                if kept.recording is None or reader is not known:
                    kept.recording = OpenRecording(reader)
                yield kept.recording


@contextlib.contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ClawbloxError(str(error)) from error
    except OSError as error:
        raise RecordingError(str(error.strerror), path=path) from error


def list_replays(run_dir: Path) -> Mapping[str, FoundRecording]:
    """Return the recordings of a run by their numbers, as ``clawblox replay`` counts them. Blocks.

    Empty if the run has no manifest that can be read.
    """
    with contextlib.suppress(ManifestError):
        return {str(number): found for number, found in enumerate(find_recordings(run_dir), 1)}
    return {}
