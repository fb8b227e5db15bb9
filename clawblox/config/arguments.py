"""Values that a caller gives: what they have to be, whatever their types promise. Pure.

Every complaint is a ``ConfigError`` that names the argument and shows its value.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clawblox import protocol
from clawblox.errors import ConfigError

__all__ = [
    "ARGUMENT_BY_VARIABLE",
    "check_count",
    "check_env",
    "check_host",
    "check_path",
    "check_port",
    "check_read_path",
    "check_seconds",
    "check_snapshot",
    "check_text",
]

ARGUMENT_BY_VARIABLE: Final = {
    protocol.HOST_ENV: "host",
    protocol.PORT_ENV: "port",
    protocol.BASE_PATH_ENV: "base_path",
    protocol.RECORD_ENV: "record",
    protocol.RECORD_DIR_ENV: "record_dir",
    protocol.RESUME_ENV: "resume",
    protocol.RESEED_ENV: "reseed",
    protocol.MANIFEST_ENV: "run_dir",
}
"""The argument of ``start`` that each contract variable says."""


_HERE_HINT: Final = "'.' is the current directory"


def check_count(value: object, key: str, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return ``value`` as a number of things.

    Raises:
        ConfigError: It is not a whole number, too small or too large a one; names ``key``.
    """
    if type(value) is int and at_least <= value <= (value if at_most is None else at_most):
        return value
    most = "or more" if at_most is None else f"to {at_most}"
    raise ConfigError(f"a whole number, {at_least} {most}", key=key, value=value)


def check_seconds(value: Any, key: str, *, may_be_zero: bool = False) -> float:  # noqa: ANN401
    """Return ``value`` as a duration; infinity is one.

    Raises:
        ConfigError: It is no number, or too small a one; names ``key``.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = value if is_number else math.nan  # which no comparison accepts
    if seconds > 0 or (may_be_zero and seconds == 0):
        return seconds
    message = "seconds, 0 or more" if may_be_zero else "seconds, above 0"
    raise ConfigError(message, key=key, value=value)


def check_port(value: object) -> int | None:
    """Return ``value`` as the port that is asked for; None asks for any.

    Raises:
        ConfigError: It is none.
    """
    if value is None or (type(value) is int and 0 <= value <= 65535):
        return value or None
    raise ConfigError("a port is 1 to 65535, or 0 to lease one", key="port", value=value)


def check_text(value: object, key: str) -> str:
    """Return ``value`` as a word of an address: printable ASCII without spaces, perhaps empty.

    Raises:
        ConfigError: It is something else; names ``key``.
    """
    if not isinstance(value, str) or not all("!" <= character <= "~" for character in value):
        raise ConfigError("printable ASCII without spaces", key=key, value=value)
    return value


def check_read_path(value: object, key: str) -> Path:
    """Return ``value`` as the path of something that is only read.

    Raises:
        ConfigError: It is none; names ``key``.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        raise ConfigError("a path", key=key, value=value)
    if not text:
        raise ConfigError("a path, and not an empty one", key=key, value=value, hint=_HERE_HINT)
    return Path(text)


def check_path(value: object, key: str) -> Path:
    """Return ``value`` as a path that can stand in a record or a manifest, which are UTF-8.

    Raises:
        ConfigError: It is none, or cannot; names ``key``.
    """
    path = check_read_path(value, key)
    try:
        path.absolute().as_posix().encode()
    except FileNotFoundError as error:
        message = "a relative path, but the current directory does not exist any more"
        raise ConfigError(message, key=key, value=str(path)) from error
    except UnicodeEncodeError as error:
        message = "a path that is UTF-8, as the files are that it is written to"
        raise ConfigError(message, key=key, value=str(path)) from error
    return path


def check_snapshot(value: object, key: str) -> tuple[Path, str | None]:
    """Return ``value`` as a snapshot: its path, and its digest when that comes with it.

    Args:
        value: A path, or a mapping with ``path`` and perhaps ``sha256``, as ``save`` returns it.
        key: The argument.

    Raises:
        ConfigError: It is neither; names ``key``.
    """
    entry = value if isinstance(value, Mapping) else {"path": value}
    digest = entry.get("sha256")
    if digest is not None and not isinstance(digest, str):
        raise ConfigError("a digest in hexadecimal", key=key, value=digest)
    return check_path(entry.get("path"), key), digest


def check_host(value: object) -> str:
    """Return ``value`` as the address that a world binds.

    Raises:
        ConfigError: It is none.
    """
    if value in ("", None):
        raise ConfigError("the address that the world binds", key="host", value=value)
    return check_text(value, "host")


def check_env(value: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return ``value`` as the caller's own environment variables; None has none.

    Raises:
        ConfigError: It is no mapping, or holds what is no variable, or one that is the world's.
    """
    env: Mapping[Any, Any] = {} if value is None else value
    if not isinstance(env, Mapping):
        raise ConfigError("a mapping of variables", key="env")
    for key, value in env.items():
        if key in ARGUMENT_BY_VARIABLE:
            raise ConfigError(
                f"{key} is set by start itself",
                key=f"env.{key}",
                value=value,
                hint=f"use the argument {ARGUMENT_BY_VARIABLE[key]}=",
            )
        if not _is_usable_variable(key, value):
            raise ConfigError("not a usable environment variable", key=f"env.{key}")
    return env


def _is_usable_variable(key: object, value: object) -> bool:
    is_text = isinstance(key, str) and isinstance(value, str)
    return is_text and bool(key) and "=" not in f"{key}" and "\0" not in f"{key}{value}"
