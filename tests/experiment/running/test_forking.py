"""Forks: their branches, and refused forks."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from clawblox.errors import ConfigError, UsageError
from clawblox.experiment.history.checkpoints import Branch, Checkpoint
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import AgentSpec
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.running.forking import ForkRequest, plan_fork, record_branches
from tests.experiment.journals import Journal, make_plan
from tests.experiment.memory_journal import MemoryJournal
from tests.support.simulated_clock import SimulatedClock


@pytest.fixture
def journal() -> Journal:
    """Return the lines of a chain with a checkpoint."""
    journal = Journal()
    journal.open("r1", 1).work().checkpoint()
    return journal


def find_source(journal: Journal) -> Checkpoint:
    (source,) = journal.state.checkpoints()
    return source


def make_chain(**agent: Any) -> Chain:
    """Return the chain r1, whose agents are in sandboxes unless the argument says otherwise."""
    agents = [AgentSpec(**{"driver": "claude", "sandbox": True, **agent})]
    return make_plan(agents=agents).chains()[0]


def branch(journal: Journal, chain: Chain | None = None, **fork: Any) -> dict[str, Branch]:
    """Return the branches of a fork of a chain that is not running, by name."""
    planned = ForkRequest(source=find_source(journal), **fork)
    return dict(plan_fork(planned, chain or make_chain(), journal.state, ()))


def test_branches_take_prompts_and_seeds_in_order(journal: Journal) -> None:
    prompts = (None, "A storm is coming.")
    branches = branch(journal, count=2, prompts=prompts, reseed=7, generations=3)
    assert list(branches) == [f"r1-f1-{number}" for number in range(1, 5)]
    assert [one.prompt for one in branches.values()] == [*prompts, *prompts]
    assert [one.label for one in branches.values()] == ["control", "a-storm-is-coming"] * 2
    assert [one.reseed for one in branches.values()] == [7, 8, 9, 10]
    assert {(one.elapsed_s, one.generations) for one in branches.values()} == {(900.0, 3)}
    assert [one.reseed for one in branch(journal, count=2).values()] == [None, None]


def test_later_fork_gets_its_own_names(journal: Journal) -> None:
    for group in (1, 2):
        (name, forked), *others = branch(journal, count=2).items()
        assert (name, forked.group) == (f"r1-f{group}-1", group)
        assert not others[1:]
        journal.write("chain.forked", attrs.asdict(forked), chain=name)


def test_prompts_with_the_same_start_have_different_labels(journal: Journal) -> None:
    start = "You have ten minutes left. "
    labels = [
        one.label
        for one in branch(journal, prompts=(None, f"{start}Go left.", f"{start}Go right.")).values()
    ]
    assert labels[:2] == ["control", "you-have-ten-minutes"]
    assert labels[2].startswith("you-have-ten-minutes-")
    assert branch(journal, prompts=("Control!",))["r1-f1-1"].label.startswith("control-")


def test_later_fork_reuses_the_labels_of_the_same_prompts(journal: Journal) -> None:
    start = "You have ten minutes left. "
    first = branch(journal, prompts=(f"{start}Go left.",))
    for name, forked in first.items():
        journal.write("chain.forked", attrs.asdict(forked), chain=name)
    same, other = branch(journal, prompts=(f"{start}Go left.", f"{start}Go right.")).values()
    assert same.label == "you-have-ten-minutes"
    assert other.label.startswith("you-have-ten-minutes-")


@pytest.mark.parametrize(
    "fork",
    [
        {"count": 0},
        {"count": 501, "prompts": (None, "Hm.")},
        {"prompts": ()},
        {"prompts": ("",)},
        {"generations": 0},
        {"reseed": -1},
        {"labels": ("one",), "prompts": (None, "Hm.")},
    ],
)
def test_wrong_arguments_are_refused(journal: Journal, fork: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        branch(journal, **fork)


@pytest.mark.parametrize("driver", ["opencode", "command"])
def test_agents_whose_conversations_cannot_be_copied_are_not_branched(
    journal: Journal, driver: str
) -> None:
    command = {"argv": ["true"]} if driver == "command" else None
    with pytest.raises(UsageError, match="cannot be branched"):
        branch(journal, make_chain(driver=driver, command=command))


def test_agents_without_a_sandbox_are_branched_one_by_one_after_they_stop(
    journal: Journal,
) -> None:
    chain = make_chain(sandbox=False)
    assert len(branch(journal, chain)) == 1
    assert len(branch(journal, chain, count=2, parallel=1)) == 2
    for parallel in (None, 2):
        with pytest.raises(UsageError, match="outside a sandbox"):
            branch(journal, chain, count=2, parallel=parallel)
    fork = ForkRequest(source=find_source(journal), parallel=1)
    with pytest.raises(UsageError, match="outside a sandbox"):
        plan_fork(fork, chain, journal.state, ["r1"])
    assert plan_fork(fork, make_chain(), journal.state, ["r1"])


@pytest.mark.anyio
async def test_a_checkpoint_that_is_removed_before_its_branches_are_recorded_is_refused(
    journal: Journal,
) -> None:
    source, branches = find_source(journal), [*branch(journal).items()]
    removed = {"file": source.ref.file}
    place = {name: getattr(source.ref, name) for name in ("chain", "generation", "attempt")}
    journal.write("checkpoint.removed", removed, **place)
    written = MemoryJournal(SimulatedClock())
    lines: list[JournalLine] = []
    recorder = JournalRecorder(written, ExperimentState(journal.lines), lines.append)
    with pytest.raises(ConfigError, match="was removed during the fork"):
        await record_branches(recorder, source, branches)
    assert written.lines == lines == []
