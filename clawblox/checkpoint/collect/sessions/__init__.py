"""Agent sessions: which files a conversation consists of, and where they belong after a restore.

- ``shape``: what every session format has in common.
- ``buckets``: Claude Code and Kimi Code, with a directory of sessions for each workspace.
- ``codex``: Codex, also its compressed conversations.
- ``transcripts``: files of JSON records, one a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clawblox.checkpoint.collect.sessions.buckets import ClaudeFormat, KimiFormat
from clawblox.checkpoint.collect.sessions.codex import CodexFormat
from clawblox.checkpoint.collect.sessions.shape import (
    AgentSession,
    Placement,
    SessionFormat,
    UnrecordedSession,
)
from clawblox.errors import ConfigError

__all__ = [
    "FORMATS",
    "AgentSession",
    "Placement",
    "SessionFormat",
    "UnrecordedSession",
    "find_format",
]

FORMATS: Final[Mapping[str, SessionFormat]] = MappingProxyType(
    {known.name: known for known in (ClaudeFormat(), CodexFormat(), KimiFormat())}
)
"""Every session format by its name."""


def find_format(backend: str) -> SessionFormat:
    """Return the session format of a driver.

    Raises:
        ConfigError: ``backend`` is not a known driver.
    """
    formats = {known.backend: known for known in FORMATS.values()}
    if backend not in formats:
        known = ", ".join(formats)
        raise ConfigError(f"backend must be one of {known}", key="backend", value=backend)
    return formats[backend]
