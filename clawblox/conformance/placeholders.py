"""Data with placeholders, as documentation shows it: ``{"ctrl": [8 actuator values]}``. Pure.

Placeholders get a value of a plausible form, for a suggestion to the author of a world; nothing of
it is ever sent.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s"{}\[\],:]+')
_COUNT: Final = re.compile(r"[1-9][0-9]?")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_OMISSIONS: Final = ("...", "…")
_MAX_CHARS: Final = 2000
_MAX_DEPTH: Final = 20
_MAX_COUNT: Final = 64


def fill_placeholders(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return data of the form that a text shows; an empty object if the form is not clear.

    Args:
        text: JSON or nearly so: ``[x, y]`` becomes ``[0, 0]``, and ``[8 values]`` eight zeros.
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
            ValueError: The tokens are something else than one value.
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
        """Return the tokens up to the end of a value that is neither object nor list."""
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
    """Return a number, a text or a truth value; 0 for a placeholder."""
    try:
        return json.loads(word)
    except ValueError:
        return 0


def write_value(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a value as TOML on one line; members that are null, which TOML lacks, are left out."""
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
