"""Walks, moves and removes directory trees that a program or a stranger has made.

A tree may exceed Python's recursion limit and the maximum length of a path, so everything here is
iterative and opens each directory by its name in its open parent. Links are not followed, and
replacing a directory with a link does not redirect the walk. Only the deepest directories on the
way down stay open; the others are opened again from below, and must be the same.

Other modules do not recurse or call ``shutil.rmtree``, ``os.walk`` and the like. Everything here
blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from clawblox.system.regular_files import (
    OPEN_DIRECTORY,
    closing_fd,
    make_directory,
    open_directory,
)

MAX_DEPTH: Final = 100
"""Maximum depth of copied directories; programs rarely go deeper, and long paths cost memory."""

_MAX_OPEN: Final = 28
"""Maximum number of descriptors of one descent; a copy has two, and opens three more files."""

Kind: TypeAlias = Literal["directory", "file", "link", "other"]


class DirectoryEntry(NamedTuple):
    """An entry of a directory.

    Attributes:
        name: Name of the entry.
        kind: Kind of the entry when the directory was read; a file is a regular file.
    """

    name: str
    kind: Kind


class _Level:
    """A directory on the way down; ``identity`` is set while it is closed."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self.identity: tuple[int, int] | None = None


class Descent:
    """The way from the top of a tree down to a current directory; a context manager.

    Args:
        top: Descriptor of the top; it is closed at the end of the block.
    """

    def __init__(self, top: int) -> None:
        self._levels = [_Level("", top)]
        self._first_open = 1  # besides the top

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for level in (self._levels[0], *self._levels[self._first_open :]):
            os.close(level.fd)

    @property
    def fd(self) -> int:
        """Descriptor of the current directory, until it is left or another is entered."""
        return self._levels[-1].fd

    @property
    def depth(self) -> int:
        """Number of directories from the top, exclusive, to the current directory."""
        return len(self._levels) - 1

    @property
    def path(self) -> str:
        """Path of the current directory below the top, with ``/`` between components."""
        return "/".join(level.name for level in self._levels[1:])

    def enter(self, name: str) -> int:
        """Go down into a directory of the current one; return its descriptor.

        Raises:
            OSError: The entry cannot be opened, or is not a directory.
        """
        fd = os.open(name, OPEN_DIRECTORY, dir_fd=self.fd)
        self._levels.append(_Level(name, fd))
        if len(self._levels) - self._first_open > _MAX_OPEN:
            level = self._levels[self._first_open]
            level.identity = _identity(level.fd)
            os.close(level.fd)
            self._first_open += 1
        return fd

    def leave(self) -> str:
        """Go back up; return the name of the directory that was left.

        Raises:
            OSError: The directory was moved in the meantime.
        """
        left = self._levels.pop()
        try:
            if 0 < self.depth < self._first_open:
                self._reopen(left.fd)
        finally:
            os.close(left.fd)
        return left.name

    def _reopen(self, inner: int) -> None:
        level = self._levels[-1]
        fd = os.open("..", OPEN_DIRECTORY, dir_fd=inner)
        if _identity(fd) != level.identity:
            os.close(fd)
            raise OSError(errno.ESTALE, "was moved while a directory in it was read", level.name)
        level.fd, self._first_open = fd, self.depth


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class TreeWalk(Descent):
    """An iterator over the entries of a tree, sorted by name; a context manager.

    A directory is first returned as an entry of its parent. Its own entries follow if the loop
    enters the directory.

    Args:
        top: Descriptor of the top; it is closed at the end of the block.
        on_leave: Called with the name of each entered directory after all its entries were visited,
            while the current directory is its parent.
    """

    def __init__(self, top: int, on_leave: Callable[[str], object] = lambda _name: None) -> None:
        super().__init__(top)
        self._on_leave = on_leave
        self._pending: list[Iterator[DirectoryEntry]] = []
        self._prefix: str | None = ""

    def __enter__(self) -> Self:
        try:
            self._pending.append(iter(_list_entries(self.fd)))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __iter__(self) -> Iterator[DirectoryEntry]:
        return self

    def __next__(self) -> DirectoryEntry:
        """Return the next entry of the current directory, or of the nearest directory above it.

        Raises:
            OSError: A directory was moved in the meantime.
        """
        while True:
            for entry in self._pending[-1]:
                return entry
            if len(self._pending) == 1:
                raise StopIteration
            self._on_leave(self.leave())

    def enter(self, name: str) -> int:
        """Visit the entries of a directory next; return its descriptor.

        Raises:
            OSError: The entry cannot be opened or read, or is not a directory.
        """
        fd = super().enter(name)
        self._pending.append(iter(()))
        self._prefix = None
        try:
            self._pending[-1] = iter(_list_entries(fd))
        except BaseException:
            self.leave()
            raise
        return fd

    def leave(self) -> str:
        """Go back up, skipping entries that were not visited; return the name of the directory."""
        self._pending.pop()
        self._prefix = None
        return super().leave()

    def path_to(self, name: str) -> str:
        """Return the path of an entry of the current directory, below the top."""
        if self._prefix is None:
            self._prefix = f"{self.path}/" if self.depth else ""
        return self._prefix + name


