"""The main script of a world and its script tree, as files.

The tree is a directory with ``<Service>/…/<name>.lua``, or described by a Rojo project file
(`script_tree`). Directories become Folders; a directory with ``init.lua`` becomes that script.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

import attrs

from clawblox.engine.errors import SettingsError, to_luau_text
from clawblox.engine.settings import SCRIPT_SUFFIXES, read_file

ROOTS: Final = ("Workspace", "ServerScriptService")
"""The services with scripts that run, in the order of execution."""
STORAGES: Final = ("ReplicatedStorage", "ServerStorage", "StarterGui", "StarterPlayer")
"""The other services of the tree, with scripts that do not run."""
ALIASES_NAME: Final = ".luaurc"
"""The name of a file with aliases for ``require``."""

Place: TypeAlias = tuple[str, ...]
"""The names from the service down to an instance."""

_ENDINGS: Final = (
    (".module", "ModuleScript"),
    (".server", "Script"),
    (".script", "Script"),
    (".client", "LocalScript"),
)
_ALIASES_KEY: Final = '"aliases"'
_INIT: Final = "init"
_SERVICE_DEPTH: Final = 2  # a service and the name of a file in it
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
        is_folder: Whether it is the ``init.lua`` of a directory, whose other scripts are below it.
    """

    path: str
    source: str
    folders: tuple[str, ...]
    name: str
    class_name: str
    is_folder: bool = False

    @property
    def place(self) -> tuple[str, ...]:
        """The names from the service down to its instance."""
        return (*self.folders, self.name)

    @property
    def may_run(self) -> bool:
        """True if the script can start with the world."""
        return self.class_name == "Script" and (not self.folders or self.folders[0] in ROOTS)


