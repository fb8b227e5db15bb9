"""Converts plans between their plain form and TOML, with errors that name file and line.

All faults of a document are reported in one error. Relative paths are relative to its directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from clawblox.config.arguments import is_world_url
from clawblox.config.toml_text import find_line, parse_toml
from clawblox.config.toml_words import Keys, advise, advise_brackets, has_value, in_toml
from clawblox.errors import ConfigError
from clawblox.experiment.plan.naming import display_name
from clawblox.experiment.plan.programs import COMMANDS, HOOKS, find_program, map_program
from clawblox.experiment.plan.values import UnknownKeyError, is_function

_MAX_FAULTS: Final = 20
_AGENT_PATHS: Final = ("template", "system_prompt", "binary")
PROGRAM: Final = "program"
"""Name of the program of a command in :func:`map_paths`."""
_HOOK: Final = "hook"
"""Name of the program of a hook in :func:`map_paths`."""
_WORLD_PATH: Final = "world.dir"
_SCORE: Final = "score"
_TABLE_LISTS: Final = ("agents", "conditions")
_BY_PATHS: Final = ("sweep", "conditions")
"""Keys whose values are set by paths."""
_STAND_INS: Final[Mapping[str, object]] = {
    "world": {"dir": "."},
    "world.dir": ".",
    "agents": [{"driver": "claude"}],
    "agents.*": {"driver": "claude"},
    "agents.*.driver": "claude",
}
"""Valid substitutes for required values that are invalid, so that other faults are found too."""

_Built = TypeVar("_Built")
_Tables = dict[str, Any]
_Copied = TypeVar("_Copied", bound=_Tables | list[Any])


# -- writing --------------------------------------------------------------------------------------


def format_tables(tables: Mapping[str, Any]) -> str:
    """Return the plain form of a plan as a TOML document.

    The order of swept values and of the values of conditions is kept, because names depend on it.
    Nested tables are written inline; otherwise they would move to the end.
    """
    import tomlkit  # imported here because few processes write a plan

    document = dict(tables)
    document["sweep"] = {
        path: tomlkit.item(list(values), _parent=tomlkit.array())
        for path, values in tables["sweep"].items()
    }
    document["conditions"] = [
        {**entry, "set": tomlkit.item(dict(entry["set"]), _parent=tomlkit.array())}
        for entry in tables["conditions"]
    ]
    return tomlkit.dumps(document)


# -- paths ----------------------------------------------------------------------------------------


def map_paths(tables: Mapping[str, Any], change: Callable[[str, str], str]) -> _Tables:
    """Return a copy of the plain form of a plan with changed paths of files.

    Invalid values, addresses, names of programs to look up in PATH, and programs in workspaces are
    unchanged.

    Args:
        tables: The plain form, which may be invalid.
        change: Returns the new path for the name of a field and its path.
    """

    def change_path(path: str, value: Any) -> Any:  # noqa: ANN401 - any plain value
        if path.startswith("agents.") and path.rpartition(".")[2] in COMMANDS:
            return map_program(value, partial(change, PROGRAM))
        return change(path.rpartition(".")[2], value) if _names_file(path, value) else value

    copy = dict(tables)
    if isinstance(copy.get("world"), str):
        copy["world"] = change_path(_WORLD_PATH, copy["world"])
    copy["world"] = _map_table(copy.get("world"), "world", change_path)
    copy[_SCORE] = change_path(_SCORE, copy.get(_SCORE))
    for hook in HOOKS:
        copy[hook] = map_program(copy.get(hook), partial(change, _HOOK))
    copy["agents"] = _map_list(
        copy.get("agents"), lambda agent: _map_table(agent, "agents.*", change_path)
    )
    copy["sweep"] = _map_sweep(copy.get("sweep"), change_path)
    copy["conditions"] = _map_list(
        copy.get("conditions"), lambda entry: _map_condition(entry, change_path)
    )
    return {key: copy[key] for key in tables}


def _names_file(path: str, value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    name = path.rpartition(".")[2]
    if path == _WORLD_PATH:
        return not is_world_url(value)
    if path == _SCORE:
        return is_function(value)
    return (
        path.startswith("agents.")
        and name in _AGENT_PATHS
        and (name != "binary" or os.sep in value)
    )


def _map_table(table: Any, parent: str, change: Callable[[str, Any], Any]) -> Any:  # noqa: ANN401
    if not isinstance(table, Mapping):
        return table
    return {key: change(f"{parent}.{key}", value) for key, value in table.items()}


def _map_list(values: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    return [change(value) for value in values] if isinstance(values, list) else values


def _map_sweep(sweep: Any, change: Callable[[str, Any], Any]) -> Any:  # noqa: ANN401
    if not isinstance(sweep, Mapping):
        return sweep
    return {path: _map_list(values, partial(change, str(path))) for path, values in sweep.items()}


def _map_condition(entry: Any, change: Callable[[str, Any], Any]) -> Any:  # noqa: ANN401
    if not isinstance(entry, Mapping) or not isinstance(entry.get("set"), Mapping):
        return entry
    return {**entry, "set": {key: change(str(key), value) for key, value in entry["set"].items()}}


def resolve_paths(tables: Mapping[str, Any], base: Path) -> _Tables:
    """Return the plain form of a plan with relative paths resolved against a directory. Blocks."""

    def resolve(field: str, path: str) -> str:
        return find_program(base, path) if field == PROGRAM else str(base / path)

    return map_paths(tables, resolve)


def shorten_paths(tables: Mapping[str, Any], base: Path) -> _Tables:
    """Return the plain form of a plan with the paths below a directory relative to it."""

    def shorten(field: str, path: str) -> str:
        if field == PROGRAM:  # a program that is not there would be in the workspace
            return path
        is_below = Path(path).is_relative_to(base) and ".." not in Path(path).parts
        return f"{os.curdir}{os.sep}{Path(path).relative_to(base)}" if is_below else path

    return map_paths(tables, shorten)


# -- faults ---------------------------------------------------------------------------------------


def build_all(
    tables: _Tables,
    construct: Callable[[_Tables], _Built],
    text: str,
    path: Path | None,
    known: Collection[str],
) -> _Built:
    """Construct a plan, or raise one error that names all faults with their lines.

    After a fault, construction is repeated without the value, or with a substitute if it
    is required, or without the table that lacks it.

    Args:
        tables: The values of the document.
        construct: Constructs the plan, or raises an error for the first fault.
        text: The document.
        path: Its file, for errors; None if there is no file.
        known: The keys of the whole document.

    Raises:
        ConfigError: Some values are invalid.
    """
    faults: list[ConfigError] = []
    removed: set[Keys] = set()
    while True:
        try:
            plan = construct(tables)
        except ConfigError as error:
            keys = _find_keys(tables, error.key or "")
            if keys not in removed:
                faults.append(_locate(error, keys, text, path, known))
            rest = _repair(tables, keys, is_again=keys in removed)
            removed.add(keys)
            if rest is None or len(faults) == _MAX_FAULTS:
                raise join_faults(faults) from error
            tables = rest
        else:
            if faults:
                raise join_faults(faults)
            return plan


def _find_keys(tables: Any, key: str) -> Keys:  # noqa: ANN401
    """Return the position of a dotted key whose steps may contain dots."""
    steps = key.split(".") if key else []
    for count in range(len(steps), 0, -1):
        step: str | int = ".".join(steps[:count])
        if isinstance(tables, list) and step.isdecimal():  # type: ignore[union-attr]
            step = int(step)
        if has_value(tables, (step,)):
            return (step, *_find_keys(tables[step], ".".join(steps[count:])))
    return (".".join(steps),) if steps else ()


def _repair(tables: _Tables, keys: Keys, *, is_again: bool) -> _Tables | None:
    """Return the values without an invalid or missing value; None if that is impossible.

    Args:
        tables: The values.
        keys: Position of the value.
        is_again: Whether the value was repaired before.
    """
    while len(keys) > 1 and not isinstance(_read(tables, keys[:-1]), dict | list):
        keys = keys[:-1]  # such as world.dir of world = ""
    pattern = ".".join("*" if isinstance(key, int) else key for key in keys)
    if pattern in _STAND_INS and not is_again:
        # Paths may name agents that were removed.
        others = {key: value for key, value in tables.items() if key not in _BY_PATHS}
        return _with(others, keys, _STAND_INS[pattern])
    rest = keys if has_value(tables, keys) else keys[:-1]  # the table that lacks a key
    if rest and rest[0] in _BY_PATHS and not isinstance(rest[-1], str):
        rest = rest[:1]
    return _with(tables, rest) if rest and isinstance(rest[-1], str) else None


def _with(tables: _Copied, keys: Keys, *values: object) -> _Copied:
    """Return a copy with a new value at ``keys``, or without a value there."""
    first, *rest = keys
    copy: Any = tables.copy()
    if rest:
        copy[first] = _with(copy[first], tuple(rest), *values)
    elif values:
        [copy[first]] = values
    else:
        del copy[first]
    return copy  # type: ignore[no-any-return]


def _locate(
    error: ConfigError, keys: Keys, text: str, path: Path | None, known: Collection[str] = ()
) -> ConfigError:
    """Return an error about a value of a document with its line, in TOML's terms."""
    tables = parse_toml(text, path)
    written = _read(tables, keys)
    hint = None
    if not has_value(tables, keys) or isinstance(error, UnknownKeyError):
        hint = advise(keys, tables, known)
    elif error.expected is not None and len(keys) == 1:
        is_misread = isinstance(written, list) or keys[0] in _TABLE_LISTS
        hint = advise_brackets(str(keys[0]), written) if is_misread else None
    error = in_toml(error, written).but(path=path, line=_find_line(text, keys))
    return error if hint is None else error.but(hint=hint)


