"""Conversations of Claude Code (``claude-code-v1``).

The layout is from version 2.1.330. ``CLAUDE_CONFIG_DIR`` names the state directory. The program
reads the transcript first, and the other files during the conversation: the transcript of a
sub-agent to continue it, the journal and the script of a workflow to relaunch it,
``.highwatermark`` so that task numbers stay unique. This was observed in resumes without each file.

Archives do not include ``session-env``, whose files a shell would run, ``file-history``, which
serves only to undo edits, and ``todos``, which is not read.
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.programs import CLAUDE
from clawblox.agents.programs.program import project_slug
from clawblox.checkpoint.collect.conversations import transcripts
from clawblox.checkpoint.collect.conversations.buckets import BucketFormat, PathTable
from clawblox.checkpoint.collect.conversations.shape import ConversationFiles
from clawblox.checkpoint.collect.conversations.transcripts import Record
from clawblox.checkpoint.collect.policy import find_repositories, fold_path, workspace_exclusion

_ID: Final = "[0-9A-Za-z_-]+"
_RUN: Final = f"wf_{_ID}"
_ANY_NAME: Final = ("memory/", "tool-results/")
"""Directories with files of any name, written by the agent and its tools."""

_SOURCED: Final = "session-env"
"""Name of directories that are always left out."""

_PLANS: Final = "plans/"
_NEWEST: Final = 1000
"""Number of records that are searched for the name of the plan; every message repeats it."""


class ClaudeFormat(BucketFormat):
    """The transcript, and the files that Claude Code and its tools keep for a conversation."""

    name = "claude-code-v1"
    program = CLAUDE
    resume_words = ("claude", "--setting-sources", "user", "--strict-mcp-config", "--resume")
    system_prompt_option = "--append-system-prompt"
    allowed = re.compile(
        r"transcript\.jsonl"
        rf"|subagents/(?:workflows/{_RUN}/)?agent-{_ID}\.(?:jsonl|meta\.json)"
        rf"|subagents/workflows/{_RUN}/journal\.jsonl"
        rf"|workflows/(?:{_RUN}\.json|scripts/{_ID}\.js)"
        r"|tool-results/(?:[^/]+/)?[^/]+"
        r"|memory/.+"
        rf"|{_PLANS}{_ID}\.md"
        r"|tasks/(?:[0-9]+\.json|\.highwatermark)"
    )
    transcript = "transcript.jsonl"
    searched = ("projects", "tasks", "plans")

    def bucket(self, workspace: Path) -> str:
        """Return the name of the project directory of a workspace."""
        return project_slug(os.path.realpath(workspace))

    def path_table(self, conversation_id: str, bucket: str) -> PathTable:
        """Return the place of each part of a conversation."""
        project = f"projects/{bucket}"
        own = ("subagents/", "tool-results/", "workflows/")
        return (
            ("transcript.jsonl", f"{project}/{conversation_id}.jsonl"),
            *((part, f"{project}/{conversation_id}/{part}") for part in own),
            ("memory/", f"{project}/memory/"),
            ("tasks/", f"tasks/{conversation_id}/"),
            (_PLANS, _PLANS),
        )

    def allows(self, name: str) -> bool:
        """Return whether a conversation may have a file with this name.

        Memory and results of tools may have any name that is allowed in a workspace, except
        ``HEAD``: it would turn a directory into a repository with a ``config`` that git follows.
        """
        if not super().allows(name):
            return False
        if not name.startswith(_ANY_NAME):
            return True
        is_sourced = _SOURCED in fold_path(name)
        return not (is_sourced or find_repositories([name]).strays or workspace_exclusion(name))

    def has_records(self, name: str) -> bool:
        """Return whether Claude Code appends records to a file; False for files of any name."""
        return super().has_records(name) and not name.startswith(_ANY_NAME)

    def find_in(
        self, agent_dir: Path, state_dir: str, conversation_id: str
    ) -> ConversationFiles | None:
        """Return the conversation's files, without plans of other conversations.

        Raises:
            CheckpointError: As in the base class.
        """
        located = super().find_in(agent_dir, state_dir, conversation_id)
        if located is None or not any(name.startswith(_PLANS) for name in located.files):
            return located
        if len({*self.find_ids(agent_dir, state_dir)}) == 1:
            return located
        plan = _plan_name(agent_dir, located.transcript)
        files = {name: path for name, path in located.files.items() if _belongs(name, plan)}
        return attrs.evolve(located, files=files)

    def ends_turn(self, record: Record) -> bool | None:
        """Return whether an answer is complete; None for bookkeeping records."""
        if record.get("isSidechain") or record.get("type") not in ("user", "assistant"):
            return None
        message = record.get("message")
        stop = message.get("stop_reason") if isinstance(message, dict) else None
        return record["type"] == "assistant" and stop not in (None, "tool_use", "pause_turn")


def _plan_name(agent_dir: Path, transcript: str) -> str | None:
    """Return the name of the conversation's plan; None without a plan."""
    with transcripts.newest_records(agent_dir, transcript) as records:
        slugs = (record.get("slug") for record in itertools.islice(records, _NEWEST))
        return next((slug for slug in slugs if isinstance(slug, str)), None)


def _belongs(name: str, plan: str | None) -> bool:
    """Return False only for a plan that is not of the conversation or its sub-agents."""
    if not name.startswith(_PLANS):
        return True
    return plan is not None and name.startswith((f"{_PLANS}{plan}.md", f"{_PLANS}{plan}-agent-"))
