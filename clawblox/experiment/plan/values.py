"""Frozen values of plans and their plain form, which is also the form in TOML. Pure.

A part of a plan is a frozen class. Its plain form is a mapping of its fields. Because TOML has no
null, the converters of optional fields turn False into None. Converters leave invalid values
unchanged for the validators, whose errors name the field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from clawblox import protocol
from clawblox.config.arguments import (
    OPTIONAL_SECONDS,
    SECONDS,
    check_duration,
    check_flag,
    check_labels,
    check_path,
    check_seed,
    checked,
    mismatch,
    parse_duration,
)
from clawblox.errors import ConfigError
from clawblox.results import Labels
from clawblox.spelling import suggest_nearest

KEY: Final = "key"
"""Metadata of a field: its key in plain form, if it differs from the name."""
PART: Final = "part"
"""Metadata of a field: the class of its value, or of the values in its list."""
RESUME: Final = "resume"
"""Metadata of a field: whether a resume may change it, as in a ``PlanChange``; never by default."""
FREE: Final = {RESUME: "free"}
"""Metadata of a field that a resume may change: it affects no measurement, or only new chains."""
AMENDMENT: Final = {RESUME: "amendment"}
"""Metadata of a field that a resume may change if its change is accepted by name."""
_OF_CHAINS: Final = "of_chains"
OF_CHAINS: Final = {_OF_CHAINS: True}
"""Metadata of a field of a plan that may differ between conditions."""
FLAG: Final = checked(check_flag)
"""Validates a boolean field."""
DURATION: Final = checked(check_duration)
"""Validates a field with seconds above 0."""
OPTIONAL_DURATION: Final = checked(check_duration, optional=True)
"""Validates a field with seconds above 0, or None."""
_DURATIONS: Final[Mapping[Any, Any]] = {SECONDS: DURATION, OPTIONAL_SECONDS: OPTIONAL_DURATION}
"""The validators of durations in plans, by the validators of options."""

_Part = TypeVar("_Part", bound=attrs.AttrsInstance)
_WORD: Final = r"[^\W\d]\w*"
_FUNCTION: Final = re.compile(rf"(.*/)?({_WORD}(?:\.{_WORD})*)(?<!\.py):({_WORD})", re.DOTALL)
_NEARLY: Final = re.compile(
    rf"((?:.*/)?{_WORD})(?:\.py::?|::?|\.(?!py\b))({_WORD})(?:\(\))?", re.DOTALL
)
"""The name of a function in other tools' notation: ``scores.py:gold``, ``scores.gold``."""
_MODULE: Final = re.compile(rf"((?:.*/)?{_WORD})(?:\.py)?", re.DOTALL)
_MAX_DISPLAY_CHARS: Final = 32
_DISPLAY_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_ -]*")
_SHOWN_FIELDS: Final = 3
_SHOWN_CHARS: Final = 4
"""Characters shown of a text that may be a secret."""


class FrozenMapping(Mapping[str, Any]):
    """An immutable, hashable mapping with frozen values."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = {key: freeze(value) for key, value in items.items()}

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - values differ in type
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def freeze(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return a value with its mappings and lists made immutable."""
    match value:
        case FrozenMapping():
            return value
        case Mapping():
            return FrozenMapping(value)
        case list() | tuple():
            return tuple(map(freeze, value))
    return value


# -- fields ---------------------------------------------------------------------------------------


