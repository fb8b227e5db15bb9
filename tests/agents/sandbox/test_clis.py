"""The agents' own programs, from npm, act in a world from a sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.sandbox.bubblewrap import Bubblewrap
from clawblox.concurrency.threads import run_blocking
from tests.agents.sandbox.support import Sandbox, make_directory
from tests.support.model_api import ModelApi
from tests.support.programs import Programs
from tests.support.worlds import make_world

pytestmark = [pytest.mark.cli, pytest.mark.anyio, pytest.mark.needs("bwrap", "rg", "socat")]

TIMEOUT_S = 150.0

LOOK = "id -u; pwd; curl -sS http://counter/api.md; curl -sS -m 5 http://192.0.2.1; echo end"


def use_bash_once(api: ModelApi, command: str) -> None:
    """Let the model request one command if Bash is offered."""
    asked: list[dict[str, Any]] = []

    def tool(request: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        names = {each.get("name") for each in request.get("tools", ())}
        if "Bash" not in names or asked:
            return None
        asked.append(request)
        return "Bash", {"command": command, "description": "Look around"}

    api.tool = tool


@pytest.mark.parametrize(
    ("name", "has_native"),
    [
        ("claude-2.1.197", False),
        ("claude-2.1.197", True),
        ("claude", True),
        ("codex", True),
        ("kimi", False),
        ("opencode", False),
    ],
)
async def test_a_program_acts_from_a_sandbox(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    programs: Programs,
    api: ModelApi,
    name: str,
    has_native: bool,
) -> None:
    installed = programs.install(name)
    program = name.partition("-")[0]
    for variable, value in {
        "PATH": installed.path,
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "sk-ant-0000000000",
        "OPENAI_BASE_URL": f"{api.url}/v1",
        "OPENAI_API_KEY": "sk-0000000000",
        "CODEX_API_KEY": "sk-0000000000",
        "KIMI_MODEL_NAME": "kimi",
        "KIMI_MODEL_API_KEY": "sk-0000000000",
        "KIMI_MODEL_BASE_URL": f"{api.url}/v1",
    }.items():
        monkeypatch.setenv(variable, value)
    use_bash_once(api, LOOK)
    agent = AsyncAgent(
        agent=program,
        binary=installed.binary,
        model="local/m1" if program == "opencode" else None,
        name="Eko",
        dir=tmp_path / "Eko",
        sandbox=True,
        claude_native_sandbox=has_native,
        auto_continue=False,
    )
    with anyio.fail_after(TIMEOUT_S):
        async with AsyncWorld(dir=make_world(tmp_path)) as world, agent:
            await world.start()
            await world.connect(agent=agent)
            started = await agent.start(initial_prompt="Begin")
            assert (await agent.wait()).state == "idle"
            await agent.send(prompt="Go on")
            assert (await agent.wait()).usage.turns == 2
    if program == "claude":
        said = json.dumps(api.requests)
        assert "1000\\n/workspace\\n# Counter" in said
        assert "POST /input" in said
    assert started.sandbox == ("bwrap+native" if program == "claude" and has_native else "bwrap")


async def test_codex_encloses_its_commands_inside_our_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    installed = programs.install("codex")
    monkeypatch.setenv("PATH", installed.path)
    directory = make_directory(tmp_path)
    sandbox = Bubblewrap(
        api_hosts=(), host=lambda: None, settings=dict, may_nest=True, is_strict=True
    )
    await run_blocking(sandbox.open, directory, installed.binary)
    opened = Sandbox(directory, sandbox)
    env = {"PATH": installed.path, "HOME": "/home/agent", "CODEX_HOME": "/session"}
    command = "echo from inside; touch made || :"
    words = (str(installed.binary), "sandbox", "--", "sh", "-c", command)
    said = await opened.run(*words, env=env)
    assert "from inside" in said
    assert "Read-only file system" in said
