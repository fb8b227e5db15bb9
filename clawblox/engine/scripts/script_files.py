"""The main script of a world and its script tree, as files.

The tree contains ``<Service>/…/<name>.lua``. Directories below the service become Folders.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import attrs

from clawblox.engine.errors import SettingsError, to_luau_text
from clawblox.engine.settings import SCRIPT_SUFFIXES

ROOTS: Final = ("Workspace", "ServerScriptService")
"""The services that scripts run below, in the order in which they run."""

_ENDINGS: Final = ((".module", "ModuleScript"), (".server", "Script"), (".script", "Script"))
_BOM: Final = b"\xef\xbb\xbf"


@attrs.frozen
class ScriptFile:
    """A script on disk.

    Attributes:
        path: Its path below the directory of the world.
        source: Its text, a Luau string.
        folders: The service and the folders below it; empty for the main script.
        name: The name of its instance.
        class_name: The class of its instance.
    """

    path: str
    source: str
    folders: tuple[str, ...]
    name: str
    class_name: str


@attrs.frozen
class WorldScripts:
    """The scripts of a world, as files.

    Attributes:
        main: The main script.
        tree: The scripts of the tree, sorted by path.
    """

    main: ScriptFile
    tree: tuple[ScriptFile, ...] = ()

    def sources(self) -> list[list[str]]:
        """Return the path and the text of each script."""
        return [[script.path, script.source] for script in (self.main, *self.tree)]


def read_scripts(directory: Path, main: str, tree: str) -> WorldScripts:
    """Read the scripts of a world.

    Args:
        directory: The directory of the world.
        main: The path of the main script below it.
        tree: The path of the script tree below it, which may be absent.

    Raises:
        SettingsError: A file cannot be read, or its path in the tree has no place in the world.
    """
    root = directory / tree
    paths = sorted(find_scripts(root), key=lambda path: path.parts)
    files = [_read_tree_file(root, path, tree) for path in paths if root / path != directory / main]
    name, _ = _name_and_class(PurePosixPath(main).name)
    text = _read_source(directory / main)
    return WorldScripts(ScriptFile(main, text, (), name, "Script"), tuple(files))


def find_scripts(root: Path) -> Iterator[PurePosixPath]:
    """Yield the paths of the scripts below a directory, which may be absent; no link is followed.

    It may be deeper than Python can recurse.
    """
    directories = [""]
    while directories:
        place = directories.pop()
        with contextlib.suppress(OSError), os.scandir(root / place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(f"{place}{entry.name}/")
                elif entry.name.endswith(SCRIPT_SUFFIXES) and not entry.is_dir():
                    yield PurePosixPath(place + entry.name)


def _read_tree_file(root: Path, path: PurePosixPath, tree: str) -> ScriptFile:
    *folders, file_name = path.parts
    if not folders:
        raise SettingsError(f"Invalid script path '{path}': expected <Service>/<file.lua>")
    if folders[0] not in ROOTS:
        raise SettingsError(
            f"Unsupported script service root '{folders[0]}' in '{path}'; "
            "expected ServerScriptService or Workspace"
        )
    name, class_name = _name_and_class(file_name)
    shown = (PurePosixPath(tree) / path).as_posix()
    names = tuple(map(to_luau_text, folders))
    return ScriptFile(shown, _read_source(root / path), names, to_luau_text(name), class_name)


def _name_and_class(file_name: str) -> tuple[str, str]:
    """Return the name and the class of the script in a file."""
    stem = PurePosixPath(file_name).stem
    for ending, class_name in _ENDINGS:
        if stem.endswith(ending) and stem != ending:
            return stem.removesuffix(ending), class_name
    return stem, "Script"


def _read_source(path: Path) -> str:
    try:
        return path.read_bytes().removeprefix(_BOM).decode("latin-1")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
