"""Worlds and agents of an attempt get every option of the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox.agents.options import AgentOptions
from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.attempt_agents import make_agent
from clawblox.experiment.live.attempt_files import AttemptRecord
from clawblox.experiment.live.live_attempt import LiveAttempt
from clawblox.experiment.plan import AgentSpec, Plan, WorldSpec
from tests.experiment.attempts import FIRST, Scene, alone, looks_inside, scene

__all__ = ["alone", "scene"]

pytestmark = pytest.mark.anyio

SOURCE = CheckpointRef(chain="r1", generation=1, attempt=FIRST, file="a.ckpt", sha256="")


class Started(Exception):
    """Raised with the options with which a world would be started."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options


class World:
    """A world whose start only raises."""

    async def start(self, **options: Any) -> None:
        raise Started(options)


async def start(
    root: Path, *, spec: Any = "worlds/panda", seed: int | None = None, **facts: Any
) -> dict[str, Any]:
    """Return the options with which the world of an attempt is started."""
    plan = Plan(spec, [AgentSpec("claude")], name="exp", labels={"question": "memory"})
    branch = facts.pop("branch", None)
    chain = attrs.evolve(plan.chains()[0], seed=seed)
    attempt = LiveAttempt(
        order=AttemptOrder(chain=chain, generation=2, attempt_id=FIRST, branch=branch),
        run_dir=root,
        record=AttemptRecord(agents=(), **facts),
        world=World(),  # type: ignore[arg-type]
        instance="w003",
        agents=(),
        secrets=(),
        tmux="gen-g002",
        report=lambda _signal: None,
        grace_s=1.0,
        pass_on=lambda _event: None,
    )
    with pytest.raises(Started) as caught:
        await attempt._start_world()
    return caught.value.options


async def test_a_world_is_started_with_every_option_of_the_plan(tmp_path: Path) -> None:
    spec = WorldSpec(
        "worlds/panda",
        record=False,
        env={"SCENE": "cubes"},
        port=9000,
        port_wait=7.0,
        host="0.0.0.0",
        health_timeout=77.0,
        datastore="none",
    )
    options = await start(tmp_path, spec=spec)
    names = {field.name for field in attrs.fields(WorldSpec)} - {"dir"}
    assert {name: options[name] for name in names} == {name: getattr(spec, name) for name in names}
    assert (options["run_dir"], options["name"]) == (tmp_path, "w003")
    assert options["restart"] == "never"
    assert options["_tmux_session"] == "gen-g002"
    own = {"experiment": "exp", "chain": "r1", "generation": 2}
    assert options["labels"] == {**own, "question": "memory"}


@pytest.mark.parametrize(
    ("snapshot", "seed", "reseed", "expected"),
    [
        (None, 5, None, 5),
        (None, None, None, None),
        ("world.snapshot", 5, None, None),
        ("world.snapshot", 5, 7, 7),
    ],
)
async def test_new_world_gets_the_seed_of_its_chain_and_a_branch_its_own(
    tmp_path: Path, snapshot: str | None, seed: int | None, reseed: int | None, expected: int | None
) -> None:
    branch = None if reseed is None else Branch(source=SOURCE, group=1, number=1, reseed=reseed)
    options = await start(tmp_path, seed=seed, branch=branch, snapshot=snapshot, sha256="ab")
    assert options["reseed"] == expected
    resume = None if snapshot is None else {"path": tmp_path / snapshot, "sha256": "ab"}
    assert options["resume"] == resume


def test_an_agent_has_every_option_of_the_plan(tmp_path: Path) -> None:
    spec = AgentSpec(
        "claude",
        name="Eko",
        model="claude-fable-5",
        binary=tmp_path / "claude",
        permission_mode="plan",
        claude_native_sandbox=True,
        bare=True,
        auto_continue=False,
        sandbox=True,
        max_restarts=1,
        stall_timeout=None,
        request_rate=7.0,
    )
    agent = make_agent(spec, "Eko-a0", tmp_path / "Eko-a0", "gen-g001")
    specified, known = (
        {field.name for field in attrs.fields(kind)} for kind in (AgentSpec, AgentOptions)
    )
    names = specified & known - {"name", "budget"}  # budgets are set before each start
    assert len(names) == 11
    for name in names:
        assert str(getattr(agent._options, name)) == str(getattr(spec, name)), name
    assert (agent.driver, agent.name, agent.dir) == ("claude", "Eko-a0", tmp_path / "Eko-a0")
    assert agent._options.tmux == "gen-g001"


@looks_inside
async def test_world_and_agents_of_an_attempt_are_shown_in_one_session(alone: Scene) -> None:
    alone.plan = alone.plan.but(tmux="gen")
    await alone.prepare(alone.order())
    async with alone.open(alone.order()) as attempt:
        assert attempt._tmux == attempt.agents[0].agent._options.tmux == "gen-r1-g001"
