"""The interface of a generation to its world and agents: two protocols and their values.

``generation`` decides when steps happen, and drives these protocols. ``live_attempt``
implements them with a world and agents; tests implement them without processes.
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
        lease_s: Seconds that an attempt runs there without a sign of its driver.
        machine: Processor, libc and Python of the node: ``processor``, ``libc``, ``python``.
    """

    node: str = ""
    lease_s: float = 0.0
    machine: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def host(self) -> Mapping[str, Any]:
        """Member ``host`` of the line ``opened``; empty for this machine."""
        if not self.node:
            return {}
        return {
            "node": self.node,
            "lease_s": self.lease_s,
            "bound_s": self.lease_s + 1.0,  # without a sign of its driver, nothing runs longer
            "machine": dict(self.machine),
        }


THIS_MACHINE: Final = Room()
"""Room on this machine, which is always available."""


# -- signals ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class WorldEnded:
    """The world has ended, hangs, or can no longer be used.

    Attributes:
        text: The reason, with the last lines of the log.
    """

    text: str


@attrs.frozen(kw_only=True)
class AgentEnded:
    """An agent has ended without a stop, or because its budget is used up.

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
    """An agent has failed permanently.

    Attributes:
        name: Its display name.
        kind: Kind of the failure; None if unknown.
        text: The reason.
        retry_at: UTC time at which a usage limit lifts, as reported by the program; None if not
            reported.
        account: The account of the limit or the login.
    """

    name: str
    kind: ErrorKind | None
    text: str
    retry_at: datetime | None = None
    account: str

    @property
    def is_passing(self) -> bool:
        """True if the agent may work again later, so the attempt can pause."""
        return self.kind in ("auth", "rate_limit", "limit", "overloaded")


@attrs.frozen(kw_only=True)
class AgentTurned:
    """A turn of an agent, or its wait for the provider, has started or ended."""


@attrs.frozen(kw_only=True)
class NodeLost:
    """The node of the attempt is lost: no process of the attempt runs there now.

    Attributes:
        node: Its name.
        text: The reason, including the name.
    """

    node: str
    text: str


Signal: TypeAlias = WorldEnded | AgentEnded | AgentFailed | AgentTurned | NodeLost
"""Reports of a live attempt."""


@attrs.frozen(kw_only=True)
class AgentActivity:
    """The current activity of an agent.

    Attributes:
        name: Its display name.
        is_over: Whether it has ended.
        is_working: Whether it is in a turn.
        provider_wait_s: Seconds that it has only been waiting for its provider; 0 if it is not
            waiting.
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
        sha256: Digest of the archive.
        size_bytes: Its size.
        save_s: Seconds to make and fetch it, without the wait for a moment between turns.
        world_time: Simulation time of the world's snapshot; None if it has none.
        mid_turn: Display names of agents that were interrupted in the middle of a turn.
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
        """Return the parts from which another process recreates the error."""
        return type(self), (self.cause, self.text)


class ProviderError(Exception):
    """An agent cannot work now, for a temporary reason.

    Args:
        failure: The reason.
    """

    def __init__(self, failure: AgentFailed) -> None:
        super().__init__(failure.text)
        self.failure = failure

    def __reduce__(self) -> tuple[type[ProviderError], tuple[AgentFailed]]:
        """Return the parts from which another process recreates the error."""
        return type(self), (self.failure,)


