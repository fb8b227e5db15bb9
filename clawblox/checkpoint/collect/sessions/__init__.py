"""Which files make a conversation of an agent, where they are, and where they belong elsewhere.

One module for each driver says what its program keeps on disk; ``shape`` says what they have in
common. What is archived of all agents together is ``tiers``'.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clawblox.checkpoint.collect.sessions.claude import ClaudeFormat
from clawblox.checkpoint.collect.sessions.codex import CodexFormat
from clawblox.checkpoint.collect.sessions.kimi import KimiFormat
from clawblox.checkpoint.collect.sessions.shape import STATE_DIR, Placement, Session, SessionFormat
from clawblox.errors import ConfigError

__all__ = ["FORMATS", "STATE_DIR", "Placement", "Session", "SessionFormat", "format_of_backend"]

FORMATS: Final[Mapping[str, SessionFormat]] = MappingProxyType(
    {each.name: each for each in (ClaudeFormat(), CodexFormat(), KimiFormat())}
)
"""Every session format by its name."""


def format_of_backend(backend: str) -> SessionFormat:
    """Return the session format of a driver.

    Raises:
        ConfigError: There is no such driver.
    """
    for each in FORMATS.values():
        if each.backend == backend:
            return each
    known = ", ".join(each.backend for each in FORMATS.values())
    raise ConfigError(f"unknown backend; known: {known}", key="backend", value=backend)
