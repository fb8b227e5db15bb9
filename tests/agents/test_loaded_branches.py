"""Branches of agents from an archive that this process never started."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from clawblox import (
    AsyncAgent,
    ConfigError,
    UsageError,
    async_load_checkpoint,
    async_save_checkpoint,
)
from clawblox.agents.prompts import AUTO_CONTINUE
from tests.agents.running.test_conversation import KEYS
from tests.agents.test_branches import SECRET_WORD, ask, begin, make_agent
from tests.support.sampling import usually
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


def read_tree(directory: Path) -> dict[str, tuple[bytes | None, int, int]]:
    """Return content, permissions and time of everything in a directory."""
    return {
        str(path.relative_to(directory)): (
            path.read_bytes() if path.is_file() else None,
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
        )
        for path in [directory, *directory.rglob("*")]
    }


async def load(archive: Path, run_dir: Path, program: str) -> AsyncAgent:
    loaded = await async_load_checkpoint(archive, run_dir)
    return make_agent(Path(loaded["agents"]["Eko"]), program)


@pytest.mark.parametrize("program", usually(["claude", "codex", "kimi"], "codex"))
async def test_a_fork_leaves_a_loaded_agent_unchanged(tmp_path: Path, program: str) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", program) as agent:
            await begin(agent)
        archive = await async_save_checkpoint(tmp_path / "a.ckpt", agents={"Eko": agent.dir})
        parent = await load(archive, tmp_path / "r2", program)
        before = read_tree(parent.dir)
        assert "home" not in before
        async with await parent.fork(tmp_path / "branch") as branch:
            assert (await ask(branch))["told"] == [SECRET_WORD, "WHO"]
            assert branch.session_id != agent.session_id
            assert branch.usage.tokens == agent.usage.tokens
        assert read_tree(parent.dir) == before


async def test_the_first_message_of_a_branch_is_the_prompt_of_the_fork(tmp_path: Path) -> None:
    with anyio.fail_after(HANG_S):
        async with make_agent(tmp_path / "Eko", "kimi") as agent:
            await begin(agent)
        (agent.dir / "usage.json").unlink()
        with pytest.raises(ConfigError, match="prompt"):
            await agent.fork(tmp_path / "refused", prompt="")
        storm = await agent.fork(tmp_path / "storm", prompt="A storm is coming.")
        control = await agent.fork(tmp_path / "control")
        for branch, first in ((storm, "A storm is coming."), (control, AUTO_CONTINUE)):
            async with branch:
                for _ in range(2):
                    await branch.send(env=KEYS["kimi"])
                    assert (await branch.wait()).state == "idle", branch.failure
                told = (await ask(branch))["told"]
            assert told == [SECRET_WORD, first, AUTO_CONTINUE, "WHO"]


async def test_a_resting_agent_with_a_recorded_address_can_be_forked(
    tmp_path: Path,
) -> None:
    async with make_agent(tmp_path / "Eko", "claude") as agent:
        await begin(agent)
    record = {"base_url": "http://127.0.0.1:20001", "schema_version": 1}
    (agent.dir / "world_access.json").write_text(json.dumps(record))
    async with await agent.fork(tmp_path / "branch") as branch:
        with pytest.raises(UsageError, match="knows its world as http"):
            await branch.send(env=KEYS["claude"])
