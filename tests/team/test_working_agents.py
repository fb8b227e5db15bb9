"""Checkpoints of agents that are told to go on after each turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import attrs
import pytest

from clawblox import AsyncCheckpointer, AsyncWorld
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.concurrency.threads import run_blocking
from tests.agents.standins import hold, install, misbehave, told
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

NEVER_S = 3600.0


@attrs.frozen
class Scene:
    """An agent at work in a world."""

    agent: AsyncAgent
    checkpointer: AsyncCheckpointer

    @property
    def workspace(self) -> Path:
        return self.agent.dir / "workspace"

    async def messages(self) -> list[str]:
        return await run_blocking(self._messages)

    def _messages(self) -> list[str]:
        (path,) = find_driver(self.agent.driver).transcripts(AgentDir(self.agent.dir)).values()
        return told(path)

    async def goes_on(self) -> None:
        count = len(await self.messages())
        while len(await self.messages()) <= count + 1:
            await anyio.sleep(0.01)


@pytest.fixture(params=[pytest.param("claude", marks=pytest.mark.thorough), "codex"])
async def scene(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-key-0001")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key-0002")
    binary = install(tmp_path / "bin", request.param)
    directory = tmp_path / "run" / "agents" / "Eko"
    (directory / "workspace").mkdir(parents=True)
    misbehave(directory / "workspace", turn_s=0.05)
    agent = AsyncAgent(agent=request.param, name="Eko", dir=directory, binary=binary)
    async with AsyncWorld(dir=make_world(tmp_path)) as world, agent:
        await world.start(run_dir=tmp_path / "run")
        await world.connect(agent=agent)
        await agent.start(initial_prompt="Begin", system_prompt="Be curious.")
        yield Scene(
            agent, AsyncCheckpointer(world, [agent], dir=tmp_path / "out", idle_wait=NEVER_S)
        )


@pytest.mark.thorough
async def test_working_agent_is_saved_between_turns_and_continues(scene: Scene) -> None:
    with anyio.fail_after(HANG_S):
        for _ in range(3):
            saved = await scene.checkpointer.save()
            assert saved.mid_turn == ()
            assert scene.agent.state == "working"
            await scene.goes_on()
        await scene.agent.stop(grace_seconds=5)
        assert set((await scene.messages())[1:]) == {AUTO_CONTINUE}


@pytest.mark.thorough
async def test_checkpoint_waits_for_a_running_turn_and_messages_still_arrive(scene: Scene) -> None:
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            with hold(scene.workspace):
                await wait_until_async(lambda: not scene.agent.is_between_turns)
                tasks.start_soon(scene.checkpointer.save)
                await anyio.wait_all_tasks_blocked()
                assert scene.checkpointer.latest is None
        assert scene.checkpointer.latest is not None
        assert scene.checkpointer.latest.mid_turn == ()
        with scene.agent.hold_turns(), scene.agent.hold_turns():
            await wait_until_async(lambda: scene.agent.is_between_turns)
            await scene.agent.send(prompt="Come back.")
            while (await scene.messages())[-1] != "Come back.":
                await anyio.sleep(0.01)
            await wait_until_async(lambda: scene.agent.is_between_turns)
            assert (await scene.messages())[-1] == "Come back."
        await scene.goes_on()
        await scene.agent.stop(grace_seconds=5)
