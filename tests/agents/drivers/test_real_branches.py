"""Branches of the programs' own conversations, on a stand-in for their models' API.

They are installed from npm (``tests/support/programs.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox import Agent
from tests.agents.drivers.test_real_programs import Bench, conversations, work
from tests.support.model_api import model_api, user_messages
from tests.support.programs import Programs

pytestmark = pytest.mark.cli


@pytest.fixture(params=["claude-2.1.197", "claude", "codex", "kimi", "opencode"])
def bench(
    request: pytest.FixtureRequest, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    installed = programs.install(request.param)
    monkeypatch.setenv("PATH", installed.path)
    with model_api() as api:
        yield Bench(request.param.partition("-")[0], installed.binary, api)


def told(bench: Bench) -> list[str]:
    """Return the messages in the newest request of the started conversation."""
    requests = map(user_messages, reversed(bench.api.requests))
    return next(messages for messages in requests if messages[:1] == ["Begin"])


def fork(agent: Agent, directory: Path) -> Agent:
    try:
        return agent.fork(directory, name=directory.name)
    finally:
        agent.close()


def test_branches_continue_the_conversation_of_an_agent_without_changing_it(
    bench: Bench, tmp_path: Path
) -> None:
    original = tmp_path / "rocky"
    begun = work(bench.agent(original), "Begin", bench.env, system_prompt="Count melons.")
    kept = conversations(original)
    assert kept
    ids = {begun}
    for name in ("left", "right"):
        branch = fork(bench.agent(original), tmp_path / name)
        ids.add(work(branch, f"Turn {name}", bench.env))
        assert told(bench) == ["Begin", f"Turn {name}"]
        assert "Count melons." in str(bench.api.requests[-1])
        assert conversations(original) == kept
    assert len(ids) == 3
    for name in ("left", "right"):
        assert work(bench.agent(tmp_path / name), "Go on", bench.env) in ids - {begun}
        assert told(bench) == ["Begin", f"Turn {name}", "Go on"]
    assert conversations(original) == kept
    assert work(bench.agent(original), "Go on", bench.env) == begun
    assert told(bench) == ["Begin", "Go on"]
