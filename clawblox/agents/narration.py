"""An agent's activity as lines for people: its messages, its tool calls, its errors.

Usage is left out, because tables show it. Output of programs may have any content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.values import EventType
from clawblox.foreign_values import clean_value, finite_number
from clawblox.printable import printable, printable_lines, printable_name

Tone: TypeAlias = Literal["plain", "faint", "action", "error"]
"""Style of a line: the agent's own text, a detail, an action or an error."""

_MESSAGE_PREFIX: Final = "| "
"""Prefix of each line of an agent's message, which distinguishes it from lines of clawblox."""
_FAULT: Final = "! "
_MAX_COLUMNS: Final = 300
_MAX_MESSAGE_COLUMNS: Final = 4000
_MAX_RESULT_LINES: Final = 6
_MAX_PROMPT_LINES: Final = 12
_ENDED: Final = {"stopped": "agent stopped", "failed": "agent failed"}
"""Text for the end of a process by its ``status``; these two also end the agent."""
_MAIN_ARGUMENTS: Final = ("command", "cmd", "file_path", "path", "url", "pattern", "query")
"""Arguments that suffice to describe a tool call."""


@attrs.frozen
class NarrationLine:
    """A line for people; its control characters are escaped."""

    text: str = attrs.field(converter=printable_name)
    tone: Tone = "plain"


def narrate(type: EventType, data: Mapping[str, Any]) -> list[NarrationLine]:  # noqa: A002 - as in Report
    """Return the lines for an event.

    Args:
        type: Type of the event.
        data: Its members, as :class:`~clawblox.agents.values.DriverReport` lists them.
    """
    narrator = _NARRATORS.get(type)
    return [] if narrator is None else list(narrator(data))


def _message(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    if data.get("role") == "assistant":
        yield from (NarrationLine(f"{_MESSAGE_PREFIX}{line}") for line in _lines(data.get("text")))
        return
    lines = _first_lines(data.get("text"), _MAX_PROMPT_LINES)
    yield from (NarrationLine(f"> {line}", "faint") for line in lines)


def _reasoning(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    yield from (
        NarrationLine(f"{_MESSAGE_PREFIX}{line}", "faint") for line in _lines(data.get("text"))
    )


def _tool_called(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    text = f"● {_word(data.get('name')) or 'tool'} {_arguments(data.get('arguments'))}".rstrip()
    yield NarrationLine(_cut(text), "action")


def _tool_returned(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    tone: Tone = "error" if data.get("is_error") else "faint"
    for line in _first_lines(data.get("content"), _MAX_RESULT_LINES):
        yield NarrationLine(f"  {line}", tone)


def _turn_finished(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    if data.get("ok", True):
        origin = _word(data.get("origin"))
        turn = f"a turn of the program's own: {origin}" if origin else "turn"
        yield NarrationLine(f"── end of {turn} ──", "faint")
    else:
        yield NarrationLine("── the turn failed ──", "error")


def _started(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    words = (
        "── program started",
        _word(data.get("version")),
        _numbered("process", data.get("pid")),
    )
    yield NarrationLine(", ".join(filter(None, words)) + " ──", "faint")


def _exited(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    error, who = data.get("error"), _ENDED.get(str(data.get("status")), "program ended")
    words = (f"── {who}", _numbered("exit status", data.get("exit_code")), _word(error))
    yield NarrationLine(_cut(", ".join(filter(None, words)) + " ──"), "error" if error else "faint")


def _turn_started(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    if (prompt := data.get("prompt")) != AUTO_CONTINUE:
        yield from _message({"role": "user", "text": prompt})


def _confirmed(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    words = (f"── conversation {_word(data.get('session_id'))}", _word(data.get("model")))
    yield NarrationLine(", ".join(filter(None, words)) + " ──", "faint")


def _retry(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    delay = finite_number(data.get("delay_s"))
    wait = f" in {delay:.1f} s" if delay is not None else ""
    words = (
        f"the program tries again{wait}",
        _numbered("status", data.get("status")),
        _numbered("attempt", data.get("attempt")),
        _word(data.get("error")),
    )
    yield NarrationLine(_cut(", ".join(filter(None, words))), "error")


def _fault(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    words = (_word(data.get("kind")) or "error", _word(data.get("message")))
    yield NarrationLine(_cut(_FAULT + ": ".join(filter(None, words))), "error")


def _limit(data: Mapping[str, Any]) -> Iterator[NarrationLine]:
    message = _word(data.get("message"))  # names the kind: "budget of 20 turns used up"
    yield from [NarrationLine(_cut(_FAULT + message), "error")] if message else _fault(data)


_NARRATORS: Final[Mapping[EventType, Callable[[Mapping[str, Any]], Iterable[NarrationLine]]]] = {
    "process.started": _started,
    "process.exited": _exited,
    "session.confirmed": _confirmed,
    "turn.started": _turn_started,
    "turn.finished": _turn_finished,
    "message": _message,
    "reasoning": _reasoning,
    "tool.called": _tool_called,
    "tool.returned": _tool_returned,
    "retry": _retry,
    "limit": _limit,
    "error": _fault,
    "oversized": lambda _data: [NarrationLine("(a line too long to read)", "faint")],
    "stalled": lambda _data: [NarrationLine("the program has been silent for too long", "error")],
}


def _arguments(value: object) -> str:
    if isinstance(value, Mapping):
        for key in _MAIN_ARGUMENTS:
            if isinstance(main := value.get(key), str) and main:
                return _word(main)
    return _word(value)


def _word(value: object) -> str:
    """Return a value as a single line; None becomes ``""``."""
    return printable(_text(value))


def _numbered(name: str, value: object) -> str:
    return "" if value is None else f"{name} {_word(value)}"


def _first_lines(value: object, most: int) -> list[str]:
    lines = [_cut(line) for line in _lines(value)]
    rest = len(lines) - most
    return lines if rest <= 0 else [*lines[:most], f"… {rest} more lines"]


def _lines(value: object) -> list[str]:
    text = _text(value).strip("\n")
    lines = printable_lines(text).split("\n") if text else []
    return [_cut(line, _MAX_MESSAGE_COLUMNS) for line in lines]


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(clean_value(value), ensure_ascii=False)


def _cut(line: str, columns: int = _MAX_COLUMNS) -> str:
    return line if len(line) <= columns else f"{line[: columns - 1]}…"
