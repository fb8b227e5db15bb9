"""Dangers that the drivers prevent, shown with real programs and a stand-in for their model.

They are installed from npm (``tests/support/programs.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from clawblox import Agent, AgentSetupError
from tests.support.databases import hot_journal
from tests.support.model_api import ModelApi, model_api
from tests.support.programs import Programs
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cli

TURN_TIMEOUT_S = 90.0


@attrs.frozen
class Bench:
    """A program and its model."""

    driver: str
    binary: Path
    api: ModelApi

    def agent(self, directory: Path) -> Agent:
        model = "local/m1" if self.driver == "opencode" else "stand-in"
        return Agent(
            agent=self.driver,
            name=directory.name,
            dir=directory,
            model=model,
            binary=self.binary,
            auto_continue=False,
        )

    @property
    def env(self) -> dict[str, str]:
        if self.driver == "claude":
            return {"ANTHROPIC_API_KEY": "not-a-key", "ANTHROPIC_BASE_URL": self.api.url}
        prefix = "KIMI_MODEL" if self.driver == "kimi" else "OPENAI"
        kind = {"KIMI_MODEL_PROVIDER_TYPE": "openai"} if self.driver == "kimi" else {}
        url = f"{self.api.url}/v1"
        return {f"{prefix}_API_KEY": "not-a-key", f"{prefix}_BASE_URL": url, **kind}


@pytest.fixture(params=["codex", "kimi", "opencode"])
def bench(request, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    installed = programs.install(request.param)
    monkeypatch.setenv("PATH", installed.path)
    with model_api() as api:
        yield Bench(request.param, installed.binary, api)


def work(agent: Agent, prompt: str, env: dict[str, str], **first: str) -> str:
    """Let an agent do one turn; return its conversation id."""
    try:
        if first:
            started = agent.start(initial_prompt=prompt, env=env, **first)
        else:
            started = agent.send(prompt=prompt, env=env)
        wait_until(lambda: agent.state == "idle", TURN_TIMEOUT_S, "the turn has ended")
        return started.session_id
    finally:
        agent.stop(grace_seconds=1)
        agent.close()


def cut_off(bench: Bench, directory: Path, is_due: Callable[[], object] = lambda: True) -> None:
    """Kill a program within a turn of an agent."""
    agent = bench.agent(directory)
    bench.api.gate.clear()
    try:
        started = agent.send(prompt="Go on", env=bench.env)
        assert started.pid is not None
        wait_until(is_due, TURN_TIMEOUT_S, "the program has gone as far as it should")
        os.kill(started.pid, signal.SIGKILL)
    finally:
        agent.stop(grace_seconds=0)
        agent.close()
        bench.api.gate.set()


def conversations(directory: Path) -> dict[Path, bytes]:
    """Return the files of conversations in an agent directory."""
    found = (*directory.glob("session/**/*.jsonl"), *directory.glob("session/**/opencode.db*"))
    return {path: path.read_bytes() for path in found}


def test_a_copied_agent_continues_its_own_copy_of_the_conversation(bench, tmp_path):
    original, copy = tmp_path / "rocky", tmp_path / "copies" / "rocky"
    begun = work(bench.agent(original), "Begin", bench.env, system_prompt="Count melons.")
    kept = conversations(original)
    assert kept
    shutil.copytree(original, copy)
    assert work(bench.agent(copy), "Go on", bench.env) == begun
    assert conversations(original) == kept
    asked = json.dumps(bench.api.requests[-1])
    assert all(words in asked for words in ("Begin", "Go on", "Count melons."))


DATABASES = {
    "codex": ("session/state_5.sqlite", "SELECT rollout_path FROM threads"),
    "opencode": ("session/data/opencode/opencode.db", "SELECT directory FROM session"),
}


def test_a_database_with_an_unflushed_log_is_moved_without_being_opened_in_place(bench, tmp_path):
    if bench.driver not in DATABASES:
        pytest.skip("it keeps no database")
    name, query = DATABASES[bench.driver]
    original, copy = tmp_path / "rocky", tmp_path / "copies" / "rocky"
    begun = work(bench.agent(original), "Begin", bench.env, system_prompt="Count melons.")
    log = Path(f"{original / name}-wal")
    cut_off(bench, original, lambda: log.exists() and log.stat().st_size)
    assert log.stat().st_size > 0
    shutil.copytree(original, copy)
    victim = tmp_path / "thesis.tex"
    victim.write_text("years of work")
    Path(f"{copy / name}-journal").write_bytes(hot_journal(victim, copy / name))
    assert work(bench.agent(copy), "Go on", bench.env) == begun
    asked = json.dumps(bench.api.requests[-1])
    assert all(words in asked for words in ("Begin", "Go on", "Count melons."))
    assert victim.read_text() == "years of work"
    with contextlib.closing(sqlite3.connect(copy / name)) as opened:
        places = [place for (place,) in opened.execute(query)]
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert places
    assert all(place.startswith(str(copy)) for place in places)


def test_servers_and_plugins_in_the_workspace_are_not_run(bench, tmp_path):
    workspace = tmp_path / "rocky" / "workspace"
    proof = tmp_path / "proof"
    server = {"command": "touch", "args": [str(proof)]}
    files = {
        ".codex/config.toml": f'[mcp_servers.x]\ncommand = "touch"\nargs = ["{proof}"]\n',
        ".mcp.json": json.dumps({"mcpServers": {"x": server}}),
        ".kimi-code/mcp.json": json.dumps({"mcpServers": {"x": server}}),
        "opencode.json": json.dumps(
            {"mcp": {"x": {"type": "local", "command": ["touch", str(proof)]}}}
        ),
    }
    for name, content in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(content)
    work(bench.agent(tmp_path / "rocky"), "Begin", bench.env, system_prompt="Be kind.")
    assert bench.api.requests
    assert not proof.exists()


def test_plugins_in_a_workspace_that_would_always_run_are_refused(bench, tmp_path):
    if bench.driver != "opencode":
        pytest.skip("only opencode runs them")
    (tmp_path / "rocky" / "workspace" / ".opencode" / "plugin").mkdir(parents=True)
    with pytest.raises(AgentSetupError, match="would run the plugins"):
        work(bench.agent(tmp_path / "rocky"), "Begin", bench.env, system_prompt="Be kind.")
    assert not bench.api.requests


@pytest.fixture(params=["claude-2.1.197", "claude"])
def claude(request, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    installed = programs.install(request.param)
    monkeypatch.setenv("PATH", installed.path)
    with model_api() as api:
        yield Bench("claude", installed.binary, api)


def test_claude_names_the_continued_conversation_and_only_its_transcript_grows(claude, tmp_path):
    agent, moved = tmp_path / "rocky", tmp_path / "moved" / "rocky"
    begun = work(claude.agent(agent), "Begin", claude.env, system_prompt="Count melons.")
    cut_off(claude, agent)
    assert work(claude.agent(agent), "Go on", claude.env) == begun
    shutil.copytree(agent, moved)
    assert work(claude.agent(moved), "Go on", claude.env) == begun
    lines = map(json.loads, (moved / "logs" / "agent.log").read_text().splitlines())
    named = [line["session_id"] for line in lines if "session_id" in line]
    assert set(named) == {begun}
    transcripts = {path for path in moved.glob("session/projects/*/*.jsonl") if path.stat().st_size}
    assert {path.stem for path in transcripts} == {begun}
