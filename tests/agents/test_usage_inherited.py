"""An agent's own usage is distinguished from usage in the archive from which it was loaded."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from clawblox import async_load_checkpoint, async_save_checkpoint
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentStatus, describe_metrics, read_status
from clawblox.agents.usage import Ledger
from clawblox.agents.values import Usage
from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.interrupted import InterruptedRun
from clawblox.team.record import TeamRecord, Texts
from clawblox.team.resume import TeamResume
from tests.agents.running.test_conversation import KEYS
from tests.agents.test_branches import begin, make_agent
from tests.support.sampling import usually
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


def status_of(agent: AsyncAgent) -> AgentStatus:
    status = read_status(agent.dir)
    assert status is not None
    return status


async def go_on(agent: AsyncAgent) -> AgentStatus:
    """Let an agent have a turn, and return its status."""
    async with agent:
        await agent.send("GO ON", env=KEYS[agent.driver])
        assert (await agent.wait()).state == "idle", agent.failure
    return status_of(agent)


async def hand_on(agent: AsyncAgent, place: Path) -> AsyncAgent:
    """Return an agent that continues an archive of another agent in a directory of its own."""
    archive = await async_save_checkpoint(place / "a.ckpt", agents={"Eko": agent.dir})
    loaded = await async_load_checkpoint(archive, place)
    return make_agent(Path(loaded["agents"]["Eko"]), agent.driver)


@pytest.mark.parametrize("program", usually(["claude", "codex"], "claude"))
async def test_a_loaded_agent_inherits_the_usage_in_its_archive(
    tmp_path: Path, program: str
) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", program) as first:
            await begin(first)
        begun = status_of(first)
        assert (begun.inherited, begun.own_usage) == (Usage(), begun.usage)
        assert begun.usage.tokens > 0

        second = await hand_on(first, tmp_path / "2")
        continued = await go_on(second)
        assert continued.inherited == begun.usage
        assert continued.own_usage.turns == 1
        assert continued.usage.tokens == begun.usage.tokens + continued.own_usage.tokens

        third = await go_on(await hand_on(second, tmp_path / "3"))  # a fork of a fork
        assert third.inherited == continued.usage
        assert (third.usage.turns, third.own_usage.turns) == (3, 1)


async def test_a_loaded_agent_inherits_usage_that_only_the_archived_log_contains(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", "claude") as first:
            await begin(first)
        stale = Ledger.empty()  # as after a kill of the orchestrator
        stale.log_offset = 0
        await run_blocking(stale.write, AgentDir(first.dir).usage_file)
        continued = await go_on(await hand_on(first, tmp_path / "2"))
        assert continued.inherited == status_of(first).usage
        assert continued.own_usage.turns == 1


async def test_a_restored_or_branched_agent_inherits_no_further_usage(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", "claude") as first:
            await begin(first)
        loaded = await hand_on(first, tmp_path / "2")
        continued = await go_on(loaded)
        again = await go_on(make_agent(loaded.dir, "claude"))
        assert again.inherited == continued.inherited == status_of(first).usage
        assert again.own_usage.turns == 2

        archive = await async_save_checkpoint(tmp_path / "b.ckpt", agents={"Eko": loaded.dir})
        found = InterruptedRun((), {})
        resume = TeamResume(
            run_dir=tmp_path / "2",
            archive=archive,
            instance="w",
            found=found,
            record=TeamRecord(agents=(loaded.options,), texts=(Texts(),), checkpoint_every=0.0),
        )
        assert await run_blocking(resume.restore)
        resumed = await go_on(make_agent(loaded.dir, "claude"))
        assert (resumed.inherited, resumed.own_usage.turns) == (continued.inherited, 3)

        branch = await go_on(await make_agent(loaded.dir, "claude").fork(tmp_path / "branch"))
        assert branch.inherited == Usage()
        assert branch.own_usage == branch.usage
        assert branch.usage.turns == 1


def test_a_record_of_usage_without_inherited_usage_is_all_own(tmp_path: Path) -> None:
    ledger = Ledger.empty()
    ledger.end_turn()
    path = AgentDir(tmp_path).usage_file
    ledger.write(path)
    record = json.loads(path.read_text())
    del record["inherited"]
    path.write_text(json.dumps(record))
    loaded = Ledger.load(path)
    assert (loaded.usage.turns, loaded.inherited) == (1, Usage())


@pytest.mark.parametrize("text", ["", "[]", '{"usage": ' + "[" * 100_000])
async def test_an_unreadable_record_of_usage_is_loaded_unchanged(tmp_path: Path, text: str) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", "claude") as agent:
            await begin(agent)
        AgentDir(agent.dir).usage_file.write_text(text)
        loaded = await hand_on(agent, tmp_path / "2")
        assert AgentDir(loaded.dir).usage_file.read_text() == text


def test_metrics_count_own_usage_and_inherited_tokens_separately() -> None:
    inherited = Usage(input_tokens=100, output_tokens=9, cost_usd=1.0, turns=5)
    own = Usage(input_tokens=7, output_tokens=2, cost_usd=0.25, turns=1)
    status = AgentStatus(
        name="Eko",
        driver="claude",
        state="idle",
        dir=Path("/r/agents/Eko"),
        usage=inherited.plus(own),
        inherited=inherited,
    )
    metrics = describe_metrics(status)
    assert (metrics.tokens["input"], metrics.inherited_tokens["input"]) == (7, 100)
    assert (metrics.cost_usd, metrics.turns) == (0.25, 1)
