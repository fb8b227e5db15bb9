"""The order for an attempt: its origin, and the usage of its generation so far."""

from __future__ import annotations

from typing import Any

import attrs

from clawblox.agents.values import Usage
from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.lines import Phase
from clawblox.experiment.plan.plan import Chain


@attrs.frozen(kw_only=True)
class AttemptOrder:
    """An attempt to be made.

    Attributes:
        chain: The chain, with the plan in force.
        generation: The generation, from 1.
        attempt_id: Name of the attempt and of its run directory; empty before it is opened.
        phase: Where the attempt starts.
        origin: The checkpoint that world and agents continue from; None for new agents.
        inherited: Attempt whose workspaces new agents inherit; None for the templates.
        world: The checkpoint that the world alone continues from, with new agents; None for a fresh
            world.
        active_s: Active seconds of the generation so far.
        idle_s: Seconds so far in which all agents were waiting for their providers.
        world_time: Simulation time so far; None if unknown.
        used: Usage of each agent in the generation so far; empty if there was none.
        close_reason: Why the generation closes; empty in the phase ``work``.
        branch: The branch that starts with the attempt, or None.
        retry_reason: Why there is another attempt; empty for the first of a generation.
        revision: Revision of the plan.
    """

    chain: Chain
    generation: int
    attempt_id: str = ""
    phase: Phase = "work"
    origin: CheckpointRef | None = None
    inherited: str | None = None
    world: CheckpointRef | None = None
    active_s: float = 0.0
    idle_s: float = 0.0
    world_time: float | None = None
    used: tuple[Usage, ...] = ()
    close_reason: str = ""
    branch: Branch | None = None
    retry_reason: str = ""
    revision: int = 0

    @property
    def message(self) -> str | None:
        """First message to agents that continue; None for the default message."""
        save = self.chain.plan.save
        if self.phase == "save" and save is not None:
            return save.prompt
        return None if self.branch is None else self.branch.prompt

    def describe(self) -> dict[str, Any]:
        """Return the data of the line ``opened``, without its host."""
        return {
            "origin": None if self.origin is None else attrs.asdict(self.origin),
            "inherited": self.inherited,
            "phase": self.phase,
            "reason": self.retry_reason,
            "elapsed_s": self.active_s,
            "idle_s": self.idle_s,
            "revision": self.revision,
        }
