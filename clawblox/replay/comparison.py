"""Compares an earlier recording with the recording of a new process that repeats it.

The new recording arrives block by block while its process runs, and may contain anything. Each
track is compared in order; the first difference is the first in the order of all records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import attrs

from clawblox.differences import ABSENT, find_differences
from clawblox.foreign_values import clean_value, whole_number
from clawblox.recording import FORMAT
from clawblox.recording.blocks import KIT_WRITER, Track
from clawblox.recording.reader import Record, RecordingReader, record_order, unstamped
from clawblox.replay.plan import MAX_DIGESTS, ReplayPlan
from clawblox.replay.results import Divergence, ReplayProgress, StateDigest

_HOST_FIELDS: Final = frozenset({"time", "utc"})
_OWN_EVENTS: Final = ("halted", "removed")
"""Events that a world itself causes within a tick."""
_WORLD_FIELDS: Final = ("world_format", "tick_rate", "ticks_per_input")
"""Fields of the event ``start`` that only the world decides."""
_DIGEST: Final = "digest"
_DIGEST_CHARS: Final = 64


_Place: TypeAlias = tuple[int, int, bool, bool]


@attrs.frozen
class _Found:
    """A difference, and its place among all records."""

    divergence: Divergence
    place: _Place


class RecordingComparison:
    """Compares the records of a new recording with those of an earlier one.

    Args:
        recorded: The earlier recording.
        plan: The parts of it that were repeated.

    Attributes:
        progress: The result so far; its outcome is that of :meth:`finish`.
        problem: Why the new recording cannot be compared; may be empty.
        compared: Number of records that were equal.
    """

    def __init__(self, recorded: RecordingReader, plan: ReplayPlan) -> None:
        self.progress = ReplayProgress(
            tick=plan.first_tick,
            first_tick=plan.first_tick,
            last_tick=plan.last_tick,
            unchecked=plan.unchecked,
            is_complete=plan.is_complete,
            has_given_rows=plan.start_fields.get("rows") is not None,
            start=plan.state,
            saved=plan.saved_state,
        )
        self.problem = ""
        self.compared = 0
        self._plan = plan
        self._left = {
            track: islice(recorded.read_track(track), plan.counts[track]) for track in Track
        }
        self._next = {track: next(left, None) for track, left in self._left.items()}
        self._last: dict[Track, Record] = {}
        self._found: dict[Track, _Found] = {}
        self._fingerprint: Divergence | None = None
        self._moved: Record | None = None
        self._has_started = self._has_ended = False

    # -- records of the replay ----------------------------------------------------------------

    def is_open(self, track: Track) -> bool:
        """Return whether further records of a track can change the outcome."""
        return not self.problem and track not in self._found

    def take_equal(self, track: Track, line: bytes) -> bool:
        """Accept the next record of an open track if its bytes equal the recorded ones.

        Nearly all records do, and need not be parsed.

        Args:
            track: The track.
            line: The record, in its form in the file.

        Returns:
            Whether it was accepted; otherwise, call :meth:`add`.

        Raises:
            OSError: The earlier recording cannot be read.
            RecordingError: It is damaged.
        """
        recorded = self._next[track] if self._has_started and not self._has_ended else None
        if recorded is None or recorded.fields.get("event") in ("start", "end"):
            return False
        if unstamped(recorded.line) != unstamped(line):
            return False
        self._count(recorded)
        self._advance(recorded)
        return True

    def add(self, replayed: Record) -> None:
        """Compare the next record of an open track, in its order.

        Raises:
            OSError: The earlier recording cannot be read.
            RecordingError: It is damaged.
        """
        if not self._has_started:
            self._start(replayed)
        elif replayed.moment.tick > self._plan.end_tick:
            what = "the replay runs beyond the end of the recording"
            self._find(what, replayed, None, replayed.fields)
        elif _DIGEST in replayed.fields and replayed.track is Track.FRAMES:
            self._note_digest(replayed)
        else:
            self._pair(replayed)

    def _start(self, replayed: Record) -> None:
        fields = replayed.fields
        known = {"event": "start", "format": FORMAT, "writer": KIT_WRITER}
        recorded = self._next[Track.INPUTS]
        if not known.items() <= fields.items() or recorded is None:
            self.problem = "its new recording does not begin with the event 'start' of the kit"
            return
        self._has_started = True
        progress, start = self.progress, self._plan.start_fields
        progress.has_other_files = fields.get("scene_hash") != start.get("scene_hash")
        progress.is_of_earlier_version = "world_files" not in start
        progress.revisions = _find_revisions(start, fields)
        is_fresh = self._plan.start.snapshot is None
        is_changed = progress.has_other_files and not self._plan.start.is_resumed
        progress.has_begun_again = is_fresh or is_changed
        self._advance(recorded)
        other = [name for name in _WORLD_FIELDS if start.get(name) != fields.get(name)]
        if recorded.moment.tick != replayed.moment.tick:
            tick = recorded.moment.tick
            self._find("the tick at the start", recorded, tick, replayed.moment.tick)
        elif other and not progress.has_other_files:
            name = other[0]
            self._find("the event 'start'", recorded, start.get(name), fields.get(name), name)
        elif (is_fresh or self._plan.start.is_reseeded) and progress.compares_states:
            self._compare_state(recorded, start["snapshot"], fields.get("snapshot"))

    def _compare_state(self, recorded: Record, before: object, after: object) -> None:
        """Compare the states at the start of a world that started from a seed or a save."""
        what = "the state at the start"
        if isinstance(after, dict) and "unavailable" in after:
            self._find(what, recorded, None, f"the world fails: {after['unavailable']}")
        elif json.dumps(before) != json.dumps(after):
            self._differ(what, recorded, None, before, after)

    def _note_digest(self, replayed: Record) -> None:
        """Record a state from which another recording may start."""
        tick, known = replayed.moment.tick, self.progress.digests
        value = replayed.fields[_DIGEST]
        is_digest = isinstance(value, str) and len(value) == _DIGEST_CHARS
        is_wanted = tick in self._plan.start.digest_ticks and len(known) < MAX_DIGESTS
        if is_digest and is_wanted and (digest := StateDigest(tick, value)) not in known:
            self.progress.digests = (*known, digest)

    def _pair(self, replayed: Record) -> None:
        """Compare a record with that of the earlier recording at the same place."""
        track = replayed.track
        recorded = self._next[track]
        if self._has_ended and track is Track.INPUTS:
            self._extra(replayed)
        elif replayed.fields.get("event") == "end" and track is Track.INPUTS:
            self._has_ended = True
            if recorded is not None and recorded.fields.get("event") != "end":
                self._miss(recorded)
            elif recorded is not None:
                self._compare(recorded, replayed)
        elif recorded is None or recorded.fields.get("event") == "end":
            self._extra(replayed)
        elif track is not Track.INPUTS and recorded.moment.tick != replayed.moment.tick:
            is_late = replayed.moment.tick > recorded.moment.tick
            self._miss(recorded) if is_late else self._extra(replayed)
        else:
            self._compare(recorded, replayed)

    def _extra(self, replayed: Record) -> None:
        """Note a record that only the replay has, as is normal after the end of a killed world."""
        if not self._plan.is_complete and replayed.moment.tick > self._plan.tick:
            return
        what = f"{self._name(replayed)} happens only in the replay"
        self._find(what, replayed, None, _shown(replayed))

    def _miss(self, recorded: Record) -> None:
        """Note a record that the replay lacks."""
        if recorded.track is Track.INPUTS:
            self._find(f"{self._name(recorded)} does not happen", recorded, _shown(recorded), None)
        elif recorded.track is Track.OBSERVATIONS:
            self._find(self._name(recorded), recorded, recorded.fields.get("observation"), None)
        else:
            parts = (recorded.fields.get(key) for key in ("frame", "state", "fingerprints"))
            shown = next((part for part in parts if part is not None), None)
            self._find(self._name(recorded), recorded, shown, None)

    def _name(self, record: Record) -> str:
        fields = record.fields
        if record.track is Track.INPUTS:
            return f"the event {fields.get('event')!r}"
        if record.track is Track.OBSERVATIONS:
            agent_id = str(fields.get("agent_id"))
            return f"the observation of {self._plan.names.get(agent_id, agent_id)!r}"
        return "the view of a spectator" if "frame" in fields else "the frame"

    # -- pairs --------------------------------------------------------------------------------

    def _compare(self, recorded: Record, replayed: Record) -> None:
        """Compare two records of a track at the same place."""
        self._compare_fields(recorded, replayed)
        if recorded.track not in self._found:
            self._count(recorded)
            self._advance(recorded)

    def _compare_fields(self, recorded: Record, replayed: Record) -> None:
        track = recorded.track
        if track is Track.INPUTS and recorded.fields.get("event") != replayed.fields.get("event"):
            is_own = replayed.fields.get("event") in _OWN_EVENTS
            self._extra(replayed) if is_own else self._miss(recorded)
            return
        if recorded.after != replayed.after:  # an earlier event differs, which is more informative
            self._moved = self._moved or recorded
        times = (recorded.moment.time, replayed.moment.time)
        if recorded.moment.tick == replayed.moment.tick and times[0] != times[1]:
            self._find("the simulation time of the tick", recorded, *times, replayed=replayed)
        elif track is Track.INPUTS:
            self._compare_event(recorded, replayed)
        elif track is Track.OBSERVATIONS:
            self._compare_observation(recorded, replayed)
        else:
            self._compare_frame(recorded, replayed)

    def _compare_event(self, recorded: Record, replayed: Record) -> None:
        before, after = _shown(recorded), _shown(replayed)
        if find_differences(before, after):
            self._differ(self._name(recorded), recorded, replayed, before, after)

    def _compare_observation(self, recorded: Record, replayed: Record) -> None:
        name = self._name(recorded)
        before, after = recorded.fields, replayed.fields
        seen, shown = before.get("observation"), after.get("observation")
        if before.get("agent_id") != after.get("agent_id"):
            self._find(name, recorded, seen, None, replayed=replayed)
        elif recorded.observation != replayed.observation:
            self._differ(name, recorded, replayed, seen, shown)

    def _compare_frame(self, recorded: Record, replayed: Record) -> None:
        before, after = recorded.fields, replayed.fields
        if self._compare_fingerprints(recorded, replayed):
            return
        digests = (before.get("state"), after.get("state"))
        if digests[0] != digests[1] and self.progress.compares_states:
            self._find("the digest of the state", recorded, *digests, replayed=replayed)
        elif recorded.view != replayed.view:
            views = (before.get("frame"), after.get("frame"))
            self._differ("the view of a spectator", recorded, replayed, *views)

    def _compare_fingerprints(self, recorded: Record, replayed: Record) -> bool:
        """Note the first fingerprint that differs; both lists end with the tick of the frame."""
        before, other = (frame.fields.get("fingerprints") for frame in (recorded, replayed))
        if not isinstance(before, list):
            return False
        after = other if isinstance(other, list) else []
        after = [*[None] * (len(before) - len(after)), *after[max(0, len(after) - len(before)) :]]
        first = recorded.moment.tick - len(before) + 1
        for tick, (value, new) in enumerate(zip(before, after, strict=True), first):
            if value != new:
                time = self._time_at(tick, recorded)
                what = "the fingerprint of the state"
                self._find(what, recorded, value, new, replayed=replayed)
                self._fingerprint = Divergence(tick, time, what, "", value, clean_value(new))
                return True
        return False

    def _time_at(self, tick: int, frame: Record) -> float:
        """Return the time of a tick between two frames; ticks are of the same length."""
        last = self._last.get(Track.FRAMES, self._last[Track.INPUTS]).moment
        if last.tick >= frame.moment.tick:
            return frame.moment.time
        share = (tick - last.tick) / (frame.moment.tick - last.tick)
        return last.time + share * (frame.moment.time - last.time)

    def _count(self, recorded: Record) -> None:
        progress, fields = self.progress, recorded.fields
        if recorded.track is Track.INPUTS:
            progress.events += fields.get("event") != "end"
        elif recorded.track is Track.OBSERVATIONS:
            progress.observations += 1
        else:
            values = fields.get("fingerprints")
            progress.fingerprints += len(values) if isinstance(values, list) else 0
            progress.states += "state" in fields and progress.compares_states
            progress.frames += "frame" in fields

    def _advance(self, recorded: Record) -> None:
        track = recorded.track
        self.compared += 1
        self._last[track] = recorded
        self._next[track] = next(self._left[track], None)

    # -- differences --------------------------------------------------------------------------

    def _differ(
        self,
        what: str,
        recorded: Record,
        replayed: Record | None,
        before: Any,  # noqa: ANN401 - JSON
        after: Any,  # noqa: ANN401 - JSON
    ) -> None:
        """Note the first place at which two values with different texts differ."""
        found = find_differences(before, after)
        sides: tuple[Any, Any] = ("other bytes", "other bytes")
        if found:
            sides = (found[0].before, found[0].after)
        first, second = (None if side is ABSENT else side for side in sides)
        path = found[0].path if found else ""
        self._find(what, recorded, first, second, path, replayed=replayed)

    def _find(
        self,
        what: str,
        record: Record,
        before: Any,  # noqa: ANN401 - JSON
        after: Any,  # noqa: ANN401 - JSON
        path: str = "",
        *,
        replayed: Record | None = None,
    ) -> None:
        """Note the first difference of a track, in a record of one or of both recordings."""
        moment, place = record.moment, _place(record)
        if replayed is not None:
            place = max(place, _place(replayed))
        values = (clean_value(before), clean_value(after))
        divergence = Divergence(moment.tick, moment.time, what, path, *values)
        self._found[record.track] = _Found(divergence, place)

    def _first(self) -> _Found | None:
        return min(self._found.values(), key=lambda found: found.place, default=None)

    @property
    def is_decided(self) -> bool:
        """True if the outcome is known before the replay has ended.

        Fingerprints are recorded with the next frame, so an earlier one may come later.
        """
        if self.problem or (first := self._first()) is None:
            return bool(self.problem)
        for track, record in self._next.items():
            if record is None or track in self._found:
                continue
            is_later = _place(record) > first.place
            if not is_later or record.moment.tick <= first.divergence.tick:
                return False
        return True

    def finish(self, *, is_done: bool, reason: str = "") -> ReplayProgress:
        """Return the result.

        Args:
            is_done: Whether the new recording is complete, so missing records are differences.
            reason: Why the replay did not reach its end; may be empty.
        """
        progress = self.progress
        if is_done and self._has_ended and not reason:
            for track, record in self._next.items():
                if record is not None and track not in self._found:
                    self._miss(record)
            if self._moved is not None and not self._found:
                moved = self._moved
                self._find(f"{self._name(moved)} among the events", moved, moved.after, None)
        if (first := self._first()) is not None:
            return self._diverge(first.divergence)
        if not reason and not self._has_ended:
            reason = "its new recording has no end"
        progress.reason = self.problem or reason or self._plan.obstacle
        progress.outcome = "impossible" if progress.reason else "equal"
        lasts = (last.moment for last in self._last.values())
        progress.tick, progress.time = self._reach(), max((m.time for m in lasts), default=0.0)
        return progress

    def _diverge(self, first: Divergence) -> ReplayProgress:
        """Return the result with a difference; a fingerprint that differed before it comes first.

        Args:
            first: The first difference in the order of all records.
        """
        if self._fingerprint is not None and self._fingerprint.tick < first.tick:
            first = self._fingerprint
        progress = self.progress
        progress.outcome, progress.divergence = "different", first
        progress.digests = tuple(d for d in progress.digests if d.tick <= first.tick)
        progress.tick = min(first.tick, self._plan.tick)
        return progress

    def _reach(self) -> int:
        """Return the tick up to which all tracks are equal."""
        waiting = [track for track, record in self._next.items() if record is not None]
        ticks = [self._last[track].moment.tick for track in waiting if track in self._last]
        if waiting:
            return min(ticks) if len(ticks) == len(waiting) else self._plan.first_tick
        return self._plan.tick


def _find_revisions(
    recorded: Mapping[str, Any], replayed: Mapping[str, Any]
) -> tuple[int, int] | None:
    """Return the revisions of two engines if they differ; revision 1 was not recorded."""
    before, after = (whole_number(start.get("revision", 1)) for start in (recorded, replayed))
    return None if before is None or after is None or before == after else (before, after)


def _place(record: Record) -> _Place:
    """Return the place of a record among all tracks: its tick, then its order."""
    after, is_input, tick, is_no_frame = record_order(record)
    return tick, after, is_input, is_no_frame


def _shown(record: Record) -> dict[str, Any]:
    """Return the fields of a record that depend on neither the host nor the file."""
    return {name: value for name, value in record.fields.items() if name not in _HOST_FIELDS}
