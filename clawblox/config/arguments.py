"""Checks of argument values, which may violate their declared types. Pure.

Every check returns the value or raises a ``ConfigError`` that names the argument:
``<argument>: must be …, not <value>``. :func:`checked` turns a check into a field validator.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from clawblox import protocol
from clawblox.errors import ConfigError
from clawblox.foreign_values import finite_number
from clawblox.printable import is_printable, join_choices
from clawblox.protocol import SEEDS
from clawblox.results import Labels
from clawblox.spelling import suggest_nearest

if TYPE_CHECKING:
    from clawblox.concurrency.progress import ProgressLike

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
"""The argument of ``start`` that sets each environment variable of the contract."""

_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([kKMGT]?)(i?)B")
_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([smhd]?)")
_UNIT_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LEAST_SECONDS: Final = {True: 0.0, False: sys.float_info.min}
_MOST_SECONDS: Final = 1e12
_POWERS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_HERE_HINT: Final = "'.' is the current directory"
_SHOWN_CHARS: Final = 60
_LABEL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
"""A JSON number, so that ``007`` remains text."""
_MAX_LABELS: Final = 16
_MAX_LABEL_CHARS: Final = 200


def describe_mismatch(expected: str, value: object, show: Callable[[object], str] = repr) -> str:
    """Return the message for an invalid value: ``must be seconds above 0, not '3'``.

    Args:
        expected: Description of a valid value.
        value: The value; a long value is shortened.
        show: Returns the text of the value.
    """
    shown = show(value)
    return f"must be {expected}, not {shown if len(shown) <= _SHOWN_CHARS else f'{shown[:57]}...'}"


def mismatch(key: str, expected: str, value: object, *, hint: str | None = None) -> ConfigError:
    """Return the error for an invalid argument: ``timeout: must be seconds above 0, not '3'``.

    Args:
        key: The argument.
        expected: Description of a valid value.
        value: The invalid value.
        hint: How to solve the problem.
    """
    message = describe_mismatch(expected, value)
    return ConfigError(message, key=key, value=value, hint=hint).but(expected=expected)


HINT: Final = "hint"
"""Metadata key of a field: the default hint for errors about its value."""
LEFT_OUT: Final = "leave it out for no limit"

Validator: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], None]
"""A validator of a field, as attrs calls it."""


def checked(
    check: Callable[..., object], *, optional: bool = False, prefix: str = "", **limits: object
) -> Validator:
    """Return a validator that calls ``check(value, name, **limits)`` for the value of a field.

    Args:
        check: A check of this module.
        optional: Whether None passes without a check.
        prefix: Text before the name of the field in errors.
        **limits: Further arguments of the check.
    """

    def validate(_owner: object, field: attrs.Attribute[Any], value: object) -> None:
        if optional and value is None:
            return
        try:
            check(value, f"{prefix}{field.name}", **limits)
        except ConfigError as error:
            raise error.but(hint=error.hint or field.metadata.get(HINT)) from error.__cause__

    return validate


def check_count(value: object, key: str, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return ``value``, a count.

    Args:
        value: The value.
        key: The argument, for the error.
        at_least: The smallest number allowed.
        at_most: The largest number allowed; None sets no limit.

    Raises:
        ConfigError: The value is not a whole number, or is too small or too large.
    """
    if type(value) is int and at_least <= value <= (value if at_most is None else at_most):
        return value
    most = "or more" if at_most is None else f"to {at_most}"
    raise mismatch(key, f"a whole number, {at_least} {most}", value)


