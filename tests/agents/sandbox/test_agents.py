"""Agents in sandboxes, with stand-ins for their programs."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.layout import AgentDir
from clawblox.agents.sandbox.bubblewrap import Bubblewrap
from clawblox.agents.sandbox.native import NativeSandbox
from clawblox.errors import AgentSetupError, AgentStartError
from tests.agents.sandbox.support import Sandbox, make_directory
from tests.agents.standins import install
from tests.support.processes import live_processes
from tests.support.waiting import wait_until
from tests.support.worlds import make_world

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60.0


def agent(parent: Path, program: str = "claude", **options: Any) -> AsyncAgent:
    binary = install(parent / "bin", program)
    given = {"agent": program, "name": "Eko", "dir": parent / "Eko", "binary": binary}
    return AsyncAgent(**{"auto_continue": False, **given, **options})


@pytest.mark.anyio
@pytest.mark.needs("bwrap")
async def test_an_agent_acts_in_its_world_from_a_sandbox_and_is_resumed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-canary")
    world_dir = make_world(tmp_path, toml_extra='[sandbox]\ndeps_root = "deps"\n')
    (world_dir / "deps").mkdir()
    (world_dir / "deps" / "of-the-world").touch()
    with anyio.fail_after(TIMEOUT_S):
        async with AsyncWorld(dir=world_dir) as world, agent(tmp_path, sandbox=True) as one:
            await world.start()
            access = await world.connect(agent=one)
            assert access["base_url"] == "http://counter"
            look = f"GET {access['base_url']}/api.md\nRUN pwd; id -u"
            started = await one.start(initial_prompt=look)
            assert (started.sandbox, one.sandbox) == ("bwrap", "bwrap")
            assert (await one.wait()).state == "idle"
            script = started.command_file.read_text()
            assert f"--ro-bind {world_dir / 'deps'} /sandbox-deps" in script
            assert "clawblox-netns" not in script
            assert "sk-ant-canary" not in script
            await one.stop(grace_seconds=5)
            await one.send(prompt="RUN ls /runtime /sandbox-deps")
            assert (await one.wait()).usage.turns == 2
    said = started.log_file.read_text()
    assert "POST /input" in said
    assert "/workspace\\n1000\\n" in said
    assert "system_prompt.md" in said
    assert "of-the-world" in said
    assert "start.sh" not in said
    assert "status.json" not in said
    assert not list((tmp_path / "Eko" / "runtime").glob("*.sock"))


ORCHESTRATE = """
import sys
from pathlib import Path
from clawblox import Agent
directory, binary, command = sys.argv[1:]
agent = Agent(agent="claude", name="Eko", dir=Path(directory) / "Eko", binary=binary, sandbox=True,
              auto_continue=False)
agent.start(initial_prompt=f"RUN {command}")
print("started", flush=True)
input()
"""


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
def test_a_killed_orchestrator_leaves_no_process_in_a_sandbox(tmp_path: Path) -> None:
    # As root, its processes are another user's.
    token = f"token-{uuid.uuid4()}"
    command = f"setsid setsid sh -c 'sleep 600; : {token}'"
    binary = install(tmp_path / "bin", "claude")
    words = [sys.executable, "-c", ORCHESTRATE, str(tmp_path), str(binary), command]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        alone = f"sh -c sleep 600; : {token}"
        wait_until(lambda: any(alone in found for found in running(token)), TIMEOUT_S)
        process.kill()
    wait_until(lambda: not running(token), TIMEOUT_S)


def running(token: str) -> list[str]:
    """Return the command lines with a token, except the orchestrator's own."""
    found = []
    for pid in live_processes():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            if token in words and "import Agent" not in words:
                found.append(words)
    return found


TELL = """#!/bin/sh
[ "$1" = --version ] && env >{proof} && touch "$HOME/left" "$CODEX_HOME/left"
echo codex-cli 0.169.0
"""


@pytest.mark.anyio
@pytest.mark.parametrize("sandbox", [False, pytest.param(True, marks=pytest.mark.needs("bwrap"))])
async def test_a_version_command_has_an_empty_home(tmp_path: Path, sandbox: bool) -> None:
    # The command runs outside the sandbox, so it must not read the agent's files.
    binary, proof = tmp_path / "codex", tmp_path / "proof"
    binary.write_text(TELL.format(proof=proof))
    binary.chmod(0o700)
    with anyio.fail_after(TIMEOUT_S):
        async with agent(tmp_path, "codex", sandbox=sandbox, binary=binary) as one:
            with pytest.raises(AgentStartError):
                await one.start(initial_prompt="Begin")
    env = dict(line.partition("=")[::2] for line in proof.read_text().splitlines())
    home = Path(env["HOME"])
    assert env["CODEX_HOME"] == env["HOME"]
    assert not home.is_relative_to(tmp_path / "Eko")
    assert home != Path("/home/agent")
    assert not home.exists()
    assert not list((tmp_path / "Eko").rglob("left"))


