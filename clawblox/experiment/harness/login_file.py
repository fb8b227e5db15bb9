"""The login of Claude Code in a file such as ``.env``, as the public generation script reads it.

One variable is read; whatever else the file has is ignored. The value stays in memory: agents get
it, worlds do not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clawblox.errors import ConfigError
from clawblox.system.regular_files import read_regular

FILE_VARIABLE: Final = "CLAWBLOX_ENV_FILE"
"""The variable that names another file."""

_TOKEN: Final = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - a name, not a token
_USUAL_FILE: Final = Path(".env")
_MAX_BYTES: Final = 1 << 16
_QUOTES: Final = "'\""


def read_login(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the token of Claude Code if a file has it, and the environment does not. Blocks.

    The first line ``CLAUDE_CODE_OAUTH_TOKEN=…`` counts, with or without ``export`` and quotes.

    Args:
        environ: The environment; its ``CLAWBLOX_ENV_FILE`` names the file, by default ``.env`` of
            the current directory, which need not exist.

    Returns:
        The variable and its value, or nothing.

    Raises:
        ConfigError: The file cannot be read. The error shows nothing of its content.
    """
    if environ.get(_TOKEN):
        return {}
    named = environ.get(FILE_VARIABLE)
    path = Path(named) if named else _USUAL_FILE
    if not named and not path.is_file():
        return {}
    values = (_find_token(line) for line in _read(path).splitlines())
    token = next((value for value in values if value is not None), None)
    return {_TOKEN: token} if token else {}


def _read(path: Path) -> str:
    hint = f"{FILE_VARIABLE} names the file with {_TOKEN}=…, by default {_USUAL_FILE}"
    try:
        return read_regular(os.path.realpath(path), max_bytes=_MAX_BYTES).decode()
    except UnicodeDecodeError:
        fault = "is not UTF-8"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    raise ConfigError(fault, path=path, hint=hint)


def _find_token(line: str) -> str | None:
    name, equals, value = line.strip().removeprefix("export ").lstrip().partition("=")
    return value.strip().strip(_QUOTES) if equals and name == _TOKEN else None
