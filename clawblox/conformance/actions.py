"""The inputs that a check may send: those of ``world.toml``, else those in the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clawblox.conformance.live import Action
from clawblox.world.input_examples import find_examples


def configured_actions(config: Mapping[str, Any]) -> tuple[Action, ...]:
    """Return the inputs of ``[conformance] actions``; empty if there are none.

    Args:
        config: A ``world.toml`` that has been checked.
    """
    given = config.get("conformance", {}).get("actions", ())
    return tuple(Action(entry["type"], entry.get("data")) for entry in given)


def documented_actions(text: str) -> tuple[Action, ...]:
    """Return the inputs that a Markdown text shows, where their data is JSON."""
    return tuple(_read_examples(text))


def _read_examples(text: str) -> Iterator[Action]:
    for example in find_examples(text):
        try:
            yield Action(example.type, json.loads(example.data) if example.data else None)
        except ValueError:  # a placeholder in the data
            continue
