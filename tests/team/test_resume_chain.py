"""Agents restored into other directories and sandboxes go on exactly, or say why they cannot."""

from __future__ import annotations

import itertools
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import Agent, AsyncCheckpointer, AsyncWorld, World, load_checkpoint
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentError, AgentResumeError
from tests.agents.standins import install, told
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

DRIVERS = ("claude", "codex", "kimi")
FIRST = "SAY I live on a farm."
TOLD = [FIRST, AUTO_CONTINUE]

_all = [*itertools.product(DRIVERS, (False, True), (False, True), (False, True))]
_DEFAULT = {("kimi", False, True, False), ("claude", True, False, True)}


def marks(*sandboxes: bool, is_default: bool) -> list[pytest.MarkDecorator]:
    """Return the marks of a combination of sandboxes."""
    needed = [pytest.mark.needs("bwrap")] if any(sandboxes) else []
    return needed if is_default else [*needed, pytest.mark.thorough]


COMBINATIONS = [
    pytest.param(*each, marks=marks(*each[1:3], is_default=each in _DEFAULT)) for each in _all
]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KIMI_MODEL_API_KEY"):
        monkeypatch.setenv(name, "sk-not-a-key-0001")
    monkeypatch.setenv("KIMI_MODEL_NAME", "kimi-for-coding")


def make_agent(bin_dir: Path, directory: Path, driver: str, **options: Any) -> AsyncAgent:
    given = {"agent": driver, "name": directory.name, "dir": directory, "auto_continue": False}
    return AsyncAgent(binary=install(bin_dir, driver), **{**given, **options})


def conversation(directory: Path, driver: str) -> tuple[str, list[str]]:
    """Return the id of the only conversation, and what it was told."""
    [(session_id, path)] = (find_driver(driver).transcripts(AgentDir(directory)) or {}).items()
    return session_id, told(path)


@pytest.mark.parametrize(("driver", "was_sandboxed", "is_sandboxed", "moves"), COMBINATIONS)
async def test_conversation_continues_in_any_surroundings_of_its_program(
    tmp_path: Path, driver: str, was_sandboxed: bool, is_sandboxed: bool, moves: bool
) -> None:
    directory, bin_dir = tmp_path / "one" / "agents" / "Eko", tmp_path / "bin"
    with anyio.fail_after(HANG_S):
        async with make_agent(bin_dir, directory, driver, sandbox=was_sandboxed) as agent:
            started = await agent.start(initial_prompt=FIRST, system_prompt="Be curious.")
            assert (await agent.wait()).state == "idle"
        before = await run_blocking(conversation, directory, driver)
        assert before == (started.session_id, [FIRST])
        if moves:
            directory = tmp_path / "two" / "agents" / "Eko"
            await run_blocking(shutil.copytree, agent.dir, directory)
            await run_blocking(shutil.rmtree, agent.dir)
        async with make_agent(bin_dir, directory, driver, sandbox=is_sandboxed) as agent:
            continued = await agent.send(prompt=AUTO_CONTINUE)
            assert continued.session_id == started.session_id
            assert (await agent.wait()).state == "idle"
        after = await run_blocking(conversation, directory, driver)
        assert after == (started.session_id, TOLD)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("driver", "was_sandboxed"),
    [
        pytest.param(*each, marks=marks(True, is_default=each == ("kimi", True)))
        for each in itertools.product(DRIVERS, (False, True))
    ],
)
async def test_an_archive_is_resumed_with_the_sandbox_that_the_agent_had(
    tmp_path: Path, driver: str, was_sandboxed: bool
) -> None:
    world_dir, run_dir, bin_dir = make_world(tmp_path), tmp_path / "one", tmp_path / "bin"
    directory = run_dir / "agents" / "Eko"
    with anyio.fail_after(HANG_S):
        async with (
            AsyncWorld(world_dir) as world,
            make_agent(bin_dir, directory, driver, sandbox=was_sandboxed) as agent,
        ):
            await world.start(run_dir=run_dir)
            access = await world.connect(agent=agent)
            started = await agent.start(initial_prompt=FIRST, system_prompt="Be curious.")
            await agent.wait()
            saves = AsyncCheckpointer(world, [agent], dir=tmp_path / "saves", idle_wait=0.0)
            saved = await saves.save()
        loaded = await run_blocking(load_checkpoint, saved.path, tmp_path / "two")
        directory = loaded["agents"]["Eko"]
        async with AsyncWorld(world_dir) as world:
            await world.start(run_dir=tmp_path / "two", resume=loaded["world_snapshot"])
            other = make_agent(bin_dir, directory, driver, sandbox=not was_sandboxed)
            async with other:
                with pytest.raises(AgentResumeError) as caught:
                    await world.connect(agent=other)
                assert f"sandbox={was_sandboxed}" in str(caught.value)
            async with make_agent(bin_dir, directory, driver, sandbox=was_sandboxed) as agent:
                again = await world.connect(agent=agent)
                assert (again["session"], again["base_url"]) == (
                    access["session"],
                    access["base_url"],
                )
                await agent.send(prompt=AUTO_CONTINUE)
                await agent.wait()
        after = await run_blocking(conversation, directory, driver)
        assert after == (started.session_id, TOLD)


