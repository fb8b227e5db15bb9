"""A live run: agents in one instance, their checkpoints, and both brought back from one of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import attrs
import pytest

from clawblox import AsyncWorld, SavedCheckpoint
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.layout import AgentDir
from clawblox.checkpoint import read_metadata
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentResumeError, CheckpointError, ClawbloxError
from clawblox.rundir.interrupted import find_interrupted
from clawblox.rundir.paths import state_dir
from clawblox.team.live_run import LiveRun
from clawblox.team.run_resume import RunResume
from tests.agents.standins import install, misbehave
from tests.crowd import act
from tests.running import next_event
from tests.starting import add
from tests.support import HANG_S, ask, make_world, wait_until_async

pytestmark = pytest.mark.anyio

DRIVERS = {"Eko": "claude", "Moa": "codex"}
NEVER_S = 3600.0


@attrs.define
class Scene:
    """A world directory, a run directory, and what checkpoints of the run were reported."""

    world: AsyncWorld
    run_dir: Path
    bin_dir: Path
    outcomes: list[SavedCheckpoint | Exception] = attrs.field(factory=list)

    def agents(self) -> list[AsyncAgent]:
        return [
            AsyncAgent(
                agent=driver,
                name=name,
                dir=self.run_dir / "agents" / name,
                binary=self.bin_dir / driver,
            )
            for name, driver in DRIVERS.items()
        ]


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-key-0001")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key-0002")
    for name, driver in DRIVERS.items():
        install(tmp_path / "bin", driver)
        workspace = tmp_path / "run" / "agents" / name / "workspace"
        workspace.mkdir(parents=True)
        misbehave(workspace, turn_s=0.05)
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            yield Scene(world, tmp_path / "run", tmp_path / "bin")


async def test_an_instance_and_its_agents_are_saved_and_brought_back_together(scene: Scene) -> None:
    agents = scene.agents()
    notes = scene.run_dir / "agents" / "Eko" / "workspace" / "notes.md"
    async with LiveRun(scene.world, agents, on_checkpoint=scene.outcomes.append) as run:
        await run.check()
        started = await scene.world.start(run_dir=scene.run_dir)
        conversations = {}
        for agent in agents:
            access = await run.connect(agent, started)
            begun = await run.begin(agent, initial_prompt=f"Read {access['base_url']}/api.md.")
            conversations[agent.name] = begun.session_id
        notes.write_text("before")
        add(started, access["headers"], 5)
        run.start_checkpoints(started, dir=scene.run_dir / "checkpoints", every=NEVER_S)
        await run.wait_first_checkpoint()
        assert scene.outcomes == [run.latest]
        assert run.latest is not None
        assert run.latest.metadata["agents"].keys() == DRIVERS.keys()
        notes.write_text("after")
        add(started, access["headers"], 2)
        await scene.world.save()  # later than the checkpoint, so it is not what is restored
        async with scene.world.events() as events:
            ask(started.port, "POST", "/__die?status=9")
            await next_event(events, "exited")
        assert [result.state for result in await run.stop(grace_seconds=5)] == ["stopped"] * 2
        assert await run.save_end() is None  # the world has ended
        archive = run.latest.path

    found = await run_blocking(find_interrupted, scene.run_dir)
    resume = await run_blocking(RunResume.find, scene.run_dir, archive, started.name, found)
    agents = scene.agents()
    async with LiveRun(scene.world, agents) as run:
        again = await run.resume(resume)
        assert json.loads(act(again.port, access["session"], 0))["counter"] == 5
        assert notes.read_text() == "before"
        (aside,) = (state_dir(scene.run_dir) / "set-aside").glob("Eko-*")
        assert (aside / "workspace" / "notes.md").read_text() == "after"
        for agent in agents:
            await run.connect(agent, again)
            continued = await run.begin(agent, initial_prompt="Begin")
            assert continued.session_id == conversations[agent.name]
        await run.stop(grace_seconds=5)


@pytest.mark.thorough
async def test_the_end_of_the_agents_is_saved_while_the_world_runs(scene: Scene) -> None:
    agents = scene.agents()[:1]
    async with LiveRun(scene.world, agents, on_checkpoint=scene.outcomes.append) as run:
        assert await run.save_end() is None  # no checkpoints were asked for
        started = await scene.world.start(run_dir=scene.run_dir)
        await run.connect(agents[0], started)
        await run.begin(agents[0], initial_prompt="Begin")
        run.start_checkpoints(started, dir=scene.run_dir / "checkpoints", every=0.01)
        await wait_until_async(lambda: len(scene.outcomes) >= 3)
        await run.stop(grace_seconds=5)
        (result,) = await run.wait()
        assert result.state == "stopped"
        count = len(scene.outcomes)
        saved = await run.save_end()
        assert saved is run.latest is scene.outcomes[-1]
        assert len(scene.outcomes) == count + 1  # no more were made at the interval


async def test_a_first_checkpoint_that_fails_is_reported(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawblox.team.live_run._TRANSCRIPT_WAIT_S", 0.0)
    (scene.run_dir / "checkpoints").write_text("in the way")
    async with LiveRun(scene.world, (), on_checkpoint=scene.outcomes.append) as run:
        started = await scene.world.start(run_dir=scene.run_dir / "w")
        run.start_checkpoints(started, dir=scene.run_dir / "checkpoints", every=NEVER_S)
        await run.wait_first_checkpoint()
        (error,) = scene.outcomes
        assert isinstance(error, CheckpointError)
        assert run.latest is None


async def test_an_agent_whose_conversation_is_not_in_the_archive_is_refused(
    scene: Scene, tmp_path: Path
) -> None:
    async with LiveRun(scene.world, scene.agents()[:1]) as run:
        started = await scene.world.start(run_dir=scene.run_dir)
        agents = {"Eko": scene.run_dir / "agents" / "Eko"}
        saved = await scene.world.checkpoint(tmp_path / "a.ckpt", agents, workspace_only=True)
        await scene.world.stop()
        loaded = await scene.world.start(resume=saved, run_dir=tmp_path / "next")
        directory = tmp_path / "next" / "agents" / "Eko"
        agent = AsyncAgent(agent="claude", name="Eko", dir=directory, binary=scene.bin_dir)
        with pytest.raises(AgentResumeError, match="not its conversation"):
            await run.connect(agent, loaded)
        assert started.name == loaded.name
        assert not AgentDir(directory).id_file("claude").exists()


async def test_a_run_is_not_resumed_from_a_save_that_is_gone(scene: Scene, tmp_path: Path) -> None:
    started = await scene.world.start(run_dir=scene.run_dir)
    saved = await scene.world.checkpoint(tmp_path / "a.ckpt")
    async with scene.world.events() as events:
        ask(started.port, "POST", "/__die?status=9")
        await next_event(events, "exited")
    await scene.world.stop()
    found = await run_blocking(find_interrupted, scene.run_dir, [started.name])
    resume = await run_blocking(RunResume.find, scene.run_dir, saved.path, started.name, found)
    digest = (await run_blocking(read_metadata, saved))["files"]["world.snapshot"]["sha256"]
    assert [save.sha256 for save in resume.found.instances[0].saves] == [digest]
    assert resume.restore({"Eko": scene.run_dir / "agents" / "Eko"}) == {}  # not in the archive
    found = attrs.evolve(found, instances=(attrs.evolve(found.instances[0], saves=()),))
    with pytest.raises(ClawbloxError, match=f"The save of {started.name} that belongs to a.ckpt"):
        RunResume.find(scene.run_dir, saved.path, started.name, found)
    with pytest.raises(CheckpointError):
        RunResume.find(scene.run_dir, tmp_path / "b.ckpt", started.name, found)
