"""The ``world.toml`` of an engine world: what its keys mean, their defaults, and its files.

Unknown keys are ignored, because worlds carry keys for other programs. A wrong value is an error
that names the file, the key and the value.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

import attrs

from clawblox.engine.errors import SettingsError

__all__ = ["CONFIG_NAME", "SCRIPT_SUFFIXES", "RendererSettings", "WorldSettings", "read_settings"]

CONFIG_NAME: Final = "world.toml"
SCRIPT_SUFFIXES: Final = (".lua", ".luau")
RENDERER_FILES: Final = "renderer"
"""Directory of the files of a renderer, within the world's directory."""
_SCRIPT_TREE: Final = "scripts"

_log = logging.getLogger("clawblox.engine")
_T = TypeVar("_T")


@attrs.frozen
class RendererSettings:
    """How a browser shows the world: ``[renderer]``.

    Attributes:
        name: A name for people.
        mode: ``module`` for a renderer of the world's own, ``default`` for the engine's.
        api_version: Version of the interface that its module is written for.
        entry: Its module, a path below ``renderer/``; None if there is none.
        capabilities: What it says it can do.
    """

    name: str = "World Renderer"
    mode: str = "module"
    api_version: int = 1
    entry: str | None = None
    capabilities: tuple[str, ...] = ()


@attrs.frozen
class WorldSettings:
    """The settings of one engine world.

    Attributes:
        directory: The world's directory, absolute.
        name: The world's name.
        main: The main script.
        tree: Directory of the script tree; None if there is none.
        skill: The document for agents, which may not exist.
        max_players: How many players may be in the world at a time.
        afk_timeout: Seconds of simulation time after which an idle player is removed; 0 for never.
        observation_radius: How far players see, in studs.
        speech_is_near: Whether only players within ``hearing_radius`` hear a chat message.
        hearing_radius: How far a message is heard then, in studs.
        allow_reset: Whether agents may send the input ``Reset``.
        player_object_physics: Whether characters push parts.
        solver_iterations: Iterations of the physics solver in a tick.
        steps_per_tick: Steps of the VM that scripts may take in one tick.
        memory_mb: Memory that scripts may hold, in units of 1,000,000 bytes.
        renderer: How a browser shows the world.
    """

    directory: Path
    name: str
    main: Path
    tree: Path | None
    skill: Path
    max_players: int = 8
    afk_timeout: float = 300.0
    observation_radius: float = 100.0
    speech_is_near: bool = False
    hearing_radius: float = 30.0
    allow_reset: bool = False
    player_object_physics: bool = True
    solver_iterations: int = 4
    steps_per_tick: int = 20_000_000
    memory_mb: int = 512
    renderer: RendererSettings = RendererSettings()

    def content_hash(self) -> str:
        """Return a digest of all that decides how the world goes on: its rules and its scripts.

        Names, documents, assets, renderers and budgets are not in it.

        Raises:
            SettingsError: A script cannot be read.
        """
        digest = hashlib.sha256()
        rules = attrs.asdict(self, filter=lambda field, _: field.name not in _NO_RULES)
        digest.update(json.dumps(rules, sort_keys=True).encode())
        for path in self._scripts():
            body = _read(path, str(path.relative_to(self.directory)))
            digest.update(f"\n{path.relative_to(self.directory)} {len(body)}\n".encode())
            digest.update(body)
        return digest.hexdigest()

    def _scripts(self) -> Iterator[Path]:
        yield self.main
        if self.tree is not None:
            yield from sorted(
                path
                for path in self.tree.rglob("*")
                if path.suffix in SCRIPT_SUFFIXES and path.is_file()
            )

    def read_skill(self) -> str | None:
        """Return the document for agents; None if there is none.

        Raises:
            SettingsError: It cannot be read.
        """
        if not self.skill.is_file():
            return None
        return _read(self.skill, "scripts.skill").decode(errors="replace")


_NO_RULES: Final = (
    *("directory", "name", "main", "tree", "skill", "renderer"),
    *("steps_per_tick", "memory_mb"),  # they decide when a world halts, not how it goes on
)


