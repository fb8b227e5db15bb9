"""The steps of an agent as one file that can be sent: style inside, no script."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from clawblox.agents.trajectory import TurnIndex, read_window
from clawblox.checkpoint.secrets import known_values
from clawblox.system.amounts import format_bytes
from clawblox.system.files import publish_bytes
from clawblox.views.formatting import count_words
from clawblox.views.html import Child, Markup, document, element, join, style
from clawblox.views.observations import format_inline
from clawblox.web.outgoing import Identity, Outgoing
from clawblox.web.pieces import moment

_MAX_BYTES: Final = 64 << 20
"""Maximum size of the log's part that the file shows."""


def write_agent_file(directory: Path, file: Path, root: Path, *, redact: bool = False) -> int:
    """Write the steps of an agent into a file, which replaces an existing one. Blocks.

    Args:
        directory: The agent's directory.
        file: The file.
        root: The directory whose name is replaced by ``DIR``.
        redact: Whether secrets are masked; else they refuse the file.

    Returns:
        The number of steps.

    Raises:
        UsageError: No agent has run there.
        ClawbloxError: A step has a secret.
        OSError: A file cannot be read or written.
    """
    turns = TurnIndex(directory)
    turns.read_on()
    known = known_values(os.environ, [directory])
    outgoing = Outgoing(root, Identity.read(root), known, redact=redact)
    window = read_window(turns, 0)
    first, steps = window.first, [*window.steps]
    while window.has_later and window.last - first < _MAX_BYTES:
        window = read_window(turns, window.last)
        steps += window.steps
    rest = "" if not window.has_later else f", of the first {format_bytes(window.last - first)}"
    body = element(
        "main",
        element("h1", directory.name),
        element("p", count_words(len(steps), "step") + rest, class_="muted"),
        draw_steps(steps),
    )
    page = document(f"{directory.name} · clawblox", style("page", "agent"), body).encode(
        errors="replace"
    )
    data = outgoing.clear(file.name, page)
    outgoing.check()
    publish_bytes(file, data)
    return len(steps)


def draw_steps(steps: Sequence[Mapping[str, Any]]) -> Markup:
    """Return steps of a trajectory, whole."""
    return join(element("section", *_draw_step(step)) for step in steps)


def _draw_step(step: Mapping[str, Any]) -> Iterator[Child]:
    turn = step.get("extra", {}).get("turn")
    words = f"{step['source']}, turn {turn}" if turn else str(step["source"])
    yield element("p", words, " ", moment(step.get("timestamp")))
    if reasoning := step.get("reasoning_content"):
        yield _fold("reasoning", str(reasoning))
    if message := step["message"]:
        yield element("pre", str(message))
    for call in step.get("tool_calls", ()):
        name = element("b", str(call.get("function_name")))
        yield element("pre", name, " ", format_inline(call.get("arguments")))
    for result in step.get("observation", {}).get("results", ()):
        content = result.get("content")
        yield _fold("result", content if isinstance(content, str) else format_inline(content))


def _fold(words: str, content: str) -> Markup:
    return element("details", element("summary", words), element("pre", content))
