"""Pure facts of each agent program and its files, also used for archives.

- ``program``: the facts of each program, and the table of all programs.
- ``kimi``: the transcripts of Kimi Code, and how to bind them to another working directory.
"""

from __future__ import annotations

from clawblox.agents.programs.program import (
    CLAUDE,
    CODEX,
    KIMI,
    OPENCODE,
    PROGRAMS,
    SANDBOX_WORKSPACE,
    STATE_DIR,
    UUID,
    Program,
    id_file_name,
)

__all__ = [
    "CLAUDE",
    "CODEX",
    "KIMI",
    "OPENCODE",
    "PROGRAMS",
    "SANDBOX_WORKSPACE",
    "STATE_DIR",
    "UUID",
    "Program",
    "id_file_name",
]
