"""Access of agent clients to an instance, and the addresses granted to programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, Self

import anyio
import anyio.lowlevel
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import UsageError, WorldCallError, WorldExitedError, WorldSessionError
from clawblox.protocol import SESSION_HEADER, JoinAnswer
from clawblox.results import Access
from clawblox.system.connection import Connections, Delivery
from clawblox.system.request import Answer, Request
from clawblox.world.access import (
    Actor,
    AgentProgram,
    WorldMember,
    join,
    read_session,
    record_session,
)
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.http_clients import HttpClients
from clawblox.world.players import Restored, SavedPlayers, recall
from clawblox.world.rosters import live_headers, make_seat
from clawblox.world.settling import list_agent

_FRESH_HINT: Final = (
    "this world started over, and nothing that was saved since the agent joined was restored: "
    "start it with resume=, or give the agent another directory"
)


@attrs.frozen
class Waits:
    """Time limits of calls, in seconds.

    Attributes:
        timeout: Limit for an answer.
        restart: Limit for an instance that is being restarted; 0 does not wait.
    """

    timeout: float
    restart: float = 0.0


class WorldPlace(Protocol):
    """The interface through which agent clients use an instance."""

    @property
    def name(self) -> str:
        """Name of the instance."""

    @property
    def url(self) -> str:
        """Address of the instance."""

    @property
    def routes(self) -> Mapping[str, Any]:
        """Routes of the instance, from ``[api]`` of the ``world.toml``."""

    @property
    def restarts(self) -> int:
        """Number of restarts known here."""

    @property
    def connections(self) -> Connections:
        """The connections to the instance."""

    @property
    def http_clients(self) -> HttpClients:
        """The httpx clients that are closed with the instance's owner."""

    def find(self, instance: str) -> Self:
        """Return another instance of the same owner.

        Raises:
            UsageError: There is no such instance.
        """

    async def recall(self, member: WorldMember) -> SavedPlayers:
        """Return the players of a name in the save that the instance was restored from.

        Cancellation: has no effect.
        """

    async def admit(
        self,
        member: WorldMember,
        known: JoinAnswer | None,
        players: SavedPlayers,
        *,
        timeout: float,
    ) -> Access:
        """Let an agent join, and list it in the manifest of the instance.

        Args:
            member: The agent.
            known: The world's answer when the agent joined before; None uses the answer recorded in
                the agent's directory, if any. A recorded session known to be lost is replaced.
            players: Players of that name in the save, whose sessions the agent may take.
            timeout: Seconds for the call.

        Raises:
            WorldExitedError: The instance has ended.
            WorldSessionError: Another agent has the session in this instance.
            ManifestError: The agent cannot be listed in the manifest.
            ConfigError: The agent's directory cannot be used, or its recorded session is not valid.
            ClawbloxError: As :func:`clawblox.world.access.join`.

        Cancellation: the agent may have joined the world; its session may not be recorded.
        """

    def note_left(self, access: Access) -> None:
        """Note that an agent has left."""

    async def exchange(
        self, request: Request, body: bytes | None, waits: Waits, *, access: Access
    ) -> Answer:
        """Return the answer to a request of an agent if it means success or a refusal.

        Raises:
            ActionRefusedError: The session of the agent is known to be lost, so the request was not
                sent.
            WorldCallError: There was no usable answer in time.
            WorldExitedError: The instance has ended.

        Cancellation: the request may have been received.
        """


