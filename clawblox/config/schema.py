"""The known keys of ``world.toml`` and the checks of their values. Pure; reads no file.

Finds faults in parsed values; ``world_toml`` turns them into errors with file and line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from clawblox.config.arguments import check_size, describe_mismatch
from clawblox.config.toml_words import Keys, format_toml
from clawblox.errors import ConfigError
from clawblox.spelling import nearest_name
from clawblox.world_keys import COUNT, FLAG, GRAVITY, SPEECH_MODE, choice_kind, number_kind


class Fault(msgspec.Struct, frozen=True):
    """A fault in one value.

    Attributes:
        keys: Position of the value, relative to the check that found the fault.
        value: The value; None if it is missing.
        complaint: Description of the fault, shown after the key.
    """

    keys: Keys
    value: object
    complaint: str

    def below(self, *parents: str | int) -> Fault:
        """Prefix the position with the parent keys."""
        return msgspec.structs.replace(self, keys=(*parents, *self.keys))


class Misspelling(msgspec.Struct, frozen=True):
    """An unknown key that resembles a known key of its table.

    Attributes:
        keys: Position of the unknown key.
        likely: The known key.
    """

    keys: Keys
    likely: str


_Check: TypeAlias = Callable[[Any], Iterator[Fault]]


def _expect(test: Callable[[Any], bool], expected: str) -> _Check:
    def check(value: object) -> Iterator[Fault]:
        if not test(value):
            yield _mismatch(value, expected)

    return check


def _mismatch(value: object, expected: str) -> Fault:
    return Fault((), value, describe_mismatch(expected, value, format_toml))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_match(pattern: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) is not None


_text = _expect(_is_text, "a string without NUL")
_filled = _expect(lambda value: _is_text(value) and value, "a non-empty string without NUL")
_boolean = _expect(*FLAG)
_count = _expect(*COUNT)
_positive = _expect(*number_kind("a number above 0", math.ulp(0.0)))
_not_negative = _expect(*number_kind("a number, 0 or more", 0))
_route = _expect(
    partial(_is_match, r"/[!-~]*"), "a route: '/' first, printable ASCII without spaces"
)
_header = _expect(partial(_is_match, r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), "a header name")
_window_name = _expect(
    partial(_is_match, r"(?!world-\d+$|agent-\d+-\d+$)[A-Za-z][A-Za-z0-9_-]{0,63}"),
    "the name of a tmux window: a letter, then letters, digits, '-' and '_', at most 64 in all,"
    " other than world-0 or agent-0-0, which are taken",
)


def _size(value: object) -> Iterator[Fault]:
    try:
        check_size(value, "")
    except ConfigError as error:
        yield Fault((), value, error.message)


def _pattern(value: object) -> Iterator[Fault]:
    yield from _filled(value)
    try:
        re.compile(str(value))
    except (re.error, OverflowError, RecursionError) as error:
        yield Fault((), value, f"not a regular expression: {error}")


def _check_list(check: _Check, expected: str, *, may_be_empty: bool = True) -> _Check:
    def check_all(value: object) -> Iterator[Fault]:
        if not isinstance(value, list) or not (value or may_be_empty):
            yield _mismatch(value, expected)
            return
        for index, item in enumerate(value):
            yield from (fault.below(index) for fault in check(item))

    return check_all


def _is_json(value: object) -> bool:
    """Return whether a TOML value is also a JSON value, unlike dates and NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _agent_route(value: object) -> Iterator[Fault]:
    from clawblox.config.agent_routes import AgentRoute  # few worlds name routes

    try:
        AgentRoute.parse(value if isinstance(value, str) else "")
    except ValueError as error:
        yield Fault((), value, str(error))


_command = _check_list(_filled, "a non-empty list of strings", may_be_empty=False)
_agent_routes = _check_list(_agent_route, "a list of routes, such as 'GET /map'")


