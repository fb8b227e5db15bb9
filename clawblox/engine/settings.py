"""The ``world.toml`` of an engine world: what its keys mean, their defaults, and its files.

Unknown keys are ignored, because worlds carry keys for other programs. A wrong value is an error
that names the file, the key and the value.
"""

from __future__ import annotations

import logging
import math
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

import attrs

from clawblox.engine.errors import SettingsError
from clawblox.foreign_values import finite_number

CONFIG_NAME: Final = "world.toml"
GRAVITY: Final = 196.2
"""The default, from the public documentation; the public engine's source has 30."""
MOST_GRAVITY: Final = 1e6
"""The largest strength of gravity that scripts and settings can set, in either direction."""
STEPS_PER_TICK: Final = 5_000_000
"""The default: 70 times the cost of loading the most expensive example."""
_MEMORY_MIB: Final = 512
_WATCHDOG_CPU_S: Final = 10.0
_WATCHDOG_MIB: Final = 2048
_MIB_PER_HEAP_MIB: Final = 4
"""Memory that the watchdog allows per byte of heap, unless a world sets another limit."""
SCRIPT_SUFFIXES: Final = (".lua", ".luau")
PROJECT_SUFFIX: Final = ".project.json"
"""The end of the name of a project file of Rojo, which ``scripts.tree`` may be."""
RENDERER_FILES: Final = "renderer"
"""Directory of the files of a renderer, within the world's directory."""

_log = logging.getLogger("clawblox.engine")
_T = TypeVar("_T")


@attrs.frozen
class RendererSettings:
    """How a browser shows the world: ``[renderer]``.

    Attributes:
        name: A name for people.
        mode: ``module`` for a renderer of the world's own, ``default`` for the engine's.
        api_version: Version of the interface that its module is written for.
        entry: Its module, a path below ``renderer/``, or None.
        capabilities: The capabilities that it declares.
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
        max_players: How many players may be in the world at a time.
        afk_timeout_s: Simulation time after which a player without input is removed; 0 means
            never.
        observation_radius: How far players see, in studs.
        speech_is_near: Whether only players within ``hearing_radius`` hear a chat message.
        hearing_radius: How far a message is heard then, in studs.
        gravity: The initial ``Workspace.Gravity``, in studs/s².
        player_object_physics: Whether characters push unanchored parts.
        solver_iterations: Iterations of the physics solver in each step.
        allow_reset: Whether agents may send ``Reset``.
        halts_on_error: Whether an uncaught error of any thread halts the world; else it ends the
            thread alone.
        steps_per_tick: The steps that scripts may take in a tick.
        memory_bytes: The size of the heap of the scripts above which allocating fails.
        watchdog_cpu_s: CPU time of one tick or call after which the watchdog stops the world, in
            seconds.
        watchdog_memory_bytes: Resident memory of the process above which the watchdog stops the
            world.
        game_id: Names the world's rows in a DataStore.
        tables: The settings that change what the world does, for its content hash: defaults
            are filled in, and names, files, renderers and budgets are left out.
        renderer: How a browser shows the world.
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
    gravity: float = GRAVITY
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
        "max_players": table.count("max_players", 8),
        "afk_timeout_s": table.number("afk_timeout", 300, "0 or more", 0),
        "observation_radius": observation.positive("radius", 100),
        "speech_is_near": speech.choice("mode", "global", "proximity") == "proximity",
        "hearing_radius": speech.positive("hearing_radius", 30),
        "allow_reset": table.below("agent_api").flag("allow_reset", default=False),
        "gravity": table.below("physics").number(
            "gravity",
            GRAVITY,
            "a number from -1000000 to 1000000",
            low=-MOST_GRAVITY,
            high=MOST_GRAVITY,
        ),
        "player_object_physics": clawblox.flag("player_object_physics", default=True),
        "solver_iterations": clawblox.below("physics").count(
            "solver_iterations", 4, "a whole number from 1 to 32", 32
        ),
    }
    on_error = scripts.choice("on_error", "end_thread", "halt")
    memory_mib = clawblox.count("memory_mib", _MEMORY_MIB)
    return EngineSettings(
        directory=directory,
        name=table.get("name", "", lambda name: _is_text(name) and name, "a non-empty string"),
        main=_find_main(scripts),
        tree=_find_tree(scripts),
        skill=scripts.path("skill", "API.md"),
        steps_per_tick=clawblox.count("steps_per_tick", STEPS_PER_TICK),
        memory_bytes=memory_mib << 20,
        watchdog_cpu_s=clawblox.number(
            "watchdog_cpu_s", _WATCHDOG_CPU_S, "a finite number, 1 or more", 1
        ),
        watchdog_memory_bytes=clawblox.count(
            "watchdog_memory_mib", max(_WATCHDOG_MIB, _MIB_PER_HEAP_MIB * memory_mib)
        )
        << 20,
        # Without the default: saves of worlds that do not set it keep their content hash.
        tables=rules if on_error == "end_thread" else {**rules, "on_error": on_error},
        halts_on_error=on_error == "halt",
        renderer=_read_renderer(table.below("renderer")),
        **rules,
    )


def read_skill(settings: EngineSettings) -> str | None:
    """Return the document for agents, or None.

    Raises:
        SettingsError: It cannot be read.
    """
    path = settings.directory / settings.skill
    return _read(path).decode(errors="replace") if path.is_file() else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    """Return whether a value is the path of a file below a directory."""
    return (
        isinstance(value, str)
        and "\0" not in value
        and not PurePosixPath(value).is_absolute()
        and not {"", ".", ".."} & set(value.split("/"))
    )


class _Table:
    """A table of the file.

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
        """Raise the error of a key."""
        dotted = f"{self._name}.{key}".removeprefix(".")
        actual = f", not {self.values[key]!r}" if key in self.values else ": it is missing"
        raise SettingsError(f"{self.directory / CONFIG_NAME}: {dotted} {complaint}{actual}")

    def below(self, key: str) -> _Table:
        """Return the table of a key, empty if it is missing."""
        values: dict[str, Any] = self.get(key, {}, lambda value: isinstance(value, dict), "a table")
        return _Table(values, self.directory, f"{self._name}.{key}".removeprefix("."))

    def get(self, key: str, default: _T, is_right: Callable[[Any], bool], expected: str) -> _T:
        """Return the value of a key."""
        value: _T = self.values.get(key, default)
        if not is_right(value):
            self.refuse(key, f"must be {expected}")
        return value

    def count(
        self,
        key: str,
        default: int,
        expected: str = "a whole number above 0",
        most: float = math.inf,
    ) -> int:
        """Return the value of a key that is a number of things."""
        return self.get(
            key, default, lambda count: type(count) is int and 0 < count <= most, expected
        )

    def number(
        self, key: str, default: float, expected: str, low: float, high: float = sys.float_info.max
    ) -> float:
        """Return a finite number within two limits."""

        def is_within(value: Any) -> bool:
            return finite_number(value, low=low, high=high) is not None

        return float(self.get(key, default, is_within, expected))

    def positive(self, key: str, default: float) -> float:
        """Return the value of a key that is a positive number."""
        return self.number(key, default, "a finite number above 0", math.ulp(0.0))

    def flag(self, key: str, *, default: bool) -> bool:
        """Return the value of a key that is true or false."""
        return self.get(key, default, lambda value: isinstance(value, bool), "true or false")

    def choice(self, key: str, *words: str) -> str:
        """Return the value of a key that is one of some words, the first of them if missing."""
        return self.get(key, words[0], lambda value: value in words, f"one of {', '.join(words)}")

    def path(self, key: str, default: str) -> str:
        """Return the value of a key that is a path below the world's directory."""
        return self.get(
            key, default, _is_path, "a path below the world's directory, without '.' and '..'"
        )


