"""The files of a Kimi Code conversation, and binding them to another working directory.

Kimi refuses a conversation of another working directory, and reuses the permissions that it
recorded. The functions here rewrite the directory and drop the permissions.

Transcripts name images by their digests and plans by their ids. Version 2.1 turns these names into
paths without a check: a name with ``../`` would make Kimi send any file of the user to the model.
The functions here keep only names of the conversation's own files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from clawblox.foreign_values import parse_object

AGENT_NAME: Final = r"[A-Za-z0-9_-]+"
"""Pattern of the names of a conversation's agents; ``main`` is the agent that the user talks to."""

MAIN_TRANSCRIPT: Final = "agents/main/wire.jsonl"
"""The transcript in the directory of a conversation."""

STATE_FILE: Final = "state.json"
"""The file in the directory of a conversation that records its paths."""

_MAX_SLUG: Final = 40
_HASH_LENGTH: Final = 12

BLOB_NAME: Final = r"[0-9a-f]{64}"
"""Pattern of the names of an agent's blobs, the media of its messages."""

PLAN_NAME: Final = r"[A-Za-z0-9_.-]+"
"""Pattern of the ids of an agent's plans."""

MEDIA_NAME: Final = r"f_[A-Za-z0-9][A-Za-z0-9_-]*"
"""Pattern of the ids of images and videos that a user attached."""

TASK_NAME: Final = r"[a-z0-9]+(?:-[a-z0-9]+)*-[0-9a-z]{8}"
"""Pattern of the ids of an agent's commands and other tasks."""

_BINDING: Final = "runtime.set_binding"
_PERMISSIONS: Final = "permission."
_PLAN: Final = "plan_mode.enter"
_BLOB: Final = "blobref:"
_BLOB_URL: Final = re.compile(f"{_BLOB}[^;]*;{BLOB_NAME}")
_MISSING: Final = "[media missing]"
"""The program's own text for media that it does not have."""

_MARKERS: Final = (
    *(text.encode() for text in (_BINDING, _PERMISSIONS, _PLAN, _BLOB)),
    b"\\u",
)
"""Only lines with one of these need rewriting; ``\\u`` because letters may be escaped."""


def work_dir_key(directory: Path) -> str:
    """Return Kimi Code's workspace id for a working directory, also the name of its bucket.

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
        home: The directory of the conversation.

    Raises:
        ValueError: The document is not a JSON object.
    """
    state = parse_object(document)
    if state is None:
        raise ValueError("state.json of a Kimi conversation must be a JSON object")
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


class BlobDigest:
    """Computes the names of a blob from its content.

    Kimi names a blob by the SHA-256 digest of its content in base64. The digest of the content
    itself is accepted too.
    """

    def __init__(self) -> None:
        self._plain = hashlib.sha256()
        self._encoded = hashlib.sha256()
        self._rest = b""

    def update(self, piece: bytes) -> None:
        """Add the next piece of the content."""
        self._plain.update(piece)
        waiting = self._rest + piece
        end = len(waiting) - len(waiting) % 3  # base64 encodes three bytes at a time
        self._encoded.update(base64.b64encode(waiting[:end]))
        self._rest = waiting[end:]

    def names(self) -> frozenset[str]:
        """Return the names that a blob with the content so far may have."""
        encoded = self._encoded.copy()
        encoded.update(base64.b64encode(self._rest))
        return frozenset((encoded.hexdigest(), self._plain.hexdigest()))


def bind_record(workspace_id: str, line: bytes) -> bytes:
    """Bind a line of a transcript to another workspace; other lines are returned unchanged.

    Args:
        workspace_id: Result of :func:`work_dir_key` for the workspace.
        line: The line, with its newline.

    Returns:
        The replacement; empty for a permission, and for a plan whose file is not in the
        conversation. A reference to an image outside it becomes the program's text for missing
        media.
    """
    if not any(marker in line for marker in _MARKERS):
        return line
    record = parse_object(line)
    if record is None:  # Kimi's parser might still read a permission in it
        return b""
    kind = record.get("type")
    if isinstance(kind, str) and kind.startswith(_PERMISSIONS):
        return b""
    if kind == _PLAN:
        plan = record.get("id")
        if not (isinstance(plan, str) and re.fullmatch(PLAN_NAME, plan)):
            return b""
    is_changed = _drop_foreign_media(record)
    if kind == _BINDING:
        record["workspaceId"] = workspace_id
    elif not is_changed:
        return line
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _drop_foreign_media(record: dict[str, Any]) -> bool:
    """Replace references to media outside the conversation; return whether there were any."""
    is_changed = False
    waiting: list[Any] = [record]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            url = value.get("url")
            if isinstance(url, str) and url.startswith(_BLOB) and not _BLOB_URL.fullmatch(url):
                value["url"] = _MISSING
                is_changed = True
    return is_changed
