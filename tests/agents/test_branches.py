"""Branches: another agent with the whole conversation of the first, which is unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import Agent, AgentResumeError, AsyncAgent, ConfigError, UsageError
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from tests.agents.running.test_conversation import KEYS
from tests.agents.standins import hold, install, read_dumps
from tests.support.running import running
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio

SECRET_WORD = "SAY the word is heron"


def make_agent(
    directory: Path, program: str, version: str | None = None, *, sandbox: bool = False
) -> AsyncAgent:
    binary = install(directory.parent / "bin", program, version=version)
    return AsyncAgent(
        agent=program,
        name="Eko",
        dir=directory,
        binary=binary,
        model="openai/m1" if program == "opencode" else None,
        auto_continue=False,
        sandbox=sandbox,
    )


async def begin(agent: AsyncAgent) -> None:
    await agent.start(initial_prompt=SECRET_WORD, system_prompt="Be good.", env=KEYS[agent.driver])
    assert (await agent.wait()).state == "idle", agent.failure


async def ask(agent: AsyncAgent) -> dict[str, Any]:
    """Let an agent list its messages, and return them."""
    texts: list[str] = []
    async with agent.events() as events, anyio.create_task_group() as tasks:

        async def read() -> None:
            async for event in events:
                if event.kind == "message" and event.data["role"] == "assistant":
                    texts[:] = [event.data["text"]]

        tasks.start_soon(read)
        await agent.send("WHO", env=KEYS[agent.driver])
        assert (await agent.wait()).state == "idle", agent.failure
        tasks.cancel_scope.cancel()
    answer = json.loads(texts[-1])
    assert isinstance(answer, dict)
    return answer


def read_files(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return the content and the time of each file of a program's state."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in AgentDir(directory).state.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


CASES = [
    pytest.param("claude", "2.1.330"),
    pytest.param("codex", None),
    *(
        pytest.param(program, None, marks=pytest.mark.thorough)
        for program in ("claude", "kimi", "opencode")
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("program", "version"), CASES)
async def test_two_branches_continue_the_conversation_of_an_agent_without_changing_it(
    tmp_path: Path, program: str, version: str | None
) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", program, version) as agent:
            await begin(agent)
            before, parent_usage = read_files(agent.dir), agent.usage
            branches = [await agent.fork(tmp_path / name, name=name) for name in ("a", "b")]
            answers = {}

            async def work(branch: AsyncAgent) -> None:
                async with branch:
                    answers[branch.name] = await ask(branch)
                    first = branch.session_id
                    await branch.stop()
                    assert "WHO" in (await ask(branch))["told"]
                    assert branch.session_id == first  # from then on, it is an ordinary agent

            async with anyio.create_task_group() as tasks:
                for branch in branches:
                    tasks.start_soon(work, branch)

            assert read_files(agent.dir) == before
            assert agent.usage == parent_usage
            for branch in branches:
                assert answers[branch.name]["told"] == [SECRET_WORD, "WHO"]
                # Each of the two turns used as much as the only turn of the original.
                assert branch.usage.tokens == 2 * parent_usage.tokens
                if parent_usage.cost_usd is not None:
                    # The parent's process has not ended, so its total is not in the copy.
                    missing = branch.usage.missing_costs
                    assert missing == (version == "2.1.330")
                    paid = (2 - missing) * parent_usage.cost_usd
                    assert branch.usage.cost_usd == pytest.approx(paid)
            assert len({agent.session_id, *(branch.session_id for branch in branches)}) == 3
            assert (await ask(agent))["told"] == [SECRET_WORD, "WHO"]


@pytest.mark.parametrize(
    "program",
    [
        "kimi",
        *(
            pytest.param(program, marks=pytest.mark.thorough)
            for program in ("claude", "codex", "opencode")
        ),
    ],
)
async def test_an_agent_that_this_process_never_started_can_be_forked(
    tmp_path: Path, program: str
) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", program) as agent:
            await begin(agent)
            used = agent.usage
        (agent.dir / "usage.json").unlink()  # as after a crash of the orchestrator
        before = read_files(agent.dir)
        branch = await make_agent(tmp_path / "Eko", program).fork(tmp_path / "branch")
        async with branch:
            assert (await ask(branch))["told"] == [SECRET_WORD, "WHO"]
        assert read_files(agent.dir) == before
        if program != "codex":  # without the ledger, the log counts as counted
            assert branch.usage.tokens == used.tokens


async def test_a_branch_copies_files_and_links_but_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    async with make_agent(tmp_path / "Eko", "claude") as agent:
        await begin(agent)
        workspace = agent.dir / "workspace"
        (workspace / "deep").mkdir()
        (workspace / "deep" / "run.sh").write_text("true")
        (workspace / "deep" / "run.sh").chmod(0o755)
        (workspace / "out").symlink_to(outside)
        (workspace / "own").symlink_to(workspace / "deep")
        branch = await agent.fork(tmp_path / "branch")
    copied = branch.dir / "workspace"
    assert (copied / "deep" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (copied / "out").readlink() == outside
    assert (copied / "own").readlink() == copied / "deep"
    assert not (branch.dir / "logs").exists()


async def test_the_conversation_of_a_branch_does_not_refer_to_the_original(tmp_path: Path) -> None:
    async with make_agent(tmp_path / "Eko", "claude") as agent:
        await begin(agent)
        branch = await agent.fork(tmp_path / "branch")
        async with branch:
            await ask(branch)
    files = read_files(branch.dir).items()
    transcripts = [content.decode() for name, (content, _) in files if "/projects/" in name]
    assert len(transcripts) == 2
    assert not [text for text in transcripts if f"{agent.dir}/" in text]


async def test_a_branch_may_change_a_system_prompt_that_the_program_does_not_keep(
    tmp_path: Path,
) -> None:
    async with make_agent(tmp_path / "Eko", "opencode") as agent:
        await begin(agent)
        branch = await agent.fork(tmp_path / "branch", system_prompt="Be bad.")
        with pytest.raises(ConfigError, match="system_prompt: must be text"):
            await agent.fork(tmp_path / "other", system_prompt=7)  # type: ignore[arg-type]
    assert (branch.dir / "runtime" / "system_prompt.md").read_text() == "Be bad."


@pytest.mark.parametrize("program", ["claude", "codex", "kimi"])
async def test_a_branch_cannot_change_a_system_prompt_that_the_program_keeps(
    tmp_path: Path, program: str
) -> None:
    agent = make_agent(tmp_path / "Eko", program)
    with pytest.raises(ConfigError, match=f"{program} keeps the system prompt"):
        await agent.fork(tmp_path / "branch", system_prompt="Be bad.")


@pytest.mark.parametrize("driver", ["acp", "command"])
async def test_a_driver_that_cannot_branch_is_named_in_the_refusal(
    tmp_path: Path, driver: str
) -> None:
    assert not find_driver(driver).can_branch
    command: Any = ["cat"] if driver == "acp" else {"start": ["cat", "{prompt}"]}
    agent = AsyncAgent(agent=driver, name="Eko", dir=tmp_path / "Eko", command=command)
    with pytest.raises(UsageError, match=f"driver '{driver}' cannot branch"):
        await agent.fork(tmp_path / "branch")
    assert not (tmp_path / "branch").exists()


async def test_a_fork_of_an_agent_in_a_turn_is_refused(tmp_path: Path) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", "claude") as agent:
            (agent.dir / "workspace").mkdir(parents=True)
            with hold(agent.dir / "workspace"):
                await agent.start(initial_prompt=SECRET_WORD, env=KEYS["claude"])
                with pytest.raises(UsageError, match="is in a turn"):
                    await agent.fork(tmp_path / "branch")
                other = make_agent(tmp_path / "Eko", "claude")
                with pytest.raises(UsageError, match="is run by process"):
                    await other.fork(tmp_path / "branch")
            assert (await agent.wait()).state == "idle"
    assert not (tmp_path / "branch").exists()


async def test_a_branch_needs_a_directory_of_its_own(tmp_path: Path) -> None:
    async with make_agent(tmp_path / "Eko", "claude") as agent:
        await begin(agent)
        with pytest.raises(UsageError, match="must be outside"):
            await agent.fork(agent.dir / "workspace" / "branch")
        with pytest.raises(UsageError, match="new or empty"):
            await agent.fork(tmp_path / "bin")
        branch = await agent.fork(tmp_path / "branch")
        with pytest.raises(UsageError, match="no conversation of its own yet"):
            await branch.fork(tmp_path / "other")
        async with branch:
            with pytest.raises(UsageError, match="is a branch"):
                await branch.start(initial_prompt="Begin")
    assert {path.name for path in tmp_path.iterdir()} == {"Eko", "bin", "branch"}


@pytest.mark.thorough
async def test_without_a_sandbox_only_one_branch_at_a_time_has_the_original_address(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (world, _), make_agent(tmp_path / "Eko", "claude") as agent:
        address = (await world.connect(agent))["base_url"]
        await begin(agent)
        with pytest.raises(UsageError, match=f"knows its world as {address}") as caught:
            await agent.fork(tmp_path / "early")
        assert "sandbox=True" in str(caught.value.hint)
        await agent.stop()
        first, second = [await agent.fork(tmp_path / name, name=name) for name in ("a", "b")]
        async with first, second:
            with pytest.raises(UsageError, match=f"knows its world as {address}") as caught:
                await first.send("WHO", env=KEYS["claude"])  # it would act as the original
            assert "world.connect(agent=branch)" in str(caught.value.hint)
            assert (await world.connect(first))["base_url"] == address
            assert (await ask(first))["told"] == [SECRET_WORD, "WHO"]
            with pytest.raises(AgentResumeError, match="taken by the agent a of this process"):
                await world.connect(second)
            await first.stop()
            assert (await world.connect(second))["base_url"] == address
            assert (await ask(second))["told"] == [SECRET_WORD, "WHO"]
            await second.stop()
            assert (await ask(agent))["told"] == [SECRET_WORD, "WHO"]
    assert not (tmp_path / "early").exists()


@pytest.mark.needs("bwrap")
@pytest.mark.thorough
async def test_sandboxed_branches_share_the_address_of_the_original_concurrently(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path) as (world, _),
        make_agent(tmp_path / "Eko", "claude", sandbox=True) as agent,
    ):
        address = (await world.connect(agent))["base_url"]
        await begin(agent)
        branches = [await agent.fork(tmp_path / name, name=name) for name in ("a", "b")]
        for branch in branches:
            async with branch:
                assert (await world.connect(branch))["base_url"] == address
                assert (await ask(branch))["told"] == [SECRET_WORD, "WHO"]
        assert (await ask(agent))["told"] == [SECRET_WORD, "WHO"]


@pytest.mark.thorough
async def test_claude_gets_the_option_to_fork(tmp_path: Path) -> None:
    async with make_agent(tmp_path / "Eko", "claude") as agent:
        await begin(agent)
        (agent.dir / "workspace" / ".standin.json").write_text('{"dump": true}')
        async with await agent.fork(tmp_path / "branch") as branch:
            await ask(branch)
    words = read_dumps(branch.dir / "workspace")[-1]["argv"]
    at = words.index("--resume")
    new = ["--fork-session", "--session-id", branch.session_id]
    assert words[at : at + 5] == ["--resume", agent.session_id, *new]


@pytest.mark.thorough
def test_a_sync_agent_is_forked(tmp_path: Path) -> None:
    binary = install(tmp_path / "bin", "claude")
    with Agent(
        agent="claude", name="Eko", dir=tmp_path / "Eko", binary=binary, auto_continue=False
    ) as agent:
        agent.start(initial_prompt=SECRET_WORD, env=KEYS["claude"])
        agent.wait()
        with agent.fork(tmp_path / "branch", name="Vera") as branch:
            branch.send("SAY hello", env=KEYS["claude"])
            assert branch.wait().state == "idle"
            assert (branch.name, branch.dir) == ("Vera", tmp_path / "branch")
            assert branch.session_id != agent.session_id
