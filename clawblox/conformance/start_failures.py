"""Starts that failed, in words: one sentence, or with the last lines of the log. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clawblox.errors import WorldStartError

_TELLING: Final = re.compile(
    r"error|exception|fatal|panic|not found|no such|no module|cannot|can't|denied|refused"
    r"|already in use|unknown",
    re.IGNORECASE,
)
_MAX_LINE_CHARS: Final = 300


def summarize_start(what: str, error: WorldStartError) -> str:
    """Return why a world did not start as one sentence, with the most telling line of its log.

    Args:
        what: What the world did not do, without its subject.
        error: The error of the start.
    """
    sentence = f"the world {what}: {error.message}"
    line = _find_telling_line(error.log_lines)
    return f"{sentence}: {line}" if line else sentence


def describe_start(what: str, error: WorldStartError) -> str:
    """Return why a world did not start, without the files of the attempt, which will be gone.

    Args:
        what: What the world did not do, without its subject.
        error: The error of the start.
    """
    lines = [f"the world {what}: {error.message}"]
    if error.log_lines:
        lines += ["last log lines:", *(f"  | {line}" for line in error.log_lines)]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)


def _find_telling_line(lines: Sequence[str]) -> str:
    """Return the last line that names an error, else the last line; empty without lines."""
    said = [line.strip() for line in lines if line.strip()]
    telling = (line for line in reversed(said) if _TELLING.search(line))
    line = next(telling, said[-1] if said else "")
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…"