def chain_fields(plan: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    """Return the keys of a plan's fields that may differ between conditions."""
    return tuple(key for key, field in fields_by_key(plan).items() if _OF_CHAINS in field.metadata)


def inherit_fields(
    **metadata: Mapping[str, str],
) -> Callable[[type, list[attrs.Attribute[Any]]], list[attrs.Attribute[Any]]]:
    """Return a ``field_transformer`` for a part that inherits the options of a world or an agent.

    The part's own fields come first. Inherited fields also accept their plain form: durations as
    text, and False for None.

    Args:
        **metadata: Metadata of inherited fields, by name.
    """

    def transform(part: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
        own = [field for field in fields if field.name in part.__annotations__]
        inherited = (field for field in fields if field.name not in part.__annotations__)
        return own + [_take_plain(field, metadata.get(field.name, {})) for field in inherited]

    return transform


def _take_plain(field: attrs.Attribute[Any], metadata: Mapping[str, str]) -> attrs.Attribute[Any]:
    converters: list[Any] = [field.converter] if field.converter else []
    if field.validator in _DURATIONS:
        converters.insert(0, to_duration)
    if "None" in str(field.type):
        converters.insert(0, to_optional)
    return field.evolve(
        converter=attrs.converters.pipe(*converters) if converters else None,
        validator=_DURATIONS.get(field.validator, field.validator),
        metadata=metadata,
    )


# -- from and to plain values ---------------------------------------------------------------------


def fields_by_key(kind: type[attrs.AttrsInstance]) -> dict[str, attrs.Attribute[Any]]:
    """Return the fields of a part by their keys in plain form."""
    return {field.metadata.get(KEY, field.name): field for field in attrs.fields(kind)}


def build(kind: type[_Part], given: object, key: str) -> _Part:
    """Return a part, built from its plain form if necessary.

    Args:
        kind: Class of the part.
        given: The part, or a mapping of its fields.
        key: Name of the part, for errors; ``""`` for the plan itself.

    Raises:
        ConfigError: The value is neither, has an unknown key, lacks a required field, or has an
            invalid value.
    """
    if isinstance(given, kind):
        return given
    fields = fields_by_key(kind)
    if not isinstance(given, Mapping):
        some = ", ".join([*fields][:_SHOWN_FIELDS])
        raise mismatch(key, f"{kind.__name__}, or a table of its fields ({some}, …)", given)
    for name in given:
        if name not in fields:
            raise unknown_key(join_keys(key, str(name)), str(name), given[name], fields)
    required = [name for name, field in fields.items() if field.default is attrs.NOTHING]
    for name in required:
        if name not in given:
            hint = f"these are required: {', '.join(join_keys(key, name) for name in required)}"
            raise ConfigError("missing", key=join_keys(key, name), hint=hint)
    arguments: dict[str, Any] = {str(fields[name].alias): given[name] for name in given}
    try:
        return kind(**arguments)
    except ConfigError as error:
        raise below(_with_key(error, fields), key) from error.__cause__


def _with_key(error: ConfigError, fields: Mapping[str, attrs.Attribute[Any]]) -> ConfigError:
    """Return the error with the key of its field in place of the name."""
    for key, field in fields.items():
        if error.key == field.name != key:
            return error.but(key=key)
    return error


class UnknownKeyError(ConfigError):
    """A plan has no such key, or no such dotted path."""


def unknown_key(
    key: str, name: str, value: object, known: Mapping[str, object] | Sequence[str]
) -> UnknownKeyError:
    """Return the error for an unknown key, with the nearest known name.

    A table is not shown, since it may contain environment variables with secrets.
    """
    if isinstance(value, Mapping):
        value = None
    suggestion = suggest_nearest(name, known)
    if suggestion is not None:
        return UnknownKeyError(f"unknown key; {suggestion}", key=key, value=value)
    hint = f"the keys are {', '.join(known)}"
    return UnknownKeyError("unknown key", key=key, value=value, hint=hint)


def join_keys(parent: str, key: str) -> str:
    """Return the dotted key of an entry of ``parent``."""
    return f"{parent}.{key}" if parent else key


def below(error: ConfigError, parent: str) -> ConfigError:
    """Return the error with the parent key added to its key."""
    key = error.key or ""
    is_below = not parent or key == parent or key.startswith(f"{parent}.")
    return error.but(key=key if is_below else join_keys(parent, key) if key else parent)


def to_plain(value: Any) -> Any:  # noqa: ANN401 - any value of a plan
    """Return the plain form of a part, or of a value in it: dicts, lists, text and numbers."""
    match value:
        case Path():
            return str(value)
        case Mapping():
            return {key: to_plain(item) for key, item in value.items()}
        case list() | tuple():
            return [to_plain(item) for item in value]
        case None:
            return False
    if attrs.has(type(value)):
        return {
            key: to_plain(item)
            for key, field in fields_by_key(type(value)).items()
            if (item := getattr(value, field.name)) is not None or field.default is not None
        }
    return value


# -- converters -----------------------------------------------------------------------------------


def to_optional(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return None for False, and every other value unchanged."""
    return None if value is False else value


def to_duration(value: float | str) -> float:
    """Return the seconds; invalid values are returned unchanged."""
    seconds: Any = parse_duration(value) if isinstance(value, str) else value
    if type(seconds) is int:
        return float(seconds)
    return value if seconds is None else seconds  # type: ignore[return-value]


def to_optional_duration(value: float | str | None) -> float | None:
    """Return the seconds, or None for None and False; invalid values are returned unchanged."""
    return None if to_optional(value) is None else to_duration(value)  # type: ignore[arg-type]


def to_number(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return integers as float, None for False, and other values unchanged."""
    return float(value) if type(value) is int else to_optional(value)


def to_frozen(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return the frozen value; an empty mapping for None."""
    return FrozenMapping({}) if value is None else freeze(value)


def to_labels(value: Labels | None) -> Labels:
    """Return the frozen labels.

    Raises:
        ConfigError: A label is invalid.
    """
    return to_frozen(check_labels(value))  # type: ignore[no-any-return]


def to_tuple(value: Any, key: str, expected: str) -> tuple[Any, ...]:  # noqa: ANN401
    """Return a list of any kind as a tuple; text and mappings are refused.

    Args:
        value: The list.
        key: The argument, for the error.
        expected: Description of valid values, for the error.

    Raises:
        ConfigError: The value is not a list.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise mismatch(key, expected, value)
    return tuple(value)


def to_seeds(value: Iterable[int]) -> tuple[int, ...]:
    """Return the seeds as a tuple.

    Raises:
        ConfigError: The value is not a list of seeds, or contains a seed twice.
    """
    seeds = to_tuple(value, "seeds", "a list of seeds")
    used: set[int] = set()
    for seed in seeds:
        check_seed(seed, "seeds")
        if seed in used:
            raise ConfigError(f"must be different numbers, not {seed} twice", key="seeds")
        used.add(seed)
    return seeds


def to_function(value: str | None) -> str | None:
    """Return the name of a function with the absolute path of its module: ``DIR/MODULE:FUNC``.

    Args:
        value: The name; a relative path is relative to the current directory. Invalid values are
            returned unchanged, and False as None.
    """
    match = _FUNCTION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return to_optional(value)  # type: ignore[no-any-return]
    directory, module, name = match.groups()
    place = check_path(directory or ".", "score").absolute()
    return f"{place / module}:{name}"


def split_function(text: str) -> tuple[Path, str, str]:
    """Return the directory, the module and the name of a function; see :func:`to_function`."""
    path, _, name = text.rpartition(":")
    return Path(path).parent, Path(path).name, name


def check_function(value: object, key: str) -> None:
    """Check that a value is the name of a function in a module.

    Raises:
        ConfigError: The value is not such a name.
    """
    if not is_function(value):
        expected = "a module and a function, such as scores:cubes"
        raise mismatch(key, expected, value, hint=_suggest_function(value))


def is_function(value: object) -> bool:
    """Return whether a value can be the name of a function in a module."""
    return isinstance(value, str) and _FUNCTION.fullmatch(value) is not None


def _suggest_function(value: object) -> str | None:
    """Return our notation for a function's name in other tools' notation, or None."""
    text = value if isinstance(value, str) else ""
    if nearly := _NEARLY.fullmatch(text):
        return f"write {nearly[1]}:{nearly[2]}"
    if module := _MODULE.fullmatch(text):
        return f"write {module[1]}:FUNCTION"
    return None


def check_display_name(value: object, key: str) -> None:
    """Check a name of an agent, which becomes part of full names and of dotted paths.

    Raises:
        ConfigError: The value is not a valid name.
    """
    is_name = (
        isinstance(value, str)
        and len(value) <= _MAX_DISPLAY_CHARS
        and _DISPLAY_NAME.fullmatch(value) is not None
        and protocol.display_name(f"{value}-rx-w0-a0") == value
    )
    if not is_name:
        expected = (
            f"a letter, then letters, digits, '_', '-' or spaces, {_MAX_DISPLAY_CHARS} at most,"
            " without '-r'"
        )
        raise mismatch(key, expected, value)


def check_not_negative(value: object, key: str, *, expected: str = "a number, 0 or more") -> None:
    """Check that a value is a finite number, 0 or more.

    Args:
        value: The value.
        key: The argument, for the error.
        expected: Description of valid values, for the error.

    Raises:
        ConfigError: The value is not such a number.
    """
    is_number = isinstance(value, float) or type(value) is int
    if not is_number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type, operator]
        raise mismatch(key, expected, value)


def check_names(value: object, key: str) -> None:
    """Check that a value is a tuple of distinct names of environment variables.

    Raises:
        ConfigError: The value is not such a tuple.
    """
    hint = "give names only; the values come from the environment at each start"
    if not isinstance(value, tuple):
        expected = "a list of names of environment variables"
        if isinstance(value, Mapping) and value:
            hint = f"write {json.dumps([*map(str, value)])}; {hint.partition('; ')[2]}"
        raise mismatch(key, expected, _hide_values(value), hint=hint)
    for name in value:
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            shown = _hide_values(name)
            if isinstance(shown, str) and shown.isidentifier() and "=" in str(name):
                hint = f'write ["{shown}"], and export {shown}=… before each start'
            raise mismatch(key, "names of environment variables", shown, hint=hint)


def _hide_values(value: object) -> object:
    """Return the names of variables in a faulty value, without its secrets."""
    if isinstance(value, Mapping):
        return list(value)
    if not isinstance(value, str):
        return value
    name = value.partition("=")[0]
    return name if name.isidentifier() else f"{name[:_SHOWN_CHARS]}…"