def test_each_combination_has_its_level(tmp_path: Path) -> None:
    levels = {
        (sandbox, native, program): agent(
            tmp_path,
            program,
            sandbox=sandbox,
            claude_native_sandbox=native,
            command=["true"] if program == "acp" else None,
        ).sandbox
        for sandbox in (False, True)
        for native in (False, True)
        for program in ("claude", "acp")
    }
    assert levels == {
        (False, False, "claude"): "none",
        (False, False, "acp"): "none",
        (False, True, "claude"): "native",
        (False, True, "acp"): "none",
        (True, False, "claude"): "bwrap",
        (True, False, "acp"): "bwrap",
        (True, True, "claude"): "bwrap+native",
        (True, True, "acp"): "bwrap",
    }
    codex = {
        mode: agent(tmp_path, "codex", sandbox=True, permission_mode=mode).sandbox
        for mode in (None, "bypassPermissions", "workspace-write", "read-only")
    }
    assert list(codex.values()) == ["bwrap", "bwrap", "bwrap+native", "bwrap+native"]
    assert not (tmp_path / "Eko").exists()


# ------------------------------------------------------------------ Claude Code's own sandbox


def path_with(directory: Path, *programs: str) -> str:
    """Return a PATH with only these programs of the system."""
    directory.mkdir()
    for program in programs:
        (directory / program).symlink_to(f"/usr/bin/{program}")
    return str(directory)


def native(settings: dict[str, Any] | None = None) -> NativeSandbox:
    return NativeSandbox(lambda: "http://127.0.0.1:20001", lambda: settings or {})


@pytest.mark.needs("bwrap", "rg", "socat")
def test_native_settings_name_the_world_and_the_nesting(tmp_path: Path) -> None:
    outer = Sandbox.open(tmp_path, has_native=True).bubblewrap
    assert outer.level == "bwrap+native"
    assert outer.native_settings == {
        "enableWeakerNestedSandbox": True,
        "network": {"allowedDomains": ["127.0.1.1", "counter"], "allowLocalBinding": True},
    }
    assert native().native_settings == {
        "enableWeakerNestedSandbox": False,
        "network": {"allowedDomains": ["127.0.0.1"], "allowLocalBinding": True},
    }
    settings = {"allow_loopback": True, "enable_weaker_nested_sandbox": True}
    assert native(settings).native_settings == {
        "enableWeakerNestedSandbox": True,
        "network": {"allowedDomains": ["127.0.0.1", "localhost"], "allowLocalBinding": True},
    }


@pytest.mark.needs("bwrap", "rg", "socat")
@pytest.mark.parametrize("missing", ["bwrap", "socat", "rg"])
def test_a_native_sandbox_that_lacks_a_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    needed = {"sh", "true", "bwrap", "socat", "rg"} - {missing}
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", *needed))
    expected = f"Claude Code's own sandbox cannot start: {missing} is not installed"
    with pytest.raises(AgentSetupError, match=expected) as caught:
        native().open(make_directory(tmp_path), Path("/bin/true"))
    assert "claude_native_sandbox=False" in str(caught.value)


@pytest.mark.needs("bwrap", "rg", "socat")
def test_a_native_sandbox_that_cannot_start_in_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the weaker mode, it would have to mount /proc, which only root may do inside.
    strict = ["sh", "-c", "exec bwrap --ro-bind / / --unshare-pid --proc /proc true"]
    monkeypatch.setattr(
        "clawblox.agents.sandbox.bubblewrap.probe_command", lambda is_nested: strict
    )
    with pytest.raises(AgentSetupError, match=r"cannot start: bwrap: Can't mount proc"):
        Sandbox.open(tmp_path, has_native=True)


@pytest.mark.needs("bwrap", "rg", "socat")
def test_commands_in_a_native_sandbox_reach_the_world_through_its_proxy(tmp_path: Path) -> None:
    sandbox, directory = native(), make_directory(tmp_path)
    sandbox.open(directory, Path("/bin/true"))
    env = sandbox.enclose(("claude",), {"PATH": os.environ["PATH"]}, directory.workspace).env
    text = Path(env["BASH_ENV"]).read_text()
    assert "unset NO_PROXY no_proxy" in text


@pytest.mark.needs("bwrap")
def test_an_unreachable_base_url_is_refused_before_a_process_starts(tmp_path: Path) -> None:
    sandbox: Bubblewrap = Sandbox.open(tmp_path).bubblewrap
    with pytest.raises(AgentSetupError, match="OPENAI_BASE_URL must be an http"):
        sandbox.enclose(("true",), {"OPENAI_BASE_URL": "x"}, AgentDir(tmp_path).workspace)
