"""Many chains over fakes: places, money, time, disk, accounts, pauses and forks."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

from clawblox.experiment.history.checkpoints import Branch
from clawblox.experiment.history.lines import About
from clawblox.experiment.history.state import ChainState
from clawblox.experiment.plan import AgentSpec
from clawblox.experiment.schedule.pauses import PauseRequest
from clawblox.experiment.schedule.scheduler import Scheduler
from clawblox.system.clock import parse_utc
from tests.experiment.fakes import Fault, Simulation, check_history, make_plan

pytestmark = pytest.mark.anyio

REQUEST = PauseRequest(reason="request", text="asked for")


def statuses(simulation: Simulation) -> dict[str, str]:
    return {name: simulation.types(name)[-1] for name in simulation.state.chains}


async def test_twenty_simulated_chains_of_ten_hours_end_in_a_moment() -> None:
    plan = make_plan(generations=10, repeats=20, limits={"worlds": 20})
    simulation = Simulation(plan)
    assert await simulation.run()
    assert simulation.clock.monotonic() == 10 * 3600.0
    assert simulation.backend.most_open == 20
    assert sum(line.type == "committed" for line in simulation.journal.lines) == 200
    check_history(simulation)


async def test_no_more_worlds_run_than_the_plan_allows_and_chains_advance_together() -> None:
    simulation = Simulation(make_plan(generations=2, repeats=5, limits={"worlds": 2}))
    assert await simulation.run()
    assert simulation.backend.most_open == 2
    opened = [line.generation for line in simulation.journal.lines if line.type == "opened"]
    assert opened == [1] * 5 + [2] * 5


async def test_depth_order_finishes_chains_one_after_the_other() -> None:
    plan = make_plan(generations=2, repeats=3, limits={"worlds": 1}, order="depth")
    simulation = Simulation(plan)
    assert await simulation.run()
    opened = [line.chain for line in simulation.journal.lines if line.type == "opened"]
    assert opened == ["r1", "r1", "r2", "r2", "r3", "r3"]


async def test_concurrent_agents_per_model_are_limited() -> None:
    plan = make_plan(repeats=4, limits={"per_model": {"opus": 2}}).but(
        agents=[AgentSpec("claude", name="Eko", model="opus")]
    )
    simulation = Simulation(plan)
    assert await simulation.run()
    assert simulation.backend.most_open == 2


async def test_no_more_agents_run_than_the_plan_allows() -> None:
    agents = [AgentSpec("claude", name=name) for name in ("Eko", "Moa")]
    simulation = Simulation(make_plan(repeats=4, limits={"agents": 5}).but(agents=agents))
    assert await simulation.run()
    assert simulation.backend.most_open == 2


async def test_spent_money_closes_running_generations_and_prevents_starts() -> None:
    plan = make_plan(generations=5, repeats=2, limits={"dollars": 0.9})
    simulation = Simulation(plan)
    assert await simulation.run()
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "dollars"
    closed = [line for line in simulation.journal.lines if line.type == "committed"]
    assert [line.data["ended_by"] for line in closed] == [
        "duration",
        "duration",
        "dollars",
        "dollars",
    ]
    assert simulation.scheduler.spending.ended_usd < 0.9 + 0.2
    assert [kind for kind, _text in simulation.warnings] == ["budget.warning"]
    assert await simulation.run()
    assert len([line for line in simulation.journal.lines if line.type == "opened"]) == 4


async def test_attempts_with_budgets_above_the_remaining_money_do_not_start() -> None:
    agents = [AgentSpec("claude", name="Eko", budget={"usd": 0.5})]
    plan = make_plan(repeats=3, limits={"dollars": 1.1}).but(agents=agents)
    simulation = Simulation(plan)
    assert await simulation.run()
    assert simulation.backend.most_open == 2
    assert statuses(simulation) == {"r1": "committed", "r2": "committed"}
    assert simulation.scheduler.pauses["r3"].reason == "dollars"


async def test_a_run_after_the_money_is_spent_ends_immediately() -> None:
    simulation = Simulation(make_plan(repeats=2, limits={"dollars": 0.3}))
    assert await simulation.run()
    assert simulation.scheduler.spending.ended_usd > 0.3
    before = len(simulation.journal.lines)
    assert await simulation.run()
    assert [line.type for line in simulation.journal.lines[before:]] == [
        "session.begun",
        "session.ended",
    ]


async def test_wall_time_closes_running_generations() -> None:
    simulation = Simulation(make_plan(generations=5, limits={"wall": 5000.0}))
    assert await simulation.run()
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "wall"
    assert simulation.clock.monotonic() < 5400.0
    assert simulation.types()[-1] == "committed"


async def test_low_disk_prevents_starts_until_there_is_room() -> None:
    simulation = Simulation(make_plan(repeats=2, limits={"worlds": 1, "min_free": 1000}))

    async def fill(_scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(60.0)
        simulation.backend.free = 10
        await simulation.clock.sleep_until(3590.0)
        simulation.backend.free = 10**9

    assert await simulation.run(fill)
    assert statuses(simulation) == {"r1": "committed", "r2": "committed"}
    assert [kind for kind, _text in simulation.warnings] == ["disk.low"]
    simulation = Simulation(make_plan(repeats=2, limits={"worlds": 1, "min_free": 1000}))
    simulation.backend.free = 10
    assert await simulation.run()
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "disk"
    assert statuses(simulation) == {}


async def test_a_full_disk_stops_everything_and_the_same_call_continues() -> None:
    simulation = Simulation(make_plan(repeats=2))
    simulation.journal.fails_at = 12
    assert not simulation.types()
    await simulation.run_until_full()
    assert simulation.backend.open_now == []
    simulation.journal.fails_at = None
    assert await simulation.run()
    assert statuses(simulation) == {"r1": "committed", "r2": "committed"}
    check_history(simulation)


@pytest.mark.parametrize("cause", ["world", "agent"])
async def test_failure_on_a_full_disk_is_a_pause(cause: str) -> None:
    simulation = Simulation(make_plan(limits={"min_free": None}))
    simulation.backend.faults["r1"] = [Fault(1000.0, cause)]
    simulation.backend.free = 1000
    assert await simulation.run()
    assert statuses(simulation) == {"r1": "paused"}
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "disk"
    simulation.backend.free = 10**9
    assert await simulation.run()
    assert "failed" not in simulation.types("r1")


async def test_the_end_of_a_limit_that_cannot_be_recorded_is_a_pause() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1000.0, "limit")]
    assert await simulation.run()
    (cleared,) = [line for line in simulation.journal.lines if line.type == "account.cleared"]
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(1000.0, "limit")]
    simulation.journal.fails_at = cleared.seq
    await simulation.run_until_full()
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "disk"
    simulation.journal.fails_at = None
    assert await simulation.run()
    assert statuses(simulation) == {"r1": "committed"}


async def test_only_one_chain_probes_a_limit() -> None:
    simulation = Simulation(make_plan(repeats=3))
    simulation.backend.faults = {
        name: [Fault(1000.0, "limit"), Fault(5.0, "limit") if name == "r1" else None]
        for name in ("r1", "r2", "r3")
    }
    assert await simulation.run()
    opened = [
        (line.chain, line.data["elapsed_s"])
        for line in simulation.journal.lines
        if line.type == "opened"
    ]
    assert [chain for chain, elapsed in opened if elapsed == 1000.0].count("r1") == 1
    assert statuses(simulation) == dict.fromkeys(("r1", "r2", "r3"), "committed")
    check_history(simulation)


async def test_waits_between_limit_probes_grow() -> None:
    simulation = Simulation(make_plan())
    simulation.backend.faults["r1"] = [Fault(0, "limit")] * 6
    assert await simulation.run()
    paused = [parse_utc(line.at) for line in simulation.journal.lines if line.type == "paused"]
    opened = [parse_utc(line.at) for line in simulation.journal.lines if line.type == "opened"]
    waits = [(after - before).total_seconds() for before, after in zip(paused, opened[1:])]  # type: ignore[operator]  # noqa: B905
    assert waits == [60.0, 120.0, 300.0, 600.0, 900.0, 900.0]
    assert simulation.state.accounts == {}


async def test_unlifted_limit_ends_the_run_and_keeps_the_chain_intact() -> None:
    simulation = Simulation(make_plan(retry={"longest_pause": "1h"}))
    simulation.backend.faults["r1"] = [Fault(1000.0, "limit", lasts=86400.0)]
    assert await simulation.run()
    assert simulation.scheduler.pauses["r1"].reason == "limit"
    assert simulation.clock.monotonic() == 1000.0 + 3600.0
    assert await simulation.run()
    assert simulation.types()[-1] == "committed"


async def test_expired_login_pauses_its_chains_and_ends_the_run_once_no_others_are_left() -> None:
    simulation = Simulation(make_plan(repeats=2, limits={"worlds": 2}))
    simulation.backend.faults = {"r1": [Fault(1000.0, "auth")]}
    assert await simulation.run()
    assert statuses(simulation)["r2"] == "committed"
    simulation = Simulation(make_plan())
    simulation.backend.faults = {"r1": [Fault(1000.0, "auth")]}
    simulation.backend.is_logged_in = False
    assert await simulation.run()
    assert simulation.scheduler.halted is not None
    assert simulation.scheduler.halted.reason == "auth"
    assert simulation.types()[-1] == "paused"


async def test_a_chain_that_fails_can_stop_all_others() -> None:
    plan = make_plan(repeats=2, retry={"attempts": 0, "on_failure": "stop_all"})
    simulation = Simulation(plan)
    simulation.backend.faults["r1"] = [Fault(1000.0, "world")]
    assert await simulation.run()
    assert statuses(simulation) == {"r1": "failed", "r2": "paused"}


async def test_one_chain_or_all_can_be_paused_and_continue_later() -> None:
    simulation = Simulation(make_plan(repeats=2))

    async def pause(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(1000.0)
        scheduler.pause(REQUEST, ["r1"])

    assert await simulation.run(pause)
    assert statuses(simulation) == {"r1": "paused", "r2": "committed"}
    assert simulation.scheduler.pauses == {"r1": REQUEST}
    assert await simulation.run()
    assert statuses(simulation) == {"r1": "committed", "r2": "committed"}
    last = [line for line in simulation.journal.lines if line.type == "opened"][-1]
    assert last.data["elapsed_s"] == 1000.0


async def test_a_pause_while_nothing_runs_yet_ends_the_wait() -> None:
    simulation = Simulation(make_plan(repeats=2, limits={"worlds": 1}))

    async def pause(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(1000.0)
        scheduler.halt(REQUEST)

    assert await simulation.run(pause)
    assert statuses(simulation) == {"r1": "paused"}
    assert set(simulation.scheduler.pauses) == {"r1", "r2"}


# -- forks --------------------------------------------------------------------------------------


async def fork(simulation: Simulation, count: int, *, sandbox: bool) -> None:
    """Run the chain r1 to its end, and add branches of its second checkpoint."""
    assert await simulation.run()
    chain = simulation.plan.chains()[0]
    source = list(simulation.state.chains["r1"].generations[1].checkpoints())[1]
    for number in range(1, count + 1):
        branch = Branch(source=source.ref, group=1, number=number, duration_s=600.0, prompt="Hm.")
        data = attrs.asdict(branch)
        simulation.journal.append("chain.forked", data, About(f"r1-f1-{number}"))
        plan = chain.plan.but(duration=600.0, save=None)
        if sandbox:
            plan = plan.but(agents=[agent.but(sandbox=True) for agent in plan.agents])
        simulation.more_chains.append(attrs.evolve(chain, name=f"r1-f1-{number}", plan=plan))


@pytest.mark.parametrize("sandbox", [True, False])
async def test_branches_run_in_parallel_only_in_sandboxes(sandbox: bool) -> None:
    simulation = Simulation(make_plan())
    await fork(simulation, 4, sandbox=sandbox)
    simulation.backend.most_open = 0
    assert await simulation.run()
    assert simulation.backend.most_open == (4 if sandbox else 1)
    assert simulation.types("r1-f1-4")[-1] == "committed"
    branches = [attempt for attempt in simulation.backend.attempts if attempt.order.branch]
    assert [attempt.messages for attempt in branches] == [["Hm."]] * 4


async def test_branch_that_fails_to_start_is_branched_again() -> None:
    simulation = Simulation(make_plan())
    await fork(simulation, 1, sandbox=True)
    simulation.backend.faults["r1-f1-1"] = [Fault(10.0, "world"), None]
    assert await simulation.run()
    branches = [attempt.order for attempt in simulation.backend.attempts if attempt.order.branch]
    assert len(branches) == 2
    assert branches[0].origin == branches[1].origin
    state: ChainState = simulation.state.chains["r1-f1-1"]
    assert state.generations[1].committed is not None


async def test_the_source_of_a_fork_is_never_removed() -> None:
    simulation = Simulation(make_plan(checkpoint={"every": 600.0, "keep": 1, "idle_wait": 0.0}))
    done = anyio.Event()

    async def add(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(700.0)
        source = next(iter(simulation.state.chains["r1"].generations[1].checkpoints()))
        branch = Branch(source=source.ref, group=1, number=1)
        recorder: Any = scheduler._recorder
        await recorder.write("chain.forked", attrs.asdict(branch), About("r1-f1-1"))
        done.set()

    assert await simulation.run(add)
    kept = [point.active_s for point in simulation.state.chains["r1"].generations[1].checkpoints()]
    assert kept == [600.0, 3000.0, 3300.0, 3300.0]
    assert done.is_set()
