"""TOML files: reading, parsing, and the lines of their values."""

from __future__ import annotations

import os
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from clawblox.config.toml_words import Keys, has_value
from clawblox.errors import ConfigError
from clawblox.system.regular_files import read_regular

_MAX_BYTES: Final = 16 << 20

_AT_LINE: Final = r" \(at line (\d+), column \d+\)"
"""The position in an error of tomllib."""
_INVALID_VALUE: Final = "Invalid value"
_VALUES_HINT: Final = "TOML writes true and false in lower case, lists in [] and texts in quotes"

_LEXEME: Final = (
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[][{}]"
    r"|\n"
)
"""Tokens that can contain or end a statement of valid TOML; other text is skipped."""


def read_toml_text(path: Path) -> str:
    """Read the text of a file. Blocks.

    Args:
        path: The file, possibly a symbolic link.

    Raises:
        FileNotFoundError: The file does not exist.
        NotADirectoryError: The parent is not a directory.
        ConfigError: The file cannot be read, or is not UTF-8.
    """
    try:
        data = read_regular(os.path.realpath(path), max_bytes=_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=path) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", path=path, line=line) from error


def parse_toml(text: str, path: Path | None) -> dict[str, Any]:
    """Parse a document.

    Args:
        text: The document.
        path: File of the document, for errors.

    Raises:
        ConfigError: The document is not valid TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        place = re.search(_AT_LINE, str(error))
        message = f"not TOML: {str(error)[: place.start()] if place else error}"
        line = int(place[1]) if place else None
        hint = _VALUES_HINT if str(error).startswith(_INVALID_VALUE) else None
        raise ConfigError(message, path=path, line=line, hint=hint) from error


def find_line(text: str, keys: Keys) -> int | None:
    """Return the line of the statement that sets ``keys``; None if there is none.

    Args:
        text: A valid document.
        keys: Position of the value.
    """
    # tomllib keeps no positions. But a valid document cut off after a statement is still valid, so
    # this finds the first statement end at which the document has the keys.
    ends = list(_statement_ends(text))
    try:
        index = bisect_left(ends, True, key=lambda end: has_value(tomllib.loads(text[:end]), keys))
    except ValueError:
        return None
    if index == len(ends):
        return None
    start = ends[index - 1] if index else 0
    return text.count("\n", 0, start) + 1


def _statement_ends(text: str) -> Iterator[int]:
    depth = 0
    for match in re.finditer(_LEXEME, text, re.DOTALL):
        lexeme = match.group()
        depth += (lexeme in ("[", "{")) - (lexeme in ("]", "}"))
        if lexeme == "\n" and depth == 0:
            yield match.end()
    yield len(text)