def _list_entries(directory: int) -> list[DirectoryEntry]:
    with os.scandir(directory) as entries:
        return sorted(DirectoryEntry(entry.name, _kind(entry)) for entry in entries)


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    if entry.is_symlink():
        return "link"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


# -- permissions and sizes ------------------------------------------------------------------------


def make_writable(root: Path) -> None:
    """Let the owner read and change a directory, and all below it, while no program uses it.

    Raises:
        OSError: A directory cannot be read, or its permissions cannot be changed.
    """
    with TreeWalk(open_directory(root)) as walk:
        for entry in walk:
            if entry.kind == "directory":
                _unlock(entry.name, walk.fd)
                walk.enter(entry.name)


def _unlock(name: Path | str, dir_fd: int | None) -> None:
    """Let the owner read and change a directory; leave other entries unchanged."""
    mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode) or mode & stat.S_IRWXU == stat.S_IRWXU:
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing_fd(os.open(name, flags, dir_fd=dir_fd)) as fd:
        Path(f"/proc/self/fd/{fd}").chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


def tree_size(path: Path) -> int:
    """Return the apparent size of a file or link, or of everything in a directory, in bytes.

    Unreadable entries and the directories themselves do not count.
    """
    size = 0
    with contextlib.suppress(OSError):
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        with TreeWalk(os.open(path, OPEN_DIRECTORY)) as walk:
            for entry in walk:
                with contextlib.suppress(OSError):
                    if entry.kind == "directory":
                        walk.enter(entry.name)
                        continue
                    size += os.stat(entry.name, dir_fd=walk.fd, follow_symlinks=False).st_size
    return size


# -- moves ----------------------------------------------------------------------------------------


def merge_directory(root: Path, source: str, destination: str) -> None:
    """Move the content of a directory into another directory, keeping entries that exist there.

    Args:
        root: A directory; its own path is trusted.
        source: Path of the directory below ``root``, which is removed if it becomes empty.
        destination: Path of the other directory, which is created if it is missing.

    Raises:
        OSError: An entry cannot be moved; others may have been moved.
    """

    def leave(name: str) -> None:
        target.leave()
        _remove_empty(name, walk.fd)

    place, _, name = source.rpartition("/")
    with closing_fd(open_directory(root, place)) as parent:
        with (
            TreeWalk(os.open(name, OPEN_DIRECTORY, dir_fd=parent), leave) as walk,
            Descent(make_directory(root, destination)) as target,
        ):
            for entry in walk:
                _move(entry.name, walk, target)
        _remove_empty(name, parent)


def _move(name: str, source: TreeWalk, target: Descent) -> None:
    """Move an entry, or visit it if both are directories."""
    if not _exists(target.fd, name):
        os.rename(name, name, src_dir_fd=source.fd, dst_dir_fd=target.fd)
        return
    with contextlib.suppress(NotADirectoryError):
        target.enter(name)
        try:
            source.enter(name)
        except BaseException:
            target.leave()
            raise


def _remove_empty(name: str, directory: int) -> None:
    with contextlib.suppress(OSError):  # the entries that were not moved still exist
        os.rmdir(name, dir_fd=directory)


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


# -- removal --------------------------------------------------------------------------------------


def remove_tree(path: Path | str, *, dir_fd: int | None = None) -> None:
    """Remove a directory with everything below it.

    Read-only directories are made writable first. Entries that cannot be removed stay; everything
    else is removed.

    Args:
        path: The directory; not a link.
        dir_fd: Descriptor of the directory that a relative path is in.

    Raises:
        OSError: An entry cannot be removed; this is the first such error.
    """
    removal = _Removal()
    with removal.noting():
        _unlock(path, dir_fd)
    try:
        top = os.open(path, OPEN_DIRECTORY, dir_fd=dir_fd)
    except NotADirectoryError as error:
        raise NotADirectoryError(
            error.errno, "is a symbolic link, or not a directory", str(path)
        ) from None
    removal.empty(top)
    with removal.noting():
        os.rmdir(path, dir_fd=dir_fd)
    if removal.error is not None:
        raise removal.error


def discard_tree(path: Path | str, *, dir_fd: int | None = None) -> None:
    """Remove a directory like :func:`remove_tree`, ignoring entries that cannot be removed."""
    with contextlib.suppress(OSError):
        remove_tree(path, dir_fd=dir_fd)


class _Removal:
    """Removes entries, continuing after errors, and keeps the first error."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:  # another process was faster
            pass
        except OSError as error:
            self.error = self.error or error

    def empty(self, top: int) -> None:
        """Remove everything in an open directory, and close it."""

        def remove_left(name: str) -> None:
            with self.noting():
                os.rmdir(name, dir_fd=walk.fd)

        with TreeWalk(top, remove_left) as walk:
            for entry in walk:
                with self.noting():
                    if entry.kind == "directory":
                        _unlock(entry.name, walk.fd)
                        walk.enter(entry.name)
                    else:
                        os.unlink(entry.name, dir_fd=walk.fd)
