"""Conversations of Kimi Code (``kimi-code-v1``).

Its state directory is what ``KIMI_CODE_HOME`` names; the layout is that of 2.1. Kimi refuses a
session that says it was made in another directory, and takes up the permissions that a session
recorded. So the absolute paths in ``state.json`` and the workspace's id in the transcripts are
left open in an archive and filled in for the new place, and permissions never travel.
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
from clawblox.checkpoint.collect.sessions.buckets import BucketFormat, Homes
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
_SIGNS: Final = (_BINDING.encode(), _PERMISSIONS.encode(), b"\\u")
"""What a line holds that has to be looked at; any letter may be written as an escape."""

_AGENT: Final = r"[A-Za-z0-9_-]+"

_ENDS: Final = {
    "turn.prompt": False,
    "turn.steer": False,
    "turn.ended": True,
    "turn.cancel": True,
}


class KimiFormat(BucketFormat):
    """The session's state, its agents' transcripts and their plans."""

    name = "kimi-code-v1"
    backend = "kimi"
    own_dir = ".kimi-code"
    id_pattern = re.compile(rf"(session_)?{UUID}")
    allowed = re.compile(
        rf"state\.json|agents/{_AGENT}/wire\.jsonl|agents/{_AGENT}/plans/[A-Za-z0-9_.-]+\.md"
    )
    transcript = "agents/main/wire.jsonl"
    searched = ("sessions",)

    def bucket(self, workspace: Path) -> str:
        """Return the name of the directory for the sessions of a workspace."""
        return work_dir_key(workspace)

    def homes(self, session_id: str, bucket: str) -> Homes:
        """Return where a session is."""
        return (("", f"sessions/{bucket}/{session_id}/"),)

    def saving(self, name: str) -> Transform | None:
        """Return what leaves paths and workspace open, and permissions out."""
        if name == _STATE:
            rewrite = functools.partial(_with_paths, cwd=_WORKSPACE, home=_HOME)
            return transcripts.rewriting_document(rewrite)
        return _binding_to(_WORKSPACE) if name.endswith(".jsonl") else None

    def restoring(
        self, name: str, session_id: str, workspace: Path, state_dir: str
    ) -> Transform | None:
        """Return what fills in paths and workspace, and leaves permissions out."""
        if name == _STATE:
            directory = self.where("", session_id, workspace)
            rewrite = functools.partial(
                _with_paths,
                cwd=os.path.realpath(workspace),
                home=os.path.realpath(workspace.parent / state_dir / directory),
            )
            return transcripts.rewriting_document(rewrite)
        return _binding_to(work_dir_key(workspace)) if name.endswith(".jsonl") else None

    def ends_turn(self, record: Record) -> bool | None:
        """Say whether a turn was begun or ended; other records do not tell."""
        return _ENDS.get(str(record.get("type")))


def work_dir_key(directory: Path) -> str:
    """Return the name that Kimi Code gives the bucket, and the id, of a working directory.

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
    """Return a ``state.json`` that says it is of another place."""
    try:
        state = json.loads(document)
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise CheckpointFormatError("the state of a Kimi session is no JSON object", entry=_STATE)
    state["cwd"] = cwd
    agents = state.get("agents")
    for name, agent in agents.items() if isinstance(agents, dict) else ():
        if isinstance(agent, dict) and agent.pop("homedir", None) and re.fullmatch(_AGENT, name):
            agent["homedir"] = f"{home}/agents/{name}"
    return json.dumps(state, separators=(",", ":")).encode()


def _binding_to(workspace_id: str) -> Transform:
    return transcripts.rewriting_lines(functools.partial(_rewrite_line, workspace_id))


def _rewrite_line(workspace_id: str, line: bytes) -> bytes:
    """Return a record for another workspace; every other record stays as it is, to the byte."""
    if not any(sign in line for sign in _SIGNS):
        return line
    record = transcripts.record_of(line)
    if record is None:  # Kimi's parser could yet take for a permission what ours does not know.
        return b""
    kind = record.get("type")
    if isinstance(kind, str) and kind.startswith(_PERMISSIONS):
        return b""
    if kind != _BINDING:
        return line
    compact = json.dumps(record | {"workspaceId": workspace_id}, separators=(",", ":"))
    return compact.encode() + b"\n"
