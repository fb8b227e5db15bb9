"""Helpers for tests of conversations: ids, and collected and restored agents."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from clawblox.checkpoint.collect.conversations import find_format
from tests.checkpoint.agents import BuiltAgent, archived_content, restore_session

CLAUDE_ID = "c0e128cf-2dc1-4bb3-9e54-08cdc2359ffb"
KIMI_ID = f"session_{CLAUDE_ID}"


def conversation_id_for(backend: str) -> str:
    return KIMI_ID if backend == "kimi" else CLAUDE_ID


def collect(agent: BuiltAgent):
    state, sources = find_format(agent.backend).collect(agent.dir)
    return SimpleNamespace(state=state, sources=sources)


def archived(agent: BuiltAgent) -> dict[str, bytes]:
    return archived_content(collect(agent).sources)


def restored(members: dict[str, bytes], agent: BuiltAgent, agent_dir: Path) -> Path:
    form = find_format(agent.backend)
    restore_session(members, form, agent.conversation_id, agent_dir)
    return agent_dir
