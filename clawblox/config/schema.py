"""The known keys of ``world.toml`` and the checks of their values. Pure; reads no file.

Finds faults in parsed values; ``world_toml`` turns them into errors with file and line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from clawblox.config.agent_routes import AgentRoute
from clawblox.config.arguments import SIZE_EXPECTED, check_size, describe_mismatch
from clawblox.errors import ConfigError
from clawblox.spelling import nearest_name

Keys: TypeAlias = tuple[str | int, ...]
"""Position of a value: table keys and list indexes, outermost first."""


@attrs.frozen
class Fault:
    """A fault in one value.

    Attributes:
        keys: Position of the value, relative to the check that found the fault.
        value: The value; None if it is missing.
        complaint: The fault, to be read after the key.
    """

    keys: Keys
    value: object
    complaint: str

    def below(self, *parents: str | int) -> Fault:
        """Prefix the position with the parent keys."""
        return attrs.evolve(self, keys=(*parents, *self.keys))


@attrs.frozen
class Misspelling:
    """An unknown key that resembles a known key of its table.

    Attributes:
        keys: Position of the unknown key.
        likely: The known key.
    """

    keys: Keys
    likely: str


def faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults in a parsed ``world.toml``, those of a table before those inside it."""
    yield from _missing(config, "name")
    yield from _entries(config, _SCHEMA)


def misspellings(config: Mapping[str, Any]) -> Iterator[Misspelling]:
    """Yield the unknown keys of a parsed ``world.toml`` that look misspelled.

    Tables that allow any keys are skipped. A key already in the table is not suggested.
    """
    for parents, known in _TABLES.items():
        found = _at(config, parents) if has_value(config, parents) else {}
        if isinstance(found, list):
            for index, entry in enumerate(found):
                yield from _misspelled(entry, known, (*parents, index))
        else:
            yield from _misspelled(found, known, parents)


def _misspelled(table: object, known: Collection[str], parents: Keys) -> Iterator[Misspelling]:
    entries = table if isinstance(table, dict) else {}
    for key in entries:
        likely = None if key in known else nearest_name(key, set(known) - entries.keys())
        if likely is not None:
            yield Misspelling((*parents, key), likely)


def has_value(value: object, keys: Keys) -> bool:
    """Return whether ``value`` has an entry at ``keys``."""
    try:
        _at(value, keys)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _at(value: Any, keys: Keys) -> Any:  # noqa: ANN401 - any value of a TOML file
    for key in keys:
        value = value[key]
    return value


_MOST_GRAVITY: Final = 1_000_000  # of the engine's Workspace.Gravity

_Check: TypeAlias = Callable[[Any], Iterator[Fault]]
_Schema: TypeAlias = Mapping[tuple[str, ...], _Check]


def _expect(test: Callable[[Any], bool], expected: str) -> _Check:
    def check(value: object) -> Iterator[Fault]:
        if not test(value):
            yield _mismatch(value, expected)

    return check


def _mismatch(value: object, expected: str) -> Fault:
    return Fault((), value, describe_mismatch(expected, value))


