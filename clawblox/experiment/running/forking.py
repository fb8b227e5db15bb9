"""Forks of an experiment: the branches of a checkpoint, and their first messages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from clawblox.agents.drivers import find_driver
from clawblox.agents.prompts import check_prompt
from clawblox.config.arguments import check_count, check_duration, check_seed, mismatch
from clawblox.errors import ConfigError, UsageError
from clawblox.experiment.history.checkpoints import Branch, Checkpoint
from clawblox.experiment.history.lines import About
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan.plan import Chain

CONTROL: Final = "control"
"""Label of the branches that continue without a message."""

_MAX_BRANCHES: Final = 1000
_MAX_LABEL_CHARS: Final = 24
_DIGEST_CHARS: Final = 8
_WORDS: Final = re.compile(r"[A-Za-z0-9]+")


def _to_duration(duration: float | str | None) -> float | None:
    return None if duration is None else check_duration(duration, "duration")


@attrs.frozen(kw_only=True)
class ForkRequest:
    """The arguments of a fork, as all callers give them.

    Attributes:
        source: The checkpoint that the branches start from.
        count: Number of branches for each prompt.
        prompts: First messages; None continues without a message.
        labels: Names of the prompts in tables, in their order; empty derives them.
        duration: Active seconds of each branch; None means the rest of the generation.
        generations: Number of generations of each branch.
        reseed: Seed of the first branch's world; it increases by 1 from branch to branch. None
            keeps the random state.
        parallel: Number of branches that may run at the same time; None for no limit.
    """

    source: Checkpoint
    count: int = 1
    prompts: Sequence[str | None] = (None,)
    labels: Sequence[str] = ()
    duration: float | None = attrs.field(default=None, converter=_to_duration)
    generations: int = 1
    reseed: int | None = None
    parallel: int | None = None


FORK_ARGUMENTS: Final = tuple(
    field.name for field in attrs.fields(ForkRequest) if field.name != "source"
)
"""Arguments of a fork apart from its checkpoint."""


def plan_fork(
    fork: ForkRequest, chain: Chain, state: ExperimentState, running: Collection[str]
) -> list[tuple[str, Branch]]:
    """Return the branches of a fork, by name.

    Args:
        fork: The fork.
        chain: The chain of its checkpoint.
        state: The state of the experiment.
        running: Names of the chains that run now.

    Raises:
        ConfigError: An argument is wrong.
        UsageError: The branches cannot run in parallel, or their conversations cannot be branched.
    """
    total = check_count(fork.count, "count", at_most=_MAX_BRANCHES) * len(fork.prompts)
    if not fork.prompts or total > _MAX_BRANCHES:
        raise ConfigError(f"must be 1 to {_MAX_BRANCHES} branches, not {total}", key="prompts")
    check_count(fork.generations, "generations")
    for prompt in fork.prompts:
        if prompt is not None:
            check_prompt(prompt, "prompts")
    if fork.reseed is not None:
        check_seed(fork.reseed, "reseed")
    _require_source(fork, state)
    _require_time_to_work(fork, chain)
    labels = _choose_labels(fork, state)
    _require_branching(chain)
    _require_separate_worlds(fork, chain, running, total)
    group = 1 + max((branch.group for branch in state.branches.values()), default=0)
    return [
        (f"{chain.name}-f{group}-{number}", _make_branch(fork, group, number, labels))
        for number in range(1, total + 1)
    ]


def _require_source(fork: ForkRequest, state: ExperimentState) -> None:
    """Check that the checkpoint exists, since a generation's oldest checkpoints are removed."""
    ref = fork.source.ref
    generation = state.chain(ref.chain).generations.get(ref.generation)
    points = [] if generation is None else list(generation.checkpoints())
    if all(point.ref != ref for point in points):
        times = ", ".join(f"{point.second}s" for point in points) or "none"
        raise ConfigError(
            "must be a checkpoint that still exists",
            key="source",
            value=ref.file,
            hint=f"those of {ref.chain}/g{ref.generation:03d}: {times}",
        )