@attrs.frozen
class WorldScripts:
    """The scripts of a world, as files.

    Attributes:
        main: The main script.
        tree: The scripts of the tree, parents first.
        others: The path and text of each other file that affects scripts.
        places: The names from the service down to the instance of each directory of the tree, by
            path below the directory of the world.
    """

    main: ScriptFile
    tree: tuple[ScriptFile, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    places: dict[str, tuple[str, ...]] = attrs.field(factory=dict)

    @classmethod
    def empty(cls) -> WorldScripts:
        """Return the scripts of a world whose main script is empty."""
        return cls(ScriptFile("main.lua", "", (), "main", "Script"))

    def sources(self) -> list[list[str]]:
        """Return the path and the text of each file."""
        scripts = [[script.path, script.source] for script in (self.main, *self.tree)]
        return scripts + [list(other) for other in self.others]


def read_main(directory: Path, main: str) -> ScriptFile:
    """Read the main script of a world.

    Raises:
        SettingsError: The script cannot be read.
    """
    name, _ = split_name(PurePosixPath(main).name, plain="Script")
    return ScriptFile(main, read_source(directory / main), (), name, "Script")


class TreeReader:
    """Reads the directories of a script tree.

    Args:
        directory: The directory of the world.
        plain: The class of a script without a class in its name, such as ``x.lua``, in a service of
            `ROOTS`; elsewhere, and below an ``init.lua``, it is a ModuleScript.

    Attributes:
        files: The scripts so far.
        others: As in `WorldScripts`.
        places: As in `WorldScripts`.
    """

    def __init__(self, directory: Path, plain: str) -> None:
        self.directory = directory
        self._plain = plain
        self.files: list[ScriptFile] = []
        self.others: list[tuple[str, str]] = []
        self.places: dict[str, tuple[str, ...]] = {}

    def read(self, below: str, folders: tuple[str, ...], paths: Iterable[PurePosixPath]) -> None:
        """Read some files of a directory.

        Args:
            below: The path of the directory relative to the world's.
            folders: The names from the service down to its instance; empty for a directory of
                services.
            paths: The paths of the files relative to this directory.

        Raises:
            SettingsError: A file cannot be read, or has no place in the world.
        """
        chosen = sorted(paths, key=_by_directory)
        modules = {path.parent for path in chosen if _is_folder(folders, path)}
        self.places.setdefault(below, folders)
        for path in chosen:
            at = PurePosixPath(below) / path
            if path.name == ALIASES_NAME:
                self.others += read_aliases_file(self.directory, at.as_posix())
                continue
            self._note_places(below, folders, path)
            is_below_module = any(parent in modules for parent in path.parents)
            self.files.append(self._read_script(at, folders, path, is_below_module=is_below_module))

    def _note_places(self, below: str, folders: tuple[str, ...], path: PurePosixPath) -> None:
        for parent in path.parents:
            names = tuple(map(to_luau_text, parent.parts))
            self.places.setdefault((PurePosixPath(below) / parent).as_posix(), (*folders, *names))

    def _read_script(
        self,
        at: PurePosixPath,
        folders: tuple[str, ...],
        path: PurePosixPath,
        *,
        is_below_module: bool,
    ) -> ScriptFile:
        names = (*folders, *map(to_luau_text, path.parts[:-1]))
        check_place(names, path)
        is_folder = _is_folder(folders, path)
        is_module = is_below_module or is_folder or names[0] not in ROOTS
        name, class_name = split_name(path.name, "ModuleScript" if is_module else self._plain)
        place = names if is_folder else (*names, to_luau_text(name))
        source = read_source(self.directory / at)
        return ScriptFile(at.as_posix(), source, place[:-1], place[-1], class_name, is_folder)


def check_place(names: tuple[str, ...], path: PurePosixPath) -> None:
    """Check that a script has a place in the world.

    Args:
        names: The names from the service down to the parent of the script.
        path: The path for the error message.

    Raises:
        SettingsError: The script has no place in the world.
    """
    if not names:
        raise SettingsError(f"Invalid script path '{path}': expected <Service>/<file.lua>")
    if names[0] not in (*ROOTS, *STORAGES):
        *services, last = (*reversed(ROOTS), *STORAGES)
        raise SettingsError(
            f"Unsupported script service root '{names[0]}' in '{path}'; "
            f"expected {', '.join(services)} or {last}"
        )


def find_scripts(root: Path) -> Iterator[PurePosixPath]:
    """Yield the paths of the scripts below a directory, and of files with aliases.

    The directory may be absent, and deeper than Python can recurse. Symlinks are not followed.
    """
    directories = [""]
    while directories:
        place = directories.pop()
        with contextlib.suppress(OSError), os.scandir(root / place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(f"{place}{entry.name}/")
                elif _is_read(entry.name) and not entry.is_dir():
                    yield PurePosixPath(place + entry.name)


def _is_read(file_name: str) -> bool:
    return file_name.endswith(SCRIPT_SUFFIXES) or file_name == ALIASES_NAME


def _by_directory(path: PurePosixPath) -> list[tuple[bool, str]]:
    """Return the sort key of a path: by parts, with ``init.lua`` before other files."""
    *folders, name = path.parts
    return [*((True, folder) for folder in folders), (not is_init(name), name)]


def is_init(file_name: str) -> bool:
    """Return whether a file is the ``init`` script of its directory."""
    return file_name.endswith(SCRIPT_SUFFIXES) and split_name(file_name, plain="")[0] == _INIT


def _is_folder(folders: tuple[str, ...], path: PurePosixPath) -> bool:
    """Return whether a script represents its directory; a service has no such script."""
    return is_init(path.name) and len(folders) + len(path.parts) > _SERVICE_DEPTH


def split_name(file_name: str, plain: str) -> tuple[str, str]:
    """Return the name and class of the script in a file; `plain` is the class of ``x.lua``."""
    stem = PurePosixPath(file_name).stem
    for ending, class_name in _ENDINGS:
        if stem.endswith(ending) and stem != ending:
            return stem.removesuffix(ending), class_name
    return stem, plain


def join_path(directory: PurePosixPath, path: str) -> str | None:
    """Return a path in a file of a directory, made relative to the world.

    Returns:
        None if the path leads out of the world.
    """
    if path.startswith("/") or "\0" in path:
        return None
    parts = list(directory.parts)
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def read_aliases_file(directory: Path, path: str) -> list[tuple[str, str]]:
    """Return the path and text of a file in a list; an empty list if it has no aliases.

    Editors use such files too, without effect on the world.
    """
    full = directory / path
    text = read_source(full) if full.is_file() else ""
    return [(path, text)] if _ALIASES_KEY in text else []


def read_source(path: Path) -> str:
    """Return the text of a file as a Luau string.

    Raises:
        SettingsError: The file cannot be read.
    """
    return read_file(path).removeprefix(_BOM).decode("latin-1")
