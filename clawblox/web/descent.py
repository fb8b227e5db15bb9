"""A line of descent: the lives from the first start to the last moment of an instance.

It leads back through restarts of an instance, and through forks to the instances that it came
from, in the same run directory or in others. Of each life it keeps the part up to the save that
the next life began from. What an instance lost after such a save belongs to the line as well, but
lies beside it; what a parent did after a fork does not. Lives are matched with their recordings,
which are kept so that a look reads only what is new.
"""

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
from clawblox.recording.blocks import Moment, Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.lives import Life, Origin
from clawblox.rundir.recordings import FoundRecording, find_recordings, opened_recording
from clawblox.rundir.saves import LineageSave
from clawblox.views.agent_words import seconds_of
from clawblox.views.lineage_layout import find_history
from clawblox.views.recordings import Roster
from clawblox.views.world_calls import describe_sent

_MAX_KEPT: Final = 16
_MAX_STATES_BYTES: Final = 1 << 20
"""States of an answer; a single one may be larger."""
MAX_POINTS: Final = 1400
"""Points of a line."""
_MAX_BLOCKS: Final = 140
_MAX_NUMBERS: Final = 200
_NUMBERS_DEPTH: Final = 3
_OWN_TIME: Final = ("tick", "time")

Points: TypeAlias = list[tuple[float, float]]
"""Simulated times, in seconds, each with a value."""


@attrs.frozen
class DescentLife:
    """A life of a line of descent.

    Attributes:
        run_dir: Its run directory.
        instance: Its instance.
        number: Its place among the lives of the instance, from 0.
        is_lost: Whether no part of it is on the line.
        until: The save with which it leaves the line; None if it does not.
        is_forked: Whether the line goes on in another instance from that save.
    """

    run_dir: Path
    instance: InstanceLineage = attrs.field(repr=lambda instance: instance.name)
    number: int
    is_lost: bool = False
    until: LineageSave | None = None
    is_forked: bool = False

    @property
    def life(self) -> Life:
        """The life itself."""
        return self.instance.lives[self.number]

    @property
    def name(self) -> str:
        """Name of its instance, and which of its lives it is where there are several."""
        several = len(self.instance.lives) > 1
        return f"{self.instance.name}, life {self.number + 1}" if several else self.instance.name


def find_descent(
    lineages: Sequence[Lineage], run_dir: Path, instance: str
) -> tuple[DescentLife, ...]:
    """Return the line of descent of an instance, oldest life first.

    Args:
        lineages: The run directories to search for the origins of lives.
        run_dir: The run directory of the instance, one of them.
        instance: Its name; an unknown one has no lives.
    """
    lives: list[DescentLife] = []
    seen: set[tuple[Path, str]] = set()
    all_own = (lineage.instances for lineage in lineages if lineage.run_dir == run_dir)
    named = (one for own in all_own for one in own if one.name == instance)
    last = next((DescentLife(run_dir, one, len(one.lives) - 1) for one in named), None)
    while last is not None and (last.run_dir, last.instance.name) not in seen:
        seen.add((last.run_dir, last.instance.name))
        lives[:0] = before = [*_list_lives(last)]
        origin = next(one.life.origin for one in before if not one.is_lost)
        last = _find_parent(lineages, origin, last.run_dir) if origin else None
    return tuple(lives)


def _find_parent(lineages: Sequence[Lineage], origin: Origin, run_dir: Path) -> DescentLife | None:
    """Return the life that made a save: by the path of the save, or else by its digest."""
    makers = [
        (save.path != origin.path, lineage.run_dir != run_dir, number, instance, lineage, save)
        for lineage in lineages
        for instance in lineage.instances
        for number, life in enumerate(instance.lives)
        for save in life.saves
        if save.path == origin.path or (save.sha256 and save.sha256 == origin.sha256)
    ]
    if not makers:
        return None
    _, _, number, instance, lineage, save = min(makers, key=lambda maker: maker[:2])
    return DescentLife(lineage.run_dir, instance, number, until=save, is_forked=True)


def _list_lives(last: DescentLife) -> Iterator[DescentLife]:
    """Yield the lives of an instance up to its last one on the line."""
    lives = last.instance.lives[: last.number + 1]
    kept = find_history(lives)
    for number, life in enumerate(lives[:-1]):
        until = life.saves[kept[number] - 1] if number in kept else None
        yield DescentLife(last.run_dir, last.instance, number, number not in kept, until)
    yield last


