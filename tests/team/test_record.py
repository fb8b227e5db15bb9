"""The record of the agent of a run, ``.clawblox/agent.json``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawblox import ClawbloxError, ConfigError
from clawblox.team.record import AgentRunOptions, RunAgent, read_run_agent, write_run_agent


def test_what_is_recorded_is_read_again_with_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_run_agent(tmp_path) is None
    (tmp_path / "system.md").touch()
    monkeypatch.chdir(tmp_path)
    options = AgentRunOptions(agent="claude", prompt="@first.md", system_prompt="system.md")
    write_run_agent(tmp_path, RunAgent(options=options, turn_limit=3))
    monkeypatch.chdir("/")
    agent = read_run_agent(tmp_path)
    assert agent is not None
    assert (agent.turn_limit, agent.settled, agent.options.agent) == (3, None, "claude")
    assert agent.options.prompt == f"@{tmp_path / 'first.md'}"
    assert agent.options.system_prompt == str(tmp_path / "system.md")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"schema_version": 2}', '{"schema_version": 1, "options": {"agent_name": 5}'],
)
def test_a_foreign_record_is_an_error_that_names_the_file(tmp_path: Path, content: str) -> None:
    write_run_agent(tmp_path, RunAgent(options=AgentRunOptions()))
    path = tmp_path / ".clawblox" / "agent.json"
    assert json.loads(path.read_bytes())["schema_version"] == 1
    path.write_text(content)
    with pytest.raises(ClawbloxError, match="cannot be read") as raised:
        read_run_agent(tmp_path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("limit", ["max_usd", "max_minutes"])
def test_a_limit_that_is_no_amount_is_refused_by_name(limit: str) -> None:
    with pytest.raises(ConfigError, match=f"{limit}: must be a number above 0, not 0"):
        AgentRunOptions(**{limit: 0})
