"""Recordings that pages show, cached so that a page reads only new blocks."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from clawblox.differences import add_key
from clawblox.errors import ManifestError, RecordingError
from clawblox.foreign_values import finite_number
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.rundir.recordings import FoundRecording, find_recordings, opened_recording
from clawblox.views.axis import Axis, Sent, make_axis
from clawblox.views.axis_svg import MAX_POINTS
from clawblox.views.descent import DescentLife, find_life
from clawblox.views.recordings import RecordingRoster
from clawblox.web.world_calls import describe_sent

_MAX_KEPT: Final = 16
_MAX_STATES_BYTES: Final = 1 << 20
"""Maximum size of the states in an answer; a single state may be larger."""
_MAX_BLOCKS: Final = 140
_MAX_NUMBERS: Final = 200
_NUMBERS_DEPTH: Final = 3
_OWN_TIME: Final = ("tick", "time")

Points: TypeAlias = list[tuple[float, float]]
"""Simulated times, in seconds, each with a value."""


class OpenRecording:
    """A recording that is open for the duration of a block of :meth:`Recordings.opened`.

    Args:
        reader: The reader of the recording.

    Attributes:
        reader: The reader of the recording.
        world_files: The recorded digest of the world's files; None if there is none.
    """

    def __init__(self, reader: RecordingReader) -> None:
        self.reader = reader
        self._start = reader.start()
        files = self._start.get("world_files")
        self.world_files = files if isinstance(files, str) else None
        self._roster = RecordingRoster(self._start)
        self._sent: list[Sent] = []
        self._others: list[Record] = []
        self._blocks = 0

    @property
    def sent(self) -> Sequence[Sent]:
        """The inputs of the agents, in order. Blocks."""
        self._read_on()
        return self._sent

    def _read_on(self) -> None:
        """Read the inputs of new blocks."""
        for entry in self.reader.index[self._blocks :]:
            self._blocks += 1
            is_wanted = entry.header.track is Track.INPUTS
            for record in self.reader.read_block(entry) if is_wanted else ():
                event = record.fields.get("event")
                if event in ("input", "chat"):
                    self._sent.append(self._describe(record, is_message=event == "chat"))
                else:
                    self._roster.note(record)
                    self._others.append(record)

    def _describe(self, record: Record, *, is_message: bool) -> Sent:
        fields, moment = record.fields, record.moment
        text = str(fields.get("content" if is_message else "action"))
        words = describe_sent(text, fields.get("data"))
        name = self._roster.name(fields.get("agent_id"))
        return Sent(moment.time, name, is_message, words, moment.utc)

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last moment, in seconds of simulation time."""
        headers = [entry.header for entry in self.reader.index]
        return headers[0].first.time, max(header.last.time for header in headers)

    @property
    def has_frames(self) -> bool:
        """True if the recording has states that a renderer can show."""
        return any(entry.header.track is Track.FRAMES for entry in self.reader.index)

    def roster(self, time: float = math.inf) -> RecordingRoster:
        """Return the agents at a moment, by default at the end. Blocks."""
        self._read_on()
        roster = RecordingRoster(self._start)
        for record in self._others:
            if record.moment.time <= time:
                roster.note(record)
        return roster

    def read_numbers(self) -> Mapping[tuple[str, str], Points]:
        """Return the numbers in observations, by agent name and path. Blocks.

        Of a long recording, only evenly spread observations are read.

        Raises:
            OSError: The file cannot be read.
            RecordingError: A block is damaged.
        """
        numbers: dict[tuple[str, str], Points] = {}
        roster = self.roster()
        for record in self._sample():
            agent = roster.name(record.fields.get("agent_id"))
            for path, number in _find_numbers(record.fields.get("observation")):
                if (agent, path) in numbers or len(numbers) < _MAX_NUMBERS:
                    numbers.setdefault((agent, path), []).append((record.moment.time, number))
        return numbers

    def _sample(self) -> Iterator[Record]:
        entries = [e for e in self.reader.index if e.header.track is Track.OBSERVATIONS]
        chosen = entries[:: math.ceil(len(entries) / _MAX_BLOCKS) or 1]
        for entry in chosen:
            lines = self.reader.read_lines(entry)
            step = math.ceil(len(lines) / (MAX_POINTS // len(chosen)))
            for number, line in [*enumerate(lines, entry.number)][::step]:
                yield self.reader.parse_line(entry, number, line)

    def read_states(self, since: float, until: float) -> bytes:
        """Return states as JSON, each as ``[time, frame]``, starting with the state at ``since``.

        ``next`` is the start of the next answer, or null if this answer reaches ``until`` or the
        end.

        Args:
            since: The first moment, in seconds of simulation time.
            until: The last moment.
        """
        back = self.reader.read_back(Track.FRAMES, since)
        states = [*itertools.islice((record for record in back if record.view), 1)]
        last, size, end = states[-1].number if states else -1, 0, "null"
        for record in self.reader.read_track(Track.FRAMES, since):
            if record.moment.time > until:
                break
            if record.number <= last or not record.view:
                continue
            if size > _MAX_STATES_BYTES:
                end = repr(record.moment.time)
                break
            states.append(record)
            size += len(record.view)
        pairs = (b"[%r,%b]" % (record.moment.time, record.view) for record in states)
        return b'{"states":[%b],"next":%b}' % (b",".join(pairs), end.encode())


def _find_numbers(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    if isinstance(value, Mapping) and depth <= _NUMBERS_DEPTH:
        for key, member in value.items():
            if depth or key not in _OWN_TIME:
                yield from _find_numbers(member, add_key(path, key), depth + 1)
    elif not isinstance(value, bool) and (number := finite_number(value)) is not None:
        yield path, number


RecordedLives: TypeAlias = Mapping[int, Sequence[OpenRecording]]
"""The open recordings of each life of a line of descent, in order, by the index of the life."""


def read_lanes(axis: Axis, recorded: RecordedLives) -> dict[str, list[Sent]]:
    """Return the inputs and messages of each agent, by name. Blocks.

    Raises:
        OSError: A file cannot be read.
        RecordingError: A block is damaged.
    """
    lanes: dict[str, list[Sent]] = {}
    for life, recordings in sorted(recorded.items()):
        for one in (one for recording in recordings for one in recording.sent):
            is_lost = axis.is_lost(life, one.time)
            if is_lost is not None:
                lanes.setdefault(one.name, []).append(attrs.evolve(one, is_lost=is_lost))
    return lanes


class Recordings:
    """Cache of the recordings that pages show; one thread reads at a time. All methods block."""

    def __init__(self) -> None:
        self._kept: dict[Path, OpenRecording] = {}
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def opened(self, found: FoundRecording, run_dir: Path) -> Iterator[OpenRecording]:
        """Open a recording for the duration of the block.

        Raises:
            RecordingError: The file cannot be opened, is not a recording, or is damaged.
            OSError: The file cannot be read.
            ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.
        """
        with self._lock:
            kept = self._kept.pop(found.path, None)
            known = None if kept is None else kept.reader
            with opened_recording(found.path, run_dir, known) as reader:
                recording = kept if kept and reader is known else OpenRecording(reader)
                self._kept[found.path] = recording
                for oldest in [*self._kept][:-_MAX_KEPT]:
                    del self._kept[oldest]
                yield recording

    @contextlib.contextmanager
    def opened_axis(self, lives: Sequence[DescentLife]) -> Iterator[tuple[Axis, RecordedLives]]:
        """Yield the axis of a line of descent and its recordings, open while the block runs.

        Only the index of each recording is read. Unreadable recordings are left out.

        Raises:
            ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.
        """
        recordings: dict[int, list[OpenRecording]] = {}
        with contextlib.ExitStack() as stack:
            for run_dir, found in _list_recordings(lives):
                with contextlib.suppress(RecordingError, OSError):
                    recording = stack.enter_context(self.opened(found, run_dir))
                    first = recording.reader.index[0].header.first
                    life = find_life(lives, run_dir, found.instance, first)
                    if life is not None:
                        recordings.setdefault(life, []).append(recording)
            readers = {life: [one.reader for one in own] for life, own in recordings.items()}
            yield make_axis(lives, readers), recordings


def _list_recordings(lives: Sequence[DescentLife]) -> Iterator[tuple[Path, FoundRecording]]:
    for run_dir in dict.fromkeys(life.run_dir for life in lives):
        names = {"", *(life.instance.name for life in lives if life.run_dir == run_dir)}
        with contextlib.suppress(ManifestError):
            yield from ((run_dir, one) for one in find_recordings(run_dir) if one.instance in names)