def _read(tables: Any, keys: Keys) -> Any:  # noqa: ANN401 - any value
    if not has_value(tables, keys):
        return None
    for key in keys:
        tables = tables[key]
    return tables


def _find_line(text: str, keys: Keys) -> int | None:
    """Return the line of a value, or of the innermost existing table around it."""
    lines = (find_line(text, keys[:end]) for end in range(len(keys), 0, -1))
    return next(filter(None, lines), None)


def locate_fault(error: ConfigError, text: str, path: Path) -> ConfigError:
    """Return an error about a plan with the lines of its faults in a document.

    Args:
        error: The error; its keys may contain the name of an agent in place of its position.
        text: The document.
        path: Its file.
    """
    others = [locate_fault(other, text, path) for other in error.others]
    error = error.but(others=tuple(others))
    if error.path is not None or not error.key:
        return error
    tables = parse_toml(text, path)
    first, *steps = error.key.split(".")
    agents = tables.get("agents")
    if first == "agents" and steps and isinstance(agents, list):
        names = [agent.get("name", display_name(i)) for i, agent in enumerate(agents)]
        steps[0] = str(names.index(steps[0])) if steps[0] in names else steps[0]
    keys = _find_keys(tables, ".".join((first, *steps)))
    return error if _find_line(text, keys) is None else _locate(error, keys, text, path)


def join_faults(faults: Sequence[ConfigError]) -> ConfigError:
    """Return one error with all faults; similar faults and equal hints are shown once."""
    different = {(fault.subject, fault.message): fault for fault in faults}
    hints: set[str | None] = set()
    shown: list[ConfigError] = []
    for fault in different.values():
        shown.append(fault.but(hint=None) if fault.hint in hints else fault)
        hints.add(fault.hint)
    first, *others = shown
    return first.but(others=(*first.others, *others))