class Attempt(Protocol):
    """One attempt: a run directory, a world and its agents.

    Its methods may be called while it is open.
    """

    @property
    def mirror_age_s(self) -> float | None:
        """Seconds since its files were last fetched; None if they are on this machine."""

    async def start(self) -> Mapping[str, Any]:
        """Start the world, then connect and start the agents.

        In the phase ``score`` only the world is started.

        Returns:
            The data of the line ``working``.

        Raises:
            AttemptError: Something could not be started; nothing is left running.
            ProviderError: A limit or an expired login; nothing is left running.

        Cancellation: nothing is left running when the attempt is closed.
        """

    def activity(self) -> Sequence[AgentActivity]:
        """Return the agents' activities, in their order."""

    def usage(self) -> Sequence[Usage]:
        """Return the usage of the agents since the start of the attempt, in their order."""

    async def world_time(self) -> float | None:
        """Return the world's simulation time; None if it reports none.

        Cancellation: has no effect.
        """

    async def checkpoint(
        self, kind: CheckpointKind, elapsed: Callable[[], float], *, idle_wait: float
    ) -> SavedCheckpointFile:
        """Save world and agents in an archive, unnoticed by the agents, whatever they are doing.

        Args:
            kind: The kind of checkpoint.
            elapsed: Returns the active seconds of the generation; called when the archive is made.
            idle_wait: Maximum seconds to wait for a moment between turns.

        Raises:
            CheckpointSecretError: An agent's files contain a credential.
            ClawbloxError: The checkpoint failed for another reason.
            OSError: The disk is full, for example.

        Cancellation: the archive is complete or absent.
        """

    async def remove_checkpoint(self, file: str) -> None:
        """Remove an archive of this attempt that is no longer needed.

        Cancellation: the archive is either removed or kept.
        """

    async def set_budgets(self, used: Sequence[Usage], *, is_saving: bool) -> None:
        """Set the remaining budget of each agent.

        Args:
            used: Usage of each agent in this generation before this attempt.
            is_saving: Whether the budget of the save prompt applies from now on.

        Cancellation: has no effect.
        """

    async def send(self, text: str) -> None:
        """Send a message to each agent, in their order; ended agents are started again.

        Raises:
            AttemptError: An agent could not be started.
            ProviderError: A limit or an expired login.

        Cancellation: some agents may have received it.
        """

    async def stop_agents(self) -> None:
        """Stop the agents, and return when all their processes have ended. Idempotent.

        Cancellation: the agents are stopped nevertheless.
        """

    def view(self) -> Any:  # noqa: ANN401 - what hooks get
        """Return the live view for hooks, ``live.hooks.LiveGeneration``."""


class AttemptBackend(Protocol):
    """Makes the attempts of an experiment, and manages their directories."""

    async def serve(self) -> None:
        """Keep shared resources of attempts open; run this as a task while attempts are made.

        Cancellation: the resources are closed.
        """

    def accounts(self, chain: Chain) -> Sequence[str]:
        """Return the account that each agent of a chain uses, in their order."""

    async def survey(self, plan: Plan, *, has_worked: bool) -> None:
        """Check the requirements of the experiment without starting anything.

        Args:
            plan: The plan.
            has_worked: Whether agents have worked before; if so, an expired login only pauses the
                run.

        Raises:
            ConfigError: There are faults; the error names each.

        Cancellation: has no effect.
        """

    async def check(self, chain: Chain) -> None:
        """Check that the programs of a chain's agents can run, without starting them.

        Raises:
            AttemptError: A program is missing, or there is another permanent fault.
            ProviderError: A login has expired.

        Cancellation: has no effect.
        """

    async def end_left(self) -> None:
        """End worlds and agents of attempts whose orchestrator was killed together with its guard.

        Raises:
            ClawbloxError: Some could not be ended, so no attempt may follow.

        Cancellation: some may have ended.
        """

    async def prepare(self, order: AttemptOrder) -> Mapping[str, Any]:
        """Make the complete run directory of an attempt, or adopt an existing complete one.

        Returns:
            The data of the line ``prepared``.

        Raises:
            AttemptError: A template, prompt or checkpoint cannot be used.
            OSError: The disk is full, for example.

        Cancellation: the run directory is complete or absent.
        """

    def room(self, chain: Chain) -> AbstractAsyncContextManager[Room]:
        """Wait for room for an attempt of a chain; leaving the context gives the room back.

        Cancellation: no room is taken.
        """

    def open(
        self, order: AttemptOrder, report: Callable[[Signal], object], room: Room
    ) -> AbstractAsyncContextManager[Attempt]:
        """Return an attempt; leaving the context ends everything that it started.

        Args:
            order: The prepared attempt.
            report: Called with each signal.
            room: The place where it runs, from :meth:`room`.
        """

    async def validate(self, chain: Chain, attempt_id: str) -> Mapping[str, Any]:
        """Check the files of an ended attempt, and remove reproducible files.

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

        Cancellation: the directory is either renamed or unchanged.
        """

    async def discard(self, order: AttemptOrder) -> None:
        """Remove the directory of an attempt that was only scored; idempotent.

        Cancellation: parts of the directory may remain.
        """

    async def usage(self, chain: str, attempt_id: str) -> Sequence[Usage]:
        """Return the usage of an ended attempt, from its files.

        Cancellation: has no effect.
        """

    async def script_errors(self, chain: str, attempt_id: str) -> ScriptErrors | None:
        """Return the last reported errors of an attempt's world, from its files.

        None if no errors are recorded.

        Cancellation: has no effect.
        """

    async def free_bytes(self) -> int:
        """Return the free space of the experiment's file system.

        Cancellation: has no effect.
        """
