"""Facts that a run takes from earlier runs: wall time and limited accounts."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox.experiment.plan import Plan
from clawblox.experiment.schedule.callbacks import Callbacks
from tests.experiment.fakes import Fault, make_plan
from tests.experiment.histories import History, RunScript

pytestmark = pytest.mark.anyio

CALM = RunScript()


def begin(**changes: Any) -> History:
    plan: Plan = make_plan(**changes)
    return History(plan, Callbacks())


async def test_wall_time_counts_all_runs() -> None:
    history = begin(generations=5, limits={"wall": 5000.0})
    for _ in range(2):
        outcome = await history.play(CALM)
        assert outcome is not None
        assert outcome.exit_status == 75
        assert outcome.text == "r1: the experiment has run for 5000 s, its limits.wall"
    assert [attempt.order.generation for attempt in history.backend.attempts] == [1, 2]


async def test_the_wall_time_of_a_killed_run_ends_with_its_last_line() -> None:
    history = begin()
    assert await history.play(RunScript(kill_after=5, is_written=True)) is None
    assert history.journal.lines[-1].data["elapsed_s"] == 1800.0
    assert await history.play(CALM) is not None
    ended, _ = (line.data for line in history.journal.lines if line.type == "session.ended")
    assert ended == {"reason": "killed", "elapsed_s": 1800.0}
    assert history.state.wall_s == history.clock.monotonic()


async def test_usage_limit_met_by_an_earlier_run_is_waited_for() -> None:
    history = begin(retry={"longest_pause": "1h"})
    limit: list[Fault | None] = [Fault(1000.0, "limit", lasts=9000.0)]
    for script in (RunScript(faults={"r1": limit}), CALM):
        outcome = await history.play(script)
        assert outcome is not None
        assert outcome.exit_status == 75
    assert len(history.backend.attempts) == 1
    assert history.clock.monotonic() == 1000.0 + 2 * 3600.0
    outcome = await history.play(CALM)
    assert outcome is not None
    assert outcome.status == "done"
    assert history.clock.monotonic() == 1000.0 + 9000.0 + 2600.0
