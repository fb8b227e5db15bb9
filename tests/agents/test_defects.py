"""A defect of the package in the task of one agent is that agent's failure, with a report."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from clawblox import AgentError
from clawblox.agents.running.bookkeeping import Bookkeeping
from clawblox.agents.running.owner import Owner
from clawblox.agents.status import read_status
from clawblox.foreign_values import clean_value
from tests.agents.small import opened, records, small
from tests.support.defects import Point, inject_all, inject_at
from tests.support.processes import marked_processes

__all__ = ["small"]

SAMPLE = [
    Point("agents.running.owner:Owner._attempt_once", "resume"),
    Point("agents.running.bookkeeping:Bookkeeping.record", "end"),
]


def test_a_defect_in_an_agents_task_ends_all_its_waits_and_no_sibling(
    tmp_path: Path,
) -> None:
    assert inject_at("agent", tmp_path / "defects", SAMPLE) == (len(SAMPLE), [])


@pytest.mark.thorough
@pytest.mark.parametrize("share", range(8))
def test_a_defect_in_any_function_of_the_task_ends_no_sibling(tmp_path: Path, share: int) -> None:
    reached, faults = inject_all("agent", tmp_path / "defects", share=(share, 8))
    assert faults == []
    assert reached > 20


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
async def test_a_message_whose_program_cannot_be_started_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work")
        await agent.wait()

        async def fail(*_: object) -> None:
            raise ValueError("it cannot be read")

        monkeypatch.setattr(Owner, "_attempt_once", fail)
        with pytest.raises(AgentError, match="it could not continue: it cannot be read"):
            await agent.send(prompt="work")
        assert agent.state == "failed"
        assert not marked_processes()


ODD = r"the_\ud800_value"
LONG = "9" * 4000


@pytest.mark.thorough
@pytest.mark.anyio
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "line",
    [
        f'{{"type":"error","data":{{"kind":"invalid","message":"{ODD}","status":{LONG}}}}}',
        f'{{"type":"session.confirmed","data":{{"session_id":"{ODD}"}}}}',
        f'{{"type":"turn.finished","data":{{"ok":false,"text":"{ODD}","count":NaN}}}}',
        f'{{"type":"usage","data":{{"tokens":{LONG}}}}}',
    ],
    ids=["an error", "a session", "an end", "a number"],
)
async def test_output_that_cannot_be_recorded_makes_no_call_wait(tmp_path: Path, line: str) -> None:
    async with opened(tmp_path, max_restarts=0) as agent:
        with suppress(AgentError):
            await agent.start(initial_prompt=f"raw {line} crash 1")
        result = await agent.wait()
        assert result.state == "failed"
        assert (await agent.stop(grace_seconds=1)).state == "failed"
        status = await run_sync(read_status, agent.dir)
        assert status is not None
        assert (status.state, status.reason) == ("failed", result.reason)
        assert result.reason.isprintable()
        for event in await run_sync(records, agent):
            assert event == clean_value(event)
        assert not marked_processes()


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
async def test_an_agent_whose_files_cannot_be_written_still_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, "loop") as agent:
        await agent.start(initial_prompt="work")

        async def fail(_books: Bookkeeping) -> None:
            raise ValueError("surrogates not allowed")

        monkeypatch.setattr(Bookkeeping, "flush", fail)
        assert (await agent.stop(grace_seconds=1)).state in ("stopped", "failed")
        assert not marked_processes()
