"""What a chain does next, decided from the state of the experiment. Pure.

A generation is a sequence of steps: ``opened``, ``prepared``, ``working``, ``checkpoint`` any
number of times, ``closing``, ``saved``, ``scored``, ``committed``. Every step first does its work,
and then writes its line: the line is the step. So the lines alone determine how an experiment
continues that was killed at any moment.

| killed after | what continues |
|---|---|
| ``opened`` | the same attempt, unless its plan was mended: its directory is made, or adopted |
| ``prepared``, ``working`` | a new attempt, from the same origin |
| ``checkpoint`` | a new attempt from that checkpoint, with the rest of the time |
| ``closing`` | a new attempt from the checkpoint at the boundary: the save prompt is sent again |
| ``checkpoint`` at the end | the world alone continues from it, and is scored |
| ``scored`` | the files are checked again, and the generation is committed; nothing is started |

A failure goes back one step further each time: to the latest checkpoint, to the one before, and to
the beginning of the generation. A generation that continues from a given archive goes back to that
at most: its agents are never replaced by new ones. The count begins again with each new checkpoint.
An address that another program uses is no reason to go back. Interruptions and pauses never count.
Nor does the loss of a node, and it never goes back further than to the latest checkpoint; but three
in a row without a new checkpoint count as one failure, as an attempt may be what ends its nodes.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from clawblox.agents.values import Usage
from clawblox.experiment.history.checkpoints import Branch, Checkpoint, CheckpointRef
from clawblox.experiment.history.lines import FailureCause, Phase
from clawblox.experiment.history.state import AttemptState, ChainState, GenerationState
from clawblox.experiment.plan.parts import Retry

_FATAL: Final[frozenset[FailureCause]] = frozenset({"setup", "secret", "plan"})
"""Causes that another attempt would meet again."""

_LOST_IN_A_ROW: Final = 3
"""Lost nodes that count as one failure."""

_PHASES: Final[dict[str, Phase]] = {"boundary": "save", "end": "score"}
"""Where an attempt begins that continues from a checkpoint of a kind."""


@attrs.frozen(kw_only=True)
class Begin:
    """Begin an attempt.

    Attributes:
        generation: The generation.
        phase: Where it begins.
        origin: The checkpoint from which world and agents continue; None for new agents.
        inherited: Attempt of the previous generation whose workspaces new agents inherit; None
            for the templates.
        elapsed_s: Active seconds of the generation so far.
        idle_s: Seconds so far in which all agents only waited for their providers.
        world_time: Simulation time so far; None if it is not known.
        used: Usage of each agent in the generation so far; empty for none.
        closing: Why the generation closes; empty in the phase ``work``.
        branch: The branch that begins with the attempt; None otherwise.
        reason: Why there is another attempt; empty for the first of a generation.
    """

    generation: int
    phase: Phase = "work"
    origin: CheckpointRef | None = None
    inherited: str | None = None
    elapsed_s: float = 0.0
    idle_s: float = 0.0
    world_time: float | None = None
    used: tuple[Usage, ...] = ()
    closing: str = ""
    branch: Branch | None = None
    reason: str = ""


@attrs.frozen(kw_only=True)
class Prepare:
    """Continue an attempt whose directory may not exist yet.

    Attributes:
        attempt: The attempt.
        begin: How it was begun.
    """

    attempt: AttemptState
    begin: Begin


@attrs.frozen(kw_only=True)
class Commit:
    """Commit an attempt that was scored.

    Attributes:
        attempt: The attempt.
    """

    attempt: AttemptState


@attrs.frozen(kw_only=True)
class Interrupt:
    """Close an attempt that nothing runs any longer.

    Attributes:
        attempt: The attempt.
    """

    attempt: AttemptState


@attrs.frozen(kw_only=True)
class Over:
    """The chain does nothing more.

    Attributes:
        status: Whether all generations are committed, or one has failed.
    """

    status: Literal["done", "failed"]


Next: TypeAlias = Begin | Prepare | Commit | Interrupt | Over
"""What a chain does next."""


def next_step(chain: ChainState, generations: int, retry: Retry, *, has_minds: bool = True) -> Next:
    """Return what a chain does next that nothing runs now.

    Args:
        chain: The chain.
        generations: Number of its last generation.
        retry: How failures are retried.
        has_minds: Whether its checkpoints have the conversations of all agents.
    """
    latest = chain.latest
    if latest is None and chain.branch is not None:
        return _begin_branch(chain.branch, reason="")
    if latest is None:
        return Begin(generation=1)
    if latest.is_over:
        if latest.number >= generations:
            return Over(status="done")
        return Begin(generation=latest.number + 1, inherited=latest.source)
    if not latest.attempts:
        return _begin_again(chain, latest, back=0, reason="")
    back = 0 if has_minds else None
    attempt = latest.attempts[-1]
    if attempt.ending is None:
        return _continue(chain, latest, attempt)
    if attempt.outcome == "failed":
        return _retry(chain, latest, attempt, retry, back)
    return _begin_again(chain, latest, back=back, reason=str(attempt.outcome))


def last_generation(chain: ChainState, planned: int) -> int:
    """Return the number of the last generation of a chain.

    Args:
        chain: The chain.
        planned: Number of generations in the plan, for a chain that is no branch.
    """
    if chain.branch is None:
        return planned
    return chain.branch.source.generation + chain.branch.generations - 1


def begin_of_commit(chain: ChainState, attempt: AttemptState) -> Begin:
    """Return how an attempt began that only has to be committed, with its totals.

    Args:
        chain: Its chain.
        attempt: The attempt, the latest of the chain.
    """
    begin = _from_line(chain, chain.generations[attempt.generation], attempt)
    return attrs.evolve(
        begin,
        phase=attempt.phase,
        origin=attempt.origin,
        elapsed_s=attempt.elapsed_s,
        idle_s=attempt.idle_s,
        world_time=begin.world_time if attempt.world_time is None else attempt.world_time,
        closing=attempt.reason,
    )


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


def _begin_branch(branch: Branch, *, reason: str) -> Begin:
    elapsed_s = branch.elapsed_s if branch.duration_s is None else 0.0
    return Begin(
        generation=branch.source.generation,
        origin=branch.source,
        elapsed_s=elapsed_s,
        branch=branch,
        reason=reason,
    )


def _continue(chain: ChainState, generation: GenerationState, attempt: AttemptState) -> Next:
    if attempt.step == "opened" and attempt.opened.seq > generation.mended_at:
        return Prepare(attempt=attempt, begin=_from_line(chain, generation, attempt))
    if attempt.step == "scored":
        return Commit(attempt=attempt)
    return Interrupt(attempt=attempt)


def _from_line(chain: ChainState, generation: GenerationState, attempt: AttemptState) -> Begin:
    """Return how an attempt was begun, from its line and the lines before."""
    reason = str(attempt.opened.data.get("reason", ""))
    points = (point for point in generation.checkpoints() if point.ref == attempt.origin)
    if (point := next(points, None)) is not None:
        return _begin_from(point, reason=reason)
    return _begin_at_start(chain, generation, reason=reason)


def _retry(
    chain: ChainState,
    generation: GenerationState,
    attempt: AttemptState,
    retry: Retry,
    resumed: int | None,
) -> Next:
    assert attempt.ending is not None
    failures = count_failures(generation)
    cause = str(attempt.ending.data.get("cause"))
    if failures and (cause in _FATAL or failures > retry.attempts):
        return Over(status="failed")
    back = max(0, failures - 1) if retry.source == "checkpoint" else None
    if attempt.is_lost:
        back = resumed  # as after an interruption
    if back and cause == "address":
        back = 0  # no checkpoint is to blame for what another program does with a port
    return _begin_again(chain, generation, back=back, reason=f"failed: {cause}")


def _begin_again(
    chain: ChainState, generation: GenerationState, *, back: int | None, reason: str
) -> Begin:
    """Return a new attempt.

    Args:
        chain: The chain.
        generation: The generation.
        back: Number of checkpoints to skip, from the latest; None for the beginning.
        reason: Why there is another attempt.
    """
    path = generation.ancestry()
    # It has no time left for anything else.
    if path and (path[0].kind == "end" or (path[0].kind in _PHASES and back is not None)):
        return _begin_from(path[0], reason=reason)
    if back is not None and back < len(path):
        return _begin_from(path[back], reason=reason)
    if path and generation.is_continued:
        return _begin_from(path[-1], reason=reason)
    return _begin_at_start(chain, generation, reason=reason)


def _begin_from(point: Checkpoint, *, reason: str) -> Begin:
    return Begin(
        generation=point.ref.generation,
        phase=_PHASES.get(point.kind, "work"),
        origin=point.ref,
        elapsed_s=point.elapsed_s,
        idle_s=point.idle_s,
        world_time=point.world_time,
        used=point.usage,
        closing=point.reason,
        reason=reason,
    )


def _begin_at_start(chain: ChainState, generation: GenerationState, *, reason: str) -> Begin:
    if chain.branch is not None and generation.number == chain.branch.source.generation:
        return _begin_branch(chain.branch, reason=reason)
    previous = chain.generations.get(generation.number - 1)
    inherited = None if previous is None else previous.source
    return Begin(generation=generation.number, inherited=inherited, reason=reason)
