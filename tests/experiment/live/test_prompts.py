"""System prompts: where a template comes from, and its variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.agents.prompts import default_system_prompt
from clawblox.errors import ConfigError
from clawblox.experiment.live.prompts import read_template, render


def test_template_comes_from_the_agent_the_world_or_the_default(tmp_path: Path) -> None:
    assert read_template(None, tmp_path).startswith(default_system_prompt())
    (tmp_path / "system_prompt.md").write_text("of the world")
    assert read_template(None, tmp_path) == "of the world"
    own = tmp_path / "own.md"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_template(own, tmp_path)
    own.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_template(own, tmp_path)
    own.write_text("of the agent")
    assert read_template(own, tmp_path) == "of the agent"


def test_known_variables_are_filled_in_and_unknown_ones_stay() -> None:
    template = "$WORLD_AGENT_NAME in $WORKSPACE_DIR: ${WORLD_BASE_URL} $SKILL_CURL, $HOME costs $5"
    text = render(
        template,
        name="Eko",
        workspace=Path("/workspace"),
        base_url="http://panda",
        skill_url="http://panda/api.md",
    )
    assert text == ("Eko in /workspace: http://panda curl -s http://panda/api.md, $HOME costs $5")


def test_the_default_tells_an_agent_where_its_world_is(tmp_path: Path) -> None:
    text = render(
        read_template(None, tmp_path),
        name="Eko",
        workspace=tmp_path,
        base_url="http://panda",
        skill_url="http://panda/api.md",
    )
    assert "curl -s http://panda/api.md" in text
    assert "$" not in text
