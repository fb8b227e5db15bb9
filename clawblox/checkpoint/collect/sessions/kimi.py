"""Conversations of Kimi Code (``kimi-code-v1``).

``KIMI_CODE_HOME`` names its state directory. The layout is that of version 2.1. Kimi refuses a
session of another working directory, and reuses the permissions that a session recorded. An archive
therefore holds placeholders for the absolute paths in ``state.json`` and for the workspace id in
the transcripts; a restore fills them in. Permissions are never archived.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Final

from clawblox.checkpoint.collect.sessions import transcripts
from clawblox.checkpoint.collect.sessions.buckets import BucketFormat, PathTable
from clawblox.checkpoint.collect.sessions.shape import UUID
from clawblox.checkpoint.collect.sessions.transcripts import Record
from clawblox.checkpoint.model import Transform
from clawblox.errors import CheckpointFormatError

__all__ = ["KimiFormat", "work_dir_key"]

_MAX_SLUG: Final = 40
_HASH_LENGTH: Final = 12

_STATE: Final = "state.json"
_WORKSPACE: Final = "${workspace}"
_HOME: Final = "${home}"
_BINDING: Final = "runtime.set_binding"
_PERMISSIONS: Final = "permission."
_MARKERS: Final = (_BINDING.encode(), _PERMISSIONS.encode(), b"\\u")
"""A line without any of these needs no rewriting; any letter may be written as an escape."""

_AGENT: Final = r"[A-Za-z0-9_-]+"

_ENDS_TURN: Final = {
    "turn.prompt": False,
    "turn.steer": False,
    "turn.ended": True,
    "turn.cancel": True,
}


class KimiFormat(BucketFormat):
    """The state of a session, and the transcripts and plans of its agents."""

    name = "kimi-code-v1"
    backend = "kimi"
    home_dir = ".kimi-code"
    state_variable = "KIMI_CODE_HOME"
    resume_words = ("kimi", "-r")
    id_pattern = re.compile(rf"(session_)?{UUID}")
    allowed = re.compile(
        rf"state\.json|agents/{_AGENT}/wire\.jsonl|agents/{_AGENT}/plans/[A-Za-z0-9_.-]+\.md"
    )
    transcript = "agents/main/wire.jsonl"
    searched = ("sessions",)

    def bucket(self, workspace: Path) -> str:
        """Return the name of the directory for the sessions of a workspace."""
        return work_dir_key(workspace)

    def path_table(self, session_id: str, bucket: str) -> PathTable:
        """Return the directory of a session, for all its files."""
        return (("", f"sessions/{bucket}/{session_id}/"),)

    def save_transform(self, name: str) -> Transform | None:
        """Return the transform that puts in placeholders and drops permissions.

        Raises:
            CheckpointFormatError: ``state.json`` is not a JSON object, or a record is too large;
                raised by the transform itself.
        """
        if name == _STATE:
            rewrite = functools.partial(_with_paths, cwd=_WORKSPACE, home=_HOME)
            return transcripts.document_transform(rewrite)
        return _bind_to(_WORKSPACE) if name.endswith(".jsonl") else None

    def load_transform(
        self, name: str, session_id: str, workspace: Path, state_dir: str
    ) -> Transform | None:
        """Return the transform that fills in paths and workspace id, and drops permissions.

        Raises:
            CheckpointFormatError: ``state.json`` is not a JSON object, or a record is too large;
                raised by the transform itself.
        """
        if name == _STATE:
            directory = self.path_in_state("", session_id, workspace)
            rewrite = functools.partial(
                _with_paths,
                cwd=os.path.realpath(workspace),
                home=os.path.realpath(workspace.parent / state_dir / directory),
            )
            return transcripts.document_transform(rewrite)
        return _bind_to(work_dir_key(workspace)) if name.endswith(".jsonl") else None

    def ends_turn(self, record: Record) -> bool | None:
        """Return whether a record ended or began a turn; None for other records."""
        return _ENDS_TURN.get(str(record.get("type")))


def work_dir_key(directory: Path) -> str:
    """Return the name of Kimi Code's bucket for a working directory; also its workspace id.

    Args:
        directory: The working directory, absolute; it need not exist.
    """
    path = os.path.realpath(directory)
    slug = re.sub(r"[^a-z0-9._-]+", "-", path.rpartition("/")[2].lower())
    slug = slug.strip("-")[:_MAX_SLUG].strip("-")
    if slug in ("", ".", ".."):
        slug = "workspace"
    digest = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()
    return f"wd_{slug}_{digest[:_HASH_LENGTH]}"


def _with_paths(document: bytes, *, cwd: str, home: str) -> bytes:
    """Return a ``state.json`` with other paths."""
    try:
        state = json.loads(document)
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise CheckpointFormatError(
            "state.json of a Kimi session must be a JSON object", entry=_STATE
        )
    state["cwd"] = cwd
    agents = state.get("agents")
    for name, agent in agents.items() if isinstance(agents, dict) else ():
        if isinstance(agent, dict) and agent.pop("homedir", None) and re.fullmatch(_AGENT, name):
            agent["homedir"] = f"{home}/agents/{name}"
    return json.dumps(state, separators=(",", ":")).encode()


def _bind_to(workspace_id: str) -> Transform:
    return transcripts.line_transform(functools.partial(_rewrite_line, workspace_id))


def _rewrite_line(workspace_id: str, line: bytes) -> bytes:
    """Bind a record to another workspace and drop permissions; keep other records unchanged."""
    if not any(marker in line for marker in _MARKERS):
        return line
    record = transcripts.parse_record(line)
    if record is None:  # Kimi's parser might still read a permission from it
        return b""
    kind = record.get("type")
    if isinstance(kind, str) and kind.startswith(_PERMISSIONS):
        return b""
    if kind != _BINDING:
        return line
    compact = json.dumps(record | {"workspaceId": workspace_id}, separators=(",", ":"))
    return compact.encode() + b"\n"
