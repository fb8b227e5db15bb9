"""What a world gives an agent whose program clawblox runs: access by an address of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs

from clawblox.agents.access.grant import Grant, Policy
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import UsageError
from clawblox.results import Access
from clawblox.world.access import AgentProgram
from clawblox.world.places import FleetPlace
from clawblox.world.rosters import live_headers


@attrs.frozen
class Giver:
    """What gives agents access to one instance.

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
    def make(cls, place: FleetPlace) -> Giver:
        """Return the giver for an instance.

        Raises:
            ConfigError: Its ``world.toml`` would give agents a route of the orchestrator.
        """
        config = place.instance.launch.config
        policy = Policy.from_api({**config.api, "allow": config.agent_routes})
        sandbox = dict(config.config.get("sandbox", {}))
        if "deps_root" in sandbox:
            sandbox["deps_root"] = str(config.dir / sandbox["deps_root"])
        return cls(place, policy, config.name, sandbox)

    async def give(self, agent: AgentProgram, access: Access) -> Access:
        """Give an agent that has joined its own address, and return its access with that.

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
