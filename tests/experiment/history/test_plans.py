"""The plan in force for a chain and a generation."""

from __future__ import annotations

from pathlib import Path

import attrs

from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import AgentSpec, Plan
from tests.experiment.journals import Journal, make_plan


def amend(journal: Journal, revision: int, **data: object) -> None:
    facts = {"revision": revision, "plan": f"plan-{revision}.toml", "changes": [], **data}
    journal.write("plan.amended", facts)


def test_generation_keeps_the_plan_under_which_it_started() -> None:
    journal = Journal()
    journal.open("r1", 1).work()
    amend(journal, 1)
    journal.open("r1", 2, revision=1).work()
    amend(journal, 2)
    plans = journal.plans(*(make_plan(duration=seconds) for seconds in (60.0, 120.0, 240.0)))
    chain = plans.chains["r1"]
    found = [plans.in_force(chain, generation) for generation in (1, 2, 3)]
    assert [(own.plan.duration, revision) for own, revision in found] == [
        (60.0, 0),
        (120.0, 1),
        (240.0, 2),
    ]


def test_plan_amended_before_any_work_applies_to_started_generations() -> None:
    journal = Journal()
    journal.open("r1", 1)
    amend(journal, 1, mends=True)
    plans = journal.plans(make_plan(duration=60.0), make_plan(duration=120.0))
    chain = plans.chains["r1"]
    assert plans.in_force(chain, 1) == (chain, 1)


def test_chain_missing_from_an_earlier_plan_uses_the_current_plan() -> None:
    journal = Journal()
    journal.open("r2", 1).work()
    amend(journal, 1)
    plans = journal.plans(make_plan(repeats=1), make_plan(repeats=2))
    chain = plans.chains["r2"]
    assert plans.in_force(chain, 1) == (chain, 0)


def test_world_and_programs_are_taken_from_the_current_plan(tmp_path: Path) -> None:
    journal = Journal()
    journal.open("r1", 1).work()
    amend(journal, 1)
    places = [tmp_path / name for name in ("before", "now")]
    plans = journal.plans(
        *(Plan(place / "world", [AgentSpec("claude", binary=place / "claude")]) for place in places)
    )
    chain, revision = plans.in_force(plans.chains["r1"], 1)
    assert revision == 0
    assert chain.plan.world.dir == places[1] / "world"
    assert chain.plan.agents[0].binary == places[1] / "claude"


def test_an_added_branch_is_a_chain_with_its_own_generations() -> None:
    journal = Journal()
    source = CheckpointRef(**journal.open("r1", 2).work().checkpoint())
    state = journal.state
    plans = Plans([make_plan()], state)
    assert list(plans.chains) == ["r1", "r2"]
    branch = Branch(source=source, group=1, number=1, generations=3, reseed=7, duration_s=60.0)
    journal.write("chain.forked", attrs.asdict(branch), chain="r1-f1-1")
    state.apply(journal.lines[-1])
    chain = plans.chains["r1-f1-1"]
    assert (chain.index, chain.seed, chain.plan.duration) == (2, 7, 60.0)
    assert plans.last_generation(chain) == 4
    assert plans.last_generation(plans.chains["r1"]) == 3


def test_archives_contain_conversations_only_if_they_do_for_all_agents() -> None:
    for drivers, expected in ((["claude", "kimi"], True), (["claude", "command"], False)):
        command = {"start": ["run", "{prompt}"]}
        agents = [
            AgentSpec(driver, command=command if driver == "command" else None)
            for driver in drivers
        ]
        plans = Plans([make_plan(agents=agents)], ExperimentState())
        assert plans.chains["r1"].archives_conversations is expected
