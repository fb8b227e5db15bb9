"""A run of two agents in one world that is killed in the middle of a turn goes on where it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import AsyncWorld, StartedWorld, read_metadata
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentResumeError
from tests.agents.standins import common, install, misbehave, told
from tests.support.processes import kill_processes, marked_processes
from tests.support.running import requests
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

AGENTS = {"Eko-r001": "claude", "Moa-r001": "codex"}
KEYS = {"ANTHROPIC_API_KEY": "sk-not-a-key-0001", "OPENAI_API_KEY": "sk-not-a-key-0002"}

ORCHESTRATOR = """
import json, sys
from contextlib import AsyncExitStack
from pathlib import Path
import anyio
from clawblox import AsyncCheckpointer, AsyncWorld
from clawblox.agents.async_agent import AsyncAgent
from clawblox.concurrency.threads import run_blocking

async def main(world_dir, run_dir, bin_dir, drivers):
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(AsyncWorld(world_dir))
        await world.start(run_dir=run_dir)
        agents, told = [], {}
        for name, driver in drivers.items():
            directory = Path(run_dir, "agents", name)
            agent = AsyncAgent(agent=driver, name=name, dir=directory, binary=Path(bin_dir, driver))
            agents.append(await stack.enter_async_context(agent))
            access = await world.connect(agent=agent)
            started = await agent.start(initial_prompt="Begin", system_prompt="Be curious.")
            told[name] = {**access, "conversation": started.session_id}
        saves = {"dir": Path(run_dir, "checkpoints"), "idle_wait": 0.0}
        checkpointer = AsyncCheckpointer(world, agents, **saves)
        print(json.dumps(told), flush=True)
        while await run_blocking(sys.stdin.readline):
            saved = await checkpointer.save()
            print(json.dumps({"path": str(saved.path), "mid_turn": saved.mid_turn}), flush=True)

