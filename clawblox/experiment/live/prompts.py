"""System prompts: reads templates and fills in their variables."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from clawblox.agents.prompts import default_system_prompt
from clawblox.errors import ConfigError
from clawblox.system.regular_files import read_regular

WORLD_PROMPT: Final = "system_prompt.md"
"""The template in a world's directory, for agents without their own."""

_MAX_BYTES: Final = 16 << 20
_SESSION_LINE: Final = "The address knows who you are: do not join, and send no session."
_WORLD: Final = """
You are $WORLD_AGENT_NAME. You act in a world through its HTTP API at $WORLD_BASE_URL.
$SESSION_LINE
Read the documentation of the API before you act: $SKILL_CURL
"""
"""Text about the world's address and interface, for templates that do not mention them."""


def read_template(file: Path | None, world_dir: Path) -> str:
    """Return the template of a system prompt. Blocks.

    Args:
        file: The file named in the plan; None means the world's template, or the default.
        world_dir: Directory of the world.

    Raises:
        ConfigError: The file cannot be read.
    """
    path = world_dir / WORLD_PROMPT if file is None else file
    try:
        return read_regular(path, max_bytes=_MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        if file is None and isinstance(error, FileNotFoundError):
            return default_system_prompt() + _WORLD
        raise ConfigError(f"cannot be read: {error}", key="system_prompt", path=path) from error


def render(template: str, *, name: str, workspace: Path, base_url: str, skill_url: str) -> str:
    """Return a system prompt; unknown variables stay unchanged.

    Args:
        template: Text with variables such as ``$WORLD_AGENT_NAME``.
        name: Name of the agent in the world.
        workspace: Its workspace, as its program sees it.
        base_url: The agent's address of the world.
        skill_url: Address of the world's documentation for agents.
    """
    return Template(template).safe_substitute(
        WORLD_AGENT_NAME=name,
        WORKSPACE_DIR=str(workspace),
        SESSION_LINE=_SESSION_LINE,
        WORLD_BASE_URL=base_url,
        SKILL_CURL=f"curl -s {skill_url}",
        SKILL_URL=skill_url,
    )