class _Table(msgspec.Struct, frozen=True):
    """The check of a table and of its entries.

    Attributes:
        checks: The checks of the known keys.
        required: The required keys.
        either: Two keys that exclude each other.
        is_open: Whether a world may add its own keys to the table.
    """

    checks: Mapping[str, _Check]
    required: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    is_open: bool = False

    def __call__(self, value: object) -> Iterator[Fault]:
        """Yield the faults of the table before those inside it."""
        if not isinstance(value, dict):
            yield _mismatch(value, "a table")
            return
        yield from (Fault((key,), None, "missing") for key in self.required if key not in value)
        for key, check in self.checks.items():
            if key in value:
                yield from (fault.below(key) for fault in check(value[key]))
        if self.either and all(key in value for key in self.either):
            first, second = self.either
            yield Fault((second,), value[second], f"{first} is set too: give only one")

    def misspellings(self, value: object, *parents: str | int) -> Iterator[Misspelling]:
        """Yield the unknown keys that look misspelled; keys in use are not suggested."""
        entries = value if isinstance(value, dict) else {}
        unused = self.checks.keys() - entries.keys()
        for key in () if self.is_open else entries:
            if key not in self.checks and (likely := nearest_name(key, unused)):
                yield Misspelling((*parents, key), likely)
        for key, check in self.checks.items():
            if isinstance(check, _Table | _Sidecars) and key in entries:
                yield from check.misspellings(entries[key], *parents, key)

    def misplaced(self, value: Mapping[str, Any]) -> Iterator[Keys]:
        """Yield the keys of this table that are misplaced in a nested table."""
        for key, check in self.checks.items():
            entries = value.get(key)
            if isinstance(check, _Table) and not check.is_open and isinstance(entries, dict):
                yield from (
                    (key, name)
                    for name in entries
                    if name in self.checks and name not in check.checks and name not in value
                )


class _Sidecars(msgspec.Struct, frozen=True):
    """The check of an array of tables with different names."""

    table: _Table

    def __call__(self, value: object) -> Iterator[Fault]:
        yield from _check_list(self.table, "an array of tables: [[run.sidecar]]")(value)
        entries = value if isinstance(value, list) else []
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Fault((index, "name"), name, "another sidecar has this name")

    def misspellings(self, value: object, *parents: str | int) -> Iterator[Misspelling]:
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield from self.table.misspellings(entry, *parents, index)


_SIDECAR: Final = _Table({"name": _window_name, "command": _command}, ("name", "command"))
_READY: Final = _Table(
    {"path": _route, "log": _pattern, "interval": _positive}, either=("path", "log")
)
_LIVENESS: Final = _Table(
    {
        "path": _route,
        "period": _positive,
        "timeout": _positive,
        "failure_threshold": _count,
        "listener": _boolean,
    }
)
_RUN: Final = _Table(
    {
        "command": _command,
        "sidecar": _Sidecars(_SIDECAR),
        "ready": _READY,
        "liveness": _LIVENESS,
        "listen": _expect(*choice_kind("bind", "inherit")),
        "reseed": _boolean,
        "recorder": _expect(*choice_kind("world", "clawblox")),
    }
)
_SANDBOX: Final = _Table(
    {
        "deps_root": _filled,
        "enable_weaker_nested_sandbox": _boolean,
        "add_deps_lib_to_library_path": _boolean,
        "allow_loopback": _boolean,
    }
)
_API: Final = _Table(
    {
        "doc_path": _filled,
        "doc_url_path": _route,
        "join": _route,
        "observe": _route,
        "input": _route,
        "session_header": _header,
        "allow": _agent_routes,
    },
    is_open=True,
)
_ACTION: Final = _Table({"type": _filled, "data": _expect(_is_json, "a JSON value")}, ("type",))
_CONFORMANCE: Final = _Table(
    {"actions": _check_list(_ACTION, "an array of tables: [{ type = …, data = … }]")}
)
SCHEMA: Final = _Table(
    {
        "name": _filled,
        "description": _text,
        "max_players": _count,
        "afk_timeout": _not_negative,
        "game_type": _text,
        "runtime": _Table({"mode": _expect(*choice_kind("clawblox", "external"))}),
        "run": _RUN,
        "limits": _Table({"memory": _size}),
        "scripts": _Table(dict.fromkeys(("main", "tree", "skill"), _filled), is_open=True),
        "renderer": _Table({}, is_open=True),
        "observation": _Table({"radius": _positive}),
        "speech": _Table({"mode": _expect(*SPEECH_MODE), "hearing_radius": _positive}),
        "agent_api": _Table({"allow_reset": _boolean}),
        "clawblox": _Table({}, is_open=True),
        "physics": _Table({"gravity": _expect(*GRAVITY)}, is_open=True),
        "replay": _Table({"command": _command}),
        "agent": _Table({"source_workspace": _boolean, "server_source": _filled}),
        "transport": _Table({"type": _filled}),
        "sandbox": _SANDBOX,
        "api": _API,
        "conformance": _CONFORMANCE,
    },
    required=("name",),
)
"""The known keys of ``world.toml`` with the checks of their values."""
