"""Checks of the values that callers give, which may break the promises of their types. Pure.

Every complaint is a ``ConfigError`` that names the argument and shows its value.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clawblox import protocol
from clawblox.errors import ConfigError
from clawblox.results import Labels

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
"""The argument of ``start`` that sets each variable of the contract."""

SIZE_EXPECTED: Final = "bytes above 0, or a size such as '500 MB' or '1.5 GiB'"
"""How a complaint describes a size."""

_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([kKMGT]?)(i?)B")
_POWERS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_HERE_HINT: Final = "'.' is the current directory"
_SHOWN_CHARS: Final = 60
_LABEL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
"""A number as JSON has it, so that ``007`` stays text."""
_MAX_LABELS: Final = 16
_MAX_LABEL_CHARS: Final = 200


def describe_mismatch(expected: str, value: object) -> str:
    """Return a complaint about a value: ``seconds above 0, not '3'``.

    Args:
        expected: What the value has to be.
        value: What it is; a long one is cut.
    """
    shown = repr(value)
    return f"{expected}, not {shown if len(shown) <= _SHOWN_CHARS else f'{shown[:57]}...'}"


def check_count(value: object, key: str, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return ``value``, a number of things.

    Args:
        value: The value.
        key: The argument, for the complaint.
        at_least: The smallest number allowed.
        at_most: The largest number allowed; None sets no limit.

    Raises:
        ConfigError: It is not a whole number, or too small, or too large.
    """
    if type(value) is int and at_least <= value <= (value if at_most is None else at_most):
        return value
    most = "or more" if at_most is None else f"to {at_most}"
    expected = f"a whole number, {at_least} {most}"
    raise ConfigError(describe_mismatch(expected, value), key=key, value=value)


def check_seconds(value: Any, key: str, *, may_be_zero: bool = False) -> float:  # noqa: ANN401
    """Return ``value``, a duration in seconds; it may be infinite.

    Args:
        value: The value.
        key: The argument, for the complaint.
        may_be_zero: Whether 0 is allowed.

    Raises:
        ConfigError: It is not a number, or too small.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = value if is_number else math.nan  # which no comparison accepts
    if seconds > 0 or (may_be_zero and seconds == 0):
        return seconds
    expected = "seconds, 0 or more" if may_be_zero else "seconds above 0"
    raise ConfigError(describe_mismatch(expected, value), key=key, value=value)


def check_size(value: object, key: str) -> int:
    """Return ``value`` as a number of bytes.

    Args:
        value: A whole number of bytes, or text with a unit: ``"500 MB"``, ``"1.5GiB"``.
        key: The argument, for the complaint.

    Raises:
        ConfigError: It is neither, or less than one byte.
    """
    if type(value) is int and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        number, letter, binary = match.groups()
        size = int(float(number) * (1024 if binary else 1000) ** _POWERS[letter])
        if size > 0:
            return size
    raise ConfigError(describe_mismatch(SIZE_EXPECTED, value), key=key, value=value)


def check_port(value: object) -> int | None:
    """Return the requested port; None for any, which 0 asks for too.

    Raises:
        ConfigError: It is not a port.
    """
    if value is None or (type(value) is int and 0 <= value <= 65535):
        return value or None
    expected = "1 to 65535, or 0 to lease one"
    raise ConfigError(describe_mismatch(expected, value), key="port", value=value)


def check_text(value: object, key: str) -> str:
    """Return ``value``, a part of an address: printable ASCII without spaces, perhaps empty.

    Raises:
        ConfigError: It is something else; names ``key``.
    """
    if not isinstance(value, str) or not all("!" <= character <= "~" for character in value):
        expected = "printable ASCII without spaces"
        raise ConfigError(describe_mismatch(expected, value), key=key, value=value)
    return value


def check_read_path(value: object, key: str) -> Path:
    """Return ``value`` as the path of something that is only read: any path will do.

    Raises:
        ConfigError: It is not a path, or empty; names ``key``.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        raise ConfigError(describe_mismatch("a path", value), key=key, value=value)
    if not text:
        raise ConfigError("a path, and not an empty one", key=key, value=value, hint=_HERE_HINT)
    return Path(text)