def find_life(
    lives: Sequence[DescentLife], run_dir: Path, instance: str, first: Moment
) -> int | None:
    """Return the life that made a recording, as an index; None if it is none of these.

    Of the lives of the instance that began at the same simulated time, it is the one that began
    next to the recording.

    Args:
        lives: A line of descent.
        run_dir: The run directory of the recording.
        instance: Name of its instance; empty for the only one.
        first: When it begins.
    """
    own = [one for one in lives if one.run_dir == run_dir and instance in ("", one.instance.name)]
    recorded_at = seconds_of(first.utc) or 0.0
    begun = [
        (abs((seconds_of(life.begun_at) or math.inf) - recorded_at), number)
        for number, life in enumerate(own[0].instance.lives if own else ())
        if life.time is None or math.isclose(life.time, first.time, abs_tol=1e-6)
    ]
    numbers = {one.number: lives.index(one) for one in own}
    return numbers.get(min(begun)[1]) if begun else None


# -- recordings ----------------------------------------------------------------------------------


@attrs.frozen
class Sent:
    """An input or a message of an agent.

    Attributes:
        time: When it was applied, in seconds of simulation time.
        name: Name of the agent.
        is_message: Whether it is a message.
        words: What it is, as a call of the agent is shown.
        utc: When that was, in time of the host.
        is_lost: Whether it is beside its line of descent.
    """

    time: float
    name: str = ""
    is_message: bool = False
    words: str = ""
    utc: str = ""
    is_lost: bool = False


class OpenRecording:
    """A recording, open for the duration of a block of :meth:`Recordings.opened`.

    Args:
        reader: Its reader.

    Attributes:
        reader: Its reader.
        world_files: The digest of the world's files, as it has it; None if it has none.
    """

    def __init__(self, reader: RecordingReader) -> None:
        self.reader = reader
        self._start = reader.start()
        files = self._start.get("world_files")
        self.world_files = files if isinstance(files, str) else None
        self._roster = Roster(self._start)
        self._sent: list[Sent] = []
        self._others: list[Record] = []
        self._blocks = 0

    @property
    def sent(self) -> Sequence[Sent]:
        """What its agents sent, in order. Blocks."""
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
        """Its first and its last moment, in seconds of simulation time."""
        headers = [entry.header for entry in self.reader.index]
        return headers[0].first.time, max(header.last.time for header in headers)

    @property
    def has_frames(self) -> bool:
        """Whether it has states that a renderer can show."""
        return any(entry.header.track is Track.FRAMES for entry in self.reader.index)

    def roster(self, time: float = math.inf) -> Roster:
        """Return the agents at a moment, at its end by default. Blocks."""
        self._read_on()
        roster = Roster(self._start)
        for record in self._others:
            if record.moment.time <= time:
                roster.note(record)
        return roster

    def read_numbers(self) -> Mapping[tuple[str, str], Points]:
        """Return numbers of observations, by name of the agent and path. Blocks.

        Of a long recording, evenly spread observations are read.

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
        """Return states as JSON: ``[time, frame]`` each, the one at ``since`` first.

        ``next`` is where a further answer begins, null if this reaches ``until`` or the end.

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
"""The open recordings of each life of a line of descent, by its index, in their order."""


class Recordings:
    """Recordings that pages have looked at; one thread reads at a time. Every method blocks."""

    def __init__(self) -> None:
        self._kept: dict[Path, OpenRecording] = {}
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def opened(self, found: FoundRecording, run_dir: Path) -> Iterator[OpenRecording]:
        """Open a recording for the duration of the block.

        Raises:
            RecordingError: It cannot be opened, is not a recording, or is damaged.
            OSError: It cannot be read.
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
    def opened_lives(self, lives: Sequence[DescentLife]) -> Iterator[RecordedLives]:
        """Open the recordings of a line of descent for the duration of the block.

        Of each only the index is read; one that cannot be read is left out.

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
            yield recordings


def _list_recordings(lives: Sequence[DescentLife]) -> Iterator[tuple[Path, FoundRecording]]:
    for run_dir in dict.fromkeys(life.run_dir for life in lives):
        names = {"", *(life.instance.name for life in lives if life.run_dir == run_dir)}
        with contextlib.suppress(ManifestError):
            found = find_recordings(run_dir)
            yield from ((run_dir, one) for one in found if one.instance in names)
