"""The ``world.toml`` of an engine world: its keys, their defaults, and its files.

Unknown keys are ignored, because worlds have keys for other programs. An invalid value is an error
that names the file, the key and the value.
"""

from __future__ import annotations

import logging
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

import attrs

from clawblox.engine.errors import SettingsError
from clawblox.world_keys import (
    CONFIG_NAME,
    COUNT,
    FLAG,
    GRAVITY,
    SPEECH_MODE,
    ValueKind,
    choice_kind,
    number_kind,
)

USUAL_GRAVITY: Final = 196.2
"""Default gravity, from Roblox's public documentation, in studs/s²."""
STEPS_PER_TICK: Final = 5_000_000
"""Default step limit: 70 times the cost of loading the most expensive example."""
_MEMORY_MIB: Final = 512
_WATCHDOG_CPU_S: Final = 10.0
_WATCHDOG_MIB: Final = 2048
_MIB_PER_HEAP_MIB: Final = 4
"""Default ratio of the watchdog's memory limit to the heap limit."""
SCRIPT_SUFFIXES: Final = (".lua", ".luau")
PROJECT_SUFFIX: Final = ".project.json"
"""Suffix of Rojo project files; ``scripts.tree`` may name such a file."""
RENDERER_FILES: Final = "renderer"
"""Subdirectory of the world's directory for the files of a renderer."""

_log = logging.getLogger("clawblox.engine")
_T = TypeVar("_T")


@attrs.frozen
class RendererSettings:
    """The table ``[renderer]``: the display of the world in a browser.

    Attributes:
        name: A name for people.
        mode: ``module`` for the world's own renderer, ``default`` for the engine's.
        api_version: Version of the interface that its module uses.
        entry: Path of its module below ``renderer/``, or None.
        capabilities: Capabilities that it declares.
    """

    name: str = "World Renderer"
    mode: str = "module"
    api_version: int = 1
    entry: str | None = None
    capabilities: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class EngineSettings:
    """The settings of a world.

    Attributes:
        directory: The directory of the world.
        name: The name of the world.
        main: The path of the main script below the directory.
        tree: The path of the script tree below the directory, which may be absent, or of a project
            file.
        skill: The path of the document for agents below the directory, which may be absent.
        max_players: Maximum number of players in the world at a time.
        afk_timeout_s: Simulation time after which a player without input is removed; 0 means
            never.
        observation_radius: Distance that players can see, in studs.
        speech_is_near: Whether only players within ``hearing_radius`` hear a chat message.
        hearing_radius: Distance at which a message is heard in that case, in studs.
        gravity: The initial ``Workspace.Gravity``, in studs/s².
        player_object_physics: Whether characters push unanchored parts.
        solver_iterations: Iterations of the physics solver in each step.
        allow_reset: Whether agents may send ``Reset``.
        halts_on_error: Whether an uncaught error of any thread halts the world. Otherwise it only
            ends the thread.
        steps_per_tick: The steps that scripts may take in a tick.
        memory_bytes: Maximum size of the scripts' heap; allocations beyond it fail.
        watchdog_cpu_s: CPU time of one tick or call after which the watchdog stops the world, in
            seconds.
        watchdog_memory_bytes: Resident memory of the process above which the watchdog stops the
            world.
        game_id: The id of the world's rows in data stores.
        tables: The settings that affect the simulation, for the content hash, with defaults filled
            in and without names, files, renderers and budgets.
        renderer: The display of the world in a browser.
    """

    directory: Path
    name: str = "world"
    main: str = "main.lua"
    tree: str = "scripts"
    skill: str = "API.md"
    max_players: int = 8
    afk_timeout_s: float = 300.0
    observation_radius: float = 100.0
    speech_is_near: bool = False
    hearing_radius: float = 30.0
    gravity: float = USUAL_GRAVITY
    player_object_physics: bool = True
    solver_iterations: int = 4
    allow_reset: bool = False
    halts_on_error: bool = False
    steps_per_tick: int = STEPS_PER_TICK
    memory_bytes: int = _MEMORY_MIB << 20
    watchdog_cpu_s: float = _WATCHDOG_CPU_S
    watchdog_memory_bytes: int = _WATCHDOG_MIB << 20
    game_id: str = "local"
    tables: Mapping[str, Any] = attrs.field(factory=dict)
    renderer: RendererSettings = RendererSettings()


def read_settings(directory: Path) -> EngineSettings:
    """Read the ``world.toml`` of a directory.

    Raises:
        SettingsError: The file, the main script or the script tree is missing, or a value is wrong.
    """
    directory = directory.resolve()
    table = _Table(_parse(directory), directory)
    scripts, clawblox = table.below("scripts"), table.below("clawblox")
    observation, speech = table.below("observation"), table.below("speech")
    rules: dict[str, Any] = {
        "max_players": table.get("max_players", 8, COUNT),
        "afk_timeout_s": float(table.get("afk_timeout", 300, _AFK_S)),
        "observation_radius": float(observation.get("radius", 100, _POSITIVE)),
        "speech_is_near": speech.get("mode", "global", SPEECH_MODE) == "proximity",
        "hearing_radius": float(speech.get("hearing_radius", 30, _POSITIVE)),
        "allow_reset": table.below("agent_api").get("allow_reset", False, FLAG),
        "gravity": float(table.below("physics").get("gravity", USUAL_GRAVITY, GRAVITY)),
        "player_object_physics": clawblox.get("player_object_physics", True, FLAG),
        "solver_iterations": clawblox.below("physics").get("solver_iterations", 4, _ITERATIONS),
    }
    on_error = scripts.get("on_error", "end_thread", choice_kind("end_thread", "halt"))
    memory_mib = clawblox.get("memory_mib", _MEMORY_MIB, COUNT)
    watchdog_mib = max(_WATCHDOG_MIB, _MIB_PER_HEAP_MIB * memory_mib)
    return EngineSettings(
        directory=directory,
        name=table.get("name", "", _NAME),
        main=_find_main(scripts),
        tree=_find_tree(scripts),
        skill=scripts.get("skill", "API.md", _PATH),
        steps_per_tick=clawblox.get("steps_per_tick", STEPS_PER_TICK, COUNT),
        memory_bytes=memory_mib << 20,
        watchdog_cpu_s=float(clawblox.get("watchdog_cpu_s", _WATCHDOG_CPU_S, _CPU_S)),
        watchdog_memory_bytes=clawblox.get("watchdog_memory_mib", watchdog_mib, COUNT) << 20,
        # Without the default, to keep the content hash of worlds that do not set it.
        tables=rules if on_error == "end_thread" else {**rules, "on_error": on_error},
        halts_on_error=on_error == "halt",
        renderer=_read_renderer(table.below("renderer")),
        **rules,
    )


