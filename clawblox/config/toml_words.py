"""Values, positions and advice in the words of TOML: ``true``, ``{ a = 1 }``, ``[[agents]]``. Pure.

In TOML, every key after the header of a table belongs to that table, and ``[agents]`` is a single
table, while a list of tables needs ``[[agents]]``. So keys are often not in the table that the
author meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from clawblox.config.arguments import describe_mismatch, parse_duration
from clawblox.errors import ConfigError

_WORDS: Final = (
    (r"\bTrue\b", "true"),
    (r"\b(?:False|None)\b", "false"),  # TOML has no null: false is None
    (r"\bmapping\b", "table"),
    (r'\{("\w+": .*?[\]"])\}', r"{ \1 }"),
    (r'"(\w+)": ', r"\1 = "),
    (r"\b([a-z_]+)=(?=true\b|false\b)", r"\1 = "),
    (r"\b([a-z_]+)=(?=[\s,;.)]|$)", r"\1"),
    (r"^[A-Z]\w+, or a table\b", "a table"),
)
"""Python words in error messages, with their TOML equivalents."""
_BARE_KEY: Final = r"[A-Za-z0-9_-]+"

Keys: TypeAlias = tuple[str | int, ...]
"""Position of a value: table keys and list indexes, outermost first."""


def has_value(value: Any, keys: Keys) -> bool:  # noqa: ANN401 - any value of a TOML file
    """Return whether ``value`` has an entry at ``keys``."""
    try:
        for key in keys:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def dotted_key(keys: Keys) -> str:
    """Return a position as text: ``run.sidecar[0].name``."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return "".join(parts).removeprefix(".")


def format_toml(value: object) -> str:
    """Return a value in TOML syntax, with text as a literal string."""
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
    return str(key) if re.fullmatch(_BARE_KEY, str(key)) else f'"{key}"'


def to_toml_words(text: str) -> str:
    """Return one of clawblox's messages about values, translated into the words of TOML."""
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return text


def in_toml(error: ConfigError, written: object = None) -> ConfigError:
    """Return an error about a value, translated into the words of TOML.

    Args:
        error: The error.
        written: The value as written in the document. It replaces the value in the error if that
            was derived from it and no part is hidden.
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
    """Return the value in the document if ``value`` was derived from it, else ``value``.

    Args:
        written: The value in the document; a string may be a relative path or a duration.
        value: The value that may have been derived from ``written``.
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


def find_elsewhere(tables: Mapping[str, Any], key: str) -> Keys | None:
    """Return the position of a key in another table of the document, or None."""
    for name, value in tables.items():
        for place, table in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(table, dict) and key in table:
                return (name, key) if place is None else (name, place, key)
    return None


def advise_placing(keys: Keys) -> str:
    """Return advice for moving a top-level key out of the table that contains it.

    Args:
        keys: Position of the key.
    """
    header = format_header(keys[:-1])
    return f"keys below {header} belong to it: write those of the whole file above the first header"


def format_header(keys: Keys) -> str:
    """Return the header of a table: ``[limits]``, or ``[[agents]]`` in a list of tables."""
    name = ".".join(key for key in keys if isinstance(key, str))
    return f"[[{name}]]" if keys and isinstance(keys[-1], int) else f"[{name}]"


def advise_brackets(key: str, value: object) -> str | None:
    """Return advice for a table that should be a list of tables, or the reverse.

    Args:
        key: The key.
        value: The value of the wrong kind; for other values, None is returned.
    """
    if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        name = next(iter(value))
        return f"write [[{key}]], with name = {str(name)!r} below it, in place of [{key}.{name}]"
    if isinstance(value, dict):
        return f"write [[{key}]] in place of [{key}]"
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        return f"write [{key}] in place of [[{key}]]"
    return None


def advise(keys: Keys, tables: Mapping[str, Any], known: Collection[str]) -> str | None:
    """Return advice on the place of a key that is missing at the top or unknown in a table.

    Args:
        keys: Position of the key.
        tables: The document.
        known: The keys of the whole document.
    """
    if len(keys) > 1:
        return advise_placing(keys) if keys[-1] in known else None
    place = find_elsewhere(tables, str(keys[0])) if keys else None
    return None if place is None else advise_placing(place)
