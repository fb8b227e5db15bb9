"""Orders for attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.experiment.history.machine import Begin
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import AgentSpec, Inherit, Plan
from clawblox.experiment.schedule.orders import make_order


@pytest.mark.parametrize(("workspace", "inherited"), [(True, "exp-g001"), (False, None)])
def test_workspaces_are_inherited_unless_the_plan_says_otherwise(
    tmp_path: Path, *, workspace: bool, inherited: str | None
) -> None:
    plan = Plan(tmp_path / "world", [AgentSpec("claude")], inherit=Inherit(workspace=workspace))
    begin = Begin(generation=2, inherited="exp-g001")
    order = make_order(ExperimentState(), plan.chains()[0], begin, "exp-g002")
    assert order.inherited == inherited
