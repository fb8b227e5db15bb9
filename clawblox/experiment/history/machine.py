"""The next step of a chain, decided from the state of the experiment. Pure.

A generation is a sequence of steps: ``opened``, ``prepared``, ``working``, ``checkpoint`` any
number of times, ``closing``, ``saved``, ``scored``, ``committed``. Each step does its work first,
then writes its line. So the lines alone determine how an experiment continues
after a kill at any moment.

| killed after | continuation |
|---|---|
| ``opened`` | the same attempt, unless its plan was corrected: its directory is made, or adopted |
| ``prepared``, ``working`` | a new attempt, from the same origin |
| ``checkpoint`` | a new attempt from that checkpoint, with the remaining time |
| ``closing`` | a new attempt from the checkpoint at the boundary: the save prompt is sent again |
| ``checkpoint`` at the end | only the world continues from it, and is scored |
| ``scored`` | the files are checked again, and the generation is committed without any start |

Each further failure goes back one step more: to the latest checkpoint, to the previous one, and
finally to the start of the generation. A generation that continues from a given archive goes back
to the archive at most: its agents are never replaced by new agents. A new checkpoint resets the
count. An address in use by another program does not cause a step back. Interruptions and pauses
never count. The loss of a node does not count either, and never goes back further than to the
latest checkpoint; but three losses in a row without a new checkpoint count as one failure, because
the attempt may be ending its nodes.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.experiment.history.checkpoints import Checkpoint
from clawblox.experiment.history.lines import FailureCause, Phase
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import AttemptState, ChainState, GenerationState
from clawblox.experiment.plan.plan import Chain

_FATAL: Final[frozenset[FailureCause]] = frozenset({"setup", "secret", "plan"})
"""Causes that would recur in another attempt."""

_LOST_IN_A_ROW: Final = 3
"""Number of successive lost nodes that count as one failure."""

_PHASES: Final[dict[str, Phase]] = {"boundary": "save", "end": "score"}
"""Phase of an attempt that continues from a checkpoint, by the checkpoint's kind."""


@attrs.frozen(kw_only=True)
class Commit:
    """Commit a scored attempt.

    Attributes:
        order: The attempt, with its totals.
    """

    order: AttemptOrder


@attrs.frozen(kw_only=True)
class CloseAttempt:
    """Close an attempt that is no longer running.

    Attributes:
        attempt: The attempt.
    """

    attempt: AttemptState


@attrs.frozen(kw_only=True)
class Finished:
    """The chain is finished.

    Attributes:
        status: Whether all generations are committed or one has failed.
    """

    status: Literal["done", "failed"]


Next: TypeAlias = AttemptOrder | Commit | CloseAttempt | Finished
"""The next step of a chain; an order with a name continues an opened attempt whose
directory may not exist yet."""


def next_step(plans: Plans, chain: Chain) -> Next:
    """Return the next step of a chain that is not running.

    Args:
        plans: The plans of the experiment.
        chain: The chain, with the plan in force.
    """
    own = plans.state.chain(chain.name)
    return _Decision(plans, chain, own).decide()


def count_failures(generation: GenerationState) -> int:
    """Return the number of failures since the latest checkpoint, or since the chain was retried."""
    since = max((point.seq for point in generation.checkpoints()), default=0)
    since = max(since, generation.failures_from)
    count = lost = 0
    for attempt in generation.attempts:
        is_counted = attempt.ending is not None and attempt.ending.seq > since
        if is_counted and attempt.outcome == "failed":
            lost = lost % _LOST_IN_A_ROW + 1 if attempt.is_lost else 0
            count += lost in (0, _LOST_IN_A_ROW)
    return count


