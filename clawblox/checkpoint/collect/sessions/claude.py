"""Conversations of Claude Code (``claude-code-v1``).

``CLAUDE_CONFIG_DIR`` names its state directory. The layout is that of version 2.1.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from clawblox.agents.programs import CLAUDE
from clawblox.agents.programs.program import project_slug
from clawblox.checkpoint.collect.sessions.buckets import BucketFormat, PathTable
from clawblox.checkpoint.collect.sessions.transcripts import Record


class ClaudeFormat(BucketFormat):
    """The transcript, the transcripts of sub-agents, large tool results, memory and task list."""

    name = "claude-code-v1"
    program = CLAUDE
    resume_words = ("claude", "--setting-sources", "user", "--strict-mcp-config", "--resume")
    system_prompt_option = "--append-system-prompt"
    allowed = re.compile(
        r"transcript\.jsonl"
        r"|subagents/agent-[0-9A-Za-z]+\.(jsonl|meta\.json)"
        r"|tool-results/[A-Za-z0-9_-]{1,80}\.(txt|json)"
        r"|memory/(?:[A-Za-z0-9 _.-]+/){0,3}[A-Za-z0-9 _.-]+\.md"
        r"|tasks/[0-9]+\.json"
    )
    transcript = "transcript.jsonl"
    searched = ("projects", "tasks")

    def bucket(self, workspace: Path) -> str:
        """Return the name of the project directory of a workspace."""
        return project_slug(os.path.realpath(workspace))

    def path_table(self, session_id: str, bucket: str) -> PathTable:
        """Return the place of each part of a session."""
        project = f"projects/{bucket}"
        return (
            ("transcript.jsonl", f"{project}/{session_id}.jsonl"),
            ("subagents/", f"{project}/{session_id}/subagents/"),
            ("tool-results/", f"{project}/{session_id}/tool-results/"),
            ("memory/", f"{project}/memory/"),
            ("tasks/", f"tasks/{session_id}/"),
        )

    def ends_turn(self, record: Record) -> bool | None:
        """Return whether an answer is complete; None for a record of bookkeeping."""
        if record.get("isSidechain") or record.get("type") not in ("user", "assistant"):
            return None
        message = record.get("message")
        stop = message.get("stop_reason") if isinstance(message, dict) else None
        return record["type"] == "assistant" and stop not in (None, "tool_use", "pause_turn")