anyio.run(main, *sys.argv[1:4], json.loads(sys.argv[4]))
"""


@attrs.frozen
class Killed:
    """The remains of a run whose processes were all killed.

    Attributes:
        checkpoint: The archive.
        agents: By name what the agent's world and program told in that run.
        transcripts: By name the conversation at the time of the checkpoint, and its end.
    """

    world_dir: Path
    bin_dir: Path
    checkpoint: Path
    agents: dict[str, dict[str, Any]]
    transcripts: dict[str, bytes]


def find_transcript(directory: Path, driver: str) -> Path:
    (path,) = find_driver(driver).transcripts(AgentDir(directory)).values()
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Run a world with two agents; save, go on, and kill everything in the middle of a turn."""
    root = tmp_path_factory.mktemp("killed")
    run_dir, bin_dir = root / "run", root / "bin"
    world_dir = make_world(root)
    for driver in AGENTS.values():
        install(bin_dir, driver)
    workspaces = {name: run_dir / "agents" / name / "workspace" for name in AGENTS}
    for workspace in workspaces.values():
        workspace.mkdir(parents=True)
        misbehave(workspace, turn_s=0.05)
    words = [sys.executable, "-c", ORCHESTRATOR, world_dir, run_dir, bin_dir, json.dumps(AGENTS)]
    with subprocess.Popen(
        [*map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **KEYS},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        agents = json.loads(process.stdout.readline())

        def count(name: str) -> int:
            return len(told(find_transcript(run_dir / "agents" / name, AGENTS[name])))

        for name, workspace in workspaces.items():
            wait_until(lambda name=name: count(name) >= 3, HANG_S)
            (workspace / common.HOLD_FILE).touch()
        held = {name: settle(lambda name=name: count(name)) for name in AGENTS}
        process.stdin.write("save\n")
        process.stdin.flush()
        saved = json.loads(process.stdout.readline())
        assert sorted(saved["mid_turn"]) == sorted(AGENTS)
        transcripts = {
            name: find_transcript(run_dir / "agents" / name, driver).read_bytes()
            for name, driver in AGENTS.items()
        }
        for name, workspace in workspaces.items():
            (workspace / common.HOLD_FILE).unlink()
            wait_until(lambda name=name: count(name) > held[name] + 1, HANG_S)
            (workspace / common.HOLD_FILE).touch()
        process.kill()
        kill_processes(marked_processes)
    wait_until(lambda: not marked_processes())
    yield Killed(world_dir, bin_dir, Path(saved["path"]), agents, transcripts)
    shutil.rmtree(root)


def settle(count: Any) -> int:
    """Return a count once a turn is held: then a message was taken, and no answer came."""
    before = -1
    for _ in range(200):
        found = count()
        if found == before:
            return found
        before = found
        signal.sigtimedwait([], 0.15)
    raise AssertionError("no turn is held")


@asynccontextmanager
async def resumed(
    killed: Killed, run_dir: Path
) -> AsyncIterator[tuple[AsyncWorld, StartedWorld, dict[str, AsyncAgent]]]:
    """Load the checkpoint into a new run directory, and start its world again."""
    with anyio.fail_after(HANG_S):
        async with AsyncExitStack() as stack:
            world = await stack.enter_async_context(AsyncWorld(killed.world_dir))
            started = await world.start(resume=killed.checkpoint, run_dir=run_dir)
            assert started.loaded is not None
            agents = {}
            for name, directory in started.loaded["agents"].items():
                await run_blocking((directory / "workspace" / common.HOLD_FILE).unlink)
                agent = AsyncAgent(
                    agent=AGENTS[name],
                    name=name,
                    dir=directory,
                    binary=killed.bin_dir / AGENTS[name],
                )
                agents[name] = await stack.enter_async_context(agent)
            yield world, started, agents


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


async def test_world_and_agents_resume_from_the_same_moment(killed: Killed, tmp_path: Path) -> None:
    metadata = await run_blocking(read_metadata, killed.checkpoint)
    assert {name: metadata["agents"][name]["mid_turn"] for name in AGENTS} == dict.fromkeys(
        AGENTS, True
    )
    async with resumed(killed, tmp_path / "again") as (world, started, agents):
        assert agents.keys() == AGENTS.keys()
        for name, agent in agents.items():
            before = killed.agents[name]
            access = await world.connect(agent=agent)
            assert (access["session"], access["base_url"]) == (
                before["session"],
                before["base_url"],
            )
            continued = await agent.send(prompt=AUTO_CONTINUE)
            assert continued.session_id == before["conversation"]
            await agent.send(prompt=f"GET {access['base_url']}/observe")
        for name, agent in agents.items():
            seen = killed.agents[name]["session"]
            await wait_until_async(
                lambda seen=seen: (
                    seen
                    in {one["headers"].get("x-session") for one in requests(started, "/observe")}
                )
            )
            transcript = await run_blocking(find_transcript, agent.dir, AGENTS[name])
            content = await run_blocking(transcript.read_bytes)
            kept = killed.transcripts[name]
            assert content.startswith(kept[: kept.rindex(b"\n") + 1])
            assert all(json.loads(line) for line in content.splitlines())
            await agent.stop(grace_seconds=5)
            assert (await run_blocking(told, transcript))[:3] == ["Begin", *[AUTO_CONTINUE] * 2]
    assert not marked_processes()


def lose(transcript: Path) -> None:
    transcript.unlink()


def empty(transcript: Path) -> None:
    transcript.write_bytes(b"")


def tear(transcript: Path) -> None:
    transcript.write_bytes(transcript.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("Eko-r001", tear),
        pytest.param("Eko-r001", lose, marks=pytest.mark.thorough),
        pytest.param("Moa-r001", empty, marks=pytest.mark.thorough),
    ],
)
async def test_a_damaged_conversation_is_an_error_and_never_a_new_one(
    killed: Killed, tmp_path: Path, name: str, damage: Any
) -> None:
    async with resumed(killed, tmp_path / "again") as (world, _, agents):
        agent = agents[name]
        await world.connect(agent=agent)
        driver = find_driver(AGENTS[name])
        transcript = await run_blocking(find_transcript, agent.dir, AGENTS[name])
        await run_blocking(damage, transcript)
        left = await run_blocking(driver.transcripts, AgentDir(agent.dir))
        with pytest.raises(AgentResumeError):
            await agent.send(prompt=AUTO_CONTINUE)
        assert await run_blocking(driver.transcripts, AgentDir(agent.dir)) == left
        recorded = (agent.dir / f"{AGENTS[name]}_session_id.txt").read_text().strip()
        assert recorded == killed.agents[name]["conversation"]


@pytest.mark.parametrize("name", [pytest.param("Eko-r001", marks=pytest.mark.thorough), "Moa-r001"])
async def test_a_program_that_continues_another_conversation_is_ended(
    killed: Killed, tmp_path: Path, name: str
) -> None:
    async with resumed(killed, tmp_path / "again") as (world, _, agents):
        agent = agents[name]
        await world.connect(agent=agent)
        await run_blocking(lambda: misbehave(agent.dir / "workspace", wrong_id=True))
        with pytest.raises(AgentResumeError):
            await agent.send(prompt=AUTO_CONTINUE)
        recorded = (agent.dir / f"{AGENTS[name]}_session_id.txt").read_text().strip()
        assert recorded == killed.agents[name]["conversation"]
        assert agent.state == "failed"
