"""Rejoins agents whose sessions were lost in a restore, and lists agents in the manifest.

An agent behind a proxy does not know its session, so it can join again under its name without
noticing. A caller that holds the session gets an event, and an error from its next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import attrs
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, ManifestError, WorldCallError
from clawblox.errors.general import VALUE_CHARS, shorten
from clawblox.results import EventKind
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.rundir.manifest_updates import agent_update
from clawblox.rundir.manifest_writer import ManifestWriter
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.access import (
    WorldMember,
    ask_session,
    is_refusal,
    join,
    record_session,
)
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.rosters import Seat, make_seat

_log = OwnLog(__name__)


_SETTLE_TIMEOUT_S: Final = 10.0
"""Longest time for checking sessions before a restored instance counts as ready, in seconds."""
_ANSWER_TIMEOUT_S: Final = 5.0


async def list_agent(
    writer: ManifestWriter,
    run_id: str,
    member: WorldMember,
    agent_id: str | None,
    over: Sequence[ManifestEntry] = (),
) -> None:
    """List an agent that has a directory or an id in the manifest of an instance.

    Args:
        writer: The writer of the manifest.
        run_id: Id of the run of the instance.
        member: The agent.
        agent_id: The world's id of the agent; None if the world gave none.
        over: Obsolete entries of the agent, which are replaced.

    Raises:
        ManifestError: The manifest cannot be written.
    """
    if member.dir is None and not agent_id:
        return
    update = agent_update(
        id=agent_id if member.dir is None else None,
        dir=member.dir,
        name=member.name,
        run_name=member.run_name,
        world_agent_id=agent_id or None,
        run_id=run_id,
        driver=member.driver,
        sandbox=member.sandbox,
    )
    await writer.apply(msgspec.structs.replace(update, left=tuple(over)))


async def settle_sessions(fleet: Fleet, instance: InstanceHandle) -> Callable[[], None]:
    """Rejoin the agents whose sessions a restored instance does not know, or report them as lost.

    Only sessions of agents that joined after the start of the save are checked. A failure is
    reported.

    Returns:
        A function that emits the events, to be called once the instance is ready.

    Cancellation: some sessions may have been checked, and some agents rejoined.
    """
    settling = _Settling(fleet, instance)
    try:
        await settling.run()
    except Exception as error:  # noqa: BLE001 - the instance itself is well
        _log.warning("sessions not settled", instance=instance.name, error=str(error))
    return settling.emit_all


class _Settling(msgspec.Struct):
    """Checks the sessions of one restored instance."""

    fleet: Fleet
    instance: InstanceHandle
    _events: list[Callable[[], None]] = msgspec.field(default_factory=list)

    async def run(self) -> None:
        """Check the sessions that may be lost, and replace those that were."""
        uncertain = self.instance.roster.find_uncertain(self.instance.launch.resume_path)
        if not uncertain:
            return
        replaced: set[Seat] = set()
        with anyio.move_on_after(_SETTLE_TIMEOUT_S):
            async with anyio.create_task_group() as questions:
                for seat in uncertain:
                    questions.start_soon(self.ask, seat)
            for seat in uncertain:  # in the order of the original joins
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
                observe=self.instance.launch.config.api["observe"],
                timeout=_ANSWER_TIMEOUT_S,
            )
        except WorldCallError:
            return
        if is_refusal(answer):
            text = " ".join(answer.body[: 4 * VALUE_CHARS].decode(errors="replace").split())
            self.instance.roster.lose(seat, shorten(text, VALUE_CHARS))

    async def replace(self, seat: Seat) -> None:
        """Rejoin the agent of a lost session, or report the loss."""
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
            observe=self.instance.launch.config.api["observe"],
            url=self.instance.url,
            timeout=_ANSWER_TIMEOUT_S,
        )
        self.instance.roster.require_free(access.session, seat.member.name)
        await run_blocking(record_session, seat.member, access)
        joined = attrs.evolve(make_seat(seat.member, access, anyio.current_time()), headers=headers)
        headers.update(access.headers)
        over = self.instance.roster.add(joined)
        self.instance.note_join(joined, rejoined=False)
        try:
            writer = self.fleet.writers.of(self.instance.instance_dir)
            await list_agent(writer, self.instance.run_id, joined.member, joined.agent_id, over)
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
