"""A generation over fakes: its steps, its end, and its continuation after interruptions."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox.agents.values import Usage
from clawblox.experiment.history.machine import Finished, next_step
from clawblox.experiment.schedule.callbacks import Callbacks
from tests.experiment.fakes import Fault, Simulation, check_history, make_plan

pytestmark = pytest.mark.anyio

STEPS = ["opened", "prepared", "working", *["checkpoint"] * 3, "checkpoint", "closing", "saved"]
WHOLE = [*STEPS, "checkpoint", "committed"]


async def test_a_generation_takes_its_steps_in_order() -> None:
    simulation = Simulation(make_plan())
    assert await simulation.run()
    assert simulation.types() == WHOLE
    check_history(simulation)
    (attempt,) = simulation.backend.attempts
    assert attempt.messages == [simulation.plan.save.prompt]  # type: ignore[union-attr]
    (line,) = [line for line in simulation.journal.lines if line.type == "committed"]
    assert line.data["ended_by"] == "duration"
    assert line.data["elapsed_s"] == 3300.0
    assert simulation.clock.monotonic() == 3600.0


async def test_checkpoint_records_when_it_was_made_and_does_not_delay_the_end() -> None:
    simulation = Simulation(make_plan(checkpoint={"every": 1050.0, "idle_wait": 60.0}))
    simulation.backend.faults["r1"] = [Fault(0.0, "busy")]
    assert await simulation.run()
    lines = [line for line in simulation.journal.lines if line.type == "checkpoint"]
    assert [line.data["elapsed_s"] for line in lines] == [1110.0, 2220.0, 3300.0, 3300.0, 3300.0]
    for line in lines:
        assert f"t{int(line.data['elapsed_s']):06}" in line.data["file"]


async def test_checkpoint_time_excludes_the_wait_before_the_save() -> None:
    simulation = Simulation(make_plan(checkpoint={"every": 1050.0, "idle_wait": 60.0}))
    simulation.backend.faults["r1"] = [Fault(0.0, "slow")]
    assert await simulation.run()
    lines = [line for line in simulation.journal.lines if line.type == "checkpoint"]
    assert {line.data["save_s"] for line in lines} == {7.0}


async def test_the_pointer_names_a_remaining_archive_before_the_oldest_is_removed() -> None:
    simulation = Simulation(make_plan(checkpoint={"every": 900.0, "keep": 1, "idle_wait": 0.0}))
    assert await simulation.run()
    assert simulation.backend.changes == ["derived", "removed"] * 2


async def test_the_pointer_follows_the_directory_of_a_failed_attempt() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(2000.0, "world")]
    assert await simulation.run()
    assert simulation.backend.changes == ["renamed", "derived"]


async def test_generations_follow_each_other_and_inherit_workspaces() -> None:
    simulation = Simulation(make_plan(generations=3))
    assert await simulation.run()
    assert simulation.types() == WHOLE * 3
    orders = [attempt.order for attempt in simulation.backend.attempts]
    assert [order.inherited for order in orders] == [
        None,
        orders[0].attempt_id,
        orders[1].attempt_id,
    ]


@pytest.mark.parametrize("is_written", [False, True])
async def test_generations_killed_at_every_line_are_committed_once(
    is_written: bool,
) -> None:
    length = len(WHOLE) * 2 + 2
    for seq in range(2, length + 1):
        simulation = Simulation(make_plan(generations=2))
        simulation.kill_at(seq, is_written=is_written)
        assert not await simulation.run()
        simulation.kill_at(None)
        assert await simulation.run()
        check_history(simulation)
        (chain,) = simulation.plan.chains()
        assert next_step(simulation.plans, chain) == Finished(status="done")
        before = list(simulation.journal.lines)
        assert await simulation.run()
        assert [line for line in simulation.journal.lines[len(before) :] if line.chain] == []


@pytest.mark.parametrize(
    ("killed_after", "phase", "elapsed"),
    [
        ("prepared", "work", 0.0),
        ("working", "work", 0.0),
        ("periodic", "work", 900.0),
        ("boundary", "save", 3300.0),
        ("closing", "save", 3300.0),
        ("saved", "save", 3300.0),
        ("end", "score", 3300.0),
    ],
)
async def test_attempt_continues_as_documented_after_each_line(
    killed_after: str, phase: str, elapsed: float
) -> None:
    complete = Simulation(make_plan())
    assert await complete.run()
    (first, *_) = (
        line.seq
        for line in complete.journal.lines
        if killed_after in (line.type, line.data.get("kind"))
    )
    simulation = Simulation(make_plan())
    simulation.kill_at(first, is_written=True)
    assert not await simulation.run()
    simulation.kill_at(None)
    assert await simulation.run()
    opened = [line for line in simulation.journal.lines if line.type == "opened"]
    assert opened[-1].data["phase"] == phase
    assert opened[-1].data["elapsed_s"] == elapsed
    assert len(opened) == 2
    if phase == "save":
        sent = simulation.backend.attempts[-1].messages
        assert sent == [simulation.plan.save.prompt]  # type: ignore[union-attr]


async def test_each_failure_goes_back_one_checkpoint_further() -> None:
    simulation = Simulation(make_plan())
    deaths: list[Any] = [Fault(2000.0, "world"), *[Fault(1.0, "world")] * 3]
    simulation.backend.faults["r1"] = deaths
    assert await simulation.run()
    opened = [line.data["elapsed_s"] for line in simulation.journal.lines if line.type == "opened"]
    assert opened == [0.0, 1800.0, 900.0, 0.0]
    assert simulation.types()[-1] == "failed"


async def test_a_new_checkpoint_resets_the_failure_count() -> None:
    simulation = Simulation(make_plan(checkpoint={"every": 300.0, "idle_wait": 0.0}))
    simulation.backend.faults["r1"] = [Fault(400.0, "world")] * 8
    assert await simulation.run()
    assert simulation.types()[-1] == "committed"


async def test_a_limit_is_a_pause_and_work_continues_from_its_checkpoint() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1000.0, "limit", lasts=5000.0)]
    assert await simulation.run()
    paused = next(line for line in simulation.journal.lines if line.type == "paused")
    opened = [line for line in simulation.journal.lines if line.type == "opened"]
    assert paused.data["reason"] == "limit"
    assert opened[-1].data["elapsed_s"] == 1000.0
    assert simulation.clock.monotonic() >= 5000.0 + 3600.0
    assert simulation.types()[-1] == "committed"


async def test_waiting_for_the_provider_is_not_active_time_and_becomes_a_pause() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1000.0, "waiting")]
    assert await simulation.run()
    paused = next(line for line in simulation.journal.lines if line.type == "paused")
    assert paused.data["elapsed_s"] == 1000.0
    assert paused.data["idle_s"] == 120.0


@pytest.mark.parametrize(("kind", "reason"), [("budget", "budget"), ("ended", "agents_ended")])
async def test_agents_that_end_close_the_generation(kind: str, reason: str) -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(500.0, kind)]
    assert await simulation.run()
    (line,) = [line for line in simulation.journal.lines if line.type == "committed"]
    assert line.data["ended_by"] == reason
    assert line.data["elapsed_s"] == 500.0


async def test_a_secret_at_the_boundary_pauses_the_chain_without_an_archive() -> None:
    simulation = Simulation(make_plan(repeats=2))
    simulation.backend.faults["r1"] = [Fault(1e9, "secret")]
    assert await simulation.run()
    assert simulation.types()[-1] == "paused"
    assert not [archive for archive in simulation.backend.archives if archive[0] == "r1"]
    assert simulation.types("r2") == WHOLE
    assert simulation.scheduler.pauses["r1"].reason == "secret"


async def test_three_failed_checkpoints_in_a_row_pause_the_chain() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1e9, "full")]
    assert await simulation.run()
    paused = next(line for line in simulation.journal.lines if line.type == "paused")
    assert paused.data["reason"] == "checkpoint"
    assert paused.data["elapsed_s"] == 900.0 + 450.0 + 450.0
    assert simulation.types().count("checkpoint.failed") == 3


async def test_failed_checkpoints_between_others_do_not_pause() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1e9, "shaky")]
    assert await simulation.run()
    assert simulation.types()[-1] == "committed"
    assert simulation.types().count("checkpoint.failed") > 3


async def test_boundary_checkpoint_that_fails_once_is_repeated() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1e9, "flaky")]
    assert await simulation.run()
    assert simulation.types() == [*STEPS[:6], "checkpoint.failed", *STEPS[6:], *WHOLE[-2:]]


async def test_a_world_that_ends_while_it_is_saved_fails_the_attempt_and_is_retried() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1e9, "dead")]
    assert await simulation.run()
    failed = next(line for line in simulation.journal.lines if line.type == "failed")
    assert failed.data["cause"] == "world"
    assert simulation.types()[-1] == "committed"


async def test_a_defect_ends_one_attempt_and_is_reported() -> None:
    simulation = Simulation(make_plan(repeats=2))
    simulation.backend.faults["r1"] = [Fault(0, "defect")]
    assert await simulation.run()
    failed = next(line for line in simulation.journal.lines if line.type == "failed")
    assert failed.data["cause"] == "defect"
    assert simulation.types()[-1] == simulation.types("r2")[-1] == "committed"


async def test_scores_and_errors_of_the_hook_are_stored() -> None:
    async def score(_end: Any) -> dict[str, float]:
        if not scores:
            raise ValueError("no cubes")
        return scores.pop()

    scores = [{"cubes": 3.0}]
    simulation = Simulation(make_plan(generations=2), Callbacks(score=score))
    assert await simulation.run()
    scored = [line.data for line in simulation.journal.lines if line.type == "scored"]
    assert scored[0] == {"scores": {"cubes": 3.0}}
    assert scored[1]["error"].startswith("ValueError: no cubes (")
    assert simulation.types()[-1] == "committed"


async def test_the_stop_hook_closes_a_generation_and_is_switched_off_after_three_errors() -> None:
    asked: list[float] = []

    async def stop(live: Any) -> str | None:
        asked.append(simulation.clock.monotonic())
        if broken:
            raise ValueError("broken")
        return "enough" if simulation.clock.monotonic() >= 120.0 else None

    broken = False
    simulation = Simulation(make_plan(), Callbacks(stop=stop))
    assert await simulation.run()
    (line,) = [line for line in simulation.journal.lines if line.type == "committed"]
    assert line.data["ended_by"] == "stop: enough"
    assert asked == [30.0, 60.0, 90.0, 120.0]
    asked.clear()
    broken = True
    simulation = Simulation(make_plan(), Callbacks(stop=stop))
    assert await simulation.run()
    assert len(asked) == 3
    failed = [line.data for line in simulation.journal.lines if line.type == "hook.failed"]
    assert failed[:2] == [{"hook": "stop", "error": "ValueError: broken"}] * 2
    assert failed[2:] == [
        {"hook": "stop", "error": "ValueError: broken; it will not be called again"}
    ]


async def test_spent_usage_is_the_sum_of_all_attempts() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1000.0, "world"), Fault(500.0, "world")]
    assert await simulation.run()
    spent = [attempt.spent for attempt in simulation.state.chains["r1"].attempts]
    ledgers = simulation.backend.ledgers.values()
    assert sum(usage.output_tokens for agents in spent for usage in agents) == sum(
        usage.output_tokens for agents in ledgers for usage in agents
    )
    committed = simulation.state.chains["r1"].generations[1].committed
    assert committed is not None
    assert committed.ending is not None
    assert committed.ending.data["used"][0]["output_tokens"] == 3600
    assert Usage() not in spent[0]


async def test_scored_attempt_is_committed_with_its_totals_at_closing() -> None:
    async def score(_end: Any) -> dict[str, float]:
        return {"cubes": 3.0}

    policy = {"every": 900.0, "idle_wait": 0.0, "end": False, "boundary": False}
    simulation = Simulation(make_plan(checkpoint=policy), Callbacks(score=score))
    simulation.kill_at(10, is_written=True)
    assert not await simulation.run()
    assert simulation.types()[-1] == "scored"
    simulation.kill_at(None)
    assert await simulation.run()
    committed = simulation.journal.lines[-2]
    assert committed.type == "committed"
    assert committed.data["elapsed_s"] == 3300.0
    assert committed.data["used"] == committed.data["usage"]
    assert committed.data["used"][0]["output_tokens"] == 3600
