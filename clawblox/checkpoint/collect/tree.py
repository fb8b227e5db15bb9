"""Reading directories that belong to an agent, who may change them at any moment.

Every path is walked through directory descriptors, one component at a time and never through a
symbolic link, so a directory that is swapped for a link leads nowhere else; and nothing but a
regular file is ever opened for reading, so a pipe cannot hold a save up. What may travel is
``policy``'s. Everything here blocks.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint import names
from clawblox.errors import CheckpointError

__all__ = [
    "Tree",
    "is_file",
    "list_files",
    "open_directory",
    "open_file",
    "opener",
    "read_head",
    "walk",
]

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_REPLACED: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""What opening a directory says when it has vanished since it was seen, or was replaced."""

_NO_FILE: Final = (*_REPLACED, errno.EINVAL, errno.ENXIO)
"""What opening a file says when there is none, or something else."""

_CACHE_TAG: Final = "CACHEDIR.TAG"
_CACHE_SIGNATURE: Final = b"Signature: 8a477f597d28d172789f06886806bc55"
"""How a directory says itself that it can be built anew (bford.info/cachedir)."""

_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Judge = Callable[[str, bool], str | None]
"""Says why something stays out, by its path and whether it is a directory; None lets it in."""


@attrs.frozen(kw_only=True)
class Tree:
    """What a directory holds. Paths are relative to it, in the order of their names.

    Attributes:
        files: Regular files.
        links: Symbolic links with what they say.
        directories: Those with neither a file nor another directory below that travels.
        excluded: What stays out, with the reason; a directory stands for all below it.
        unarchivable: What has a name, or a link's target, that no archive can hold; raw.
        unreadable: What this process may not look at; a directory stands for all below it.
    """

    files: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    directories: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...]
    unarchivable: tuple[str, ...]
    unreadable: tuple[str, ...]