def _parse(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise SettingsError(f"{directory}: there is no such directory")
    path = directory / CONFIG_NAME
    try:
        return tomllib.loads(_read(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"{path}: not TOML: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error


def _find_main(scripts: _Table) -> str:
    main = scripts.path("main", "main.lua")
    if "main" not in scripts.values and not (scripts.directory / main).is_file():
        other = "main.luau"
        main = other if (scripts.directory / other).is_file() else main
    if not main.endswith(SCRIPT_SUFFIXES):
        scripts.refuse("main", "must end in .lua or .luau")
    if not (scripts.directory / main).is_file():
        raise SettingsError(f"scripts.main points to missing file: {scripts.directory / main}")
    return main


def _find_tree(scripts: _Table) -> str:
    tree = scripts.path("tree", "scripts")
    path = scripts.directory / tree
    is_there = path.is_file() if tree.endswith(PROJECT_SUFFIX) else path.is_dir()
    if "tree" in scripts.values and not is_there:
        what = "file" if tree.endswith(PROJECT_SUFFIX) else "directory"
        raise SettingsError(f"scripts.tree points to missing {what}: {path}")
    return tree


def _read_renderer(table: _Table) -> RendererSettings:
    usual = RendererSettings()
    return RendererSettings(
        name=table.get("name", usual.name, _is_text, "a string"),
        mode=table.choice("mode", "module", "default"),
        api_version=table.count("api_version", usual.api_version),
        entry=_find_entry(table),
        capabilities=tuple(table.get("capabilities", [], _is_list_of_text, "a list of strings")),
    )


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


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
