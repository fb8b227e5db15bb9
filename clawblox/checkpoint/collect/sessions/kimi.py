"""Conversations of Kimi Code (``kimi-code-v1``).

``KIMI_CODE_HOME`` names its state directory. The layout is that of version 2.1. Kimi refuses a
session of another working directory, and reuses the permissions that a session recorded. An archive
therefore holds placeholders for the absolute paths in ``state.json`` and for the workspace id in
the transcripts; a restore fills them in. Permissions are never archived.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Final

from clawblox.agents.programs import KIMI
from clawblox.agents.programs.kimi import (
    AGENT_NAME,
    MAIN_TRANSCRIPT,
    STATE_FILE,
    bind_record,
    bind_state,
    work_dir_key,
)
from clawblox.checkpoint.collect.sessions import transcripts
from clawblox.checkpoint.collect.sessions.buckets import BucketFormat, PathTable
from clawblox.checkpoint.collect.sessions.transcripts import Record
from clawblox.checkpoint.model import Transform
from clawblox.errors import CheckpointFormatError

_WORKSPACE: Final = "${workspace}"
_HOME: Final = "${home}"
_ENDS_TURN: Final = {
    "turn.prompt": False,
    "turn.steer": False,
    "turn.ended": True,
    "turn.cancel": True,
}


class KimiFormat(BucketFormat):
    """The state of a session, and the transcripts and plans of its agents."""

    name = "kimi-code-v1"
    program = KIMI
    resume_words = ("kimi", "-r")
    allowed = re.compile(
        rf"state\.json|agents/{AGENT_NAME}/wire\.jsonl|agents/{AGENT_NAME}/plans/[A-Za-z0-9_.-]+\.md"
    )
    transcript = MAIN_TRANSCRIPT
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
        if name == STATE_FILE:
            rewrite = functools.partial(_bind_document, cwd=_WORKSPACE, home=_HOME)
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
        if name == STATE_FILE:
            directory = self.path_in_state("", session_id, workspace)
            rewrite = functools.partial(
                _bind_document,
                cwd=os.path.realpath(workspace),
                home=os.path.realpath(workspace.parent / state_dir / directory),
            )
            return transcripts.document_transform(rewrite)
        return _bind_to(work_dir_key(workspace)) if name.endswith(".jsonl") else None

    def ends_turn(self, record: Record) -> bool | None:
        """Return whether a record ended or began a turn; None for other records."""
        return _ENDS_TURN.get(str(record.get("type")))


def _bind_document(document: bytes, *, cwd: str, home: str) -> bytes:
    try:
        return bind_state(document, cwd=cwd, home=home)
    except ValueError as error:
        raise CheckpointFormatError(str(error), entry=STATE_FILE) from None


def _bind_to(workspace_id: str) -> Transform:
    return transcripts.line_transform(functools.partial(bind_record, workspace_id))