def _require_time_to_work(fork: ForkRequest, chain: Chain) -> None:
    duration_s, save = fork.duration, chain.plan.save
    if duration_s is None or save is None or save.before is None or save.before < duration_s:
        return
    expected = f"more than save.before of the plan, {save.before:g} s"
    raise mismatch("duration", expected, duration_s)


async def record_branches(
    recorder: JournalRecorder, source: Checkpoint, branches: Sequence[tuple[str, Branch]]
) -> None:
    """Write the lines of branches.

    Args:
        recorder: Writes the lines.
        source: The checkpoint that they start from.
        branches: Result of :func:`plan_fork`.

    Raises:
        ConfigError: The checkpoint has been removed since.
        OSError: A line could not be written.

    Cancellation: branches that were recorded exist.
    """
    for name, branch in branches:
        line = await recorder.write(
            "chain.forked",
            attrs.asdict(branch),
            About(name),
            condition=lambda state: source.ref in {point.ref for point in state.checkpoints()},
        )
        if line is None:
            message = "was removed during the fork, as newer checkpoints were made"
            raise ConfigError(message, key="source", value=source.ref.file)


def _make_branch(fork: ForkRequest, group: int, number: int, labels: Sequence[str]) -> Branch:
    index = (number - 1) % len(fork.prompts)
    return Branch(
        source=fork.source.ref,
        group=group,
        number=number,
        prompt=fork.prompts[index],
        label=labels[index],
        elapsed_s=fork.source.active_s,
        duration_s=fork.duration,
        generations=fork.generations,
        reseed=None if fork.reseed is None else fork.reseed + number - 1,
    )


def _choose_labels(fork: ForkRequest, state: ExperimentState) -> Sequence[str]:
    """Return the labels of the prompts; derived ones differ from those of all other prompts."""
    if not fork.labels:
        known: dict[str, str | None] = {CONTROL: None}
        for branch in state.branches.values():
            known.setdefault(branch.label, branch.prompt)
        return [_derive_label(prompt, known) for prompt in fork.prompts]
    if len(fork.labels) != len(fork.prompts):
        expected = f"a name for each of {len(fork.prompts)} prompts"
        raise ConfigError(f"must be {expected}, not {len(fork.labels)}", key="labels")
    return fork.labels


def _derive_label(prompt: str | None, known: dict[str, str | None]) -> str:
    """Return a short name of a prompt for tables, with a digest if the name is taken.

    Args:
        prompt: The prompt.
        known: The labels so far with their prompts; the new one is added.
    """
    if prompt is None:
        return CONTROL
    label = ""
    for word in _WORDS.findall(prompt):
        if len(label) + len(word) >= _MAX_LABEL_CHARS:
            break
        label = f"{label}-{word.lower()}" if label else word.lower()
    digest = hashlib.sha256(prompt.encode()).hexdigest()[:_DIGEST_CHARS]
    label = label or digest
    return label if known.setdefault(label, prompt) == prompt else f"{label}-{digest}"


def _require_branching(chain: Chain) -> None:
    """Check that the conversations of all agents can be archived and branched."""
    for agent in chain.plan.agents:
        driver = find_driver(agent.driver)
        if not (driver.archives_conversation and driver.can_branch):
            raise UsageError(
                f"{agent.name} cannot be branched: conversations of the driver"
                f" {agent.driver!r} are not in checkpoints, or cannot be copied",
                hint="fork experiments whose agents are claude, codex or kimi",
            )


def _require_separate_worlds(
    fork: ForkRequest, chain: Chain, running: Collection[str], total: int
) -> None:
    """Check that no branch can reach the world of the original, or of another branch."""
    outside = [str(agent.name) for agent in chain.plan.agents if not agent.sandbox]
    if not outside:
        return
    names = ", ".join(outside)
    reason = (
        f"{names} of {chain.name} ran outside a sandbox, so every branch uses the same address"
        " for its world: in parallel, a branch would act in the world of another"
    )
    if total > 1 and fork.parallel != 1:
        raise UsageError(reason, hint="parallel=1 runs the branches one after the other")
    if chain.name in running:
        raise UsageError(
            reason, hint=f"stop {chain.name} first, and fork with parallel=1; or use sandbox=True"
        )
