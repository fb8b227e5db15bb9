"""Finds the files that a program needs; a sandbox shows only these.

A program is a single file, a Node.js package, or a script. A package needs the tree of packages
around it; a script needs its interpreter: Node.js with its own packages, or Python with its library
and virtual environment. Whole prefixes are never shown, because a prefix may be a user's
``~/.local``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

_PACKAGES: Final = "node_modules"
_HEAD_BYTES: Final = 256


@attrs.frozen
class ProgramFiles:
    """The files of a program.

    Attributes:
        executable: The program itself, with a path within :attr:`paths`.
        paths: The files and directories that it needs, including the program.
        commands: The directories of the program and its interpreter, for ``PATH``.
        links: Symbolic links that it needs, as pairs of path and target.
    """

    executable: Path
    paths: tuple[Path, ...]
    commands: tuple[Path, ...]
    links: tuple[tuple[Path, str], ...]


def find_program_files(program: str, search: str) -> ProgramFiles:
    """Return the files of a program. Blocks.

    Args:
        program: An absolute path, or a name to look up.
        search: ``PATH``, where it and its interpreter are looked up.

    Raises:
        FileNotFoundError: The program or its interpreter is missing; the error names it.
    """
    path = _look_up(program, search)
    real = path.resolve()
    files = _Collected({_package_tree(real)})
    parts = (path, *_interpreters(real, search))
    for part in parts:
        if part.name.startswith("node"):
            files.add_node(part.resolve())
        elif part.name.startswith("python"):
            files.add_python(part)
        else:
            files.paths.add(_package_tree(part.resolve()))
    shown = [files.show(part) for part in parts]
    return ProgramFiles(
        executable=shown[0],
        paths=tuple(sorted(files.paths)),
        commands=tuple(dict.fromkeys(path.parent for path in shown)),
        links=tuple(sorted(files.links.items())),
    )


@attrs.define
class _Collected:
    """The files found so far."""

    paths: set[Path]
    links: dict[Path, str] = attrs.field(factory=dict)

    def show(self, part: Path) -> Path:
        """Return a path of a part that exists if only these files are visible.

        The original path is preferred, because Python uses it to find its environment.
        """
        return part if any(map(part.is_relative_to, self.paths)) else part.resolve()

    def add_node(self, real: Path) -> None:
        """Add Node.js with its packages, and the adjacent commands that link to them."""
        tree = real.parent.parent / "lib" / _PACKAGES
        self.paths.add(real)
        if tree.is_dir() and not real.is_relative_to("/usr"):
            self.paths.add(tree)
            for entry in real.parent.iterdir():
                if entry.is_symlink() and entry.resolve().is_relative_to(tree.resolve()):
                    self.links[entry] = str(entry.readlink())

    def add_python(self, interpreter: Path) -> None:
        """Add Python with its library and its virtual environment, if any."""
        real = interpreter.resolve()
        library = real.parent.parent / "lib"
        self.paths |= {real, *library.glob(f"{real.name}*"), *library.glob("libpython*")}
        environment = interpreter.parent.parent
        if (environment / "pyvenv.cfg").is_file():
            self.paths.add(environment)
        while interpreter.is_symlink():
            target = interpreter.readlink()
            if not any(map(interpreter.is_relative_to, (environment, Path("/usr")))):
                self.links[interpreter] = str(target)
            interpreter = interpreter.parent / target


def _look_up(program: str, search: str) -> Path:
    path = shutil.which(program, path=search)
    if path is None:
        raise FileNotFoundError(f"{program!r} is not an executable program on PATH")
    return Path(os.path.abspath(path))  # noqa: PTH100 - symbolic links stay as they are


def _package_tree(executable: Path) -> Path:
    """Return the outermost ``node_modules`` around a file, or the file itself."""
    parts = executable.parts
    if _PACKAGES not in parts:
        return executable
    return Path(*parts[: parts.index(_PACKAGES) + 1])


def _interpreters(script: Path, search: str) -> Iterator[Path]:
    """Yield the interpreter in the first line of a script, if any."""
    with script.open("rb") as file:
        head = file.readline(_HEAD_BYTES)
    words = os.fsdecode(head[2:]).split() if head.startswith(b"#!") else []
    if not words:
        return
    if Path(words[0]).name != "env":
        yield _look_up(words[0], search)
        return
    names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if names:
        yield _look_up(names[0], search)
