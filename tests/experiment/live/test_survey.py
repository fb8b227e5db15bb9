"""Every fault of an experiment is reported before any part starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.live.survey import survey_plan
from clawblox.experiment.plan import AgentSpec, Plan
from tests.agents.standins import install
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

KEYS = {"ANTHROPIC_API_KEY": "sk-not-a-key-0001"}


def make_plan(root: Path, agents: list[AgentSpec], **changes: Any) -> Plan:
    world = root / "counter"
    return Plan(world if world.exists() else make_world(root), agents, name="exp", **changes)


def claude(root: Path, **changes: Any) -> AgentSpec:
    install(root / "bin", "claude")
    return AgentSpec("claude", binary=root / "bin" / "claude", env=tuple(KEYS), **changes)


async def test_survey_measures_resources(tmp_path: Path) -> None:
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "notes.md").write_bytes(bytes(1000))
    plan = make_plan(tmp_path, [claude(tmp_path, template=tmp_path / "template")], generations=2)
    survey = await survey_plan(plan, tmp_path / "exp", KEYS)
    for policy, archives in (({"keep": 1}, 3), ({"keep": None}, 6), ({"every": None}, 2)):
        other = await survey_plan(plan.but(checkpoint=policy), tmp_path / "exp", KEYS)
        assert other.disk_bytes == 1000 * 2 * (1 + archives)
    assert set(survey.programs) == {"claude"}
    assert survey.programs["claude"]
    assert survey.disk_bytes == 1000 * 2 * 6
    assert survey.free_bytes > 0
    assert survey.has_costs
    assert not (tmp_path / "exp").exists()


async def test_all_faults_are_in_one_error(tmp_path: Path) -> None:
    agents = [
        claude(tmp_path, name="Eko", version="1.0.0"),
        AgentSpec("claude", name="Moa", env=["NO_SUCH_VALUE"]),
        AgentSpec("claude", name="Rua", binary=tmp_path / "nothing"),
        AgentSpec("opencode", name="Oni", binary=tmp_path / "nothing"),
        claude(tmp_path, name="Tavi", template=tmp_path / "missing"),
        AgentSpec("codex", name="Zev", model="gpt", binary=tmp_path / "nothing"),
    ]
    limits = {"dollars": 5}
    plan = make_plan(tmp_path, agents, seeds=[1, 2], limits=limits)
    with pytest.raises(ConfigError) as caught:
        await survey_plan(plan, tmp_path / "exp", KEYS)
    text = str(caught.value)
    for fault in (
        "seeds",
        "agents.Eko.version",
        "agents.Moa.env",
        "agents.Rua",
        "agents.Oni.driver",
        "agents.4.template",
        "agents.Zev.model",
    ):
        assert fault in text


async def test_a_missing_world_is_one_fault(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, [claude(tmp_path)]).but(world=tmp_path / "nowhere")
    with pytest.raises(ConfigError) as caught:
        await survey_plan(plan, tmp_path / "exp", KEYS)
    assert caught.value.key == "world.dir"
    assert caught.value.others == ()


async def test_an_expired_login_is_a_fault_only_before_the_first_work(tmp_path: Path) -> None:
    install(tmp_path / "bin", "kimi")
    kimi = AgentSpec("kimi", binary=tmp_path / "bin" / "kimi", model="k3")
    plan = make_plan(tmp_path, [kimi])
    with pytest.raises(ConfigError, match=r"agents\.Eko"):
        await survey_plan(plan, tmp_path / "exp", {})
    await survey_plan(plan, tmp_path / "exp", {}, stage="worked")
    backend = LiveBackend(tmp_path / "exp", "chains", {})
    with pytest.raises(ConfigError, match=r"agents\.Eko"):
        await backend.survey(plan, has_worked=False)
    await backend.survey(plan, has_worked=True)
