"""The interface of a generation to its world and agents: two protocols and their values.

``generation`` decides when something happens, and drives these protocols. ``live_attempt``
implements them with a world and agents; tests implement them without any process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

import attrs

from clawblox.agents.values import Usage
from clawblox.errors.agent import ErrorKind
from clawblox.experiment.history.lines import CheckpointKind, FailureCause
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.protocol import ScriptErrors


@attrs.frozen(kw_only=True)
class Room:
    """A place on a machine where an attempt can run.

    Attributes:
        node: Name of the node of a cluster; empty for this machine.
        lease_s: Seconds for which an attempt lives there without a sign of its driver.
        machine: Processor, libc and Python of the node: ``processor``, ``libc``, ``python``.
    """

    node: str = ""
    lease_s: float = 0.0
    machine: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def host(self) -> Mapping[str, Any]:
        """Member ``host`` of the line ``opened``; empty for this machine, which has none."""
        if not self.node:
            return {}
        return {
            "node": self.node,
            "lease_s": self.lease_s,
            "bound_s": self.lease_s + 1.0,  # without a sign of its driver, nothing lives longer
            "machine": dict(self.machine),
        }


THIS_MACHINE: Final = Room()
"""Room on this machine, where there always is some."""


# -- signals ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class WorldEnded:
    """The world has ended, hangs, or cannot be used any longer.

    Attributes:
        text: The reason, with the last lines of the log.
    """

    text: str


@attrs.frozen(kw_only=True)
class AgentEnded:
    """An agent has ended by itself, or because its budget is used up.

    Attributes:
        name: Its display name.
        is_budget: Whether its budget is used up.
        text: The reason.
    """

    name: str
    is_budget: bool
    text: str


@attrs.frozen(kw_only=True)
class AgentFailed:
    """An agent has failed for good.

    Attributes:
        name: Its display name.
        kind: Kind of the failure; None if it is not known.
        text: The reason.
        retry_at: UTC time at which a usage limit lifts, as reported by the program; None if it
            reported none.
        account: The account that the limit or the login concerns.
    """

    name: str
    kind: ErrorKind | None
    text: str
    retry_at: datetime | None = None
    account: str

    @property
    def is_passing(self) -> bool:
        """True if the same agent may work again later, so that the attempt can pause."""
        return self.kind in ("auth", "rate_limit", "limit", "overloaded")


@attrs.frozen(kw_only=True)
class AgentTurned:
    """A turn of an agent has begun or ended, or its wait for the provider has."""


@attrs.frozen(kw_only=True)
class NodeLost:
    """The node of the attempt is lost: no process of the attempt runs there any longer.

    Attributes:
        node: Its name.
        text: The reason, with the name.
    """

    node: str
    text: str


Signal: TypeAlias = WorldEnded | AgentEnded | AgentFailed | AgentTurned | NodeLost
"""What a live attempt reports."""


@attrs.frozen(kw_only=True)
class AgentActivity:
    """The current activity of an agent.

    Attributes:
        name: Its display name.
        is_over: Whether it has ended.
        is_working: Whether it is in a turn.
        provider_wait_s: Seconds for which it has waited only for its provider; 0 if it does not.
        account: The account that it uses: driver, endpoint, and a label of the credential.
    """

    name: str
    is_over: bool
    is_working: bool
    provider_wait_s: float = 0.0
    account: str = ""


# -- the attempt --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SavedCheckpointFile:
    """A checkpoint that an attempt made.

    Attributes:
        file: Name of the archive.
        sha256: Its digest.
        size_bytes: Its size.
        save_s: Seconds to make it and bring it here, without the wait for a moment between turns.
        world_time: Simulation time of the world's snapshot; None if it has none.
        mid_turn: Display names of agents that were cut in the middle of a turn.
    """

    file: str
    sha256: str
    size_bytes: int
    save_s: float
    world_time: float | None = None
    mid_turn: tuple[str, ...] = ()


class AttemptError(Exception):
    """An attempt cannot continue.

    Args:
        cause: The component at fault.
        text: The reason.
    """

    def __init__(self, cause: FailureCause, text: str) -> None:
        super().__init__(text)
        self.cause: FailureCause = cause
        self.text = text

    def __reduce__(self) -> tuple[type[AttemptError], tuple[FailureCause, str]]:
        """Return how to make an equal error in another process."""
        return type(self), (self.cause, self.text)


class ProviderError(Exception):
    """An agent cannot work now, for a reason that passes.

    Args:
        failure: The reason.
    """

    def __init__(self, failure: AgentFailed) -> None:
        super().__init__(failure.text)
        self.failure = failure

    def __reduce__(self) -> tuple[type[ProviderError], tuple[AgentFailed]]:
        """Return how to make an equal error in another process."""
        return type(self), (self.failure,)


class Attempt(Protocol):
    """One attempt: a run directory, a world and its agents.

    Everything but :meth:`prepare` and :meth:`validate` happens while it is open.
    """

    @property
    def mirror_age_s(self) -> float | None:
        """Seconds since its files were last brought here; None if they are made here."""

    async def start(self) -> Mapping[str, Any]:
        """Start the world and, in this order, connect and start the agents.

        In the phase ``score`` only the world is started.

        Returns:
            The data of the line ``working``.

        Raises:
            AttemptError: Something could not be started; nothing is left running.
            ProviderError: A limit or an expired login; nothing is left running.

        Cancellation: nothing is left running when the attempt is closed.
        """

    def activity(self) -> Sequence[AgentActivity]:
        """Return what the agents do, in their order."""

    def usage(self) -> Sequence[Usage]:
        """Return the usage of the agents since the attempt began, in their order."""

    async def world_time(self) -> float | None:
        """Return the world's simulation time; None if it reports none.

        Cancellation: has no effect.
        """

    async def checkpoint(
        self, kind: CheckpointKind, elapsed: Callable[[], float], *, idle_wait: float
    ) -> SavedCheckpointFile:
        """Save world and agents in an archive, whatever the agents are doing. They notice nothing.

        Args:
            kind: Why it is made.
            elapsed: Returns the active seconds of the generation, when the archive is made.
            idle_wait: Maximum seconds to wait for a moment between turns.

        Raises:
            CheckpointSecretError: An agent's files contain a credential.
            ClawbloxError: The checkpoint failed otherwise.
            OSError: The disk is full, for example.

        Cancellation: the archive is complete or absent.
        """

    async def remove_checkpoint(self, file: str) -> None:
        """Remove an archive of this attempt that is no longer needed.

        Cancellation: it is removed or not.
        """

    async def set_budgets(self, used: Sequence[Usage], *, is_saving: bool) -> None:
        """Set what each agent may still use.

        Args:
            used: Usage of each agent in this generation before this attempt.
            is_saving: Whether the budget of the save prompt applies, from now on.

        Cancellation: has no effect.
        """

    async def send(self, text: str) -> None:
        """Send each agent a message, in their order; agents that have ended are started again.

        Raises:
            AttemptError: An agent could not be started.
            ProviderError: A limit or an expired login.

        Cancellation: some agents may have it.
        """

    async def stop_agents(self) -> None:
        """Stop the agents, and return when no process of them is left. Idempotent.

        Cancellation: they are stopped nevertheless.
        """

    def view(self) -> Any:  # noqa: ANN401 - what hooks get
        """Return the live view for hooks, ``live.hooks.LiveGeneration``."""


class AttemptBackend(Protocol):
    """Makes the attempts of an experiment, and cares for their directories."""

    async def serve(self) -> None:
        """Keep what attempts share; to be run as a task while attempts are made.

        Cancellation: it is closed.
        """

    def accounts(self, chain: Chain) -> Sequence[str]:
        """Return the account that each agent of a chain uses, in their order."""

    async def survey(self, plan: Plan, *, has_worked: bool) -> None:
        """Check everything that the experiment needs; nothing is started.

        Args:
            plan: The plan.
            has_worked: Whether agents have worked before: then an expired login is a pause.

        Raises:
            ConfigError: There are faults; the error names each.

        Cancellation: has no effect.
        """

    async def check(self, chain: Chain) -> None:
        """Check that the programs of a chain's agents can work; nothing is started.

        Raises:
            AttemptError: A program is missing, or something else that does not pass.
            ProviderError: A login has expired.

        Cancellation: has no effect.
        """

    async def end_left(self) -> None:
        """End the worlds and agents of attempts whose orchestrator was killed with its guard.

        Raises:
            ClawbloxError: Some run on, so that no attempt may follow.

        Cancellation: some of them may have ended.
        """

    async def prepare(self, order: AttemptOrder) -> Mapping[str, Any]:
        """Make the run directory of an attempt, complete or not at all; adopt a complete one.

        Returns:
            The data of the line ``prepared``.

        Raises:
            AttemptError: A template, prompt or checkpoint cannot be used.
            OSError: The disk is full, for example.

        Cancellation: no run directory remains, or it is complete.
        """

    def room(self, chain: Chain) -> AbstractAsyncContextManager[Room]:
        """Wait for room for an attempt of a chain; leaving it gives the room back.

        Cancellation: there is no room.
        """

    def open(
        self, order: AttemptOrder, report: Callable[[Signal], object], room: Room
    ) -> AbstractAsyncContextManager[Attempt]:
        """Return an attempt; leaving it ends everything that it started.

        Args:
            order: The attempt, which is prepared.
            report: Called with each signal.
            room: Where it runs, as :meth:`room` gave it.
        """

    async def validate(self, chain: Chain, attempt_id: str) -> Mapping[str, Any]:
        """Check the files of an attempt that has ended, and prune files that can be made again.

        Args:
            chain: The chain.
            attempt_id: The attempt.

        Returns:
            Members of the line ``committed``: ``workspaces`` and ``agents``.

        Raises:
            AttemptError: A file is missing.

        Cancellation: has no effect.
        """

    async def set_aside(self, chain: str, attempt_id: str, moved_to: str) -> None:
        """Rename the directory of a failed attempt, if it exists; idempotent.

        Args:
            chain: The chain.
            attempt_id: The attempt.
            moved_to: New name of the directory.

        Cancellation: it is renamed or not.
        """

    async def discard(self, order: AttemptOrder) -> None:
        """Remove the directory of an attempt that was only scored; idempotent.

        Cancellation: a part of it may remain.
        """

    async def usage(self, chain: str, attempt_id: str) -> Sequence[Usage]:
        """Return the usage of an attempt that nothing runs any longer, from its files.

        Cancellation: has no effect.
        """

    async def script_errors(self, chain: str, attempt_id: str) -> ScriptErrors | None:
        """Return the errors that the world of an attempt reported last, from its files.

        None if nothing shows that it had any.

        Cancellation: has no effect.
        """

    async def free_bytes(self) -> int:
        """Return the free space of the experiment's file system.

        Cancellation: has no effect.
        """
