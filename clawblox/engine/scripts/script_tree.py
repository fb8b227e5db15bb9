"""The script tree of a world, read from its directory or from a project file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from clawblox.engine.errors import SettingsError, to_luau_text
from clawblox.engine.scripts.script_files import (
    ALIASES_NAME,
    ScriptFile,
    TreeReader,
    WorldScripts,
    check_place,
    find_scripts,
    join_path,
    read_aliases_file,
    read_main,
    read_source,
    split_name,
)
from clawblox.engine.settings import PROJECT_SUFFIX, SCRIPT_SUFFIXES
from clawblox.foreign_values import parse_json

_DEFAULT: Final = "default.project.json"
_MAX_BYTES: Final = 1 << 20
_DEEPEST: Final = 32  # projects within projects


class ProjectReader:
    """Reads the scripts of a project.

    Args:
        directory: The directory of the world.

    Attributes:
        tree: The tree read so far.
    """

    def __init__(self, directory: Path) -> None:
        self.tree = TreeReader(directory, plain="ModuleScript")
        self._open: list[str] = []  # the projects being read, outermost first

    def read(self, file: str) -> None:
        """Read a project of a whole place.

        Args:
            file: The path of the project file below the directory of the world.

        Raises:
            SettingsError: The file is not such a project or leads out of the world, or a file
                cannot be read.
        """
        root = self._read_tree(file)
        if root.get("$className") != "DataModel":
            raise SettingsError(
                f"{file}: tree.$className must be 'DataModel', not {root.get('$className')!r}: the "
                "project of a place has the services below it"
            )
        self._read_children(file, root, (), "tree")

    def _read_tree(self, file: str) -> dict[str, Any]:
        text = read_source(self._checked(file, file, "tree"))
        self.tree.others.append((file, text))
        try:
            project = parse_json(text.encode("latin-1"), max_bytes=_MAX_BYTES)
        except ValueError as error:
            raise SettingsError(f"{file}: not JSON: {error}") from error
        root = project.get("tree") if isinstance(project, dict) else None
        if not isinstance(root, dict):
            raise SettingsError(f"{file}: tree must be an object: {root!r}")
        return root

    def _read_children(
        self, file: str, node: dict[str, Any], names: tuple[str, ...], key: str
    ) -> None:
        for name, child in node.items():
            if name.startswith("$"):
                continue
            if not isinstance(child, dict):
                raise SettingsError(f"{file}: {key}.{name} must be an object, not {child!r}")
            self._read_node(file, child, (*names, to_luau_text(name)), f"{key}.{name}")

    def _read_node(self, file: str, node: dict[str, Any], names: tuple[str, ...], key: str) -> None:
        path = node.get("$path")
        is_optional = isinstance(path, dict)
        path = path.get("optional") if isinstance(path, dict) else path
        if path is not None:
            if not isinstance(path, str):
                raise SettingsError(f"{file}: {key}.$path must be a path, not {path!r}")
            self._read_path(file, path, names, f"{key}.$path", is_optional=is_optional)
        self._read_children(file, node, names, key)

    def _read_path(
        self, file: str, path: str, names: tuple[str, ...], key: str, *, is_optional: bool
    ) -> None:
        at = join_path(PurePosixPath(file).parent, path)
        if at is None:
            raise SettingsError(f"{file}: {key} leads out of the world: {path!r}")
        full = self._checked(at, file, key)
        if full.is_dir():
            self._read_directory(at, names)
        elif full.name.endswith(PROJECT_SUFFIX):
            self._read_nested(at, names)
        elif full.name.endswith(SCRIPT_SUFFIXES) and full.is_file():
            check_place(names[:-1], PurePosixPath(at))
            _, class_name = split_name(full.name, "ModuleScript")
            script = ScriptFile(at, read_source(full), names[:-1], names[-1], class_name)
            self.tree.files.append(script)
        elif not (full.exists() or is_optional):
            raise SettingsError(f"{file}: {key} points to a missing file: {path!r}")

    def _read_nested(self, file: str, names: tuple[str, ...]) -> None:
        """Read a project whose tree takes the place of an instance."""
        if file in self._open or len(self._open) >= _DEEPEST:
            raise SettingsError(f"{file}: projects contain each other: {' > '.join(self._open)}")
        self._open.append(file)
        self._read_node(file, self._read_tree(file), names, "tree")
        self._open.pop()

    def _read_directory(self, at: str, names: tuple[str, ...]) -> None:
        root = self.tree.directory / at
        if _is_plain(root / _DEFAULT) and f"{at}/{_DEFAULT}" not in self._open:
            self._read_nested(f"{at}/{_DEFAULT}", names)
            return
        nested = sorted(_find_projects(root), key=lambda path: path.parts)
        scripts = [
            path
            for path in find_scripts(root)
            if not any(project in path.parents for project in nested)
            and not (root / path).is_symlink()
        ]
        self.tree.read(at, names, scripts)
        for project in nested:
            below = tuple(map(to_luau_text, project.parts))
            self._read_nested((PurePosixPath(at) / project / _DEFAULT).as_posix(), names + below)

    def _checked(self, path: str, file: str, key: str) -> Path:
        """Return a path below the world, after checking that it contains no symlinks."""
        full = self.tree.directory
        for part in PurePosixPath(path).parts:
            full /= part
            if full.is_symlink():
                raise SettingsError(f"{file}: {key} must not lead through a link: {path!r}")
        return full


def _find_projects(root: Path) -> Iterator[PurePosixPath]:
    """Yield the outermost directories below a root that have their own project."""
    waiting = [PurePosixPath()]
    while waiting:
        place = waiting.pop()
        for entry in sorted((root / place).iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                continue
            if _is_plain(entry / _DEFAULT):
                yield place / entry.name
            else:
                waiting.append(place / entry.name)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def read_scripts(directory: Path, main: str, tree: str) -> WorldScripts:
    """Read the scripts of a world.

    Args:
        directory: The directory of the world.
        main: The path of the main script, relative to the directory.
        tree: The relative path of the script tree, which may be absent, or of a project file.

    Raises:
        SettingsError: A file cannot be read, or its path in the tree has no place in the world.
    """
    found = _read_tree(directory, main, tree)
    others = [*found.others, *read_aliases_file(directory, ALIASES_NAME)]
    return WorldScripts(
        read_main(directory, main),
        tuple(file for file in found.files if file.path != main),
        tuple(dict(others).items()),
        found.places,
    )


def _read_tree(directory: Path, main: str, tree: str) -> TreeReader:
    if tree.endswith(PROJECT_SUFFIX):
        project = ProjectReader(directory)
        project.read(tree)
        return project.tree
    reader = TreeReader(directory, plain="Script")
    root = directory / tree
    reader.read(tree, (), (path for path in find_scripts(root) if root / path != directory / main))
    return reader


def find_files(directory: Path, main: str, tree: str) -> Iterator[Path]:
    """Yield the files that `read_scripts` would read, in a stable order; some may not exist.

    For an unreadable project, only the project file is yielded.
    """
    yield directory / main
    yield directory / ALIASES_NAME
    if not tree.endswith(PROJECT_SUFFIX):
        yield from (directory / tree / path for path in sorted(find_scripts(directory / tree)))
        return
    yield directory / tree
    project = ProjectReader(directory)
    with contextlib.suppress(SettingsError):
        project.read(tree)
    yield from (directory / path for path, _ in project.tree.others[1:])
    yield from (directory / file.path for file in project.tree.files)
