"""Chains of generations on real worlds and agents, driven by the scheduler."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.usage import Budget
from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import Price
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.scheduler import Scheduler
from clawblox.experiment.schedule.spending import Spending, price_usage
from clawblox.rundir.manifest import read_manifest
from clawblox.system.clock import SystemClock
from clawblox.system.files import make_private_dir
from tests.agents.standins import FAULTS_FILE, misbehave
from tests.experiment.attempts import SAVE, Scene, scene
from tests.support.waiting import wait_until_async

__all__ = ["scene"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(make_private_dir(tmp_path / "exp")) as journal:
        yield journal


async def run(scene: Scene, journal: Journal, callbacks: Callbacks) -> ExperimentState:
    state = ExperimentState(journal.lines)
    recorder = JournalRecorder(journal, state, lambda _line: None)
    scheduler = Scheduler(
        Plans([scene.plan], state), scene.backend, recorder, SystemClock(), callbacks
    )
    await scheduler.run(scene.plan.chains())
    assert scheduler.failures == {}
    return state


async def test_a_chain_of_two_generations_is_committed(
    scene: Scene, journal: Journal, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    misbehave(template, turn_s=0.05)
    prompt = tmp_path / "system.md"
    prompt.write_text("You are $WORLD_AGENT_NAME.")
    more = {"template": template, "budget": Budget(turns=3), "model": "m", "system_prompt": prompt}
    agents = [agent.but(**more) for agent in scene.plan.agents]
    prices = {"m": {"input": 0, "output": 100}}
    scene.plan = scene.plan.but(agents=agents, generations=2, duration=120, prices=prices)

    async def score(end: Any) -> dict[str, float]:
        return {"counter": (await end.observe("Moa"))["counter"], "agents": len(end.agents)}

    state = await run(scene, journal, Callbacks(score))
    chain = state.chains["r1"]
    spent = [usage for attempt in chain.attempts for usage in attempt.spent]
    assert {usage.cost_usd is None for usage in spent} == {True, False}  # one program reports it
    price = Price(input=0, output=100)
    assert Spending(Plans([scene.plan], state)).ended_usd == pytest.approx(
        sum(price_usage(usage, price) for usage in spent)
    )
    assert [generation.number for generation in chain.generations.values()] == [1, 2]
    for number, generation in chain.generations.items():
        attempt = generation.committed
        assert attempt is not None
        assert attempt.close_reason == "budget"
        assert attempt.scores == {"scores": {"counter": 0.0, "agents": 2.0}}
        assert [point.kind for point in attempt.checkpoints] == ["boundary", "end"]
        assert attempt.attempt_id == f"exp-r1-g{number:03d}"
        for messages in await scene.told(attempt.working, attempt.attempt_id):
            assert messages[0] == "Begin"
            assert set(messages[1:-1]) <= {AUTO_CONTINUE}
            assert messages[-1] == SAVE
        for place in scene.agent_dirs(attempt.attempt_id):
            assert (place / "workspace" / FAULTS_FILE).is_file()
            name = place.name.partition("-")[0]
            assert (place / "runtime" / "system_prompt.md").read_text() == f"You are {name}."
        manifest = await run_blocking(read_manifest, scene.run_dir(attempt.attempt_id))
        assert manifest.run["status"] == "complete"
        assert manifest.run["index"] == number - 1


@pytest.mark.thorough
async def test_a_world_that_dies_continues_with_its_agents_from_their_last_checkpoint(
    scene: Scene, journal: Journal
) -> None:
    scene.plan = scene.plan.but(
        save=None, checkpoint={"every": 0.1, "keep": 2, "end": False}, retry={"delay": 0}
    )

    def types() -> list[str]:
        return [line.type for line in journal.lines]

    async def kill() -> None:
        await wait_until_async(lambda: "checkpoint" in types())
        working = next(line for line in journal.lines if line.type == "working")
        os.kill(working.data["world"]["pid"], signal.SIGKILL)

    async def stop(_live: Any) -> str | None:
        return "enough" if "failed" in types() else None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        state = await run(scene, journal, Callbacks(stop=stop))
    failed, committed = state.chains["r1"].generations[1].attempts
    assert failed.ending is not None
    assert failed.ending.data["cause"] == "world"
    assert "SIGKILL" in failed.ending.data["text"]
    assert committed.outcome == "committed"
    assert committed.close_reason == "stop: enough"
    assert committed.origin == [point.ref for point in failed.checkpoints][-1]
    assert len(failed.checkpoints) <= 2
    for before, after in zip(failed.working["agents"], committed.working["agents"], strict=True):
        for same in ("name", "session", "conversation", "base_url"):
            assert before[same] == after[same]
    assert not scene.run_dir(failed.attempt_id).exists()
    aside = scene.run_dir(failed.ending.data["moved_to"])
    manifest = await run_blocking(read_manifest, aside)
    assert manifest.run["status"] == "failed"
