"""The record of the agents of a run, ``.clawblox/agent.json``."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from clawblox import Budget, ClawbloxError, ConfigError
from clawblox.agents.options import AgentOptions
from clawblox.team.record import AgentRunOptions, RunAgent, TeamRecord, Texts, read_team


def test_an_agent_of_the_command_line_is_read_again_with_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_team(tmp_path) is None
    (tmp_path / "first.md").write_text("Go.")
    (tmp_path / "system.md").write_text("Be good.")
    monkeypatch.chdir(tmp_path)
    options = AgentRunOptions(
        agent="acp",
        agent_command="gemini --acp",
        prompt="@first.md",
        system_prompt="system.md",
        max_usd=2.0,
    )
    RunAgent(options=options, turn_limit=3).record(tmp_path, settled="t1.ckpt").write(tmp_path)
    table = json.loads((tmp_path / ".clawblox" / "agent.json").read_bytes())
    assert [*table] == ["options", "tmux", "turn_limit", "settled", "schema_version"]
    assert [*table["options"]] == [field.name for field in attrs.fields(AgentRunOptions)]
    assert table["schema_version"] == 1
    monkeypatch.chdir("/")
    team = read_team(tmp_path)
    assert team is not None
    assert team.command_line is not None
    assert team.command_line.options.prompt == f"@{tmp_path / 'first.md'}"
    assert team.command_line.options.system_prompt == str(tmp_path / "system.md")
    assert (team.settled, team.checkpoint_every) == ("t1.ckpt", 900.0)
    assert team.read_texts() == (Texts("Go.", "Be good."),)
    (agent,) = team.agents
    assert agent.dir == tmp_path / "agents" / "Eko"
    assert agent.command == ["gemini", "--acp"]
    assert agent.budget == Budget(turns=3, usd=2.0)


def test_agents_of_python_are_read_again_with_all_options(tmp_path: Path) -> None:
    agents = (
        AgentOptions(
            agent="claude",
            name="Eko",
            dir=tmp_path / "agents" / "Eko",
            binary="bin/claude",
            sandbox="strict",
            budget=Budget(output_tokens=5),
            stall_timeout=None,
        ),
        AgentOptions(
            agent="command", name="Moa", dir=tmp_path / "agents" / "Moa", command={"start": ["x"]}
        ),
    )
    team = TeamRecord(
        agents=agents,
        texts=(Texts("@not a file", None), Texts("Go.", "Be good.")),
        checkpoint_every=0.0,
        min_free="1 GB",
        settled="t1.ckpt",
    )
    team.write(tmp_path)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    read = read_team(moved)
    assert read is not None
    places = [attrs.evolve(agent, dir=moved / "agents" / agent.name) for agent in agents]
    assert read == attrs.evolve(team, agents=tuple(places))
    assert read.read_texts() == team.texts
    assert read.find("Moa") == places[1]
    assert read.find("Rua") is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"schema_version": 2}',
        '{"schema_version": 2, "agents": [{"name": 5}]}',
        '{"schema_version": 3}',
        '{"schema_version": 1, "options": {"agent_name": 5}',
    ],
)
def test_a_foreign_record_is_an_error_that_names_the_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".clawblox" / "agent.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ClawbloxError, match="cannot be read") as raised:
        read_team(tmp_path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("limit", ["max_usd", "max_minutes"])
def test_limit_with_an_invalid_amount_is_refused_by_name(limit: str) -> None:
    with pytest.raises(ConfigError, match=f"{limit}: must be a number above 0, not 0"):
        AgentRunOptions(**{limit: 0})
