"""The time for saving at the end of generations, and the time that it leaves for work."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment import AgentSpec, Condition, Plan
from clawblox.experiment.plan.save_times import find_long_saves, require_time_to_work


def make_plan(**fields: Any) -> Plan:
    return Plan("/worlds/panda", [AgentSpec("claude")], **fields)


def faults(plan: Plan, recorded: Plan | None = None) -> list[str]:
    return [str(error) for error in find_long_saves(plan, recorded)]


@pytest.mark.parametrize(
    ("duration", "save", "seconds"),
    [
        (3600, {}, 300),
        (1200, {}, 300),
        (200, {}, 50),
        (1, {"prompt": "Save."}, 0.25),
        (200, {"before": 120}, 120),
        (200, {"before": "5m"}, 300),
        (200, None, 0),
    ],
)
def test_default_saving_time_is_300_seconds_but_at_most_a_quarter(
    duration: float, save: Any, seconds: float
) -> None:
    plan = make_plan(duration=duration, save=save)
    assert plan.saving_s == seconds
    assert Plan.loads(plan.dumps()).saving_s == seconds


def test_saving_time_without_time_for_work_is_an_error() -> None:
    require_time_to_work(make_plan(duration=301, save={"before": 300}))
    for duration in (300, 120):
        with pytest.raises(ConfigError, match=r"save\.before: must be less than") as caught:
            require_time_to_work(make_plan(duration=duration, save={"before": 300}))
        assert (caught.value.key, caught.value.value) == ("save.before", 300.0)
        assert f"the duration, {duration} s, not 300.0" in caught.value.message


def test_each_chain_is_checked_with_its_own_values() -> None:
    swept = make_plan(
        duration=600,
        sweep={"save.before": [60, 600], "duration": [600, 1200]},
        conditions=[Condition("late", {"save.before": 900}), Condition("none", {"save": False})],
    )
    assert [error.key for error in find_long_saves(swept)] == [
        "sweep.save.before",
        "conditions.0.set.save.before",
    ]
    (first, second) = faults(swept)
    assert "in the chain before600-duration600-r1, 600 s, not 600.0" in first
    assert "in the chain late-r1, 600 s, not 900.0" in second
    assert faults(make_plan(sweep={"duration": [60, 3600]})) == []
    (fault,) = faults(make_plan(save={"before": 300}, sweep={"duration": [60, 3600]}, repeats=3))
    assert fault.startswith(
        "save.before: must be less than the duration in the chain duration60-r1"
    )


def test_times_of_the_recorded_plan_stay_allowed() -> None:
    recorded = make_plan(duration=200, save={"before": 300})
    assert faults(recorded, recorded) == []
    assert faults(recorded.but(repeats=3, save={"before": 300, "full": True}), recorded) == []
    assert len(faults(recorded.but(duration=250), recorded)) == 1
    assert len(faults(recorded.but(save={"before": 201}), recorded)) == 1
