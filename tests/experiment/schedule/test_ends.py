"""Ends of a generation: policies of the plan, and faults during the save."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.plan import AgentSpec
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.tables.rows import find_world_time, make_row
from tests.experiment.fakes import Fault, Simulation, check_history, make_plan

pytestmark = pytest.mark.anyio

SAVING_AT = 3300.0


def pair(**changes: Any) -> Simulation:
    """Return an experiment with two agents; only the first agent reports that it has ended."""
    agents = [AgentSpec("claude", name=name) for name in ("Eko", "Moa")]
    return Simulation(make_plan(**changes).but(agents=agents))


def commit(simulation: Simulation) -> JournalLine:
    """Return the line that committed the only generation."""
    check_history(simulation)
    (line,) = [line for line in simulation.journal.lines if line.type == "committed"]
    return line


async def score(_end: Any) -> dict[str, float]:
    return {"cubes": 1.0}


def outcomes(simulation: Simulation) -> list[str | None]:
    return [attempt.outcome for attempt in simulation.state.chains["r1"].attempts]


# -- policies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "reason"), [("any", "agents_ended"), ("all", "duration"), ("never", "duration")]
)
async def test_first_ended_agent_ends_a_generation_only_if_any_agent_may(
    policy: str, reason: str
) -> None:
    simulation = pair(stop={"agents_ended": policy})
    simulation.backend.faults["r1"] = [Fault(500.0, "ended")]
    assert await simulation.run()
    assert commit(simulation).data["ended_by"] == reason


async def test_end_of_all_agents_does_not_end_a_generation_if_the_plan_says_never() -> None:
    simulation = Simulation(make_plan(stop={"agents_ended": "never"}))
    simulation.backend.faults["r1"] = [Fault(500.0, "ended")]
    assert await simulation.run()
    assert commit(simulation).data["ended_by"] == "duration"


async def test_reaching_the_world_time_ends_a_generation() -> None:
    simulation = Simulation(make_plan(stop={"world_time": 1000.0}))
    assert await simulation.run()
    line = commit(simulation)
    assert (line.data["ended_by"], line.data["elapsed_s"]) == ("world_time", 1020.0)


@pytest.mark.parametrize(("full", "end"), [(False, 3400.0), (True, 3600.0)])
async def test_saving_ends_with_the_agents_unless_the_full_time_is_required(
    end: float, *, full: bool
) -> None:
    simulation = Simulation(make_plan(save={"before": 300.0, "full": full}))
    simulation.backend.turn_s = 100.0
    assert await simulation.run()
    assert simulation.clock.monotonic() == end
    assert commit(simulation).data["ended_by"] == "duration"


async def test_boundary_checkpoint_is_skipped_without_a_save_prompt() -> None:
    simulation = Simulation(make_plan(save=None))
    assert await simulation.run()
    assert commit(simulation).data["elapsed_s"] == 3600.0
    kinds = [line.data["kind"] for line in simulation.journal.lines if line.type == "checkpoint"]
    assert kinds == ["periodic"] * 3 + ["end"]


async def test_checkpoints_that_are_not_required_may_all_fail() -> None:
    policy = {"every": 900.0, "idle_wait": 0.0, "required": False}
    simulation = Simulation(make_plan(checkpoint=policy))
    simulation.backend.faults["r1"] = [Fault(1e9, "full")]
    assert await simulation.run()
    assert commit(simulation).data["ended_by"] == "duration"
    failed = [line for line in simulation.journal.lines if line.type == "checkpoint.failed"]
    assert [line.data["kind"] for line in failed] == [*["periodic"] * 6, "boundary", "end"]


@pytest.mark.parametrize("has_end", [True, False])
@pytest.mark.parametrize("is_written", [True, False])
async def test_interrupted_generation_has_the_world_time_of_its_end(
    *, has_end: bool, is_written: bool
) -> None:
    policy = {"every": 900.0, "idle_wait": 0.0, "end": has_end}
    callbacks = Callbacks(score=score)
    lines = 0
    for kill_at in [None, *range(1, 100)]:
        if kill_at is not None and kill_at > lines:
            break
        simulation = Simulation(make_plan(checkpoint=policy), callbacks)
        simulation.kill_at(kill_at, is_written=is_written)
        await simulation.run_to_end()
        lines = lines or len(simulation.journal.lines)
        assert commit(simulation).data["world_time"] == 3600.0, kill_at
        chain = simulation.state.chain("r1")
        assert find_world_time(chain.generations[1]) == 3600.0


async def test_the_end_of_each_attempt_has_the_script_errors_of_its_world() -> None:
    simulation = Simulation(make_plan(retry={"delay": 0.0}))
    simulation.backend.faults["r1"] = [Fault(500.0, "world")]
    simulation.backend.has_errors = True
    assert await simulation.run()
    ends = [line for line in simulation.journal.lines if line.type in ("failed", "committed")]
    expected = [{"count": 1, "last": line.attempt} for line in ends]
    assert [line.data["script_errors"] for line in ends] == expected
    row = make_row(simulation.plans, "r1", 1)
    assert (row.script_errors, row.last_script_error) == (1, ends[-1].attempt)


# -- faults -----------------------------------------------------------------------------------


async def test_agent_failure_while_saving_does_not_fail_the_attempt() -> None:
    simulation = Simulation(make_plan(save={"before": 300.0, "full": True}))
    simulation.backend.faults["r1"] = [Fault(SAVING_AT + 50.0, "agent")]
    assert await simulation.run()
    commit(simulation)
    assert outcomes(simulation) == ["committed"]
    assert simulation.clock.monotonic() == 3600.0


@pytest.mark.parametrize(("kind", "outcome"), [("world", "failed"), ("limit", "paused")])
async def test_save_prompt_is_repeated_after_a_failure_while_saving(
    kind: str, outcome: str
) -> None:
    simulation = Simulation(make_plan(save={"before": 300.0, "full": True}))
    simulation.backend.faults["r1"] = [Fault(SAVING_AT + 50.0, kind, lasts=600.0)]
    assert await simulation.run()
    commit(simulation)
    assert outcomes(simulation) == [outcome, "committed"]
    assert [attempt.order.phase for attempt in simulation.backend.attempts] == ["work", "save"]


async def test_a_disk_that_is_full_at_the_start_pauses_everything() -> None:
    simulation = Simulation(make_plan(repeats=2, limits={"worlds": 1}))
    simulation.backend.faults["r1"] = [Fault(0, "full")]
    assert await simulation.run()
    assert outcomes(simulation) == ["paused"]
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "disk"
    assert simulation.types("r2") == []


async def test_other_system_errors_fail_the_start() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(0, "broken")]
    assert await simulation.run()
    failed = next(line for line in simulation.journal.lines if line.type == "failed")
    assert failed.data["cause"] == "start"
    assert outcomes(simulation) == ["failed", "committed"]


async def test_retry_starts_after_the_delay_in_the_plan() -> None:
    simulation = Simulation(make_plan(retry={"delay": 45.0}))
    simulation.backend.faults["r1"] = [Fault(100.0, "world")]
    assert await simulation.run()
    assert simulation.clock.monotonic() == 100.0 + 45.0 + 3600.0
    opened = next(line for line in simulation.journal.lines if line.type == "opened")
    assert commit(simulation).data["started_at"] == opened.at
