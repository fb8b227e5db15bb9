"""Pure facts of each agent program and its files, also for archives.

- ``program``: the facts of one program, and the table of all of them.
- ``kimi``: its transcripts, and how one is bound to another working directory.
"""

from __future__ import annotations

from clawblox.agents.programs.program import (
    CLAUDE,
    CODEX,
    KIMI,
    OPENCODE,
    PROGRAMS,
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
    "STATE_DIR",
    "UUID",
    "Program",
    "id_file_name",
]
