"""The conversation of a program: the reported id, and the proof in the transcripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest

from clawblox import AgentResumeError, AgentStartError, AsyncAgent
from clawblox.agents.drivers import DRIVERS, find_driver
from tests.agents.small import SmallDriver, opened, records, small
from tests.agents.small_program import OTHER_SESSION
from tests.agents.standins import install, misbehave
from tests.support.waiting import HANG_S

__all__ = ["small"]

pytestmark = pytest.mark.anyio

with_small = pytest.mark.usefixtures("small")

NO_IDS = ["../../x", "", ".", "..", "a/b", "x\n", "-x", "x" * 5000]


@pytest.mark.parametrize("driver", DRIVERS)
def test_ids_that_lead_to_other_paths_match_no_pattern(driver: str) -> None:
    pattern = find_driver(driver).program.id_pattern
    assert not any(map(pattern.fullmatch, NO_IDS))


@with_small
@pytest.mark.parametrize("flags", [("silent",), ("silent", "loop")])
async def test_an_invalid_id_from_the_program_is_refused_at_the_start(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags) as agent:
        with pytest.raises(AgentStartError, match=r"invalid conversation id: '\.\./\.\./x'"):
            await agent.start(initial_prompt="name ../../x hang")
        assert agent.state == "failed"
        assert not list(agent.dir.glob("*session_id.txt"))


@asynccontextmanager
async def silent(directory: Path) -> AsyncIterator[AsyncAgent]:
    """Yield an agent with a conversation whose program no longer reports its id."""
    async with opened(directory) as agent:
        await agent.start(initial_prompt="work")
        await agent.wait()
    async with opened(directory, "silent") as agent:
        yield agent


@with_small
async def test_another_reported_id_is_a_warning_while_the_recorded_transcript_grows(
    tmp_path: Path,
) -> None:
    async with silent(tmp_path) as agent:
        started = await agent.send(prompt=f"name {OTHER_SESSION} work")
        assert started.session_id != OTHER_SESSION
        assert (await agent.wait()).state == "idle"
    confirmed = records(agent, "session.confirmed")[-1]
    assert confirmed["session_id"] == started.session_id
    assert confirmed["data"]["named"] == OTHER_SESSION


@with_small
@pytest.mark.parametrize("is_older", [pytest.param(False, marks=pytest.mark.thorough), True])
async def test_growth_of_another_transcript_is_an_error(tmp_path: Path, is_older: bool) -> None:
    async with silent(tmp_path) as agent:
        if is_older:
            (agent.dir / "session" / f"{OTHER_SESSION}.jsonl").write_text("{}\n")
        with pytest.raises(AgentResumeError, match=f"in conversation '{OTHER_SESSION}'"):
            await agent.send(prompt="elsewhere")


@with_small
async def test_another_reported_id_without_proof_is_an_error_at_the_end_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmallDriver, "progress", lambda self, directory: {})
    async with silent(tmp_path) as agent:
        with pytest.raises(AgentResumeError, match=f"in conversation '{OTHER_SESSION}'"):
            await agent.send(prompt=f"name {OTHER_SESSION}")


@pytest.mark.thorough
@with_small
async def test_a_program_that_uses_another_id_than_requested_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = attrs.evolve(SmallDriver.program, takes_id=True)
    monkeypatch.setattr(SmallDriver, "program", program)
    async with opened(tmp_path, "silent") as agent:
        with pytest.raises(AgentStartError, match="in conversation"):
            await agent.start(initial_prompt="elsewhere")


KEYS = {
    "claude": {"ANTHROPIC_API_KEY": "k"},
    "codex": {"OPENAI_API_KEY": "k"},
    "kimi": {"KIMI_MODEL_API_KEY": "k", "KIMI_MODEL_NAME": "m"},
    "opencode": {"OPENAI_API_KEY": "k"},
    "acp": {},
}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, marks=() if program == "acp" else pytest.mark.thorough)
        for program in KEYS
    ],
)
async def test_another_id_on_a_resume_is_the_same_error_for_each_driver(
    tmp_path: Path, program: str
) -> None:
    directory = tmp_path / "Eko"
    binary = install(tmp_path / "bin", program, name="kimi" if program == "acp" else None)
    model = {"model": "openai/m1"} if program == "opencode" else {}
    with anyio.fail_after(HANG_S):
        async with AsyncAgent(
            agent=program, name="Eko", dir=directory, binary=binary, auto_continue=False, **model
        ) as agent:
            await agent.start(
                initial_prompt="SAY hello", system_prompt="Be good.", env=KEYS[program]
            )
            assert (await agent.wait()).state == "idle", agent.failure
            await agent.stop(grace_seconds=2)
            misbehave(directory / "workspace", wrong_id=True)
            with pytest.raises(AgentResumeError):
                await agent.send(prompt="SAY again", env=KEYS[program])
            assert agent.state == "failed"


async def test_a_command_that_prints_another_id_on_a_resume_is_an_error(tmp_path: Path) -> None:
    words = ["sh", "-c", 'echo "session: $1"', "sh"]
    command = {
        "start": [*words, "first", "{prompt}"],
        "resume": [*words, "second", "{prompt}", "{session}"],
        "session": r"session: (\S+)",
    }
    with anyio.fail_after(HANG_S):
        async with AsyncAgent(
            agent="command", name="Eko", dir=tmp_path / "Eko", command=command, auto_continue=False
        ) as agent:
            await agent.start(initial_prompt="hello", system_prompt="Be good.")
            await agent.wait()
            with pytest.raises(AgentResumeError, match="'second', not in first"):
                await agent.send(prompt="again")