@attrs.frozen
class _Decision:
    """A decision about a chain."""

    plans: Plans
    chain: Chain
    own: ChainState

    def decide(self) -> Next:
        latest, branch = self.own.latest, self.own.branch
        if latest is None:
            return self._begin(1 if branch is None else branch.source.generation)
        if latest.is_over:
            is_last = latest.number >= self.plans.last_generation(self.chain)
            return Finished(status="done") if is_last else self._begin(latest.number + 1)
        if not latest.attempts:
            return self._begin(latest.number)
        attempt = latest.attempts[-1]
        if attempt.ending is None:
            return self._continue(latest, attempt)
        if attempt.outcome == "failed":
            return self._retry(latest, attempt)
        return self._begin_again(latest, self._after_a_break, str(attempt.outcome))

    @property
    def _after_a_break(self) -> int | None:
        """Checkpoints to skip after a break without a failure; None restarts the generation."""
        return 0 if self.chain.archives_conversations else None

    def _continue(self, generation: GenerationState, attempt: AttemptState) -> Next:
        if attempt.step == "opened" and attempt.opened.seq > generation.mended_at:
            return self._read_order(generation, attempt)
        if attempt.step != "scored":
            return CloseAttempt(attempt=attempt)
        order = self._read_order(generation, attempt)
        totals = attrs.evolve(
            order,
            active_s=attempt.active_s,
            idle_s=attempt.idle_s,
            world_time=order.world_time if attempt.world_time is None else attempt.world_time,
            close_reason=attempt.close_reason,
        )
        return Commit(order=totals)

    def _read_order(self, generation: GenerationState, attempt: AttemptState) -> AttemptOrder:
        """Return the order for an attempt, from its line and the lines before it."""
        points = (point for point in generation.checkpoints() if point.ref == attempt.origin)
        reason = str(attempt.opened.data.get("reason", ""))
        if (point := next(points, None)) is not None:
            order = self._begin_from(point, reason)
        else:
            order = self._begin(generation.number, reason)
        return attrs.evolve(
            order, attempt_id=attempt.attempt_id, phase=attempt.phase, origin=attempt.origin
        )

    def _retry(self, generation: GenerationState, attempt: AttemptState) -> Next:
        retry, failures = self.chain.plan.retry, count_failures(generation)
        cause = str(attempt.end_data.get("cause"))
        if failures and (cause in _FATAL or failures > retry.attempts):
            return Finished(status="failed")
        back = max(0, failures - 1) if retry.source == "checkpoint" else None
        if attempt.is_lost:
            back = self._after_a_break
        if back and cause == "address":
            back = 0  # a port taken by another program says nothing about the checkpoint
        return self._begin_again(generation, back, f"failed: {cause}")

    def _begin_again(
        self, generation: GenerationState, back: int | None, retry_reason: str
    ) -> AttemptOrder:
        """Return a new attempt.

        Args:
            generation: The generation.
            back: Number of checkpoints to skip, from the latest; None for the start.
            retry_reason: Reason for the new attempt.
        """
        path = generation.ancestry()
        # No time is left for anything else.
        if path and (path[0].kind == "end" or (path[0].kind in _PHASES and back is not None)):
            return self._begin_from(path[0], retry_reason)
        if back is not None and back < len(path):
            return self._begin_from(path[back], retry_reason)
        if path and generation.is_continued:
            return self._begin_from(path[-1], retry_reason)
        return self._begin(generation.number, retry_reason)

    def _begin_from(self, point: Checkpoint, retry_reason: str) -> AttemptOrder:
        return self._order(
            point.ref.generation,
            phase=_PHASES.get(point.kind, "work"),
            origin=point.ref,
            active_s=point.active_s,
            idle_s=point.idle_s,
            world_time=point.world_time,
            used=point.usage,
            close_reason=point.close_reason,
            retry_reason=retry_reason,
        )

    def _begin(self, number: int, retry_reason: str = "") -> AttemptOrder:
        """Return an attempt from the start of a generation."""
        branch = self.own.branch
        if branch is not None and number == branch.source.generation:
            active_s = branch.elapsed_s if branch.duration_s is None else 0.0
            facts = {"origin": branch.source, "active_s": active_s, "branch": branch}
            return self._order(number, retry_reason=retry_reason, **facts)
        order = self._order(number, retry_reason=retry_reason)
        previous = self.own.generations.get(number - 1)
        if previous is None:
            return order
        inherit = order.chain.plan.inherit
        ends = [point.ref for point in previous.checkpoints() if point.kind == "end"]
        return attrs.evolve(
            order,
            inherited=previous.source if inherit.workspace else None,
            world=ends[-1] if inherit.world and ends else None,
        )

    def _order(self, number: int, **facts: Any) -> AttemptOrder:
        """Return an order with the plan in force."""
        chain, revision = self.plans.in_force(self.chain, number)
        return AttemptOrder(chain=chain, generation=number, revision=revision, **facts)