def check_path(value: object, key: str) -> Path:
    """Return ``value`` as a path that records and manifests can hold, which are UTF-8.

    Raises:
        ConfigError: It is not a path, or empty, or not UTF-8; names ``key``.
    """
    path = check_read_path(value, key)
    try:
        path.absolute().as_posix().encode()
    except FileNotFoundError as error:
        message = "a relative path, but the current directory does not exist any more"
        raise ConfigError(message, key=key, value=str(path)) from error
    except UnicodeEncodeError as error:
        expected = "a path in UTF-8, as the files are that it is written to"
        raise ConfigError(
            describe_mismatch(expected, str(path)), key=key, value=str(path)
        ) from error
    return path


def check_snapshot(value: object, key: str) -> tuple[Path, str | None]:
    """Return the path of a snapshot, and its digest where that is given too.

    Args:
        value: A path, or a mapping with ``path`` and perhaps ``sha256``, as ``save`` returns it.
        key: The argument, for the complaint.

    Raises:
        ConfigError: It is neither.
    """
    entry = value if isinstance(value, Mapping) else {"path": value}
    digest = entry.get("sha256")
    if digest is not None and not isinstance(digest, str):
        expected = "a digest in hexadecimal"
        raise ConfigError(describe_mismatch(expected, digest), key=key, value=digest)
    return check_path(entry.get("path"), key), digest


def check_host(value: object) -> str:
    """Return the address that a world binds.

    Raises:
        ConfigError: It is not an address.
    """
    if value in ("", None):
        expected = "the address that the world binds"
        raise ConfigError(describe_mismatch(expected, value), key="host", value=value)
    return check_text(value, "host")


def check_env(value: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the caller's own environment variables; an empty mapping for None.

    Raises:
        ConfigError: It is not a mapping, or one of its entries cannot be a variable, or is a
            variable that ``start`` sets.
    """
    env: Mapping[Any, Any] = {} if value is None else value
    if not isinstance(env, Mapping):
        raise ConfigError("a mapping of names to values", key="env")
    for key, value in env.items():
        if key in ARGUMENT_BY_VARIABLE:
            raise ConfigError(
                "start sets this variable itself",
                key=f"env.{key}",
                value=value,
                hint=f"use {ARGUMENT_BY_VARIABLE[key]}=",
            )
        if not _is_usable_variable(key, value):
            raise ConfigError(
                "two strings without NUL, the name not empty and without '='", key=f"env.{key}"
            )
    return env


def _is_usable_variable(key: object, value: object) -> bool:
    is_text = isinstance(key, str) and isinstance(value, str)
    return is_text and bool(key) and "=" not in f"{key}" and "\0" not in f"{key}{value}"


def check_labels(value: Labels | None, key: str = "labels") -> Labels:
    """Return labels of an instance; an empty mapping for None.

    They are shown in tables and metrics, which is why they are few and short.

    Args:
        value: The labels by name.
        key: The argument, for the complaint.

    Raises:
        ConfigError: It is not a mapping, has more than 16 entries, or an entry with a name that is
            not an identifier or with a value that is no short text, number or boolean.
    """
    labels: Any = {} if value is None else value
    if not isinstance(labels, Mapping) or len(labels) > _MAX_LABELS:
        expected = f"a mapping of at most {_MAX_LABELS} names to values"
        raise ConfigError(describe_mismatch(expected, value), key=key)
    for name, label in labels.items():
        if not isinstance(name, str) or _LABEL_NAME.fullmatch(name) is None:
            expected = "names of a letter and at most 62 more letters, digits and '_'"
            raise ConfigError(describe_mismatch(expected, name), key=key, value=name)
        if not _is_label(label):
            expected = (
                f"a number, a boolean, or printable text of 1 to {_MAX_LABEL_CHARS} characters"
            )
            raise ConfigError(describe_mismatch(expected, label), key=f"{key}.{name}", value=label)
    return dict(labels)


def parse_label(text: str) -> str | int | float | bool:
    """Return the value of a label that was typed: ``true``, ``false``, a number, else the text."""
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text) is None:
        return text
    return float(text) if set(text) & set(".eE") else int(text)


def _is_label(value: object) -> bool:
    if isinstance(value, str):
        return value.isprintable() and 0 < len(value) <= _MAX_LABEL_CHARS
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and -(2**63) <= value < 2**64