def read_skill(settings: EngineSettings) -> str | None:
    """Return the document for agents, or None.

    Raises:
        SettingsError: The document cannot be read.
    """
    path = settings.directory / settings.skill
    return read_file(path).decode(errors="replace") if path.is_file() else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    """Return whether a value is a relative path that stays below its directory."""
    return (
        isinstance(value, str)
        and "\0" not in value
        and not PurePosixPath(value).is_absolute()
        and not {"", ".", ".."} & set(value.split("/"))
    )


_NAME: Final = ValueKind(lambda value: _is_text(value) and value, "a non-empty string")
_AFK_S: Final = number_kind("0 or more", 0)
_CPU_S: Final = number_kind("a finite number, 1 or more", 1)
_POSITIVE: Final = number_kind("a finite number above 0", math.ulp(0.0))
_ITERATIONS: Final = ValueKind(
    lambda n: type(n) is int and 0 < n <= 32, "a whole number from 1 to 32"
)
_TEXTS: Final = ValueKind(
    lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of strings"
)
_PATH: Final = ValueKind(_is_path, "a path below the world's directory, without '.' and '..'")


class _Table:
    """A table of ``world.toml``.

    Args:
        values: Its keys and values.
        directory: The world's directory.
        name: Its dotted name; empty for the whole file.
    """

    def __init__(self, values: dict[str, Any], directory: Path, name: str = "") -> None:
        self.values = values
        self.directory = directory
        self._name = name

    def refuse(self, key: str, complaint: str) -> None:
        """Raise the error for a key."""
        dotted = f"{self._name}.{key}".removeprefix(".")
        actual = f", not {self.values[key]!r}" if key in self.values else ": it is missing"
        raise SettingsError(f"{self.directory / CONFIG_NAME}: {dotted} {complaint}{actual}")

    def below(self, key: str) -> _Table:
        """Return the table of a key, empty if it is missing."""
        table = ValueKind(lambda value: isinstance(value, dict), "a table")
        values: dict[str, Any] = self.get(key, {}, table)
        return _Table(values, self.directory, f"{self._name}.{key}".removeprefix("."))

    def get(self, key: str, default: _T, kind: ValueKind) -> _T:
        """Return the value of a key."""
        value: _T = self.values.get(key, default)
        if not kind.test(value):
            self.refuse(key, f"must be {kind.expected}")
        return value


def _parse(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise SettingsError(f"{directory}: there is no such directory")
    path = directory / CONFIG_NAME
    try:
        return tomllib.loads(read_file(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"{path}: not TOML: {error}") from error


def read_file(path: Path) -> bytes:
    """Return the contents of a file of a world.

    Raises:
        SettingsError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error


def _find_main(scripts: _Table) -> str:
    main = scripts.get("main", "main.lua", _PATH)
    if "main" not in scripts.values and not (scripts.directory / main).is_file():
        other = "main.luau"
        main = other if (scripts.directory / other).is_file() else main
    if not main.endswith(SCRIPT_SUFFIXES):
        scripts.refuse("main", "must end in .lua or .luau")
    if not (scripts.directory / main).is_file():
        raise SettingsError(f"scripts.main points to missing file: {scripts.directory / main}")
    return main


def _find_tree(scripts: _Table) -> str:
    tree = scripts.get("tree", "scripts", _PATH)
    path = scripts.directory / tree
    is_there = path.is_file() if tree.endswith(PROJECT_SUFFIX) else path.is_dir()
    if "tree" in scripts.values and not is_there:
        what = "file" if tree.endswith(PROJECT_SUFFIX) else "directory"
        raise SettingsError(f"scripts.tree points to missing {what}: {path}")
    return tree


def _read_renderer(table: _Table) -> RendererSettings:
    usual = RendererSettings()
    return RendererSettings(
        name=table.get("name", usual.name, ValueKind(_is_text, "a string")),
        mode=table.get("mode", usual.mode, choice_kind("module", "default")),
        api_version=table.get("api_version", usual.api_version, COUNT),
        entry=_find_entry(table),
        capabilities=tuple(table.get("capabilities", [], _TEXTS)),
    )


def _find_entry(table: _Table) -> str | None:
    entry = table.values.get("entry")
    if entry is None or (_is_path(entry) and (table.directory / RENDERER_FILES / entry).is_file()):
        return entry
    _log.warning(
        "%s: renderer.entry must be a file below %s/, not %r: the engine's own renderer shows the"
        " world",
        table.directory / CONFIG_NAME,
        RENDERER_FILES,
        entry,
    )
    return None
