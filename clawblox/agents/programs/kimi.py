"""The files of a Kimi Code conversation, and how to bind one to another working directory.

Kimi refuses a session of another working directory, and reuses the permissions that a session
recorded. The functions here rewrite the directory and drop the permissions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Final

from clawblox.foreign_values import parse_object

AGENT_NAME: Final = r"[A-Za-z0-9_-]+"
"""Pattern of the names of a session's agents; ``main`` is the agent that the user talks to."""

MAIN_TRANSCRIPT: Final = "agents/main/wire.jsonl"
"""The transcript in the directory of a session."""

STATE_FILE: Final = "state.json"
"""The file in the directory of a session that records its paths."""

_MAX_SLUG: Final = 40
_HASH_LENGTH: Final = 12

_BINDING: Final = "runtime.set_binding"
_PERMISSIONS: Final = "permission."
_MARKERS: Final = (_BINDING.encode(), _PERMISSIONS.encode(), b"\\u")
"""A line without any of these needs no rewriting; ``\\u`` because letters may be escaped."""


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


def bind_state(document: bytes, *, cwd: str, home: str) -> bytes:
    """Return a ``state.json`` with replaced paths.

    Args:
        document: Its content.
        cwd: The working directory.
        home: The directory of the session.

    Raises:
        ValueError: The document is not a JSON object.
    """
    state = parse_object(document)
    if state is None:
        raise ValueError("state.json of a Kimi session must be a JSON object")
    state["cwd"] = cwd
    agents = state.get("agents")
    for name, agent in agents.items() if isinstance(agents, dict) else ():
        if (
            isinstance(agent, dict)
            and agent.pop("homedir", None)
            and re.fullmatch(AGENT_NAME, name)
        ):
            agent["homedir"] = f"{home}/agents/{name}"
    return json.dumps(state, separators=(",", ":"), allow_nan=False).encode()


def bind_record(workspace_id: str, line: bytes) -> bytes:
    """Bind a line of a transcript to another workspace; other lines are returned unchanged.

    Args:
        workspace_id: Result of :func:`work_dir_key` for the workspace.
        line: The line, with its newline.

    Returns:
        The replacement; empty for a permission.
    """
    if not any(marker in line for marker in _MARKERS):
        return line
    record = parse_object(line)
    if record is None:  # Kimi's parser might still read a permission from it
        return b""
    kind = record.get("type")
    if isinstance(kind, str) and kind.startswith(_PERMISSIONS):
        return b""
    if kind != _BINDING:
        return line
    bound = record | {"workspaceId": workspace_id}
    return json.dumps(bound, separators=(",", ":"), allow_nan=False).encode() + b"\n"