def check_seconds(value: Any, key: str, *, may_be_zero: bool = False) -> float:  # noqa: ANN401
    """Return ``value``, a duration in seconds; it may be infinite.

    Args:
        value: The value.
        key: The argument, for the error.
        may_be_zero: Whether 0 is allowed.

    Raises:
        ConfigError: The value is not a number, or is too small.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = value if is_number else math.nan  # NaN fails every comparison
    if seconds > 0 or (may_be_zero and seconds == 0):
        return seconds
    raise mismatch(key, "seconds, 0 or more" if may_be_zero else "seconds above 0", value)


def check_amount(value: object, key: str) -> None:
    """Check that an argument is a number above 0.

    Raises:
        ConfigError: The value is not such a number.
    """
    if not finite_number(value):
        raise mismatch(key, "a number above 0", value)


def parse_duration(text: str) -> float | None:
    """Return the seconds of a text such as ``"90s"``, ``"30m"``, ``"1.5h"`` or ``"2d"``.

    Returns:
        The seconds; a number without a unit is in seconds. None if the text is not a duration.
    """
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _UNIT_SECONDS[match[2]]


def check_duration(value: object, key: str, *, may_be_zero: bool = False) -> float:
    """Return ``value``, a finite duration, in seconds.

    Args:
        value: A number of seconds, or text with a unit: ``"90s"``, ``"30m"``, ``"1.5h"``, ``"2d"``.
        key: The argument, for the error.
        may_be_zero: Whether 0 is allowed.

    Raises:
        ConfigError: The value is neither, is too small, or is infinite.
    """
    seconds = parse_duration(value) if isinstance(value, str) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and _LEAST_SECONDS[may_be_zero] <= seconds <= _MOST_SECONDS:  # type: ignore[operator]
        return float(seconds)  # type: ignore[arg-type]
    least = "0 or more" if may_be_zero else "above 0"
    raise mismatch(key, f"seconds, {least}, or a duration such as '30m' or '1.5h'", value)


def check_grace(value: Any) -> float:  # noqa: ANN401
    """Return ``value``, the seconds between TERM and KILL.

    Raises:
        ConfigError: The value is not a number of 0 or more.
    """
    return check_seconds(value, "grace_seconds", may_be_zero=True)


def check_choice(value: object, key: str, *, choices: tuple[object, ...]) -> None:
    """Check that a value is one of ``choices``; True and 1 are different values.

    Raises:
        ConfigError: The value is not one of the choices.
    """
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        words = [choice if isinstance(choice, str) else repr(choice) for choice in choices]
        raise mismatch(key, join_choices(words), value)


def check_known(value: object, key: str, *, names: Iterable[str]) -> str:
    """Return ``value``, a known name; the error suggests the most similar one.

    Args:
        value: The value.
        key: The argument, for the error.
        names: The known names.

    Raises:
        ConfigError: The value is not a known name.
    """
    known = list(names)
    if isinstance(value, str) and value in known:
        return value
    hint = suggest_nearest(str(value), known)
    raise mismatch(key, f"one of {', '.join(known)}", value, hint=hint)


def check_flag(value: object, key: str) -> None:
    """Check that a value is True or False.

    Raises:
        ConfigError: The value is neither True nor False.
    """
    check_choice(value, key, choices=(True, False))


def check_progress(value: ProgressLike, key: str) -> ProgressLike:
    """Return ``value``, the option ``progress`` of a long operation.

    Raises:
        ConfigError: The value is not True, False or a function.
    """
    if isinstance(value, bool) or callable(value):
        return value
    raise mismatch(key, "True, False or a function of two numbers", value)


def check_kind(value: object, key: str, *, kind: type, expected: str) -> None:
    """Check that a value is an instance of ``kind``.

    Args:
        value: The value.
        key: The argument, for the error.
        kind: The class.
        expected: Description of a valid value, for the error.

    Raises:
        ConfigError: The value is not an instance of ``kind``.
    """
    if not isinstance(value, kind):
        raise mismatch(key, expected, value)


def check_size(value: object, key: str) -> int:
    """Return ``value`` as a number of bytes.

    Args:
        value: A whole number of bytes, or text with a unit: ``"500 MB"``, ``"1.5GiB"``.
        key: The argument, for the error.

    Raises:
        ConfigError: The value is neither, or less than one byte.
    """
    if type(value) is int and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        number, letter, binary = match.groups()
        size = int(float(number) * (1024 if binary else 1000) ** _POWERS[letter])
        if size > 0:
            return size
    raise mismatch(key, "bytes above 0, or a size such as '500 MB' or '1.5 GiB'", value)


def check_port(value: object) -> int | None:
    """Return the requested port; None if ``value`` is None or 0, which request any port.

    Raises:
        ConfigError: The value is not a port.
    """
    if value is None or (type(value) is int and 0 <= value <= 65535):
        return value or None
    raise mismatch("port", "1 to 65535, or 0 to lease one", value)


def check_seed(value: object, key: str) -> None:
    """Check that a value is a seed.

    Raises:
        ConfigError: The value is not a whole number from 0 to 2**64 - 1.
    """
    if type(value) is not int or value not in SEEDS:
        raise mismatch(key, "a whole number from 0 to 2**64 - 1", value)


def check_text(value: object, key: str) -> str:
    """Return ``value``, a part of an address: printable ASCII without spaces, possibly empty.

    Raises:
        ConfigError: The value is not such text.
    """
    if not isinstance(value, str) or not all("!" <= character <= "~" for character in value):
        raise mismatch(key, "printable ASCII without spaces", value)
    return value


def check_host(value: object, key: str = "host") -> str:
    """Return the address to which a world binds.

    Raises:
        ConfigError: The value is not an address.
    """
    if value in ("", None):
        raise mismatch(key, "the address that the world binds", value)
    return check_text(value, key)


def check_read_path(value: object, key: str) -> Path:
    """Return ``value`` as a path that is only read, so any path is valid.

    Raises:
        ConfigError: The value is not a path, or is empty.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise mismatch(key, "a path", value, hint=_HERE_HINT if text == "" else None)
    return Path(text)


