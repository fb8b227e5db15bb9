"""The script tree of a world, read from its directory or from a project file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from clawblox.engine.errors import SettingsError
from clawblox.engine.scripts.project_files import ProjectReader
from clawblox.engine.scripts.script_files import (
    ALIASES_NAME,
    TreeReader,
    WorldScripts,
    find_scripts,
    read_aliases_file,
    read_main,
)
from clawblox.engine.settings import PROJECT_SUFFIX


def read_scripts(directory: Path, main: str, tree: str) -> WorldScripts:
    """Read the scripts of a world.

    Args:
        directory: The directory of the world.
        main: The path of the main script below it.
        tree: The path of the script tree below it, which may be absent, or of a project file.

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

    Of a project that cannot be read it yields the project file alone.
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
