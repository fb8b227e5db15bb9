"""Limited accounts: how long chains wait for them, and which chain probes them."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import anyio
import pytest

from clawblox.experiment.history.lines import PauseReason
from clawblox.experiment.schedule.accounts import Accounts
from clawblox.experiment.schedule.pauses import PauseRequest
from clawblox.experiment.schedule.scheduler import Scheduler
from clawblox.system.clock import parse_utc
from tests.experiment.fakes import ACCOUNT, Fault, Simulation, check_history, make_plan
from tests.support.simulated_clock import SimulatedClock

pytestmark = pytest.mark.anyio

HOUR = 3600.0


async def test_recorded_pause_lasts_as_long_as_the_limit_despite_probes() -> None:
    simulation = Simulation(make_plan(retry={"longest_pause": "1h"}))
    simulation.backend.faults["r1"] = [Fault(0, "limit")] * 100
    assert await simulation.run()
    assert simulation.scheduler.pauses["r1"].reason == "limit"
    assert simulation.clock.monotonic() == HOUR


@pytest.mark.parametrize(("reason", "blocking"), [("limit", "limit"), ("auth", None)])
async def test_limit_of_an_earlier_run_is_waited_for_unless_it_was_a_login(
    reason: PauseReason, blocking: PauseReason | None
) -> None:
    clock = SimulatedClock()
    accounts = Accounts(clock, HOUR)
    accounts.recall(ACCOUNT, reason, clock.utc() + timedelta(seconds=60))
    assert accounts.blocking([ACCOUNT], "r1") == blocking
    assert accounts.blocking(["another"], "r1") is None
    accounts.recall(ACCOUNT, reason, None)
    assert accounts.blocking([ACCOUNT], "r1") is None


async def test_limit_end_in_the_past_is_ignored_so_probes_become_rarer() -> None:
    simulation = Simulation(make_plan(retry={"longest_pause": "1h"}))
    ends = (-3600.0, -1.0, 0.0, -3600.0, -1e6, -3600.0, -3600.0)
    simulation.backend.faults["r1"] = [Fault(0, "limit", lasts=lasts) for lasts in ends]
    assert await simulation.run()
    opened = [
        parse_utc(line.at) for line in simulation.journal.lines if line.type in ("opened", "paused")
    ]
    waits = [
        (again - before).total_seconds() / 60
        for before, again in pairwise(filter(None, opened))
        if again > before
    ]
    assert waits == [1, 2, 5, 10, 15, 15]
    assert simulation.scheduler.pauses["r1"].reason == "limit"
    assert all(
        line.data["until"] is None for line in simulation.journal.lines if "until" in line.data
    )


async def test_repeated_limit_ends_are_probed_at_most_once_a_minute() -> None:
    simulation = Simulation(make_plan(retry={"longest_pause": "10m"}))
    simulation.backend.faults["r1"] = [Fault(0, "limit", lasts=2.0)] * 100
    assert await simulation.run()
    assert simulation.types().count("opened") <= 12


async def test_others_start_once_the_probing_chain_makes_progress() -> None:
    simulation = Simulation(make_plan(repeats=2))
    limit = [Fault(100.0, "limit", lasts=600.0)]
    simulation.backend.faults = {"r1": [*limit], "r2": [*limit]}
    assert await simulation.run()
    check_history(simulation)
    lines = [line.type for line in simulation.journal.lines]
    tried, cleared = lines.index("account.limited"), lines.index("account.cleared")
    assert lines[tried:cleared].count("opened") == 1
    assert lines[cleared:].count("opened") == 1


async def test_expired_login_is_not_probed_until_renewed() -> None:
    simulation = Simulation(make_plan(repeats=2))
    simulation.backend.faults = {"r1": [Fault(1000.0, "auth")]}
    simulation.backend.is_logged_in = False

    async def log_in(_scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(2000.0)
        simulation.backend.is_logged_in = True

    assert await simulation.run(log_in)
    check_history(simulation)
    _, again = (a.order for a in simulation.backend.attempts if a.order.chain.name == "r1")
    assert again.active_s == 1000.0
    assert 2000.0 + 2600.0 <= simulation.clock.monotonic() <= 2060.0 + 2600.0


async def test_failed_probing_chain_lets_another_probe() -> None:
    simulation = Simulation(make_plan(repeats=2))
    simulation.backend.faults = {
        "r1": [Fault(100.0, "limit", lasts=600.0), Fault(0, "world")],
        "r2": [Fault(100.0, "limit", lasts=600.0)],
    }
    assert await simulation.run()
    check_history(simulation)
    opened = [line for line in simulation.journal.lines if line.type == "opened"]
    assert [line.chain for line in opened] == ["r1", "r2", "r1", "r2", "r1"]
    assert opened[2].at == opened[3].at


async def test_paused_probing_chain_lets_another_probe() -> None:
    limits = {"worlds": 3, "min_free": 1000}
    simulation = Simulation(make_plan(repeats=3, limits=limits))
    limit = [Fault(100.0, "limit", lasts=600.0)]
    simulation.backend.faults = {"r1": [*limit], "r2": [*limit]}

    async def fill_and_pause(scheduler: Scheduler) -> None:
        await simulation.clock.sleep_until(200.0)
        simulation.backend.free = 10  # so that the probing chain cannot start
        await simulation.clock.sleep_until(1000.0)
        (trying,) = (name for name in ("r1", "r2") if scheduler.accounts.is_probing(name))
        scheduler.pause(PauseRequest(reason="request", text="asked for"), [trying])
        simulation.backend.free = 10**9
        await anyio.lowlevel.checkpoint()

    assert await simulation.run(fill_and_pause)
    committed = {line.chain for line in simulation.journal.lines if line.type == "committed"}
    assert len(committed) == 2
    assert simulation.clock.monotonic() < 2 * HOUR