def _choice(*words: str) -> _Check:
    return _expect(lambda value: value in words, f"one of {', '.join(words)}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_filled(value: object) -> bool:
    return _is_text(value) and value != ""


def _is_number(value: object) -> bool:
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def _is_match(pattern: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) is not None


def _is_size(value: object) -> bool:
    try:
        check_size(value, "")
    except ConfigError:
        return False
    return True


_text = _expect(_is_text, "a string without NUL")
_filled = _expect(_is_filled, "a non-empty string without NUL")
_boolean = _expect(lambda value: isinstance(value, bool), "true or false")
_table = _expect(lambda value: isinstance(value, dict), "a table")
_count = _expect(lambda value: type(value) is int and value > 0, "a whole number above 0")
_positive = _expect(lambda value: _is_number(value) and value > 0, "a number above 0")
_not_negative = _expect(lambda value: _is_number(value) and value >= 0, "a number, 0 or more")
_size = _expect(_is_size, SIZE_EXPECTED)
_gravity = _expect(
    lambda value: _is_number(value) and abs(value) <= _MOST_GRAVITY,
    f"a number from {-_MOST_GRAVITY} to {_MOST_GRAVITY}",
)
_route = _expect(
    partial(_is_match, r"/[!-~]*"), "a route: '/' first, printable ASCII without spaces"
)
_header = _expect(partial(_is_match, r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), "a header name")
_window_name = _expect(
    partial(_is_match, r"(?!world-\d+$|agent-\d+-\d+$)[A-Za-z][A-Za-z0-9_-]{0,63}"),
    "the name of a tmux window: a letter, then letters, digits, '-' and '_', at most 64 in all,"
    " other than world-0 or agent-0-0, which are taken",
)


def _pattern(value: object) -> Iterator[Fault]:
    yield from _filled(value)
    try:
        re.compile(str(value))
    except (re.error, OverflowError, RecursionError) as error:
        yield Fault((), value, f"not a regular expression: {error}")


def _command(value: object) -> Iterator[Fault]:
    if not isinstance(value, list) or not value:
        yield _mismatch(value, "a non-empty list of strings")
        return
    for index, word in enumerate(value):
        yield from (fault.below(index) for fault in _filled(word))


def _agent_routes(value: object) -> Iterator[Fault]:
    if not isinstance(value, list):
        yield _mismatch(value, "a list of routes, such as 'GET /map'")
        return
    for index, text in enumerate(value):
        try:
            AgentRoute.parse(text if isinstance(text, str) else "")
        except ValueError as error:
            yield Fault((index,), text, str(error))


def _sidecars(value: object) -> Iterator[Fault]:
    if not isinstance(value, list):
        yield _mismatch(value, "an array of tables: [[run.sidecar]]")
        return
    for index, entry in enumerate(value):
        yield from (fault.below(index) for fault in _sidecar(entry))
    names = [entry.get("name") for entry in value if isinstance(entry, dict)]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Fault((index, "name"), name, "another sidecar has this name")


def _sidecar(entry: object) -> Iterator[Fault]:
    yield from _table_of(_SIDECAR, entry)
    if isinstance(entry, dict):
        yield from _missing(entry, "name", "command")


def _ready(value: object) -> Iterator[Fault]:
    yield from _table_of(_READY, value)
    if isinstance(value, dict) and "path" in value and "log" in value:
        yield Fault(("log",), value["log"], "path is set too: give one of them")


def _table_of(schema: _Schema, value: object) -> Iterator[Fault]:
    yield from _table(value)
    if isinstance(value, dict):
        yield from _entries(value, schema)


def _missing(table: Mapping[str, Any], *required: str) -> Iterator[Fault]:
    yield from (Fault((key,), None, "missing") for key in required if key not in table)


def _entries(table: Mapping[str, Any], schema: _Schema) -> Iterator[Fault]:
    for keys, check in schema.items():
        if has_value(table, keys):
            yield from (fault.below(*keys) for fault in check(_at(table, keys)))


_SIDECAR: Final[_Schema] = {("name",): _window_name, ("command",): _command}
_READY: Final[_Schema] = {("path",): _route, ("log",): _pattern, ("interval",): _positive}
_LIVENESS: Final[_Schema] = {
    ("path",): _route,
    ("period",): _positive,
    ("timeout",): _positive,
    ("failure_threshold",): _count,
}
_SCHEMA: Final[_Schema] = {
    ("name",): _filled,
    ("description",): _text,
    ("max_players",): _count,
    ("afk_timeout",): _not_negative,
    ("game_type",): _text,
    ("runtime",): _table,
    ("runtime", "mode"): _choice("clawblox", "external"),
    ("run",): _table,
    ("run", "command"): _command,
    ("run", "sidecar"): _sidecars,
    ("run", "ready"): _ready,
    ("run", "liveness"): partial(_table_of, _LIVENESS),
    ("run", "listen"): _choice("bind", "inherit"),
    ("run", "reseed"): _boolean,
    ("limits",): _table,
    ("limits", "memory"): _size,
    ("scripts",): _table,
    ("scripts", "main"): _filled,
    ("scripts", "tree"): _filled,
    ("scripts", "skill"): _filled,
    ("renderer",): _table,
    ("observation",): _table,
    ("observation", "radius"): _positive,
    ("speech",): _table,
    ("speech", "mode"): _choice("global", "proximity"),
    ("speech", "hearing_radius"): _positive,
    ("agent_api",): _table,
    ("agent_api", "allow_reset"): _boolean,
    ("clawblox",): _table,
    ("physics",): _table,
    ("physics", "gravity"): _gravity,
    ("replay",): _table,
    ("replay", "command"): _command,
    ("agent",): _table,
    ("agent", "source_workspace"): _boolean,
    ("agent", "server_source"): _filled,
    ("transport",): _table,
    ("transport", "type"): _filled,
    ("sandbox",): _table,
    ("sandbox", "deps_root"): _filled,
    ("sandbox", "enable_weaker_nested_sandbox"): _boolean,
    ("sandbox", "add_deps_lib_to_library_path"): _boolean,
    ("sandbox", "allow_loopback"): _boolean,
    ("api",): _table,
    ("api", "doc_path"): _filled,
    ("api", "doc_url_path"): _route,
    ("api", "join"): _route,
    ("api", "observe"): _route,
    ("api", "input"): _route,
    ("api", "session_header"): _header,
    ("api", "allow"): _agent_routes,
}
"""All known keys with the checks of their values; a table precedes its keys."""

_FREE_TABLES: Final = ("scripts", "renderer", "clawblox", "physics", "api")
"""Tables in which a world may have its own keys."""


def _known_keys() -> dict[tuple[str, ...], frozenset[str]]:
    schemas = {(): _SCHEMA, ("run", "sidecar"): _SIDECAR, ("run", "ready"): _READY}
    found: dict[tuple[str, ...], set[str]] = {}
    for parents, schema in {**schemas, ("run", "liveness"): _LIVENESS}.items():
        for keys in schema:
            found.setdefault((*parents, *keys[:-1]), set()).add(keys[-1])
    return {
        parents: frozenset(known)
        for parents, known in found.items()
        if parents[:1] not in [(name,) for name in _FREE_TABLES]
    }


_TABLES: Final = _known_keys()
"""The known keys of each table that allows no others."""
