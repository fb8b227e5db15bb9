"""A crew: agents in one instance, their checkpoints, and their resume from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import anyio
import attrs
import msgspec
import pytest

from clawblox import AsyncWorld, SavedCheckpoint
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.layout import AgentDir
from clawblox.checkpoint import read_metadata
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentResumeError, CheckpointError, ClawbloxError, UsageError
from clawblox.rundir.interrupted import find_interrupted
from clawblox.rundir.paths import state_dir
from clawblox.team.crew import Crew
from clawblox.team.record import TeamRecord, Texts, read_team
from clawblox.team.resume import TeamResume, find_own_instance
from tests.agents.standins import install, misbehave
from tests.support.crowd import act
from tests.support.running import next_event
from tests.support.starting import add
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world

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

    def crew(self, agents: list[AsyncAgent]) -> Crew:
        return Crew(world=self.world, agents=agents, on_checkpoint=self.outcomes.append)


def describe(agents: list[AsyncAgent], *, every: float) -> TeamRecord:
    """Return the record of a team that saves at an interval."""
    return TeamRecord(
        agents=tuple(agent.options for agent in agents),
        texts=(Texts(),) * len(agents),
        checkpoint_every=every,
    )


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


class LockedAgent(AsyncAgent):
    """An agent that cannot be opened."""

    async def __aenter__(self) -> Self:
        raise ClawbloxError("its directory is in use")


async def test_agents_are_closed_if_a_later_one_cannot_be_opened(scene: Scene) -> None:
    first, other = scene.agents()
    locked = LockedAgent(agent="codex", name="Moa", dir=other.dir, binary=other.options.binary)
    with pytest.raises(ClawbloxError, match="in use"):
        async with scene.crew([first, locked]):
            pytest.fail("the block was entered")
    assert not first.is_open


async def test_instance_and_agents_are_saved_and_restored_together(scene: Scene) -> None:
    agents = scene.agents()
    notes = scene.run_dir / "agents" / "Eko" / "workspace" / "notes.md"
    async with scene.crew(agents) as crew:
        await crew.check()
        started = await scene.world.start(run_dir=scene.run_dir)
        notes.write_text("before")
        record = describe(agents, every=NEVER_S)
        begun = await crew.start(started, record, record.texts)
        conversations = {agent.name: agent.session_id for agent in begun}
        session = (scene.run_dir / "agents" / "Moa" / "world_session.txt").read_text().strip()
        await crew.wait_first_checkpoint()
        assert scene.outcomes == [crew.latest]
        assert crew.latest is not None
        assert crew.latest.metadata["agents"].keys() == DRIVERS.keys()
        notes.write_text("after")
        add(started, {"X-Session": session}, 2)
        await scene.world.save()  # later than the checkpoint, so it is not restored
        async with scene.world.events() as events:
            ask(started.port, "POST", "/__die?status=9")
            await next_event(events, "exited")
        assert [result.state for result in await crew.stop(grace_seconds=5)] == ["stopped"] * 2
        await crew.settle()
        assert len(scene.outcomes) == 1  # the world has ended
        archive = crew.latest.path

    found = await run_blocking(find_interrupted, scene.run_dir)
    assert find_own_instance(scene.run_dir, found) == started.name
    recorded = await run_blocking(read_team, scene.run_dir)
    assert recorded == record
    resume = await run_blocking(
        TeamResume.find, scene.run_dir, archive, started.name, found, recorded
    )
    await run_blocking(resume.restore)
    assert notes.read_text() == "before"
    (aside,) = (state_dir(scene.run_dir) / "set-aside").glob("Eko-*")
    assert (aside / "workspace" / "notes.md").read_text() == "after"
    batch = await scene.world.resume_all(scene.run_dir, found=resume.found)
    again = batch[started.name]
    assert json.loads(act(again.port, session, 0))["counter"] == 0
    agents = scene.agents()
    async with scene.crew(agents) as crew:
        continued = await crew.start(again, record, record.texts)
        assert {agent.name: agent.session_id for agent in continued} == conversations
        await crew.stop(grace_seconds=5)


@pytest.mark.thorough
async def test_the_end_of_the_agents_is_saved_while_the_world_runs(scene: Scene) -> None:
    agents = scene.agents()[:1]
    async with scene.crew(agents) as crew:
        started = await scene.world.start(run_dir=scene.run_dir)
        record = describe(agents, every=0.01)
        await crew.start(started, record, record.texts)
        await wait_until_async(lambda: len(scene.outcomes) >= 3)
        await crew.stop(grace_seconds=5)
        (result,) = await crew.wait()
        assert result.state == "stopped"
        count = len(scene.outcomes)
        await crew.settle()
        assert crew.latest is scene.outcomes[-1]
        assert len(scene.outcomes) == count + 1  # no more were made at the interval
    recorded = await run_blocking(read_team, scene.run_dir)
    assert recorded is not None
    assert recorded.settled == crew.latest.path.name


async def test_no_checkpoint_of_the_end_is_made_without_an_interval(scene: Scene) -> None:
    agents = scene.agents()[:1]
    async with scene.crew(agents) as crew:
        with pytest.raises(UsageError, match="are not started yet"):
            await crew.save_team()
        started = await scene.world.start(run_dir=scene.run_dir)
        record = describe(agents, every=0.0)
        await crew.start(started, record, record.texts)
        await crew.wait_first_checkpoint()
        await crew.stop(grace_seconds=5)
        await crew.settle()
        assert scene.outcomes == []
        assert await crew.save_team() == crew.latest


async def test_a_first_checkpoint_that_fails_is_reported(scene: Scene) -> None:
    (scene.run_dir / "w").mkdir()
    (scene.run_dir / "w" / "checkpoints").symlink_to("/dev/null")
    agents = scene.agents()[:1]
    async with scene.crew(agents) as crew:
        started = await scene.world.start(run_dir=scene.run_dir / "w")
        record = describe(agents, every=NEVER_S)
        await crew.start(started, record, record.texts)
        await crew.wait_first_checkpoint()
        (error,) = scene.outcomes
        assert isinstance(error, ClawbloxError)
        assert crew.latest is None


async def test_an_agent_whose_conversation_is_not_in_the_archive_is_refused(
    scene: Scene, tmp_path: Path
) -> None:
    started = await scene.world.start(run_dir=scene.run_dir)
    places = {"Eko": scene.run_dir / "agents" / "Eko"}
    saved = await scene.world.checkpoint(tmp_path / "a.ckpt", places, workspace_only=True)
    await scene.world.stop()
    loaded = await scene.world.start(resume=saved, run_dir=tmp_path / "next")
    directory = tmp_path / "next" / "agents" / "Eko"
    agents = [AsyncAgent(agent="claude", name="Eko", dir=directory, binary=scene.bin_dir)]
    record = describe(agents, every=NEVER_S)
    async with scene.crew(agents) as crew:
        with pytest.raises(AgentResumeError, match="not its conversation"):
            await crew.start(loaded, record, record.texts)
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
    record = describe(scene.agents(), every=NEVER_S)
    resume = await run_blocking(
        TeamResume.find, scene.run_dir, saved.path, started.name, found, record
    )
    digest = (await run_blocking(read_metadata, saved))["files"]["world.snapshot"]["sha256"]
    assert [save.sha256 for save in resume.found.instances[0].saves] == [digest]
    assert resume.restore() == {}  # no agent is in the archive
    found = msgspec.structs.replace(
        found, instances=(msgspec.structs.replace(found.instances[0], saves=()),)
    )
    with pytest.raises(ClawbloxError, match=f"The save of {started.name} that belongs to a.ckpt"):
        TeamResume.find(scene.run_dir, saved.path, started.name, found, record)
    with pytest.raises(CheckpointError):
        TeamResume.find(scene.run_dir, tmp_path / "b.ckpt", started.name, found, record)
