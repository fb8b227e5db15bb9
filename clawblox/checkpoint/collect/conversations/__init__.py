"""Conversations of agents: their files, and where a restore puts them.

- ``shape``: the base class of the conversation formats.
- ``buckets``: Kimi Code, and the base class of formats with a directory for each workspace.
- ``claude``: Claude Code.
- ``codex``: Codex, including its compressed conversations.
- ``transcripts``: files with a JSON record on each line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clawblox.checkpoint.collect.conversations.buckets import KimiFormat
from clawblox.checkpoint.collect.conversations.claude import ClaudeFormat
from clawblox.checkpoint.collect.conversations.codex import CodexFormat
from clawblox.checkpoint.collect.conversations.shape import (
    ConversationFormat,
    Placement,
    UnrecordedConversation,
)
from clawblox.config.arguments import mismatch

__all__ = [
    "FORMATS",
    "ConversationFormat",
    "Placement",
    "UnrecordedConversation",
    "find_format",
]

FORMATS: Final[Mapping[str, ConversationFormat]] = MappingProxyType(
    {item.name: item for item in (ClaudeFormat(), CodexFormat(), KimiFormat())}
)
"""All conversation formats by name."""


def find_format(backend: str) -> ConversationFormat:
    """Return the conversation format of a driver.

    Raises:
        ConfigError: ``backend`` is not a known driver.
    """
    formats = {item.backend: item for item in FORMATS.values()}
    if backend not in formats:
        raise mismatch("backend", f"one of {', '.join(formats)}", backend)
    return formats[backend]
