"""Values and errors in the words of TOML: ``true``, ``[]`` and ``{ a = 1 }``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.config.arguments import describe_mismatch, parse_duration
from clawblox.errors import ConfigError

_WORDS: Final = (
    (re.compile(r"\bTrue\b"), "true"),
    (re.compile(r"\b(?:False|None)\b"), "false"),  # TOML has no null: false is None
    (re.compile(r"\bmapping\b"), "table"),
    (re.compile(r'\{("\w+": .*?[\]"])\}'), r"{ \1 }"),
    (re.compile(r'"(\w+)": '), r"\1 = "),
    (re.compile(r"\b([a-z_]+)=(?=true\b|false\b)"), r"\1 = "),
    (re.compile(r"\b([a-z_]+)=(?=[\s,;.)]|$)"), r"\1"),
    (re.compile(r"^[A-Z]\w+, or a table\b"), "a table"),
)
"""Words of Python in the texts of errors, and the same in TOML."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def format_toml(value: object) -> str:
    """Return a value as it is written in TOML; a text as a literal string."""
    match value:
        case bool() | None:
            return str(bool(value)).lower()
        case list() | tuple():
            return f"[{', '.join(map(format_toml, value))}]"
        case Mapping():
            entries = (f"{_format_key(key)} = {format_toml(item)}" for key, item in value.items())
            return f"{{ {', '.join(entries)} }}" if value else "{}"
        case Path():
            return repr(str(value))
    return repr(value)


def _format_key(key: object) -> str:
    return str(key) if _BARE_KEY.fullmatch(str(key)) else f'"{key}"'


def to_toml_words(text: str) -> str:
    """Return a text of ours about values, in the words of TOML."""
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text


def in_toml(error: ConfigError, written: object = None) -> ConfigError:
    """Return an error about a value in the words of TOML.

    Args:
        error: The error.
        written: The value as the document has it. It is shown in place of the one in the error, if
            that one was made from it and hides nothing of it.
    """
    value = as_written(written, error.value)
    message, expected = error.message, error.expected
    if expected is not None:
        expected = to_toml_words(expected)
        is_value_shown = ", not " in message.removeprefix(f"must be {error.expected}")
        message = f"must be {expected}"
        message = describe_mismatch(expected, value, format_toml) if is_value_shown else message
    hint = error.hint and to_toml_words(error.hint)
    return error.but(message=message, expected=expected, value=value, hint=hint, show=format_toml)


def as_written(written: Any, value: Any) -> Any:  # noqa: ANN401 - any value
    """Return the value of a document from which another was made, or else that other one.

    Args:
        written: The value of the document; a text may be a relative path, or a duration.
        value: The value that may have been made from it.
    """
    match written, value:
        case str(), int() | float():
            return written if parse_duration(written) == value else value
        case str(), str() | Path():
            return written if str(value).endswith(written.removeprefix("./")) else value
        case list(), list() | tuple() if len(written) == len(value):
            return [as_written(*pair) for pair in zip(written, value, strict=True)]
        case dict(), Mapping() if [*written] == [*value]:
            return {key: as_written(written[key], value[key]) for key in written}
        case bool(), _:
            return value
        case int() | float(), int() | float() if not isinstance(value, bool):
            return written if written == value else value
    return value
