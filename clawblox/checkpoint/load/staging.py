"""Builds a tree in private, then moves it into place, completely or not at all.

The tree is built in a new directory next to its destination. All access uses directory descriptors,
so symbolic links cannot redirect it. The tree is made durable, then moved; it never replaces a
file. A published tree can be withdrawn in the same way. The next process removes the remains of a
killed process.

``load`` decides the contents. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self

import attrs

from clawblox.errors import CheckpointError, CheckpointPathError
from clawblox.errors.checkpoint import os_errors_as
from clawblox.system.files import (
    available_bytes,
    partial_name,
    rename_new,
    sync_file_system,
    write_all,
)
from clawblox.system.process_tree import is_same_process
from clawblox.system.regular_files import PRIVATE_DIR, closing_fd
from clawblox.system.trees import discard_tree

Parts = tuple[str, ...]

_LEFTOVER: Final = re.compile(r"\.load\.(?P<pid>\d+)-(?P<start>\d+)\.[0-9a-f]+\.partial")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@attrs.frozen
class Target:
    """The directory for a tree; it may be missing.

    Attributes:
        path: Its real path.
        base: Its nearest existing ancestor, or the directory itself.
        missing: The components from ``base`` to it.
    """

    path: Path
    base: Path
    missing: Parts

    @classmethod
    def at(cls, path: Path) -> Self:
        """Resolve ``path``.

        Raises:
            CheckpointError: The path is a symbolic link, or the path or an ancestor is not a
                directory.
        """
        path = path.absolute()
        try:
            nearest = _nearest(path)
            if not nearest.is_dir() or (nearest == path and path.is_symlink()):
                message = "a symbolic link, or something other than a directory, is in the way"
                raise CheckpointError(message, path=nearest)
            real = path.resolve()
            base = _nearest(real)
        except (OSError, RuntimeError) as error:  # a loop of links raises either error
            raise CheckpointError("the directory cannot be resolved", path=path) from error
        return cls(real, base, real.relative_to(base).parts)

    def free_bytes(self) -> int:
        """Return the number of free bytes on the target's file system.

        Raises:
            CheckpointError: The file system cannot be examined.
        """
        with os_errors_as("the directory cannot be examined", self.base):
            return available_bytes(self.base)


class Staging:
    """A tree under construction; a context manager that removes unpublished files.

    Disk errors are raised as CheckpointError, and leave the target unchanged.

    Args:
        target: The directory for the tree.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._made: set[Parts] = {()}
        self._moved: list[Parts] = []
        with self._translated(), contextlib.ExitStack() as stack:
            self._base_fd = os.open(target.base, _DIRECTORY)
            stack.callback(os.close, self._base_fd)
            _sweep(self._base_fd)
            self._name = partial_name("load")
            os.mkdir(self._name, PRIVATE_DIR, dir_fd=self._base_fd)
            stack.callback(discard_tree, self._name, dir_fd=self._base_fd)
            self._fd = os.open(self._name, _DIRECTORY, dir_fd=self._base_fd)
            stack.callback(os.close, self._fd)
            self._current: tuple[Parts | None, int] = (None, os.dup(self._fd))
            self._cleanup = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._current[1])
        self._cleanup.close()

    @contextlib.contextmanager
    def new_file(
        self, parts: Parts, *, mode: int, mtime_ns: int | None = None
    ) -> Iterator[Callable[[bytes], None]]:
        """Create a file; yield a function that writes to it.

        Args:
            parts: Its path in the target.
            mode: Its permissions.
            mtime_ns: Its modification time, in nanoseconds since 1970; None means now.

        Raises:
            CheckpointPathError: The path already exists on this file system.
        """
        with self._translated(parts):
            fd = os.open(parts[-1], _NEW_FILE, mode, dir_fd=self._directory(parts[:-1]))
        with closing_fd(fd):
            yield partial(self._write, fd)
            with self._translated(parts):
                os.fchmod(fd, mode)  # independent of the umask
                if mtime_ns is not None:
                    os.utime(fd, ns=(mtime_ns, mtime_ns))

    def remove_file(self, parts: Parts) -> None:
        """Remove a file from the tree before it is published.

        Raises:
            CheckpointError: The file cannot be removed.
        """
        with self._translated(parts):
            os.unlink(parts[-1], dir_fd=self._directory(parts[:-1]))

    def new_link(self, parts: Parts, target: str) -> None:
        """Create a symbolic link; no file is ever created through it.

        Raises:
            CheckpointPathError: As in :meth:`new_file`.
        """
        with self._translated(parts):
            os.symlink(target, parts[-1], dir_fd=self._directory(parts[:-1]))

    def new_directory(self, parts: Parts) -> None:
        """Create a directory if it is missing in the tree.

        Raises:
            CheckpointPathError: As in :meth:`new_file`.
        """
        with self._translated(parts):
            self._directory(parts)

    def refuse_existing(self, names: Sequence[Parts]) -> None:
        """Check that paths do not exist in the target.

        Args:
            names: Paths in the target, at most two components each.

        Raises:
            CheckpointError: A path already exists, or its parent is not a directory.
        """
        for parts in () if self._target.missing else names:
            with (
                self._translated(),
                contextlib.suppress(FileNotFoundError),
                self._parent(self._base_fd, parts) as fd,
            ):
                os.stat(parts[-1], dir_fd=fd, follow_symlinks=False)
                raise self._in_the_way(parts)

    def publish(self, names: Sequence[Parts]) -> None:
        """Make the tree durable, and move it to the target.

        A missing target appears with all its contents in a single step. Otherwise each path
        is moved; if a move fails, the earlier moves are undone.

        Args:
            names: Paths to move, as for :meth:`refuse_existing`.

        Raises:
            CheckpointError: A path already exists; the target is unchanged.
        """
        missing = self._target.missing
        with self._translated():
            sync_file_system(self._fd)
            moves = [missing[:1]] if missing else list(dict.fromkeys(map(self._topmost, names)))
            try:
                for parts in moves:
                    self._move(parts)
            except BaseException:
                self._take_back()
                raise

    def withdraw(self, names: Sequence[Parts]) -> None:
        """Remove paths from the target by moving them into this tree.

        Args:
            names: Paths to move, at most two components each; missing paths are skipped.

        Raises:
            CheckpointError: A path cannot be moved; the preceding paths are already removed.
        """
        for parts in names:
            with self._translated(parts), contextlib.suppress(FileNotFoundError):
                self.new_directory(parts[:-1])
                with self._parents(parts) as (staged, final):
                    rename_new(parts[-1], parts[-1], source_dir=final, destination_dir=staged)
                    os.fsync(final)

    def remove_empty(self, name: str) -> None:
        """Remove a directory of the target if it is empty."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self._base_fd)

    @contextlib.contextmanager
    def _translated(self, parts: Parts = ()) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            message = "the name of an entry collides with another name on this file system"
            raise CheckpointPathError(message, entry="/".join(parts)) from error
        except OSError as error:
            message = f"the checkpoint cannot be written: {error.strerror}"
            place = self._target.path.joinpath(*parts)
            raise CheckpointError(message, path=place) from error

    def _write(self, fd: int, data: bytes) -> None:
        with self._translated():
            write_all(fd, data)

    def _directory(self, parts: Parts) -> int:
        current, fd = self._current
        if parts == current:
            return fd
        fd = os.dup(self._fd)
        path = self._target.missing + parts
        try:
            for depth in range(len(path)):
                fd = self._enter(fd, path[: depth + 1])
        except BaseException:
            os.close(fd)
            raise
        os.close(self._current[1])
        self._current = (parts, fd)
        return fd

    def _enter(self, parent: int, path: Parts) -> int:
        """Open a subdirectory, after creating it if missing, and close its parent's descriptor."""
        if path not in self._made:
            os.mkdir(path[-1], PRIVATE_DIR, dir_fd=parent)
            self._made.add(path)
        fd = os.open(path[-1], _DIRECTORY, dir_fd=parent)
        os.close(parent)
        return fd

    def _topmost(self, parts: Parts) -> Parts:
        """Return the path to move for ``parts``; a missing parent is moved as a whole."""
        try:
            with self._parent(self._base_fd, parts):
                return parts
        except FileNotFoundError:
            return parts[:1]

    @contextlib.contextmanager
    def _parent(self, root: int, parts: Parts) -> Iterator[int]:
        """Open the parent directory of a path of at most two components."""
        if len(parts) == 1:
            yield root
            return
        try:
            fd = os.open(parts[0], _DIRECTORY, dir_fd=root)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            message = "something other than a directory is in the way"
            raise CheckpointError(message, path=self._place(parts[:1])) from error
        with closing_fd(fd):
            yield fd

    @contextlib.contextmanager
    def _parents(self, parts: Parts) -> Iterator[tuple[int, int]]:
        """Open the parent directories of a path in this tree and in the target."""
        with self._parent(self._fd, parts) as staged, self._parent(self._base_fd, parts) as final:
            yield staged, final

    def _move(self, parts: Parts) -> None:
        with self._parents(parts) as (staged, final):
            try:
                rename_new(parts[-1], parts[-1], source_dir=staged, destination_dir=final)
            except FileExistsError as error:
                raise self._in_the_way(parts) from error
            self._moved.append(parts)
            os.fsync(final)

    def _take_back(self) -> None:
        for parts in reversed(self._moved):
            with contextlib.suppress(OSError), self._parents(parts) as (staged, final):
                rename_new(parts[-1], parts[-1], source_dir=final, destination_dir=staged)

    def _in_the_way(self, parts: Parts) -> CheckpointError:
        return CheckpointError(
            "it already exists, and a load never replaces files",
            path=self._place(parts),
            hint="load into another run directory, or move it out of the way",
        )

    def _place(self, parts: Parts) -> Path:
        return self._target.base.joinpath(*parts)


def _nearest(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


def _sweep(base: int) -> None:
    """Remove the remains of loads whose process has ended."""
    for name in os.listdir(base):
        owner = _LEFTOVER.fullmatch(name)
        if owner and not is_same_process(int(owner["pid"]), int(owner["start"])):
            discard_tree(name, dir_fd=base)
