"""A team: a world and the agents in it start, are saved, stop and continue together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import attrs
import pytest

from clawblox import (
    AUTO_CONTINUE,
    Agent,
    AsyncAgent,
    AsyncTeam,
    AsyncWorld,
    Budget,
    ClawbloxError,
    ConfigError,
    SavedCheckpoint,
    Team,
    UsageError,
    World,
)
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.concurrency.threads import run_blocking
from clawblox.team.record import AgentRunOptions, RunAgent, read_team
from tests.agents.standins import common, install, misbehave, told
from tests.support.crowd import act
from tests.support.starting import add
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio

DRIVERS = {"Eko": "claude", "Moa": "codex"}
SECRET = "sk-not-a-key-0001"


@attrs.define
class Scene:
    """A world directory, a run directory, and the programs of two agents."""

    world: Path
    run_dir: Path
    bin_dir: Path
    outcomes: list[SavedCheckpoint | Exception] = attrs.field(factory=list)

    def options(self, name: str) -> dict[str, object]:
        driver = DRIVERS[name]
        return {
            "agent": driver,
            "name": name,
            "dir": self.run_dir / "agents" / name,
            "binary": self.bin_dir / driver,
        }

    def team(self, *names: str) -> AsyncTeam:
        return AsyncTeam(
            self.world,
            [AsyncAgent(**self.options(name)) for name in names or DRIVERS],
            run_dir=self.run_dir,
            on_checkpoint=self.outcomes.append,
        )

    def session(self, name: str) -> str:
        return (self.run_dir / "agents" / name / "world_session.txt").read_text().strip()

    def messages(self, name: str) -> list[str]:
        directory = AgentDir(self.run_dir / "agents" / name)
        (path,) = find_driver(DRIVERS[name]).transcripts(directory).values()
        return told(path)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key-0002")
    for name, driver in DRIVERS.items():
        install(tmp_path / "bin", driver)
        workspace = tmp_path / "run" / "agents" / name / "workspace"
        workspace.mkdir(parents=True)
        misbehave(workspace, turn_s=0.05)
    return Scene(make_world(tmp_path), tmp_path / "run", tmp_path / "bin")


@pytest.mark.thorough
async def test_a_team_is_resumed_from_its_latest_checkpoint(scene: Scene) -> None:
    notes = scene.run_dir / "agents" / "Eko" / "workspace" / "notes.md"
    with anyio.fail_after(HANG_S):
        async with scene.team() as team:
            await team.check()
            prompts = {"Eko": "Take the first.", "Moa": "Take the second."}
            started = await team.start(prompts, env={"TEAM_SECRET": "hidden-value"})
            assert [agent.name for agent in started.agents] == [*DRIVERS]
            add(started.world, {"X-Session": scene.session("Eko")}, 5)
            notes.write_text("before")
            await wait_until_async(lambda: bool(scene.outcomes))
            saved = await team.checkpoint()
            assert team.latest == saved
            assert saved.metadata["agents"].keys() == DRIVERS.keys()
            add(started.world, {"X-Session": scene.session("Eko")}, 2)
            notes.write_text("after")
        for name, prompt in prompts.items():
            (first, *_) = await run_blocking(scene.messages, name)
            assert first.startswith("You act in a world")
            assert first.endswith(prompt)
        record = (scene.run_dir / ".clawblox" / "agent.json").read_text()
        assert "hidden-value" not in record
        assert SECRET not in record

        conversations = {agent.name: agent.session_id for agent in started.agents}
        async with AsyncTeam.resume(scene.run_dir, on_checkpoint=scene.outcomes.append) as team:
            with pytest.raises(ConfigError, match="instance: must be None for a team that is"):
                await team.start(instance=started.world)
            again = await team.start()
            assert {agent.name: agent.session_id for agent in again.agents} == conversations
            assert again.world.name == started.world.name
            counter = json.loads(act(again.world.port, scene.session("Eko"), 0))["counter"]
            assert counter == 5
            assert notes.read_text() == "before"
            results = await team.stop()
            assert [result.state for result in results] == ["stopped", "stopped"]
            assert await team.stop() == results
            assert team.world.instances == ()
        recorded = await run_blocking(read_team, scene.run_dir)
        assert recorded is not None
        assert recorded.settled == scene.outcomes[-1].path.name

        # An instance that was stopped on purpose continues, too, with the latest work.
        workspace = scene.run_dir / "agents" / "Eko" / "workspace"
        (workspace / "last.md").touch()
        async with AsyncTeam.resume(scene.run_dir) as team:
            await team.start()
            assert (workspace / "last.md").exists()
        assert AUTO_CONTINUE in await run_blocking(scene.messages, "Eko")


async def test_agents_whose_world_has_ended_are_stopped(scene: Scene) -> None:
    with anyio.fail_after(HANG_S):
        async with scene.team("Moa") as team:
            started = await team.start()
            ask(started.world.port, "POST", "/__die?status=9")
            (result,) = await team.wait()
        assert (result.state, result.reason) == ("stopped", "its world has ended")


async def test_a_team_acts_in_an_instance_that_was_started_with_options(scene: Scene) -> None:
    agent = AsyncAgent(**scene.options("Eko"), budget=Budget(turns=2))
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(scene.world, run_dir=scene.run_dir) as world:
            async with AsyncTeam(world, [agent], run_dir=scene.run_dir, checkpoint_every=0) as team:
                with pytest.raises(UsageError, match="are not started yet"):
                    await team.checkpoint()
                other = await world.start(run_dir=scene.run_dir.parent / "other")
                with pytest.raises(ConfigError, match=r"instance: must be one in .*run, not"):
                    await team.start(instance=other)
                started = await world.start(name="w7", port=0)
                await team.start("Go.", instance=started)
                (result,) = await team.wait()
                assert (result.ended_by, result.usage.turns) == ("budget", 2)
                with pytest.raises(UsageError, match="was started already"):
                    await team.start()
                assert team.latest is None
            assert world.instances == (other.name,)


async def test_a_cancelled_start_leaves_no_process_running(scene: Scene) -> None:
    workspace = scene.run_dir / "agents" / "Moa" / "workspace"
    misbehave(workspace, dump=True, silent_at_start=True)
    with anyio.fail_after(HANG_S):
        async with scene.team() as team:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(team.start)
                await wait_until_async(lambda: (workspace / common.DUMP_FILE).exists())
                tasks.cancel_scope.cancel()
            assert team.agents[1].state in ("new", "failed", "stopped")
            assert team.latest is None
        misbehave(workspace, turn_s=0.05)
        async with AsyncTeam.resume(scene.run_dir) as team:
            with pytest.raises(ClawbloxError, match="was saved yet"):
                await team.start()


@pytest.mark.parametrize(
    ("names", "change", "message"),
    [
        ((), {}, "agents: must be agents with different names, at least one, not 0"),
        (("Eko", "Eko"), {}, "agents: must be agents with different names, at least one, not 2"),
        (("Eko",), {"dir": "elsewhere"}, "agents.Eko.dir: must be .*/run/agents/Eko, not"),
    ],
)
def test_agents_that_cannot_be_resumed_are_refused(
    scene: Scene, names: tuple[str, ...], change: dict[str, object], message: str
) -> None:
    agents = [AsyncAgent(**{**scene.options(name), **change}) for name in names]
    with pytest.raises(ConfigError, match=message):
        AsyncTeam(scene.world, agents, run_dir=scene.run_dir)


async def test_texts_for_an_agent_that_is_not_in_the_team_are_refused(scene: Scene) -> None:
    async with scene.team("Eko") as team:
        with pytest.raises(ConfigError, match="prompt: must be a text, or texts by Eko, not 'Moa'"):
            await team.start({"Moa": "Go."})
        with pytest.raises(ConfigError, match="system_prompt: must be"):
            await team.start(system_prompt={"Eko": 5})


async def test_a_run_without_a_team_or_a_checkpoint_is_not_resumed(scene: Scene) -> None:
    with pytest.raises(ClawbloxError, match="There is no team in"):
        AsyncTeam.resume(scene.run_dir)
    agent = AsyncAgent(**scene.options("Eko"))
    with anyio.fail_after(HANG_S):
        async with AsyncTeam(
            scene.world, [agent], run_dir=scene.run_dir, checkpoint_every=0
        ) as team:
            await team.start()
        async with AsyncTeam.resume(scene.run_dir) as team:
            with pytest.raises(ClawbloxError, match="was saved yet"):
                await team.start()
        async with scene.team("Eko") as team:
            with pytest.raises(UsageError, match=r"'Eko' has acted in .* before"):
                await team.start()


async def test_a_run_started_by_the_command_line_can_be_resumed_as_a_team(
    scene: Scene, monkeypatch
) -> None:
    monkeypatch.setenv("PATH", f"{scene.bin_dir}:{os.environ['PATH']}")
    (scene.run_dir / "prompt.md").write_text("Go.")
    options = AgentRunOptions(agent="claude", prompt=f"@{scene.run_dir / 'prompt.md'}")
    with anyio.fail_after(HANG_S):
        async with scene.team("Eko") as team:
            await team.start()
            await team.checkpoint()
        written = RunAgent(options=options, turn_limit=9).record(scene.run_dir)
        await run_blocking(written.write, scene.run_dir)
        async with AsyncTeam.resume(scene.run_dir) as team:
            await team.start()
            assert team.agents[0].budget == Budget(turns=9)
        recorded = await run_blocking(read_team, scene.run_dir)
        assert recorded is not None
        assert recorded.command_line == written.command_line


# -- without await -------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys
from clawblox import Agent, Team
world, run_dir, binary = sys.argv[1:]
agents = [Agent(agent="claude", name="Eko", dir=f"{run_dir}/agents/Eko", binary=binary)]
with Team(world, agents, run_dir=run_dir) as team:
    team.start("Begin")
    agents[0].send("Look around.")
    team.checkpoint()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_team_continues_after_a_kill_of_its_script(scene: Scene) -> None:
    words = [sys.executable, "-c", SCRIPT, str(scene.world), str(scene.run_dir)]
    killed = subprocess.run([*words, str(scene.bin_dir / "claude")], timeout=HANG_S)
    assert killed.returncode == -signal.SIGKILL
    with Team.resume(scene.run_dir) as team:
        started = team.start()
        assert (started.world.name, team.world.instances) == ("w000", ("w000",))
        assert started.world.save().path.exists()
        team.agents[0].send("Go on.")
        assert team.run_dir == scene.run_dir
        (result,) = team.stop()
        assert result.state == "stopped"
    assert not team.world.is_open
    assert not team.agents[0].is_open


def test_a_sync_team_accepts_an_open_world_and_an_open_agent(scene: Scene) -> None:
    with World(scene.world, run_dir=scene.run_dir) as world:
        agent = Agent(**scene.options("Moa"), budget=Budget(turns=1))
        assert agent.check() is not None  # it is open from here
        team = Team(world, [agent], run_dir=scene.run_dir, checkpoint_every=0)
        assert team.world is world
        assert team.agents == (agent,)
        team.start("Go.")
        assert team.wait()[0].ended_by == "budget"
        team.close()
        assert world.instances == ()
        agent.close()
