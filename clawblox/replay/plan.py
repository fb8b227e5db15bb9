"""Plan of a replay: the script for a new process, and how much is compared.

Recordings are untrusted, so each record is checked before it becomes an order. A record that cannot
be repeated ends the script; earlier records are still compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO, Final

import attrs

from clawblox.errors import RecordingError
from clawblox.foreign_values import clean_text, whole_number
from clawblox.protocol import SEEDS
from clawblox.recording.blocks import KIT_WRITER, Track, digest_history
from clawblox.recording.reader import Record, RecordingReader
from clawblox.recording.replay_script import Do, ReplayOrder, ScriptStart
from clawblox.replay.results import StateDigest

MAX_GAP_TICKS: Final = 10**7
"""Maximum number of ticks between two records."""
MAX_CONTINUED_TICKS: Final = 600
"""Maximum number of ticks after the end of a recording of a killed world."""
MAX_DIGESTS: Final = 1000
"""Maximum number of ticks for which digests of the state are wanted, and of those digests."""
_MAX_CHARS: Final = 1000


class Unrepeatable(Exception):  # noqa: N818 - names the condition
    """A record cannot be repeated; the text is the reason."""


@attrs.define
class ReplayPlan:
    """Parts of a recording that are repeated and compared.

    Attributes:
        start: Start of the new process.
        start_fields: The fields of the first record.
        state: A digest of the state at the start, before any new seed; None for a fresh world, and
            if no save from before a new seed is known.
        saved_state: A digest of the state in the save that it started from; None if unknown.
        counts: Number of records on each track that are compared, from the first on.
        names: The agents' names by their ids.
        first_tick: The tick at which the recording begins.
        last_tick: The last tick of the recording.
        tick: The tick of the last record that is compared.
        end_tick: The tick that the new process must not pass.
        is_complete: Whether the recording has an end; a killed world's recording has none.
        unchecked: Number of records that follow an input that a killed world did not write.
        obstacle: Why the rest is not repeated; empty if everything is.
    """

    start: ScriptStart
    start_fields: dict[str, Any] = attrs.field(repr=False)
    state: StateDigest | None
    saved_state: StateDigest | None
    first_tick: int
    last_tick: int
    tick: int
    end_tick: int
    counts: Counter[Track] = attrs.field(factory=Counter)
    names: dict[str, str] = attrs.field(factory=dict)
    is_complete: bool = False
    unchecked: int = 0
    obstacle: str = ""

    @property
    def is_empty(self) -> bool:
        """True if not even the start is repeated."""
        return not self.counts[Track.INPUTS]


def find_obstacle(reader: RecordingReader) -> str | None:
    """Return why no world can repeat a recording, judging by its start; None if one can.

    Args:
        reader: The recording.

    Raises:
        OSError: The file cannot be read.
        RecordingError: It is damaged, or not a recording of a known format.
    """
    start = reader.start()
    if reader.is_old:
        return "the recording has the older format, without the state at its start"
    if start.get("writer") != KIT_WRITER:
        return "it was not recorded by a world on the kit or the engine"
    for name in ("snapshot", "rows"):
        value = start.get(name)
        if isinstance(value, dict) and "unavailable" in value:
            reason = clean_text(str(value["unavailable"]), max_chars=_MAX_CHARS)
            return f"the recording has no {name}: {reason}"
    if not isinstance(start.get("snapshot"), dict):
        return "the recording has no snapshot of its start"
    return None


def write_script(
    reader: RecordingReader,
    script: BinaryIO,
    *,
    digest_ticks: Collection[int] = (),
    saved: dict[str, Any] | None = None,
) -> ReplayPlan:
    """Write the script of a recording, up to its first obstacle if there is one. Blocks.

    Args:
        reader: The recording.
        script: The open file that the script is written to.
        digest_ticks: Ticks at which to compute digests of the state, because another recording may
            start there.
        saved: The snapshot from which the world resumed before this recording; None if unknown. If
            the world was reseeded, the new process starts from this snapshot.

    Returns:
        The comparison to make.

    Raises:
        OSError: A file cannot be read or written.
        RecordingError: The start of the recording is damaged.
    """
    planner = _Planner(reader, sorted(digest_ticks)[:MAX_DIGESTS], saved)
    script.write(planner.plan.start.encode())
    for order in planner.orders():
        script.write(order.encode())
    return planner.plan


class _Planner:
    """Makes the orders of a recording, and notes the records to compare."""

    def __init__(
        self, reader: RecordingReader, digest_ticks: list[int], saved: dict[str, Any] | None
    ) -> None:
        self._reader = reader
        self._digest_ticks = digest_ticks
        self._is_halted = False
        headers = [entry.header for entry in reader.index]
        self._inputs = sum(h.records for h in headers if h.track is Track.INPUTS)
        self._records = sum(header.records for header in headers)
        start = reader.start()
        begin = _plan_start(start, digest_ticks, saved)
        saved_state = digest_state(saved) if saved is not None and begin.is_resumed else None
        self._first_tick = 0 if begin.snapshot is None else start["snapshot"].get("tick")
        self.plan = ReplayPlan(
            start=begin,
            start_fields=start,
            state=saved_state if begin.is_reseeded else _digest_start(start),
            saved_state=saved_state,
            first_tick=start["tick"],
            last_tick=max(header.last.tick for header in headers),
            tick=start["tick"],
            end_tick=start["tick"],
        )
        self.plan.names.update(_read_agents(start["snapshot"]))
        self._agents = {*self.plan.names}
        self._removed: set[str] = set()

    def orders(self) -> Iterator[ReplayOrder]:
        """Iterate over the orders; the plan is complete after the last."""
        plan = self.plan
        try:
            yield from self._repeat()
        except Unrepeatable as error:
            plan.obstacle = str(error)
        except RecordingError as error:
            plan.obstacle = str(error).partition("\n")[0]
        if not plan.is_complete and not plan.obstacle:
            limit = plan.tick + MAX_CONTINUED_TICKS
            wanted = (tick for tick in self._digest_ticks if tick <= limit)
            plan.end_tick = max([plan.end_tick, *wanted])
        yield ReplayOrder(plan.end_tick, Do.END)

    def _repeat(self) -> Iterator[ReplayOrder]:
        plan = self.plan
        for place, record in enumerate(self._reader.read()):
            if record.after > self._inputs and not plan.is_complete:
                # A killed world lost the input before it.
                plan.unchecked = self._records - place
                return
            try:
                self._check_place(record)
                order = self._find_order(record)
            except Unrepeatable as error:
                raise Unrepeatable(f"{record.track}, record {record.number}: {error}") from None
            plan.counts[record.track] += 1
            plan.tick = record.moment.tick
            plan.end_tick = max(plan.end_tick, plan.tick)
            if order is not None:
                plan.end_tick = max(plan.end_tick, order.tick)
                yield order

    def _check_place(self, record: Record) -> None:
        tick = record.moment.tick
        if self.plan.is_complete:
            raise Unrepeatable("it follows the event 'end'")
        is_start = record.track is Track.INPUTS and not record.number
        if is_start and isinstance(self._first_tick, int) and tick != self._first_tick:
            raise Unrepeatable(
                f"its tick is {tick}, but the tick of its snapshot is {self._first_tick}"
            )
        if tick < self.plan.tick:
            raise Unrepeatable(f"its tick is {tick}, after one of tick {self.plan.tick}")
        if tick - self.plan.tick > MAX_GAP_TICKS:
            raise Unrepeatable(f"its tick is {tick}, {tick - self.plan.tick} ticks after the last")

    def _find_order(self, record: Record) -> ReplayOrder | None:
        """Return the order that makes the new process produce this record, or None."""
        tick, fields = record.moment.tick, record.fields
        if record.track is Track.INPUTS:
            return self._find_event_order(record)
        if record.track is Track.OBSERVATIONS:
            return ReplayOrder(tick, Do.OBSERVE, {"agent_id": self._agent(fields)})
        parts = {"fingerprints": "fingerprints", "view": "frame", "state": "state"}
        return ReplayOrder(tick, Do.FRAME, {part: key in fields for part, key in parts.items()})

    def _find_event_order(self, record: Record) -> ReplayOrder | None:
        tick, fields = record.moment.tick, record.fields
        name = fields.get("event")
        if (name == "start") != (record.number == 0):
            raise Unrepeatable(f"the event {name!r} is out of place")
        match name:
            case "start":
                return None
            case "end":
                self.plan.is_complete = True
                return None
            case "removed":
                self._removed.add(str(fields.get("agent_id")))
                return None
            case "halted":
                return self._find_halt_order(record)
            case "join":
                return ReplayOrder(tick, Do.JOIN, self._join(fields))
            case "leave":
                agent_id = self._agent(fields)
                self._agents.discard(agent_id)
                return ReplayOrder(tick, Do.LEAVE, {"agent_id": agent_id})
            case "input":
                sent = {"action": _text(fields, "action"), "data": fields.get("data")}
                return ReplayOrder(tick, Do.INPUT, {"agent_id": self._agent(fields), **sent})
            case "chat":
                url = None if fields.get("media_url") is None else _text(fields, "media_url")
                said = {"content": _text(fields, "content"), "media_url": url}
                return ReplayOrder(tick, Do.CHAT, {"agent_id": self._agent(fields), **said})
        raise Unrepeatable(f"its event {name!r} is unknown")

    def _join(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        agent_id, name = _text(fields, "agent_id"), _text(fields, "name")
        if agent_id in self._agents - self._removed:
            raise Unrepeatable(f"the agent {agent_id!r} joins a second time")
        self._agents.add(agent_id)
        self._removed.discard(agent_id)
        self.plan.names[agent_id] = name
        return {"agent_id": agent_id, "name": name}

    def _find_halt_order(self, record: Record) -> ReplayOrder | None:
        """Return the call of the simulation, other than an event, during which the world halted.

        The order is the usual one of this call; the new process must reach the halt itself.
        """
        tick, fields = record.moment.tick, record.fields
        is_first, self._is_halted = not self._is_halted, True
        call = fields.get("call")
        if call == "step" and is_first:
            return ReplayOrder(tick + 1, Do.REACH)
        if call in ("observe", "audience") and is_first:
            return ReplayOrder(tick, Do(call), {"agent_id": self._agent(fields)})
        if call == "route" and is_first:
            raise Unrepeatable(
                "a route of the world's own halted it, and the recording lacks that request"
            )
        return None

    def _agent(self, fields: Mapping[str, Any]) -> str:
        """Return the agent of a record; the replay shows whether the world removed it."""
        agent_id = _text(fields, "agent_id")
        if agent_id not in self._agents:
            raise Unrepeatable(f"the agent {agent_id!r} is not in the world")
        return agent_id


def _plan_start(
    start: Mapping[str, Any], digest_ticks: list[int], saved: dict[str, Any] | None
) -> ScriptStart:
    """Return the start of a replay: a fresh world from its seed, if that gives the same state.

    A world that was given another seed starts from its save, if that is known.

    The recorded rows are those after ``begin``, which may have changed them; that of the engine
    does not.
    """
    seed = start.get("reseed")
    is_seed = isinstance(seed, int) and not isinstance(seed, bool) and seed in SEEDS
    is_resumed = start.get("resumed") is not False
    keeps_rows = start.get("rows") is None or bool(start.get("datastore"))
    is_fresh = is_seed and keeps_rows and not is_resumed
    is_reseeded = is_seed and is_resumed and saved is not None
    snapshot = saved if is_reseeded else start["snapshot"]
    return ScriptStart(
        snapshot=None if is_fresh else snapshot,
        seed=seed if is_seed else None,
        is_resumed=is_resumed,
        digest_ticks=tuple(digest_ticks),
        is_reseeded=is_reseeded,
    )


def _digest_start(start: Mapping[str, Any]) -> StateDigest | None:
    if start.get("resumed") is not True or start.get("reseed") is not None:
        return None
    return digest_state(start["snapshot"])


def digest_state(snapshot: Mapping[str, Any]) -> StateDigest | None:
    """Return the digest of a snapshot of the kit; None if it has no tick."""
    tick = whole_number(snapshot.get("tick"))
    return None if tick is None else StateDigest(tick, digest_history(snapshot))


def _read_agents(snapshot: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Iterate over the ids and names of the agents in a snapshot that may be malformed."""
    sessions = snapshot.get("sessions")
    for session in sessions if isinstance(sessions, list) else ():
        if isinstance(session, dict) and isinstance(agent_id := session.get("agent_id"), str):
            yield agent_id, str(session.get("name"))


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Unrepeatable(f"its {name!r} is not a text")
    return value
