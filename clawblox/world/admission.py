"""Lets agents into instances, and keeps those there whose sessions a restore has lost.

An agent behind a proxy has no session of its own, so it is joined again under its name without
noticing. A caller that has the session itself gets an event, and an error from its next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, ManifestError, WorldCallError, WorldSessionError
from clawblox.errors.general import VALUE_CHARS, shorten
from clawblox.protocol import JoinAnswer
from clawblox.results import Access, EventKind
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.rundir.manifest_updates import agent_update
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.access import (
    Member,
    ask_session,
    is_refusal,
    join,
    read_session,
    record_session,
)
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.rosters import Roster, Seat, make_seat

_log = OwnLog(__name__)


_SETTLE_TIMEOUT_S: Final = 10.0
"""Longest time that a restored instance is asked about sessions before it counts as ready."""
_ANSWER_TIMEOUT_S: Final = 5.0
_FRESH_HINT: Final = (
    "this world started over, and nothing that was saved since the agent joined was restored: "
    "start it with resume=, or give the agent another directory"
)


async def admit(
    fleet: Fleet,
    instance: InstanceHandle,
    member: Member,
    *,
    known: JoinAnswer | None = None,
    candidates: Sequence[JoinAnswer] = (),
    timeout: float,
) -> Access:
    """Let an agent join an instance, and list it in the manifest of the instance.

    Args:
        fleet: The fleet of the instance.
        instance: The instance.
        member: The agent.
        known: The world's answer when the agent joined before; None means the one that its
            directory records, if any. A recorded session that is known to be lost is replaced.
        candidates: As :func:`clawblox.world.access.join` takes them.
        timeout: Seconds for the call.

    Raises:
        WorldExitedError: The instance has ended.
        WorldSessionError: Another agent has the session in this instance.
        ManifestError: The agent cannot be listed in the manifest.
        ConfigError: The agent's directory cannot be used, or its recorded session is not valid.
        ClawbloxError: As :func:`clawblox.world.access.join`.

    Cancellation: the agent may have joined the world; its session may not be recorded.
    """
    roster = instance.roster
    recorded = known is None
    known = known or await run_blocking(read_session, member)
    if known is not None:
        if recorded and roster.has_lost(known.session, member.name):
            known = None
        else:
            roster.require_free(known.session, member.name)

    async def call() -> Access:
        async with instance.calls.call():
            return await join(
                instance.connections,
                member,
                known=known,
                candidates=candidates,
                observe=instance.launch.config.api["observe"],
                url=instance.url,
                timeout=timeout,
                others=roster.sessions,
            )
        raise AssertionError("unreachable: the block returns or raises")

    try:
        access = await fleet.tasks.own(call)
    except WorldSessionError as error:
        is_about_saves = error.hint is None or error.status is not None
        if instance.resume_path is None and is_about_saves:
            error.hint = _FRESH_HINT
        raise
    roster.require_free(access.session, member.name)
    seat = make_seat(member, access, _joined_at(instance, roster, is_known=access.rejoined))
    over = roster.add(seat)
    if member.driver is not None and member.dir is not None:
        fleet.leave_elsewhere(member.dir, instance)
    if known is None:
        await run_blocking(record_session, member, access)
    await _list_agent(fleet, instance, seat, over)
    return access


def _joined_at(instance: InstanceHandle, roster: Roster, *, is_known: bool) -> float:
    """Return when a session was issued; a restored session counts from the save."""
    restored = instance.resume_path
    if is_known and restored is not None:
        return roster.saved_at(restored)
    return anyio.current_time()


async def _list_agent(
    fleet: Fleet, instance: InstanceHandle, seat: Seat, over: list[ManifestEntry]
) -> None:
    """List an agent in the manifest, in place of its entries that are over."""
    member = seat.member
    if member.dir is None and not seat.agent_id:
        return
    update = agent_update(
        id=seat.agent_id if member.dir is None else None,
        dir=member.dir,
        name=member.name,
        run_name=member.run_name,
        world_agent_id=seat.agent_id or None,
        run_id=instance.run_id,
        driver=member.driver,
        sandbox=member.sandbox,
    )
    update = attrs.evolve(update, left=tuple(over))
    await fleet.writers.of(instance.instance_dir).apply(update)


# -- after a restore --------------------------------------------------------------------------


async def settle_sessions(fleet: Fleet, instance: InstanceHandle) -> Callable[[], None]:
    """Rejoin the agents whose sessions a restored instance does not know, or report them as lost.

    Only agents that joined after the save was begun are asked about; others never are. A failure
    is reported.

    Returns:
        Emits the events; call it once the instance is ready.

    Cancellation: some may have been asked about, some joined.
    """
    settling = _Settling(fleet, instance)
    try:
        await settling.run()
    except Exception as error:  # noqa: BLE001 - the instance itself is well
        _log.warning("sessions not settled", instance=instance.name, error=str(error))
    return settling.emit_all


@attrs.define
class _Settling:
    """Checks the sessions of one restored instance."""

    fleet: Fleet
    instance: InstanceHandle
    _events: list[Callable[[], None]] = attrs.field(factory=list, init=False)

    @property
    def observe(self) -> str:
        """The route of observations."""
        return str(self.instance.launch.config.api["observe"])

    async def run(self) -> None:
        """Check the sessions that may be lost, and replace those that are."""
        uncertain = self.instance.roster.find_uncertain(self.instance.resume_path)
        if not uncertain:
            return
        replaced: set[Seat] = set()
        with anyio.move_on_after(_SETTLE_TIMEOUT_S):
            async with anyio.create_task_group() as questions:
                for seat in uncertain:
                    questions.start_soon(self.ask, seat)
            for seat in uncertain:  # in the order in which they had joined
                if seat.loss is not None:
                    await self.replace(seat)
                    replaced.add(seat)
        for seat in uncertain:
            if seat.loss is not None and seat not in replaced:
                self._report_lost(seat, "the world did not let it join again in time")

    def emit_all(self) -> None:
        """Emit the events."""
        for emit in self._events:
            emit()

    async def ask(self, seat: Seat) -> None:
        """Note a session as lost if the world does not know it."""
        try:
            answer = await ask_session(
                self.instance.connections,
                seat.session,
                observe=self.observe,
                timeout=_ANSWER_TIMEOUT_S,
            )
        except WorldCallError:
            return
        if is_refusal(answer):
            text = " ".join(answer.body[: 4 * VALUE_CHARS].decode(errors="replace").split())
            self.instance.roster.lose(seat, shorten(text, VALUE_CHARS))

    async def replace(self, seat: Seat) -> None:
        """Join the agent of a lost session again, or report the loss."""
        if seat.headers is None:
            self._report_lost(seat, "it joined after the save that the instance was restored from")
            return
        try:
            joined = await self._rejoin(seat, seat.headers)
        except ClawbloxError as error:
            self._report_lost(seat, f"it could not join again: {error.message}")
            return
        self._emit("rejoined", joined)

    async def _rejoin(self, seat: Seat, headers: dict[str, str]) -> Seat:
        access = await join(
            self.instance.connections,
            seat.member,
            known=None,
            observe=self.observe,
            url=self.instance.url,
            timeout=_ANSWER_TIMEOUT_S,
        )
        self.instance.roster.require_free(access.session, seat.member.name)
        await run_blocking(record_session, seat.member, access)
        joined = attrs.evolve(make_seat(seat.member, access, anyio.current_time()), headers=headers)
        headers.update(access.headers)
        over = self.instance.roster.add(joined)
        try:
            await _list_agent(self.fleet, self.instance, joined, over)
        except ManifestError as error:
            name = self.instance.name
            _log.warning("manifest not written", instance=name, error=str(error))
        return joined

    def _report_lost(self, seat: Seat, reason: str) -> None:
        self._emit("session_lost", seat, reason=reason)

    def _emit(self, kind: EventKind, seat: Seat, **detail: str) -> None:
        facts = {"agent": seat.member.run_name, "agent_id": seat.agent_id, **detail}
        self._events.append(
            partial(self.fleet.emit, kind, self.instance.name, self.instance.labels, **facts)
        )