def check_path(value: object, key: str) -> Path:
    """Return ``value`` as a path that can be written to UTF-8 records and manifests.

    Raises:
        ConfigError: The value is not a path, is empty, or is not UTF-8.
    """
    path = check_read_path(value, key)
    try:
        path.absolute().as_posix().encode()
    except FileNotFoundError as error:
        message = "must be an absolute path, because the current directory no longer exists"
        raise ConfigError(message, key=key, value=str(path)) from error
    except UnicodeEncodeError as error:
        raise mismatch(key, "a path in UTF-8, because it is written to files", str(path)) from error
    return path


def is_world_url(text: str) -> bool:
    """Return whether ``text`` is an address rather than a path."""
    return re.match(r"https?://", text, re.IGNORECASE) is not None


def check_snapshot(value: object, key: str) -> tuple[Path, str | None]:
    """Return the path of a snapshot, and its digest if given.

    Args:
        value: A path, or a mapping with ``path`` and optionally ``sha256``, as returned by
            ``save``.
        key: The argument, for the error.

    Raises:
        ConfigError: The value is neither.
    """
    entry = value if isinstance(value, Mapping) else {"path": value}
    digest = entry.get("sha256")
    if digest is not None and not isinstance(digest, str):
        raise mismatch(key, "a snapshot with a digest in hexadecimal", digest)
    return check_path(entry.get("path"), key), digest


def check_env(value: Mapping[str, str] | None, key: str = "env") -> Mapping[str, str]:
    """Return the caller's own environment variables; an empty mapping for None.

    Raises:
        ConfigError: The value is not a mapping, or contains a variable that is invalid or set by
            ``start`` itself. The error never shows a value that may be a secret.
    """
    env: Mapping[Any, Any] = {} if value is None else value
    if not isinstance(env, Mapping):
        raise _refuse_env(env, key)
    for name, text in env.items():
        if name in ARGUMENT_BY_VARIABLE:
            raise ConfigError(
                "must be left out, because start sets this variable itself",
                key=f"{key}.{name}",
                value=text,
                hint=f"use {ARGUMENT_BY_VARIABLE[name]}=",
            )
        if not _is_usable_variable(name, text):
            raise ConfigError(
                "must be two strings without NUL, the name not empty and without '='",
                key=f"{key}.{name}",
            )
    return env


def _refuse_env(env: object, key: str) -> ConfigError:
    """Return the error for variables that are not a mapping, with names but no values."""
    given = [env] if isinstance(env, str) else env if isinstance(env, list | tuple) else []
    names = [str(text).partition("=")[0] for text in given if "=" in str(text)]
    example = next((name for name in names if name.isidentifier()), "NAME")
    expected = f'a mapping of names to values, such as {{"{example}": "…"}}'
    return ConfigError(f"must be {expected}", key=key).but(expected=expected)


def _is_usable_variable(name: object, text: object) -> bool:
    is_text = isinstance(name, str) and isinstance(text, str)
    return is_text and bool(name) and "=" not in f"{name}" and "\0" not in f"{name}{text}"


def check_labels(value: Labels | None, key: str = "labels") -> Labels:
    """Return the labels of an instance; an empty mapping for None.

    Their number and length are limited because tables and metrics show them.

    Args:
        value: The labels by name.
        key: The argument, for the error.

    Raises:
        ConfigError: The value is not a mapping, has more than 16 entries, a name that is not an
            identifier, or a value that is not a short text, number or boolean.
    """
    labels: Any = {} if value is None else value
    if not isinstance(labels, Mapping) or len(labels) > _MAX_LABELS:
        expected = f"a mapping of at most {_MAX_LABELS} names to values"
        raise mismatch(key, expected, value)
    for name, label in labels.items():
        if not isinstance(name, str) or _LABEL_NAME.fullmatch(name) is None:
            raise mismatch(key, "names of a letter and at most 62 letters, digits and '_'", name)
        if not _is_label(label):
            expected = (
                f"a number, a boolean, or printable text of 1 to {_MAX_LABEL_CHARS} characters"
            )
            raise mismatch(f"{key}.{name}", expected, label)
    return dict(labels)


def parse_label(text: str) -> str | int | float | bool:
    """Parse the text of a label as ``true``, ``false``, a number, or plain text."""
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text) is None:
        return text
    return float(text) if set(text) & set(".eE") else int(text)


def _is_label(value: object) -> bool:
    if isinstance(value, str):
        return is_printable(value) and 0 < len(value) <= _MAX_LABEL_CHARS
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and -(2**63) <= value < 2**64


# -- validators of several options ----------------------------------------------------------------

COUNT: Final = checked(check_count)
OPTIONAL_COUNT: Final = checked(check_count, optional=True)
SECONDS: Final = checked(check_seconds)
ANY_SECONDS: Final = checked(check_seconds, may_be_zero=True)
OPTIONAL_AMOUNT: Final = checked(check_amount, optional=True)
OPTIONAL_SECONDS: Final = checked(check_seconds, optional=True)
OPTIONAL_SIZE: Final = checked(check_size, optional=True)
