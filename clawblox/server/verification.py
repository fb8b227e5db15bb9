"""A verified replay: a recording is repeated in a world, and compared with what happens there.

The replay begins with the snapshot in the recording, applies every event at its tick and in its
order, and compares events, observations, frames and fingerprints, until the first difference. No
clock runs: ticks follow each other as fast as they can.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel

from clawblox.differences import ABSENT, Difference, find_differences
from clawblox.errors import RecordingError
from clawblox.foreign_values import parse_document
from clawblox.protocol import SEEDS
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.recording.replays import (
    MAX_DIGESTS,
    Divergence,
    ReplayProgress,
    StateDigest,
    find_obstacle,
)
from clawblox.server.hosted_world import HostedWorld
from clawblox.server.payload import encode_json
from clawblox.server.recording import digest_json, digest_state, read_fingerprint
from clawblox.server.sessions import AgentSession
from clawblox.server.simulation import Halted, Json
from clawblox.server.snapshot_document import (
    SnapshotRefusal,
    make_snapshot,
    restore_document,
    with_new_secrets,
    without_secrets,
)

MAX_GAP_TICKS: Final = 10**7
"""Maximum number of ticks between two records."""
MAX_CONTINUED_TICKS: Final = 600
"""Maximum number of ticks after the end of a recording of a killed world."""
MAX_FINGERPRINTS: Final = 1 << 17
"""Maximum number of ticks whose fingerprints wait for the frame that has the recorded ones."""
_STAMPS: Final = frozenset({"tick", "time", "utc", "event"})
_OWN_EVENTS: Final = ("halted", "removed")
"""Events that a world causes itself, within a tick."""
_TICKS_BETWEEN_PAUSES: Final = 4
_SLICE_S: Final = 0.02
"""Longest time in seconds, but for a tick, for which no other task runs."""

_T = TypeVar("_T")

_log = logging.getLogger("clawblox.server")


class Unverifiable(Exception):  # noqa: N818 - names the condition
    """This recording cannot be verified here; the text is the reason."""


class _Listener:
    """Notes what the replaying world reports to its recorder."""

    def __init__(self, world: HostedWorld) -> None:
        self._world = world
        self.events: deque[tuple[float, dict[str, Any]]] = deque()
        self.fingerprints: dict[int, tuple[float, int | None]] = {}

    def event(self, event: str, fields: Mapping[str, object]) -> None:
        # As a reader sees it: tuples are lists, and the world may change what it gave.
        document = parse_document(encode_json({"event": event, **fields}))
        self.events.append((self._world.time, {"tick": self._world.tick, **document}))

    def observed(self, agent_id: str, observation: bytes) -> None:
        return

    def ticked(self) -> None:
        world = self._world
        fingerprint = None
        with suppress(Exception):  # the recorder leaves it out too
            fingerprint = read_fingerprint(world.simulation)
        self.fingerprints[world.tick] = world.time, fingerprint
        if len(self.fingerprints) > MAX_FINGERPRINTS:
            del self.fingerprints[next(iter(self.fingerprints))]


class Replay:
    """Repeats a recording in a world.

    Args:
        world: The world, neither begun nor restored.
        reader: The recording.
        digest_ticks: Ticks for which the digests of the state are wanted: another recording may
            begin there.

    Attributes:
        progress: How far it has come.
    """

    def __init__(
        self, world: HostedWorld, reader: RecordingReader, *, digest_ticks: Collection[int] = ()
    ) -> None:
        self._world = world
        self._reader = reader
        self._listener = _Listener(world)
        self._digest_ticks = frozenset(digest_ticks)
        inputs = (e.header.records for e in reader.index if e.header.track is Track.INPUTS)
        self._inputs = sum(inputs)
        self._records = sum(entry.header.records for entry in reader.index)
        last_tick = max((entry.header.last.tick for entry in reader.index), default=0)
        self.progress = ReplayProgress(last_tick=last_tick)

    async def run(self) -> None:
        """Repeat the recording, in slices that let other tasks run; its outcome is in ``progress``.

        Cancellation: ends between two ticks.
        """
        try:
            self.begin()
            slice_end = 0.0
            for _ in self.steps():
                if (now := anyio.current_time()) > slice_end:
                    await anyio.lowlevel.checkpoint()
                    slice_end = now + _SLICE_S
        except Unverifiable as unverifiable:
            self._give_up(str(unverifiable))
        except Halted as halted:
            self._give_up(f"the world halts: {halted}")
        except (OSError, RecordingError) as error:
            self._give_up(str(error).partition("\n")[0])
        except Exception as error:  # noqa: BLE001 - the author's code may raise anything
            _log.exception("the replay failed")
            self._give_up(f"the replay failed: {type(error).__name__}: {error}")

    def _give_up(self, reason: str) -> None:
        self.progress.outcome, self.progress.reason = "impossible", reason

    def begin(self) -> None:
        """Restore the world as it was when the recording began.

        A fresh world begins again with its seed, and must reach the recorded state. If its files
        have changed since, only later differences count; a snapshot of other files could not be
        restored.

        Raises:
            Unverifiable: The recording has no snapshot, or this world cannot restore it.
            Halted: A fresh world halts as it begins.
        """
        if (obstacle := find_obstacle(self._reader)) is not None:
            raise Unverifiable(obstacle)
        start = self._reader.start()
        snapshot, reseed = start["snapshot"], start.get("reseed")
        has_changed = start.get("scene_hash") != self._world.simulation.content_hash()
        if start.get("resumed") is False and (has_changed or self._can_begin_again(start)):
            self._begin_fresh(reseed)
            self.progress.has_other_files = has_changed
            self.progress.has_begun_again = True
            if not has_changed:
                self.progress.divergence = self._compare_start(snapshot)
        else:
            self._restore(snapshot)
        if start.get("resumed") is True and reseed is None:
            self.progress.start = StateDigest(self._world.tick, digest_json(snapshot["state"]))
        self._world.pending.clear()  # they are recorded when they are applied
        self._world.recorder = self._listener
        self.progress.first_tick = self.progress.tick = self._world.tick
        self._note_digest()

    def _can_begin_again(self, start: Mapping[str, Any]) -> bool:
        """Whether a fresh world reaches the same state from its seed.

        The recorded rows are those after ``begin``, which may have changed them; that of the engine
        does not.
        """
        has_seed = isinstance(start.get("reseed"), int)
        return has_seed and (start.get("rows") is None or bool(self._world.simulation.datastore))

    def _compare_start(self, recorded: dict[str, Any]) -> Divergence | None:
        what = "the state at the start"
        begun = _attempt(lambda: encode_json(without_secrets(make_snapshot(self._world))))
        if isinstance(begun, str):
            return self._diverge(what, "", None, begun)
        if begun == encode_json(recorded):
            return None
        return self._find_first(what, recorded, parse_document(begun))

    def _begin_fresh(self, reseed: object) -> None:
        if not isinstance(reseed, int) or reseed not in SEEDS:
            raise Unverifiable("the recording names no seed with which the world could begin again")
        try:
            self._world.reseed(reseed)
        except NotImplementedError:
            raise Unverifiable(f"the world cannot begin again with the seed {reseed}") from None
        self._world.begin()

    def _restore(self, snapshot: dict[str, Any]) -> None:
        try:
            restore_document(self._world, with_new_secrets(snapshot))
        except SnapshotRefusal as error:
            text = f"the world refuses the snapshot of the recording: {error}"
            raise Unverifiable(text) from None

    def steps(self) -> Iterator[None]:
        """Repeat the recording until its end or the first difference; pauses often.

        Raises:
            RecordingError: The recording is damaged.
            OSError: It cannot be read.
        """
        progress = self.progress
        if progress.divergence is not None:  # at the start
            progress.outcome = "different"
            return
        for place, record in enumerate(self._reader.read()):
            if record.after > self._inputs and not progress.is_complete:
                # The input before it was lost with a killed world.
                progress.unchecked = self._records - place
                break
            yield
            try:
                yield from self._advance(record)
                difference = self._compare(record)
            except Unverifiable as error:
                raise Unverifiable(f"{record.track}, record {record.number}: {error}") from None
            if difference is not None:
                progress.outcome = "different"
                progress.divergence = self._find_earlier(difference)
                return
        progress.divergence = self._extra_event()
        if progress.divergence is None and not progress.is_complete:
            yield from self._continue()
        progress.outcome = "equal" if progress.divergence is None else "different"

    def _continue(self) -> Iterator[None]:
        """Note the states after the end of the recording of a killed world.

        Its last second may be missing. Without inputs in it, the world reaches its last saves.
        """
        world = self._world
        wanted = [tick for tick in self._digest_ticks if tick <= world.tick + MAX_CONTINUED_TICKS]
        with suppress(Halted):
            while world.tick < max(wanted, default=0) and world.failure is None:
                world.step()
                self._note_digest()
                yield

    def _advance(self, record: Record) -> Iterator[None]:
        world, wanted = self._world, record.moment.tick
        if self.progress.is_complete:
            raise Unverifiable("it follows the event 'end'")
        if record.track is Track.INPUTS and not record.number and wanted != world.tick:
            raise Unverifiable(f"its tick is {wanted}, and that of its snapshot {world.tick}")
        if wanted < world.tick:
            raise Unverifiable(f"its tick is {wanted}, after one of tick {world.tick}")
        if wanted - world.tick > MAX_GAP_TICKS:
            raise Unverifiable(f"its tick is {wanted}, {wanted - world.tick} ticks after the last")
        with suppress(Halted):  # the halt is an event, which is compared
            while world.tick < wanted and world.failure is None:
                world.step()
                self.progress.tick, self.progress.time = world.tick, world.time
                self._note_digest()
                if world.tick % _TICKS_BETWEEN_PAUSES == 0:
                    yield
        self.progress.tick, self.progress.time = world.tick, world.time

    def _note_digest(self) -> None:
        """Note the digest of the state, if another recording may begin with it."""
        world, known = self._world, self.progress.digests
        is_wanted = world.tick in self._digest_ticks and len(known) < MAX_DIGESTS
        if is_wanted and world.failure is None:
            digest = StateDigest(world.tick, digest_state(world.simulation))
            if digest not in known:
                self.progress.digests = (*known, digest)

    def _compare(self, record: Record) -> Divergence | None:
        is_own = record.fields.get("event") in _OWN_EVENTS
        if not is_own and (extra := self._extra_event()) is not None:
            return extra
        world, moment = self._world, record.moment
        has_stopped = is_own or world.failure is not None  # within a tick, perhaps
        if not has_stopped and (world.tick, world.time) != (moment.tick, moment.time):
            return self._diverge("the simulation time of the tick", "", moment.time, world.time)
        if record.track is Track.INPUTS:
            return self._compare_event(record)
        if record.track is Track.OBSERVATIONS:
            return self._compare_observation(record)
        return self._compare_frame(record)

    # -- events -------------------------------------------------------------------------------

    def _compare_event(self, record: Record) -> Divergence | None:
        fields = record.fields
        name = fields.get("event")
        if name in ("start", "end"):
            if (name == "start") != (record.number == 0):
                raise Unverifiable(f"the event {name!r} is not at its place")
            self.progress.is_complete = name == "end"
            return None
        with suppress(Halted):
            self._apply(fields)
        recorded = _unstamped(fields)
        if not self._listener.events:
            return self._diverge(f"the event {name!r} does not happen", "", recorded, None)
        _, happened = self._listener.events.popleft()
        expected = {"tick": record.moment.tick, "event": name, **recorded}
        if differences := find_differences(expected, happened):
            first = differences[0]
            return self._diverge(f"the event {name!r}", first.path, *_sides(first))
        self.progress.events += 1
        self._note_digest()
        return None

    def _apply(self, fields: Mapping[str, Any]) -> None:
        """Apply an event; those that the world causes itself happen without it."""
        world, name = self._world, fields.get("event")
        if name == "join":
            agent_id, agent_name = _text(fields, "agent_id"), _text(fields, "name")
            if world.sessions.find_agent(agent_id) is not None:
                raise Unverifiable(f"the agent {agent_id!r} joins a second time")
            world.admit(AgentSession(secrets.token_hex(16), agent_id, agent_name))
        elif name == "leave":
            world.leave(self._session(fields))
        elif name == "input":
            world.queue(self._session(fields), _text(fields, "action"), fields.get("data"))
            world.apply_inputs()
        elif name == "chat":
            url = None if fields.get("media_url") is None else _text(fields, "media_url")
            world.say(self._session(fields), _text(fields, "content"), url)
        elif name == "halted" and world.failure is None:
            self._repeat_halt(fields)
        elif name not in _OWN_EVENTS:
            raise Unverifiable(f"its event {name!r} is unknown")

    def _repeat_halt(self, fields: Mapping[str, Any]) -> None:
        """Make the call of the simulation, other than an event, that halted the world."""
        world, call = self._world, fields.get("call")
        if call == "step":
            world.step()
        elif call == "observe":
            world.observe(self._session(fields), is_fresh=True)
        elif call == "audience":
            agent_id = self._session(fields).agent_id
            with world.running("audience", agent_id=agent_id):
                world.simulation.audience(agent_id)
        elif call == "route":
            raise Unverifiable("a route of the world's own halted it, and is not in the recording")

    def _session(self, fields: Mapping[str, Any]) -> AgentSession:
        agent_id = _text(fields, "agent_id")
        session = self._world.sessions.find_agent(agent_id)
        if session is None:
            raise Unverifiable(f"the agent {agent_id!r} is not in the world")
        return session

    def _extra_event(self) -> Divergence | None:
        """Return the event of the replay that the recording does not have, if any."""
        if not self._listener.events:
            return None
        time, event = self._listener.events[0]
        what = f"the event {event['event']!r} happens only in the replay"
        return Divergence(event["tick"], time, what, "", None, event)

    # -- observations and frames --------------------------------------------------------------

    def _compare_observation(self, record: Record) -> Divergence | None:
        session = self._session(record.fields)
        what = f"the observation of {session.name!r}"
        try:
            observed = self._world.observe(session, is_fresh=True)
        except Halted as halted:
            return self._diverge(what, "", None, f"the world halted: {halted}")
        if observed == record.observation:
            self.progress.observations += 1
            return None
        return self._find_first(what, record.fields.get("observation"), parse_document(observed))

    def _compare_frame(self, record: Record) -> Divergence | None:
        found = self._compare_fingerprints(record)
        if found is not None:
            return found
        simulation, fields = self._world.simulation, record.fields
        recorded = fields.get("state")
        if (
            recorded is not None and not self.progress.has_other_files
        ):  # a state can have code in it
            replayed = _attempt(lambda: digest_state(simulation))
            if replayed != recorded:
                return self._diverge("the digest of the state", "", recorded, replayed)
            self.progress.states += 1
        if "frame" in fields:
            what, view = (
                "the view of a spectator",
                _attempt(lambda: encode_json(simulation.spectate())),
            )
            if isinstance(view, str):
                return self._diverge(what, "", fields["frame"], view)
            if not record.line.endswith(b'"frame":%b}' % view):
                return self._find_first(what, fields["frame"], parse_document(view))
            self.progress.frames += 1
        return None

    def _compare_fingerprints(self, record: Record) -> Divergence | None:
        recorded = record.fields.get("fingerprints")
        if not isinstance(recorded, list):
            return None
        known = self._listener.fingerprints
        for tick, value in enumerate(recorded, record.moment.tick - len(recorded) + 1):
            if tick not in known:
                continue
            time, replayed = known.pop(tick)
            if value != replayed:
                what = "the fingerprint of the state"
                return Divergence(tick, time, what, "", value, replayed)
            self.progress.fingerprints += 1
        return None

    def _find_first(self, what: str, recorded: Json, replayed: Json) -> Divergence:
        found = find_differences(recorded, replayed)
        if not found:  # the values are equal, and their texts are not
            return self._diverge(what, "", "other bytes", "other bytes")
        return self._diverge(what, found[0].path, *_sides(found[0]))

    def _diverge(self, what: str, path: str, recorded: Json, replayed: Json) -> Divergence:
        return Divergence(self._world.tick, self._world.time, what, path, recorded, replayed)

    def _find_earlier(self, found: Divergence) -> Divergence:
        """Return the first tick before a difference whose fingerprint differs, else the difference.

        Fingerprints are recorded with the next frame, so they come later in the recording.
        """
        for record in self._reader.read_track(Track.FRAMES, since=self._world.time):
            earlier = self._compare_fingerprints(record)
            if earlier is not None and earlier.tick < found.tick:
                return earlier
            if record.moment.tick >= found.tick:
                break
        return found


def _attempt(call: Callable[[], _T]) -> _T | str:
    """Make a call of the simulation that changes nothing; return the text of its error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the author's code may raise anything
        return f"the world fails: {type(error).__name__}: {error}"


def _sides(difference: Difference) -> tuple[Json, Json]:
    before, after = (
        None if side is ABSENT else side for side in (difference.before, difference.after)
    )
    return before, after


def _unstamped(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _STAMPS}


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Unverifiable(f"its {name!r} is not a text")
    return value
