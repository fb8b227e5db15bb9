"""Paths that ``require`` takes: ``./x``, ``../x``, ``@self/x`` and aliases of ``.luaurc`` files.

A path goes from the requiring script through the tree of instances, as in Roblox: ``./`` begins at
the parent of the script, ``@self`` at the script. An alias names a directory or a script of the
tree; the nearest file above the requiring script counts. The file's format is Luau's:
https://luau.org/require-paths
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from clawblox.engine.errors import SettingsError, to_luau_text
from clawblox.engine.instances.instance import Instance
from clawblox.engine.scripts.script_files import ALIASES_NAME, WorldScripts, join_path, split_name
from clawblox.foreign_values import parse_json
from clawblox.luau import RuntimeFault
from clawblox.luau.core.values import describe_key

_MAX_BYTES: Final = 1 << 16
_TEXT: Final = r'("(?:[^"\\]|\\.)*")'
_COMMENT: Final = re.compile(_TEXT + r"|//[^\n]*")
_TRAILING_COMMA: Final = re.compile(_TEXT + r"|,(\s*[\]}])")
_LONGEST: Final = 1000
_STEPS_PER_NAME: Final = 10
_FORM: Final = "require expects a ModuleScript, or a path that begins with './', '../' or '@'"


class RequirePaths:
    """Finds the modules of a world by paths.

    Args:
        scripts: The files of the world.

    Raises:
        SettingsError: A ``.luaurc`` cannot be used, or leads out of the world.
    """

    def __init__(self, scripts: WorldScripts) -> None:
        self._aliases: dict[str, dict[str, str]] = {}  # targets by name, by the file's directory
        for path, text in scripts.others:
            at = PurePosixPath(path)
            if at.name == ALIASES_NAME:
                self._aliases[at.parent.as_posix()] = dict(_read_file(path, text))
        self._places = dict(scripts.places)
        for file in scripts.tree:
            at = PurePosixPath(file.path)
            name, _ = split_name(at.name, "")
            self._places.setdefault((at.parent / name).as_posix(), file.place)

    def find(self, path: str, script: Instance, file: str) -> Instance:
        """Return the ModuleScript at a path.

        Args:
            path: The path, a Luau string.
            script: The script that requires it.
            file: The path of its file below the directory of the world; empty if it has none.

        Raises:
            LuaError: There is none, or the steps of this tick are used up.
        """
        first, *names = path[:_LONGEST].split("/")
        script.model.scheduler.charge(_STEPS_PER_NAME * len(names))
        at: Instance | None = self._find_start(first, script, file)
        for name in names:
            if at is not None and name not in ("", "."):
                at = at.parent if name == ".." else at.find_child(name)
        if at is None or not at.is_a("ModuleScript"):
            raise RuntimeFault(f"require: there is no ModuleScript at {describe_key(path)}")
        return at

    def _find_start(self, first: str, script: Instance, file: str) -> Instance | None:
        if first == ".":
            return script.parent
        if first == "..":
            return None if script.parent is None else script.parent.parent
        if first == "@self":
            return script
        if first == "@game":
            return script.model.game
        if first[:1] != "@":
            raise RuntimeFault(_FORM)
        return self._find_alias(first[1:].lower(), script, file)

    def _find_alias(self, name: str, script: Instance, file: str) -> Instance | None:
        for directory in PurePosixPath(file).parents if file else (PurePosixPath(),):
            target = self._aliases.get(directory.as_posix(), {}).get(name)
            if target is not None:
                return self._find_place(name, target, script)
        raise RuntimeFault(f"require: no {ALIASES_NAME} has the alias {describe_key(name)}")

    def _find_place(self, name: str, target: str, script: Instance) -> Instance | None:
        place = self._places.get(target)
        if place is None:
            leads = f"{describe_key(name)} leads to {describe_key(target)}"
            raise RuntimeFault(f"require: the alias {leads}, which is not in the script tree")
        at: Instance | None = script.model.game
        for name in place:
            at = None if at is None else at.find_child(name)
        return at


def _as_json(text: str) -> str:
    """Return a ``.luaurc`` without comments and trailing commas, which Luau allows there."""
    plain = _COMMENT.sub(lambda match: match[1] or "", text[: _MAX_BYTES + 1])
    return _TRAILING_COMMA.sub(lambda match: match[1] or match[2], plain)


def _read_file(path: str, text: str) -> Iterable[tuple[str, str]]:
    try:
        document = parse_json(_as_json(text).encode("latin-1"), max_bytes=_MAX_BYTES)
    except ValueError as error:
        raise SettingsError(f"{path}: not JSON: {error}") from error
    aliases = document.get("aliases", {}) if isinstance(document, dict) else None
    if not isinstance(aliases, dict):
        raise SettingsError(f"{path}: aliases must be an object, not {aliases!r}")
    for name, target in aliases.items():
        joined = join_path(PurePosixPath(path).parent, target) if isinstance(target, str) else None
        if joined is None:
            raise SettingsError(
                f"{path}: aliases.{name} must be a path within the world, not {target!r}"
            )
        yield to_luau_text(name).lower(), joined
