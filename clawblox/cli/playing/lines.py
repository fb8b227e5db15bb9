"""Parses the lines that a person types in a session into commands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from clawblox.errors import UsageError

VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "act": ("[act] TYPE [DATA]", "Send an input, and show the changes."),
    "observe": ("observe", "Show your observation."),
    "changes": ("changes", "Show the changes since you last looked."),
    "show": ("show [PATH]", "Show the whole last observation, or one part."),
    "say": ("say TEXT", "Say something to the other agents."),
    "chat": ("chat", "Show the last messages."),
    "api": ("api", "Show the documentation of the world."),
    "save": ("save", "Save a snapshot of the world."),
    "help": ("help", "Show this, and the inputs of the world."),
    "quit": ("quit", "Leave the world; so does Ctrl-D."),
}
"""Syntax and purpose of each command."""

_TAKES_TEXT: Final = ("act", "say", "show")
_SHOWN_CHARS = 20
_WORD = re.compile(r"[^\W\d][\w-]*")


@attrs.frozen
class PlayCommand:
    """A command.

    Attributes:
        verb: Name of the command, one of :data:`VERBS`.
        text: A chat message, a path to show, or the type of an input.
        data: Data of an input; None for none.
        is_short: Whether an input was typed without ``act``.
    """

    verb: str
    text: str = ""
    data: Any = None
    is_short: bool = False


def parse_line(text: str) -> PlayCommand | None:
    """Return the command of a line; None for an empty line or a comment.

    A first word that is not a command is the type of an input.

    Raises:
        UsageError: There are too few or too many words, or the data is not JSON.
    """
    text = text.strip()
    if not text or text.startswith("#"):
        return None
    verb, _, rest = text.partition(" ")
    rest = rest.strip()
    if verb not in VERBS:
        return PlayCommand("act", verb, parse_data(rest), is_short=True)
    if verb == "act":
        kind, _, data = rest.partition(" ")
        if not kind:
            raise UsageError(
                "act: must be followed by the type of an input", hint="help shows the inputs"
            )
        return PlayCommand("act", kind, parse_data(data.strip()))
    if verb == "say" and not rest:
        raise UsageError("say: must be followed by a text")
    if rest and verb not in _TAKES_TEXT:
        hint = f"to send an input of this type: act {text}"
        raise UsageError(f"{verb}: must be typed alone, not with {rest!r}", hint=hint)
    return PlayCommand(verb, rest)


def parse_data(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return the data of an input: JSON, or a single word as a text; None for no data.

    Raises:
        UsageError: The text is neither; the message has the place of the mistake.
    """
    if not text:
        return None
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError("the data is nested too deeply") from None
    except json.JSONDecodeError as error:
        if _WORD.fullmatch(text):
            return text
        read = text[: error.pos][-_SHOWN_CHARS:]
        place = f"after {read!r}" if read else "at its start"
        hint = 'data looks like {"direction": [1, 0]}, "north" or 3'
        raise UsageError(f"the data is not JSON: {error.msg} {place}", hint=hint) from None