def read_settings(directory: Path) -> WorldSettings:
    """Read the ``world.toml`` of a directory.

    Raises:
        SettingsError: The file or a script is missing, or a value is wrong.
    """
    directory = directory.resolve()
    table = _Table(_parse(directory), directory)
    if not isinstance(table.values.get("name"), str) or not table.values["name"]:
        table.refuse("name", "must be a non-empty string")
    scripts, clawblox = table.below("scripts"), table.below("clawblox")
    observation, speech = table.below("observation"), table.below("speech")
    physics = clawblox.below("physics")
    return WorldSettings(
        directory=directory,
        name=table.values["name"],
        main=_find_main(scripts),
        tree=_find_tree(scripts),
        skill=scripts.path("skill", "API.md"),
        max_players=table.get("max_players", 8, _is_count, "a whole number above 0"),
        afk_timeout=float(table.get("afk_timeout", 300, _is_not_negative, "a number, 0 or more")),
        observation_radius=float(observation.get("radius", 100, _is_positive, _POSITIVE)),
        speech_is_near=speech.choice("mode", "global", "proximity") == "proximity",
        hearing_radius=float(speech.get("hearing_radius", 30, _is_positive, _POSITIVE)),
        allow_reset=table.below("agent_api").flag("allow_reset", False),
        player_object_physics=clawblox.flag("player_object_physics", True),
        solver_iterations=physics.get(
            "solver_iterations", 4, lambda value: _is_count(value) and value <= 32, "from 1 to 32"
        ),
        steps_per_tick=clawblox.get("steps_per_tick", 20_000_000, _is_count, _COUNT),
        memory_mb=clawblox.get("memory_mb", 512, _is_count, _COUNT),
        renderer=_read_renderer(table.below("renderer")),
    )


_POSITIVE: Final = "a finite number above 0"
_COUNT: Final = "a whole number above 0"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_not_negative(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


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
        """Raise the error of one key."""
        dotted = f"{self._name}.{key}".removeprefix(".")
        found = f", not {self.values[key]!r}" if key in self.values else ": it is missing"
        raise SettingsError(f"{self.directory / CONFIG_NAME}: {dotted} {complaint}{found}")

    def below(self, key: str) -> _Table:
        """Return the table of a key, an empty one if it is missing."""
        values = self.get(key, {}, lambda value: isinstance(value, dict), "a table")
        return _Table(values, self.directory, f"{self._name}.{key}".removeprefix("."))

    def get(self, key: str, default: _T, is_right: Callable[[Any], bool], expected: str) -> _T:
        """Return the value of a key."""
        value: _T = self.values.get(key, default)
        if not is_right(value):
            self.refuse(key, f"must be {expected}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return the value of a key that is true or false."""
        return self.get(key, default, lambda value: isinstance(value, bool), "true or false")

    def choice(self, key: str, *words: str) -> str:
        """Return the value of a key that is one of some words, the first of them if missing."""
        return self.get(key, words[0], lambda value: value in words, f"one of {', '.join(words)}")

    def path(self, key: str, default: str) -> Path:
        """Return the value of a key that is a path below the world's directory."""
        value = self.get(
            key, default, _is_path, "a path below the world's directory, without '.' and '..'"
        )
        return self.directory / value


def _parse(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG_NAME
    if not directory.is_dir():
        raise SettingsError(f"{directory}: there is no such directory")
    body = _read(path, CONFIG_NAME)
    try:
        return tomllib.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: not TOML: {error}") from error


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot read {what}: {error.strerror}") from error


def _find_main(scripts: _Table) -> Path:
    path = scripts.path("main", "main.lua")
    if "main" not in scripts.values and not path.is_file():
        path = next((other for other in [path.with_suffix(".luau")] if other.is_file()), path)
    if path.suffix not in SCRIPT_SUFFIXES:
        scripts.refuse("main", "must end in .lua or .luau")
    if not path.is_file():
        raise SettingsError(f"{path}: scripts.main points to a missing file")
    return path


def _find_tree(scripts: _Table) -> Path | None:
    path = scripts.path("tree", _SCRIPT_TREE)
    if path.is_dir():
        return path
    if "tree" in scripts.values:
        raise SettingsError(f"scripts.tree points to missing directory: {path}")
    return None


def _read_renderer(table: _Table) -> RendererSettings:
    usual = RendererSettings()
    name = table.get("name", usual.name, lambda value: isinstance(value, str), "a string")
    capabilities = table.get("capabilities", [], _is_list_of_text, "a list of strings")
    return RendererSettings(
        name=name,
        mode=table.choice("mode", "module", "default"),
        api_version=table.get("api_version", usual.api_version, _is_count, _COUNT),
        entry=_find_entry(table),
        capabilities=tuple(capabilities),
    )


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(member, str) for member in value)


def _find_entry(table: _Table) -> str | None:
    entry = table.values.get("entry")
    if entry is None:
        return None
    if not _is_path(entry) or not (table.directory / RENDERER_FILES / entry).is_file():
        _log.warning(
            "%s: renderer.entry must be a file below %s/, not %r: the world is shown by the"
            " engine's own renderer",
            table.directory / CONFIG_NAME,
            RENDERER_FILES,
            entry,
        )
        return None
    return str(entry)
