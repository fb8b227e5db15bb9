"""Reads directories that an agent may change at any moment.

All files are opened through ``system.regular_files``, so that no link is followed and no pipe
blocks a save. ``policy`` decides the omitted names. Everything here blocks.
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
from clawblox.system.regular_files import open_directory, open_file, open_regular
from clawblox.system.trees import DirectoryEntry, TreeWalk

_REPLACED: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of opening a directory that has been removed or replaced since it was listed."""

_NO_FILE: Final = (*_REPLACED, errno.EINVAL, errno.ENXIO)
"""Errors of opening a file that is absent or is not a regular file."""

_CACHE_SIGNATURE: Final = b"Signature: 8a477f597d28d172789f06886806bc55"
"""Marks a directory as a cache that can be rebuilt (bford.info/cachedir)."""

_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Judge = Callable[[str, bool], str | None]
"""Returns the reason for omitting an entry, or None, given its path and if it is a directory."""


@attrs.define
class Tree:
    """The contents of a directory. Paths are relative to it, sorted by name.

    Attributes:
        files: Regular files.
        links: Symbolic links with their targets.
        directories: Directories without any listed file or directory below them.
        excluded: Omitted entries with the reasons; a directory includes everything below it.
        unarchivable: Entries whose name or link target an archive cannot contain, unescaped.
        unreadable: Entries that this process is not permitted to read; a directory includes
            everything below it.
    """

    files: list[str] = attrs.field(factory=list)
    links: list[tuple[str, str]] = attrs.field(factory=list)
    directories: list[str] = attrs.field(factory=list)
    excluded: list[tuple[str, str]] = attrs.field(factory=list)
    unarchivable: list[str] = attrs.field(factory=list)
    unreadable: list[str] = attrs.field(factory=list)


def file_opener(root: Path, path: str) -> Callable[[], int]:
    """Return a function that opens a regular file like :func:`open_file`."""
    return functools.partial(open_file, root, path)


def is_file(root: Path, path: str) -> bool:
    """Return whether a regular file exists.

    Args:
        root: A directory; its path is trusted.
        path: Path below ``root``; no link is followed.

    Raises:
        CheckpointError: The path cannot be examined.
    """
    try:
        os.close(open_file(root, path))
    except OSError as error:
        if error.errno in _NO_FILE:
            return False
        raise unreadable_error(root / path, error) from None
    return True


def read_head(root: Path, path: str, size: int) -> bytes:
    """Return the first ``size`` bytes of a regular file, or all of a shorter file.

    Raises:
        OSError: The file does not exist, is not regular, or cannot be read.
    """
    with os.fdopen(open_file(root, path), "rb") as file:
        return file.read(size)


def list_files(root: Path, path: str, unreadable: list[str] | None = None) -> tuple[str, ...]:
    """Return the regular files below a directory, relative to it; empty without the directory.

    Args:
        root: A directory; its path is trusted.
        path: Path of the directory below ``root``; no link is followed.
        unreadable: Receives the paths, below ``root``, of directories that this process is not
            permitted to read; None refuses them.

    Raises:
        CheckpointError: A directory cannot be read.
    """
    try:
        listing = walk(root, path, lambda _path, _is_directory: None, _is_conversation_name)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unreadable_error(root / path, error) from None
    if unreadable is not None:
        unreadable += [f"{path}/{entry}" for entry in listing.unreadable]
    elif listing.unreadable:
        raise forbidden_error(root / path / listing.unreadable[0])
    return tuple(listing.files)


def walk(root: Path, path: str, judge: Judge, is_name: Callable[[str], bool]) -> Tree:
    """List everything below a directory.

    Entries removed in the meantime are left out; new entries may be left out.

    Args:
        root: A directory; its path is trusted.
        path: Path of the directory below ``root``; no link is followed.
        judge: Returns the reason for omitting an entry, or None.
        is_name: Returns whether an archive can contain a path.

    Raises:
        OSError: The directory itself cannot be opened.
        CheckpointError: A directory below it cannot be read.
    """
    listing = _Listing(root / path, judge, is_name)
    with TreeWalk(open_directory(root, path), listing.leave) as listing.walk:
        listing.fill()
    return listing.tree


@attrs.define(eq=False)
class _Listing:
    """A tree while it is listed."""

    _top: Path
    _judge: Judge
    _is_name: Callable[[str], bool]
    walk: TreeWalk = attrs.field(init=False)
    tree: Tree = attrs.field(factory=Tree, init=False)
    _counts: list[int] = attrs.field(factory=list, init=False)

    def fill(self) -> None:
        """List all entries."""
        for entry in self.walk:
            path = self.walk.path_to(entry.name)
            try:
                self._list_entry(entry, path)
            except FileNotFoundError:
                pass
            except PermissionError:
                self.tree.unreadable.append(path)

    def _list_entry(self, entry: DirectoryEntry, path: str) -> None:
        is_directory = entry.kind == "directory"
        reason = self._judge(path, is_directory)
        if reason is not None:
            self.tree.excluded.append((path, reason))
        elif not self._is_name(path):
            self.tree.unarchivable.append(path)
        elif is_directory:
            self._enter(entry.name, path)
        elif entry.kind == "link":
            self._note_link(path, os.readlink(entry.name, dir_fd=self.walk.fd))
        elif entry.kind == "file":
            self.tree.files.append(path)
        else:
            status = os.stat(entry.name, dir_fd=self.walk.fd, follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            self.tree.excluded.append((path, _KINDS.get(kind, "not a regular file")))

    def _note_link(self, path: str, target: str) -> None:
        if names.is_encodable(target):
            self.tree.links.append((path, target))
        else:
            self.tree.unarchivable.append(path)

    def _enter(self, name: str, path: str) -> None:
        try:
            fd = self.walk.enter(name)
        except PermissionError:
            raise
        except OSError as error:
            if error.errno in _REPLACED:
                return
            raise unreadable_error(self._top / path, error) from None
        if _is_tagged_cache(fd):
            self.tree.excluded.append((path, "is marked as a cache"))
            self.walk.leave()
        else:
            self._counts.append(self._count())

    def leave(self, name: str) -> None:
        """List a directory if it has no listed entries."""
        if self._counts.pop() == self._count():
            self.tree.directories.append(self.walk.path_to(name))

    def _count(self) -> int:
        return len(self.tree.files) + len(self.tree.directories)


def _is_tagged_cache(directory: int) -> bool:
    try:
        fd = open_regular("CACHEDIR.TAG", dir_fd=directory)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as tag:
        return tag.read(len(_CACHE_SIGNATURE)) == _CACHE_SIGNATURE


def _is_conversation_name(path: str) -> bool:
    return names.is_name(f"agents/any/session/{path}")


def forbidden_error(path: Path) -> CheckpointError:
    """Return the error for a file or directory that this process is not permitted to read."""
    return unreadable_error(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def unreadable_error(path: Path, error: OSError) -> CheckpointError:
    """Return the error for a file or directory that cannot be read."""
    return CheckpointError(f"{path.name!a:.60} cannot be read: {error.strerror}", path=path)