def open_directory(root: Path, path: str = "") -> int:
    """Open a directory and return its descriptor.

    Args:
        root: A directory whose own path is trusted.
        path: Below ``root``, ``/`` between components; no link is followed.

    Raises:
        OSError: It is not there, or no directory.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in filter(None, path.split("/")):
        try:
            deeper = os.open(part, _DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = deeper
    return fd


def open_file(root: Path, path: str) -> int:
    """Open a regular file for reading and return its descriptor; it never blocks.

    Args:
        root: A directory whose own path is trusted.
        path: Below ``root``, ``/`` between components; no link is followed.

    Raises:
        OSError: It is not there, or no regular file.
    """
    directory, _, name = path.rpartition("/")
    parent = open_directory(root, directory)
    try:
        return _open_regular(parent, name)
    finally:
        os.close(parent)


def opener(root: Path, path: str) -> Callable[[], int]:
    """Return a function that does :func:`open_file` each time it is called."""
    return functools.partial(open_file, root, path)


def is_file(root: Path, path: str) -> bool:
    """Say whether there is a regular file.

    Args:
        root: A directory whose own path is trusted.
        path: Below ``root``; no link is followed.

    Raises:
        CheckpointError: There may be one, but it cannot be read.
    """
    try:
        os.close(open_file(root, path))
    except OSError as error:
        if error.errno in _NO_FILE:
            return False
        raise _unreadable(root / path, error) from None
    return True


def read_head(root: Path, path: str, size: int) -> bytes:
    """Return the first ``size`` bytes of a regular file, or all of a shorter one.

    Raises:
        OSError: It is not there, no regular file, or cannot be read.
    """
    with os.fdopen(open_file(root, path), "rb") as file:
        return file.read(size)


def list_files(root: Path, path: str) -> tuple[str, ...]:
    """Return the regular files below a directory, relative to it; none when it is not there.

    Raises:
        CheckpointError: A directory cannot be read.
    """
    try:
        found = walk(root, path, lambda _path, _is_directory: None, _is_session_name)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unreadable(root / path, error) from None
    if found.unreadable:
        denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise _unreadable(root / path / found.unreadable[0], denied)
    return found.files


def walk(root: Path, path: str, judge: Judge, is_name: Callable[[str], bool]) -> Tree:
    """Look at everything below a directory.

    What vanishes meanwhile is left out; what appears meanwhile may be.

    Args:
        root: A directory whose own path is trusted.
        path: The directory, below ``root``; no link is followed.
        judge: Says why something stays out.
        is_name: Says whether an archive can hold a path.

    Raises:
        OSError: The directory itself cannot be opened.
        CheckpointError: One below it cannot be read.
    """
    top = open_directory(root, path)
    walker = _Walker(root / path, judge, is_name)
    try:
        walker.visit(top, "")
    finally:
        os.close(top)
    return walker.tree()


class _Walker:
    """One look at a directory tree."""

    def __init__(self, top: Path, judge: Judge, is_name: Callable[[str], bool]) -> None:
        self._top = top
        self._judge = judge
        self._is_name = is_name
        self._files: list[str] = []
        self._links: list[tuple[str, str]] = []
        self._directories: list[str] = []
        self._excluded: list[tuple[str, str]] = []
        self._unarchivable: list[str] = []
        self._unreadable: list[str] = []

    def tree(self) -> Tree:
        """Return what was found."""
        return Tree(
            files=tuple(self._files),
            links=tuple(self._links),
            directories=tuple(self._directories),
            excluded=tuple(self._excluded),
            unarchivable=tuple(self._unarchivable),
            unreadable=tuple(self._unreadable),
        )

    def visit(self, fd: int, prefix: str) -> None:
        """Look at the directory behind ``fd``; ``prefix`` ends in a slash or is empty."""
        with os.scandir(fd) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = prefix + entry.name
                try:
                    self._look_at(fd, entry, path)
                except FileNotFoundError:
                    pass
                except PermissionError:
                    self._unreadable.append(path)

    def _look_at(self, fd: int, entry: os.DirEntry[str], path: str) -> None:
        is_directory = entry.is_dir(follow_symlinks=False)
        reason = self._judge(path, is_directory)
        if reason is not None:
            self._excluded.append((_shown(path), reason))
        elif not self._is_name(path):
            self._unarchivable.append(path)
        elif is_directory:
            self._descend(fd, entry.name, path)
        elif entry.is_symlink():
            self._note_link(path, os.readlink(entry.name, dir_fd=fd))
        elif entry.is_file(follow_symlinks=False):
            self._files.append(path)
        else:
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
            self._excluded.append((path, _KINDS.get(kind, "no regular file")))

    def _note_link(self, path: str, target: str) -> None:
        is_text = not any(0xD800 <= ord(char) <= 0xDFFF for char in target)
        if is_text:
            self._links.append((path, target))
        else:
            self._unarchivable.append(path)

    def _descend(self, parent: int, name: str, path: str) -> None:
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=parent)
        except PermissionError:
            raise
        except OSError as error:
            if error.errno in _REPLACED:
                return
            raise _unreadable(self._top / path, error) from None
        try:
            self._enter(fd, path)
        finally:
            os.close(fd)

    def _enter(self, fd: int, path: str) -> None:
        if _is_tagged_cache(fd):
            self._excluded.append((path, "says itself that it is a cache"))
            return
        before = len(self._files) + len(self._directories)
        self.visit(fd, f"{path}/")
        if len(self._files) + len(self._directories) == before:
            self._directories.append(path)


def _open_regular(parent: int, name: str) -> int:
    fd = os.open(name, _FILE, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "no regular file", name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_tagged_cache(directory: int) -> bool:
    try:
        fd = _open_regular(directory, _CACHE_TAG)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as tag:
        return tag.read(len(_CACHE_SIGNATURE)) == _CACHE_SIGNATURE


def _is_session_name(path: str) -> bool:
    return names.is_name(f"agents/any/session/{path}")


def _shown(path: str) -> str:
    """Return what may stand in a document and on a terminal; a name may be any bytes."""
    return path if path.isprintable() else ascii(path)[1:-1]


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"cannot be read: {error.strerror}", path=path)
