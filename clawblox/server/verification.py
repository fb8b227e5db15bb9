"""A verified replay: a recording is repeated in a world, and compared with what happens there.

The replay begins with the snapshot in the recording, applies every event at its tick and in its
order, and compares events, observations, frames and fingerprints, until the first difference. No
clock runs: ticks follow each other as fast as they can.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
import anyio.lowlevel

from clawblox.differences import ABSENT, Difference, find_differences
from clawblox.errors import RecordingError
from clawblox.foreign_values import parse_document
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.recording.replays import Divergence, ReplayProgress
from clawblox.server.hosted_world import HostedWorld
from clawblox.server.payload import encode_json
from clawblox.server.recording import WRITER, digest_state
from clawblox.server.sessions import AgentSession
from clawblox.server.simulation import Halted, Json
from clawblox.server.snapshot_document import SnapshotRefusal, restore_document, with_new_secrets

MAX_GAP_TICKS: Final = 10**8
"""Maximum number of ticks between two records."""
_STAMPS: Final = frozenset({"tick", "time", "utc", "event"})
_TICKS_BETWEEN_PAUSES: Final = 4
_SLICE_S: Final = 0.02
"""Longest time in seconds, but for a tick, for which no other task runs."""

_log = logging.getLogger("clawblox.server")


class Unverifiable(Exception):  # noqa: N818 - names the condition
    """This recording cannot be verified here; the text is the reason."""


class _Listener:
    """Notes what the replaying world reports to its recorder."""

    def __init__(self, world: HostedWorld) -> None:
        self._world = world
        self.events: deque[dict[str, Any]] = deque()
        self.fingerprints: dict[int, tuple[float, int | None]] = {}

    def event(self, event: str, fields: Mapping[str, object]) -> None:
        # As a reader sees it: tuples are lists, and the world may change what it gave.
        document = parse_document(encode_json({"event": event, **fields}))
        self.events.append({"tick": self._world.tick, **document})

    def observed(self, agent_id: str, observation: bytes) -> None:
        return

    def ticked(self) -> None:
        world = self._world
        value = world.simulation.fingerprint()
        known = None if value is None else int(value) & (2**64 - 1)
        self.fingerprints[world.tick] = world.time, known


class Replay:
    """Repeats a recording in a world.

    Args:
        world: The world, neither begun nor restored.
        reader: The recording.

    Attributes:
        progress: How far it has come.
    """

    def __init__(self, world: HostedWorld, reader: RecordingReader) -> None:
        self._world = world
        self._reader = reader
        self._listener = _Listener(world)
        self.progress = ReplayProgress()

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

        A fresh world whose files have changed since is begun again with its seed, so that the
        first difference can be found; the snapshot of other files could not be restored.

        Raises:
            Unverifiable: The recording has no snapshot, or this world cannot restore it.
            Halted: A fresh world halts as it begins.
        """
        start = self._reader.start()
        if self._reader.is_old or start.get("writer") != WRITER:
            raise Unverifiable("only recordings of worlds on the kit or the engine can be repeated")
        for name in ("snapshot", "rows"):
            value = start.get(name)
            if isinstance(value, dict) and "unavailable" in value:
                raise Unverifiable(f"the recording has no {name}: {value['unavailable']}")
        snapshot = start.get("snapshot")
        if not isinstance(snapshot, dict):
            raise Unverifiable("the recording has no snapshot of its begin")
        has_changed = start.get("scene_hash") != self._world.simulation.content_hash()
        if has_changed and start.get("resumed") is False:
            self._begin_fresh(start.get("reseed"))
        else:
            self._restore(snapshot)
        self._world.pending.clear()  # they are recorded when they are applied
        self._world.recorder = self._listener

    def _begin_fresh(self, reseed: object) -> None:
        if isinstance(reseed, int):
            try:
                self._world.reseed(reseed)
            except (NotImplementedError, ValueError, OverflowError) as error:
                raise Unverifiable(f"the world cannot be reseeded with {reseed}: {error}") from None
        self._world.begin()

    def _restore(self, snapshot: dict[str, Any]) -> None:
        try:
            restore_document(self._world, with_new_secrets(snapshot))
        except SnapshotRefusal as error:
            raise Unverifiable(
                f"the world refuses the snapshot of the recording: {error}"
            ) from None

    def steps(self) -> Iterator[None]:
        """Repeat the recording until its end or the first difference; pauses often.

        Raises:
            RecordingError: The recording is damaged.
            OSError: It cannot be read.
        """
        progress = self.progress
        for record in self._reader.read():
            yield
            try:
                yield from self._advance(record)
                found = self._compare(record)
            except Unverifiable as error:
                track, number = record.track.value, record.number
                progress.outcome, progress.reason = (
                    "impossible",
                    f"{track}, record {number}: {error}",
                )
                return
            if found is not None:
                progress.outcome, progress.divergence = "different", self._find_earlier(found)
                return
        extra = self._extra_event()
        progress.divergence = extra
        progress.outcome = "equal" if extra is None else "different"

    def _advance(self, record: Record) -> Iterator[None]:
        world, wanted = self._world, record.moment.tick
        if wanted < world.tick:
            raise Unverifiable(f"its tick is {wanted}, after one of tick {world.tick}")
        if wanted - world.tick > MAX_GAP_TICKS:
            raise Unverifiable(f"its tick is {wanted}, {wanted - world.tick} ticks after the last")
        with suppress(Halted):  # the halt is an event, which is compared
            while world.tick < wanted and world.failure is None:
                world.step()
                if world.tick % _TICKS_BETWEEN_PAUSES == 0:
                    yield
        self.progress.tick, self.progress.time = world.tick, world.time

    def _compare(self, record: Record) -> Divergence | None:
        if record.track is Track.INPUTS:
            return self._compare_event(record)
        if (extra := self._extra_event()) is not None:
            return extra
        if self._world.tick != record.moment.tick or self._world.time != record.moment.time:
            sides = record.moment.time, self._world.time
            return self._diverge("the simulation time of the tick", "", *sides)
        if record.track is Track.OBSERVATIONS:
            return self._compare_observation(record)
        return self._compare_frame(record)

    # -- events -------------------------------------------------------------------------------

    def _compare_event(self, record: Record) -> Divergence | None:
        fields = record.fields
        name = fields.get("event")
        if name in ("start", "end"):
            self.progress.is_complete = name == "end"
            return None
        with suppress(Halted):
            self._apply(fields)
        recorded = _unstamped(fields)
        if not self._listener.events:
            return self._diverge(f"the event {name!r} does not happen", "", recorded, None)
        happened = self._listener.events.popleft()
        expected = {"tick": record.moment.tick, "event": name, **recorded}
        if found := find_differences(expected, happened):
            return self._diverge(f"the event {name!r}", found[0].path, *_sides(found[0]))
        self.progress.events += 1
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
            url = fields.get("media_url")
            world.say(
                self._session(fields),
                _text(fields, "content"),
                url if isinstance(url, str) else None,
            )
        elif name == "halted" and world.failure is None:
            self._ask(fields.get("call"), self._session(fields))

    def _ask(self, call: object, session: AgentSession) -> None:
        """Make the call of the simulation, other than an event, that halted the world."""
        if call == "observe":
            self._world.observe(session, is_fresh=True)
        elif call == "audience":
            with self._world.running("audience", agent_id=session.agent_id):
                self._world.simulation.audience(session.agent_id)

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
        event = self._listener.events[0]
        what = f"the event {event['event']!r} happens only in the replay"
        return self._diverge(what, "", None, event)

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
        digest = record.fields.get("state")
        if digest is not None:
            replayed = digest_state(self._world.simulation)
            if replayed != digest:
                return self._diverge("the digest of the state", "", digest, replayed)
            self.progress.states += 1
        if "frame" in record.fields:
            view = encode_json(self._world.simulation.spectate())
            if not record.line.endswith(b'"frame":%b}' % view):
                what = "the view of a spectator"
                return self._find_first(what, record.fields["frame"], parse_document(view))
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
        raise Unverifiable(f"its {name!r} is no text")
    return value