@pytest.mark.thorough
def test_a_script_resumes_a_checkpoint_while_the_stopped_agent_still_exists(
    tmp_path: Path,
) -> None:
    world_dir, binary = make_world(tmp_path), install(tmp_path / "bin", "claude")

    def make(directory: Path) -> Agent:
        return Agent(agent="claude", name="Eko", dir=directory, binary=binary, auto_continue=False)

    with World(world_dir) as world:
        world.start(run_dir=tmp_path / "one")
        agent = make(tmp_path / "one" / "agents" / "Eko")
        access = world.connect(agent=agent)
        started = agent.start(initial_prompt=FIRST, system_prompt="Be curious.")
        assert agent.wait().state == "idle"
        agent.stop(grace_seconds=1)
        saved = world.checkpoint(tmp_path / "one.ckpt", {"Eko": agent.dir}, backend="claude")
        world.stop(grace_seconds=1)
        loaded = load_checkpoint(saved, tmp_path / "two")
        world.start(run_dir=tmp_path / "two", resume=loaded["world_snapshot"])
        continuing = make(loaded["agents"]["Eko"])
        again = world.connect(agent=continuing)
        assert (again["session"], again["base_url"]) == (access["session"], access["base_url"])
        assert continuing.send(prompt=AUTO_CONTINUE).session_id == started.session_id
        assert continuing.wait().state == "idle"
        with pytest.raises(AgentResumeError, match="by the agent Eko of this process"):
            agent.send(prompt=AUTO_CONTINUE)
        for each in (continuing, agent):
            each.close()


def swap(one: Path, two: Path, driver: str) -> None:
    name = f"{driver}_session_id.txt"
    ids = [(directory / name).read_text() for directory in (one, two)]
    for directory, text in zip((two, one), ids, strict=True):
        (directory / name).write_text(text)


def rewrite(text: str) -> Callable[[Path, Path, str], None]:
    def change(one: Path, two: Path, driver: str) -> None:
        for directory in (one, two):
            (directory / f"{driver}_session_id.txt").write_text(text)

    return change


def remove(one: Path, two: Path, driver: str) -> None:
    for directory in (one, two):
        (directory / f"{driver}_session_id.txt").unlink()


def link(one: Path, two: Path, driver: str) -> None:
    swap(one, two, driver)
    for directory in (one, two):
        path = directory / f"{driver}_session_id.txt"
        path.rename(directory / "elsewhere")
        path.symlink_to("elsewhere")


FOREIGN = str(uuid.UUID(int=9))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(swap, id="swapped"),
        pytest.param(remove, id="missing"),
        pytest.param(link, id="a link"),
        pytest.param(rewrite(FOREIGN), id="foreign"),
        pytest.param(rewrite(""), id="empty"),
        pytest.param(rewrite("../../etc"), id="a path"),
        pytest.param(rewrite(f"{FOREIGN}\n{FOREIGN}"), id="two"),
        pytest.param(rewrite("x" * 100_000), id="huge"),
    ],
)
@pytest.mark.parametrize(
    "driver", [pytest.param(each, marks=pytest.mark.thorough) for each in DRIVERS[:2]] + ["kimi"]
)
async def test_wrong_session_record_is_never_used(tmp_path: Path, driver: str, fault: Any) -> None:
    directories = [tmp_path / "agents" / name for name in ("A", "B")]
    for directory in directories:
        await run_blocking(leave_conversation, directory, driver)
    await run_blocking(fault, *directories, driver)
    for directory in directories:
        before = await run_blocking(transcripts, directory)
        with anyio.fail_after(HANG_S):
            async with make_agent(tmp_path / "bin", directory, driver) as agent:
                with pytest.raises(AgentResumeError) as caught:
                    await agent.send(prompt=AUTO_CONTINUE)
        assert caught.value.hint
        assert len(str(caught.value)) < 2000
        assert await run_blocking(transcripts, directory) == before


def leave_conversation(directory: Path, driver: str) -> None:
    """Write the files that a stopped agent leaves."""
    session_id = str(uuid.uuid4())
    transcript = directory / "session" / TRANSCRIPT[driver].format(id=session_id)
    write(transcript, "{}\n")
    if driver == "kimi":
        write(transcript.parents[2] / "state.json", "{}")
    write(directory / f"{driver}_session_id.txt", session_id)
    write(directory / "runtime" / "system_prompt.md", "Be kind.")


TRANSCRIPT = {
    "claude": "projects/-old/{id}.jsonl",
    "codex": "sessions/2026/01/02/rollout-2026-01-02T03-04-05-{id}.jsonl",
    "kimi": "sessions/wd_old_0123456789ab/{id}/agents/main/wire.jsonl",
}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def transcripts(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (directory / "session").rglob("*.jsonl")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema_version": 99}',
        json.dumps({"schema_version": 1, "usage": {"turns": -1}, "conversations": {}}),
        "[" * 100_000,
        pytest.param(" " * (17 << 20), id="huge"),
    ],
)
async def test_a_hostile_record_of_usage_is_an_error(tmp_path: Path, text: str) -> None:
    directory = tmp_path / "Eko"
    write(directory / "usage.json", text)
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "bin", directory, "codex") as agent:
            with pytest.raises(AgentError, match=r"usage\.json"):
                await agent.start(initial_prompt="Begin")
    assert (directory / "usage.json").read_text() == text
