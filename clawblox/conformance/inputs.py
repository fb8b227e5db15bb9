"""The inputs that a check may send: those of ``world.toml``, else those in the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from clawblox.conformance.live import Action
from clawblox.conformance.once import Once
from clawblox.conformance.placeholders import fill_placeholders, write_value
from clawblox.conformance.probe import Probe
from clawblox.conformance.registry import CouldNotRun
from clawblox.protocol import API_ROUTE
from clawblox.world.input_examples import InputExample, find_examples

_LIST_SOME: Final = (
    'list some in world.toml, [conformance] actions = [{ type = "…", data = … }], or show them in'
    " the documentation for agents"
)
"""The advice where the documentation shows no inputs."""

_MAX_SUGGESTED: Final = 8
_MAX_SHOWN_CHARS: Final = 120


class Inputs:
    """The inputs of a world.

    Args:
        probe: Answers the documentation.
        config: The ``world.toml`` of the world, which has been checked.

    Attributes:
        api_doc: Returns the documentation that agents read; empty if the world serves none.
        known: Returns the inputs as far as they are known.
    """

    def __init__(self, probe: Probe, config: Mapping[str, Any]) -> None:
        self._probe = probe
        self._config = config
        self.api_doc = Once(self._read_doc)
        self.known = Once(self._find)

    async def _read_doc(self) -> str:
        async with self._probe.use() as live:
            exchange = await live.call("GET", API_ROUTE)
        return exchange.content.decode(errors="replace") if exchange.is_accepted else ""

    async def _find(self) -> KnownInputs:
        entries = self._config.get("conformance", {}).get("actions", ())
        listed = tuple(Action(entry["type"], entry.get("data")) for entry in entries)
        return KnownInputs(listed, () if listed else find_examples(await self.api_doc()))

    async def actions(self) -> tuple[Action, ...]:
        """Return the inputs that the checks may send; empty if none are known."""
        return (await self.known()).actions

    async def require_actions(self) -> tuple[Action, ...]:
        """Return the inputs that the checks may send.

        Raises:
            CouldNotRun: None are known.
        """
        known = await self.known()
        if not known.actions:
            raise CouldNotRun(f"no inputs are known: {known.advice}")
        return known.actions


@attrs.frozen
class KnownInputs:
    """The inputs of a world, as far as they are known.

    Attributes:
        listed: Those that its ``world.toml`` lists.
        examples: Those that its documentation shows, where none are listed.
    """

    listed: tuple[Action, ...]
    examples: Sequence[InputExample]

    @property
    def actions(self) -> tuple[Action, ...]:
        """The inputs that can be sent as they stand."""
        sendable = (example for example in self.examples if example.is_sendable)
        return self.listed or tuple(
            Action(example.type, json.loads(example.data) if example.data else None)
            for example in sendable
        )

    @property
    def advice(self) -> str:
        """The lines to write in ``world.toml`` where no input is known."""
        return self.describe_unsent() or _LIST_SOME

    def describe_unsent(self) -> str:
        """Return which documented types cannot be sent, and lines for ``world.toml`` instead.

        In these lines, every placeholder has a value that the author is to replace. The text is
        empty if each type has an example that can be sent.
        """
        examples = self.examples
        sent = {example.type for example in examples if example.is_sendable}
        unsent = {
            example.type: example for example in reversed(examples) if example.type not in sent
        }
        shown = list(reversed(unsent.values()))[:_MAX_SUGGESTED]
        if not shown:
            return ""
        texts = ", ".join(_shorten(str(example)) for example in shown)
        more = f" and {len(unsent) - len(shown)} more" if len(unsent) > len(shown) else ""
        begin = f"what the documentation shows cannot be sent as it stands: {texts}{more}."
        lines = [f"{begin} Write valid inputs in world.toml:", "[conformance]", "actions = ["]
        lines += [f"    {_suggest(example)}," for example in shown]
        return "\n".join([*lines, "]"])


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"


def _suggest(example: InputExample) -> str:
    entry = {"type": example.type, "data": fill_placeholders(example.data)}
    return write_value(entry)
