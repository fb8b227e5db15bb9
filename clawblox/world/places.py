"""An instance as the client of an agent reaches it, and the access that programs are granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self

import anyio
import attrs

from clawblox.agents.access.grant import Grant, Policy
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import UsageError, WorldCallError, WorldExitedError
from clawblox.protocol import JoinAnswer
from clawblox.results import Access
from clawblox.system.connection import Connections, Delivery
from clawblox.system.request import Answer, Request
from clawblox.world.access import AgentProgram, Member
from clawblox.world.admission import admit
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.players import Restored, SavedPlayers, recall
from clawblox.world.rosters import live_headers


@attrs.frozen
class Waits:
    """How long calls may take, in seconds.

    Attributes:
        timeout: For an answer.
        restart: For an instance that is being restarted; 0 does not wait.
    """

    timeout: float
    restart: float = 0.0


class Place(Protocol):
    """An instance as the client of an agent reaches it."""

    @property
    def name(self) -> str:
        """Name of the instance."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def routes(self) -> Mapping[str, Any]:
        """Its routes, from ``[api]`` of the ``world.toml``."""

    @property
    def restarts(self) -> int:
        """How often it was restarted, as far as known here."""

    @property
    def connections(self) -> Connections:
        """The connections to it."""

    def find(self, instance: str) -> Self:
        """Return another instance of the same owner.

        Raises:
            UsageError: There is no such instance.
        """

    async def recall(self, member: Member) -> SavedPlayers:
        """Return the facts about the players of a name in the save that it was restored from.

        Cancellation: has no effect.
        """

    async def admit(
        self,
        member: Member,
        *,
        known: JoinAnswer | None,
        candidates: Sequence[JoinAnswer] = (),
        timeout: float,
    ) -> Access:
        """Let an agent join; see :func:`clawblox.world.admission.admit`."""

    def note_left(self, access: Access) -> None:
        """Note that an agent has left."""

    async def exchange(
        self, request: Request, body: bytes | None, waits: Waits, *, access: Access
    ) -> Answer:
        """Return the answer to a request of an agent, one that means success or a refusal.

        Raises:
            ActionRefusedError: The session of the agent is known to be lost; nothing was sent.
            WorldCallError: There was no usable answer in time.
            WorldExitedError: The instance has ended.

        Cancellation: the request may have been received.
        """


@attrs.frozen
class FleetPlace:
    """An instance of an open world.

    Attributes:
        fleet: The fleet of the world.
        joined: The instance when the agent joined it.
    """

    fleet: Fleet
    joined: InstanceHandle

    @property
    def instance(self) -> InstanceHandle:
        """The current handle of the instance; after a revival it is a new one."""
        return self.fleet.find_latest(self.joined)

    @property
    def name(self) -> str:
        """Name of the instance."""
        return self.joined.name

    @property
    def url(self) -> str:
        """Its address."""
        return self.instance.url

    @property
    def routes(self) -> Mapping[str, Any]:
        """Its routes, from ``[api]`` of the ``world.toml``."""
        return self.instance.launch.config.api

    @property
    def restarts(self) -> int:
        """How often it was restarted."""
        return self.instance.restarts

    @property
    def connections(self) -> Connections:
        """The connections to it; new ones after each restart."""
        return self.instance.connections

    def find(self, instance: str) -> FleetPlace:
        """Return another instance of the world."""
        return FleetPlace(self.fleet, self.fleet.find(instance))

    async def recall(self, member: Member) -> SavedPlayers:
        """Return the facts about the players of a name, without those that agents here have."""
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
        member: Member,
        *,
        known: JoinAnswer | None,
        candidates: Sequence[JoinAnswer] = (),
        timeout: float,
    ) -> Access:
        """Let an agent join; see :func:`clawblox.world.admission.admit`."""
        return await admit(
            self.fleet,
            self.instance,
            member,
            known=known,
            candidates=candidates,
            timeout=timeout,
        )

    def note_left(self, access: Access) -> None:
        """Note that an agent has left."""
        self.instance.roster.leave(access.session)

    async def exchange(
        self, request: Request, body: bytes | None, waits: Waits, *, access: Access
    ) -> Answer:
        """Return the answer to a request; wait for a restart where that is wanted and safe."""
        restart = waits.restart
        give_up_at = anyio.current_time() + restart if restart else 0.0
        while True:
            calls = self.instance.calls
            life = calls.life
            delivery = Delivery()
            try:
                async with calls.call():
                    self.instance.roster.require_kept(access.session, access.name)
                    return await send_once(self.connections, request, body, waits.timeout, delivery)
            except WorldExitedError:
                if not restart or (delivery.has_begun and request.method != "GET"):
                    raise
                if not await calls.wait_serving(after=life, until=give_up_at):
                    raise


async def send_once(
    connections: Connections,
    request: Request,
    body: bytes | None,
    timeout: float,
    delivery: Delivery | None = None,
) -> Answer:
    """Return the answer to a request, one that means success or a refusal.

    Raises:
        WorldCallError: There was no usable answer in time.

    Cancellation: ``delivery`` has whether the request may have been received.
    """
    answer = await connections.send(request, body, timeout=timeout, delivery=delivery)
    if not (200 <= answer.status < 300 or 400 <= answer.status < 500):
        raise unusable(request, answer, f"has the status {answer.status}")
    return answer


def unusable(request: Request, answer: Answer, fault: str) -> WorldCallError:
    """Return the error of an answer that cannot be used."""
    return WorldCallError(
        f"the answer to {request} {fault}", status=answer.status, body_start=answer.body_start
    )


@attrs.frozen
class AccessGranter:
    """Grants agents, whose programs clawblox runs, access to one instance by their own address.

    Attributes:
        place: The instance.
        policy: What its agents may ask.
        world: Name of the world.
        sandbox: The table ``[sandbox]`` of the ``world.toml``, its paths made absolute.
    """

    place: FleetPlace
    policy: Policy
    world: str
    sandbox: Mapping[str, Any]

    @classmethod
    def make(cls, place: FleetPlace) -> AccessGranter:
        """Return the granter for an instance.

        Raises:
            ConfigError: Its ``world.toml`` would give agents a route of the orchestrator.
        """
        config = place.instance.launch.config
        policy = Policy.from_api({**config.api, "allow": config.agent_routes})
        sandbox = dict(config.config.get("sandbox", {}))
        if "deps_root" in sandbox:
            sandbox["deps_root"] = str(config.dir / sandbox["deps_root"])
        return cls(place, policy, config.name, sandbox)

    async def grant(self, agent: AgentProgram, access: Access) -> Access:
        """Give an agent that has joined its own address; return the access with that address.

        Raises:
            AgentResumeError: It knows its world by an address that it cannot have again.
            AgentSetupError: There is no address for it, or it cannot be recorded.

        Cancellation: the agent may have its address.
        """
        roster = self.place.instance.roster
        grant = Grant(
            world=self.world,
            headers=live_headers(roster, access),
            policy=self.policy,
            upstream=self._upstream,
            suspect=self._suspect,
            sandbox=self.sandbox,
        )
        base_url = await run_blocking(agent.grant_access, grant)
        return attrs.evolve(access, base_url=base_url)

    def _upstream(self) -> str | None:
        try:
            instance = self.place.instance
        except UsageError:  # there is no instance of that name any more
            return None
        return None if instance.calls.life is None else instance.url

    def _suspect(self) -> None:
        """Look now whether the world has halted."""
        with suppress(UsageError):  # there is no instance of that name any more
            self.place.instance.calls.pacer.hurry()