@attrs.frozen
class FleetPlace:
    """An instance of an open world.

    Attributes:
        fleet: The fleet of the world.
        joined: Handle of the instance when the agent joined.
    """

    fleet: Fleet
    joined: InstanceHandle

    @property
    def instance(self) -> InstanceHandle:
        """Current handle of the instance; a revival replaces it."""
        return self.fleet.find_latest(self.joined)

    @property
    def name(self) -> str:
        """Name of the instance."""
        return self.joined.name

    @property
    def url(self) -> str:
        """Address of the instance."""
        return self.instance.url

    @property
    def routes(self) -> Mapping[str, Any]:
        """Routes of the instance, from ``[api]`` of the ``world.toml``."""
        return self.instance.launch.config.api

    @property
    def restarts(self) -> int:
        """Number of restarts."""
        return self.instance.restarts

    @property
    def connections(self) -> Connections:
        """The connections to the instance; a restart replaces them."""
        return self.instance.connections

    @property
    def http_clients(self) -> HttpClients:
        """The httpx clients of the world."""
        return self.fleet.http_clients

    def find(self, instance: str) -> FleetPlace:
        """Return another instance of the world."""
        return FleetPlace(self.fleet, self.fleet.find(instance))

    async def recall(self, member: WorldMember) -> SavedPlayers:
        """Return the saved players of a name whose sessions are not in use by agents here."""
        instance = self.instance
        launch, roster = instance.launch, instance.roster
        if launch.resume_path is None:
            return SavedPlayers()
        restored = Restored(
            launch.resume_path, launch.parent_sha256, launch.run_dir, launch.instance_dir
        )
        players = await run_blocking(recall, restored, member.name)
        return players.without(roster.sessions, roster.agent_ids)

    async def admit(
        self,
        member: WorldMember,
        known: JoinAnswer | None,
        players: SavedPlayers,
        *,
        timeout: float,
    ) -> Access:
        """Let an agent join; see :meth:`WorldPlace.admit`."""
        fleet, instance, roster = self.fleet, self.instance, self.instance.roster
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
                    candidates=players.answers,
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
            if instance.launch.resume_path is None and is_about_saves:
                error.hint = _FRESH_HINT
            raise
        roster.require_free(access.session, member.name)
        # A known session was issued before the latest restore.
        restored = instance.launch.resume_path if access.rejoined else None
        joined_at = anyio.current_time() if restored is None else roster.saved_at(restored)
        seat = make_seat(member, access, joined_at)
        over = roster.add(seat)
        instance.note_join(seat, rejoined=access.rejoined)
        if member.driver is not None and member.dir is not None:
            fleet.leave_elsewhere(member.dir, instance)
        if known is None:
            await run_blocking(record_session, member, access)
        writer = fleet.writers.of(instance.instance_dir)
        await list_agent(writer, instance.run_id, member, seat.agent_id, over)
        return access

    def note_left(self, access: Access) -> None:
        """Note that an agent has left."""
        self.instance.roster.leave(access.session)

    async def exchange(
        self, request: Request, body: bytes | None, waits: Waits, *, access: Access
    ) -> Answer:
        """Return the answer to a request; wait for a restart if that is requested and safe."""
        restart = waits.restart
        give_up_at = anyio.current_time() + restart if restart else 0.0
        while True:
            calls = self.instance.calls
            life = calls.life
            delivery = Delivery()
            try:
                async with calls.call():
                    self.instance.roster.require_kept(access.session, access.name)
                    answer = await self._send(request, body, waits.timeout, delivery, access)
                    return require_usable(request, answer)
            except WorldExitedError:
                if not restart or (delivery.has_begun and request.method != "GET"):
                    raise
                if not await calls.wait_serving(after=life, until=give_up_at):
                    raise

    async def _send(
        self,
        request: Request,
        body: bytes | None,
        timeout: float,
        delivery: Delivery,
        access: Access,
    ) -> Answer:
        """Send a request, and record it with its answer in the recording of the instance."""
        recorder, answer = self.instance.recorder, None
        try:
            answer = await self.connections.send(request, body, timeout=timeout, delivery=delivery)
        finally:
            if recorder is not None and delivery.has_begun:
                actor = Actor.from_access(access)
                recorder.note(actor, request.method, request.route, body, answer)
        return answer


def require_usable(request: Request, answer: Answer) -> Answer:
    """Return an answer if it means success or a refusal.

    Raises:
        WorldCallError: The answer means neither.
    """
    if not (200 <= answer.status < 300 or 400 <= answer.status < 500):
        raise unusable(request, answer, f"has the status {answer.status}")
    return answer


def unusable(request: Request, answer: Answer, fault: str) -> WorldCallError:
    """Return the error for an answer that cannot be used."""
    return WorldCallError(
        f"the answer to {request} {fault}", status=answer.status, body_start=answer.body_start
    )


def make_granter(place: FleetPlace) -> Callable[[AgentProgram, Access], Awaitable[Access]]:
    """Return a function that gives an agent whose program clawblox runs its own address.

    The function takes an agent that has joined, and returns the access with the address. It raises
    AgentResumeError if the address under which the agent knows its world is no longer available,
    and AgentSetupError if no address is available or it cannot be recorded. After a cancellation,
    the agent may have its address.

    Args:
        place: The instance that the agents join.

    Raises:
        ConfigError: The ``world.toml`` would give agents a route of the orchestrator.
    """
    from clawblox.agents.access.grant import Grant, Policy

    config = place.instance.launch.config
    policy = Policy.from_api({**config.api, "allow": config.agent_routes})
    sandbox = dict(config.config.get("sandbox", {}))
    if "deps_root" in sandbox:
        sandbox["deps_root"] = str(config.dir / sandbox["deps_root"])

    def find_upstream() -> str | None:
        instance = place.instance
        return None if instance.calls.life is None else instance.url

    async def grant_access(agent: AgentProgram, access: Access) -> Access:
        headers = live_headers(place.instance.roster, access)

        def note(method: str, path: str, body: bytes | None, answer: Answer | None) -> None:
            instance = place.instance
            if instance.recorder is not None:
                seat = instance.roster.find(headers[SESSION_HEADER])
                actor = Actor.from_access(access) if seat is None else seat.actor
                instance.recorder.note(actor, method, path, body, answer)

        grant = Grant(
            world=config.name,
            headers=headers,
            policy=policy,
            upstream=find_upstream,
            suspect=lambda: place.instance.calls.pacer.hurry(),
            note=note,
            sandbox=sandbox,
        )
        try:
            base_url = await run_blocking(agent.grant_access, grant)
        except UsageError:  # it was closed in the meantime
            await anyio.lowlevel.checkpoint_if_cancelled()  # close cancels it
            raise
        return attrs.evolve(access, base_url=base_url)

    return grant_access
