"""Agent sessions: the files of a conversation, and their places after a restore.

- ``shape``: the base class of the session formats.
- ``buckets``: Kimi Code, and the base class of formats with a directory for each workspace.
- ``claude``: Claude Code.
- ``codex``: Codex, also its compressed conversations.
- ``transcripts``: files with a JSON record on each line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clawblox.checkpoint.collect.sessions.buckets import KimiFormat
from clawblox.checkpoint.collect.sessions.claude import ClaudeFormat
from clawblox.checkpoint.collect.sessions.codex import CodexFormat
from clawblox.checkpoint.collect.sessions.shape import (
    Placement,
    SessionFormat,
    UnrecordedSession,
)
from clawblox.config.arguments import mismatch

__all__ = [
    "FORMATS",
    "Placement",
    "SessionFormat",
    "UnrecordedSession",
    "find_format",
]

FORMATS: Final[Mapping[str, SessionFormat]] = MappingProxyType(
    {item.name: item for item in (ClaudeFormat(), CodexFormat(), KimiFormat())}
)
"""Every session format by its name."""


def find_format(backend: str) -> SessionFormat:
    """Return the session format of a driver.

    Raises:
        ConfigError: ``backend`` is not a known driver.
    """
    formats = {item.backend: item for item in FORMATS.values()}
    if backend not in formats:
        raise mismatch("backend", f"one of {', '.join(formats)}", backend)
    return formats[backend]
