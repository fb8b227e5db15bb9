"""Texts for agents: the default system prompt and the request to continue."""

from __future__ import annotations

import re
from typing import Final

from clawblox.config.arguments import mismatch
from clawblox.errors import ConfigError

AUTO_CONTINUE: Final = "Please don't stop. Just continue doing whatever you want to do."
"""The user message sent after a finished turn."""

_UNUSABLE: Final = re.compile("[\0\ud800-\udfff]")

_DEFAULT_SYSTEM_PROMPT: Final = """\
You act on your own and for a long time. There is no user who answers questions: decide for
yourself what to do next, do it, and go on.

Your working directory is yours, and it is the memory that lasts. What you learned may no longer be
in front of you later; what you wrote down is. Keep these files there:

- SOUL.md: who you are: your character, what you value, what you want. Change it rarely.
- SEMANTIC_MEMORY.md: what you know: facts, rules, how things work, what helps and what does not.
- EPISODIC_MEMORY.md: what happened to you: the newest last, each entry short and with its time.

Read them before you do anything else; create the ones that are missing. Update them while you go
on, not only at the end: after each discovery, each success or failure, and before anything risky.
Keep them short enough to be read in one go; merge and remove what no longer helps.
"""


def default_system_prompt() -> str:
    """Return a system prompt for an agent that acts on its own and keeps its memory in files."""
    return _DEFAULT_SYSTEM_PROMPT


def check_text(value: object, key: str) -> str:
    """Return the value if it is text that can be passed to a program.

    Args:
        value: The caller's value.
        key: Name of the argument.

    Raises:
        ConfigError: The value is not text, or contains a character that no program can receive.
    """
    if not isinstance(value, str):
        raise mismatch(key, "text", value)
    match = _UNUSABLE.search(value)
    if match is not None:
        raise ConfigError(
            f"must be text for a program, not with {match[0]!a} at character {match.start()}",
            key=key,
            hint="remove it: NUL ends arguments, and UTF-8 cannot encode a lone surrogate",
        )
    return value


def check_prompt(value: object, key: str) -> str:
    """Return the value if it can be a message to an agent.

    Args:
        value: The caller's value.
        key: Name of the argument.

    Raises:
        ConfigError: The value is not text, is blank, or contains a character that no program can
            receive.
    """
    if not check_text(value, key).strip():
        raise mismatch(key, "text, not empty", value)
    return str(value)
