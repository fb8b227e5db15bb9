"""The inputs that a check may send, from ``world.toml`` or else from the documentation.

Data with placeholders, such as ``{"ctrl": [8 actuator values]}``, is never sent. Suggestions to the
world's author have plausible values in place of placeholders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from clawblox.conformance.live import AgentInput
from clawblox.conformance.once import Once
from clawblox.conformance.probe import ProbeInstance
from clawblox.conformance.registry import CouldNotRun
from clawblox.protocol import API_ROUTE
from clawblox.world.input_examples import InputExample, find_examples

_LIST_SOME: Final = (
    'list some in world.toml, [conformance] actions = [{ type = "…", data = … }], or show them in'
    " the documentation for agents"
)
"""Advice if the documentation shows no inputs."""

_MAX_SUGGESTED: Final = 8
_MAX_SHOWN_CHARS: Final = 120
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s"{}\[\],:]+')
_COUNT: Final = re.compile(r"[1-9][0-9]?")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_OMISSIONS: Final = ("...", "…")
_MAX_CHARS: Final = 2000
_MAX_DEPTH: Final = 20
_MAX_COUNT: Final = 64


class WorldInputs:
    """The inputs of a world.

    Args:
        probe: Answers the documentation.
        config: The validated ``world.toml`` of the world.

    Attributes:
        api_doc: Returns the documentation that agents read; empty if the world serves none.
        known: Returns the known inputs.
    """

    def __init__(self, probe: ProbeInstance, config: Mapping[str, Any]) -> None:
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
        listed = tuple(AgentInput(entry["type"], entry.get("data")) for entry in entries)
        return KnownInputs(listed, () if listed else find_examples(await self.api_doc()))

    async def actions(self) -> tuple[AgentInput, ...]:
        """Return the inputs that the checks may send; empty if none are known."""
        return (await self.known()).actions

    async def require_actions(self) -> tuple[AgentInput, ...]:
        """Return the inputs that the checks may send.

        Raises:
            CouldNotRun: No inputs are known.
        """
        known = await self.known()
        if not known.actions:
            raise CouldNotRun(f"no inputs are known: {known.describe_unsent() or _LIST_SOME}")
        return known.actions


@attrs.frozen
class KnownInputs:
    """The known inputs of a world.

    Attributes:
        listed: Inputs that its ``world.toml`` lists.
        examples: Inputs that its documentation shows, if none are listed.
    """

    listed: tuple[AgentInput, ...]
    examples: Sequence[InputExample]

    @property
    def actions(self) -> tuple[AgentInput, ...]:
        """The inputs that can be sent unchanged."""
        sendable = (example for example in self.examples if example.is_sendable)
        return self.listed or tuple(
            AgentInput(example.type, json.loads(example.data) if example.data else None)
            for example in sendable
        )

    def describe_unsent(self) -> str:
        """Return the documented types that cannot be sent, with suggested lines for ``world.toml``.

        In these lines, a value for the author to replace stands for every placeholder. The text is
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
    return write_value({"type": example.type, "data": fill_placeholders(example.data)})


# -- data with placeholders ------------------------------------------------------------------------


def fill_placeholders(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return data in the form of a text with placeholders; an empty object if the form is unclear.

    Args:
        text: JSON-like text: ``[x, y]`` becomes ``[0, 0]``, and ``[8 values]`` eight zeros.
    """
    try:
        return _Reader(_TOKEN.findall(text[:_MAX_CHARS])).read_all()
    except (ValueError, IndexError):
        return {}


class _Reader:
    """Reads the tokens of one value.

    Args:
        tokens: The tokens.
    """

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    def read_all(self) -> Any:  # noqa: ANN401 - JSON
        """Return the value.

        Raises:
            ValueError: The tokens are not exactly one value.
            IndexError: The tokens end too early.
        """
        value = self._read(0)
        if self._place != len(self._tokens):
            raise ValueError("more than a value")
        return value

    def _take(self) -> str:
        token = self._tokens[self._place]
        self._place += 1
        return token

    def _skip(self, token: str) -> bool:
        is_next = self._tokens[self._place] == token
        self._place += is_next
        return is_next

    def _read(self, depth: int) -> Any:  # noqa: ANN401 - JSON
        if depth > _MAX_DEPTH:
            raise ValueError("too deep")
        if self._skip("{"):
            return self._read_object(depth + 1)
        if self._skip("["):
            return self._read_list(depth + 1)
        words = self._read_words()
        return _read_scalar(words[0]) if len(words) == 1 else 0

    def _read_words(self) -> list[str]:
        """Return the tokens up to the end of a value that is neither an object nor a list."""
        words: list[str] = []
        while self._place < len(self._tokens) and self._tokens[self._place] not in ",]}":
            words.append(self._take())
        if not words or any(word in "{[:" for word in words):
            raise ValueError("no value")
        return words

    def _read_list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self._skip("]"):
            start = self._place
            value = self._read(depth)
            words = self._tokens[start : self._place]
            if len(words) > 1 and _COUNT.fullmatch(words[0]):
                items += [0] * min(int(words[0]), _MAX_COUNT)
            elif words[0] not in _OMISSIONS:
                items.append(value)
            if self._tokens[self._place] != "]" and not self._skip(","):
                raise ValueError("no comma in a list")
        return items

    def _read_object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._skip("}"):
            key = self._take()
            if key not in _OMISSIONS:
                name = json.loads(key) if key.startswith('"') else key
                if not self._skip(":"):
                    raise ValueError("no value of a member")
                members[name] = self._read(depth)
            if self._tokens[self._place] != "}" and not self._skip(","):
                raise ValueError("no comma in an object")
        return members


def _read_scalar(word: str) -> Any:  # noqa: ANN401 - JSON
    """Return a number, a string or a boolean; 0 for a placeholder."""
    try:
        return json.loads(word)
    except ValueError:
        return 0


def write_value(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a value as TOML on one line, without null members, which TOML does not have."""
    if isinstance(value, dict):
        members = (
            f"{key if _BARE_KEY.fullmatch(key) else _write_text(key)} = {write_value(member)}"
            for key, member in value.items()
            if member is not None
        )
        inner = ", ".join(members)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(write_value(item) for item in value if item is not None)}]"
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, float) and value - value != 0:
        return "0.0"
    return json.dumps(0 if value is None else value)


def _write_text(text: str) -> str:
    escaped = json.dumps(text.encode(errors="replace").decode(), ensure_ascii=False)
    return escaped.replace("\x7f", "\\u007f")
