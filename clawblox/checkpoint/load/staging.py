"""A tree that is built in private and then appears in its place, or never existed.

It grows in its own directory beside its destination. Everything goes through directory
descriptors, so no symbolic link leads it elsewhere, and every name in it is new. It is made
durable and then moved, and nothing is ever replaced. What has appeared can be taken
back the same way. What a killed owner left is removed by the next one.

What stands in the tree is for ``load`` to decide. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self

import attrs

from clawblox.errors import CheckpointError, CheckpointPathError
from clawblox.system.files import (
    NO_REPLACE,
    available_bytes,
    partial_name,
    rename_with,
    sync_file_system,
    write_all,
)
from clawblox.system.process_tree import is_same_process
from clawblox.system.regular_files import PRIVATE_DIR

Parts = tuple[str, ...]

_LEFTOVER: Final = re.compile(r"\.load\.(?P<pid>\d+)-(?P<start>\d+)\.[0-9a-f]+\.partial")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@attrs.frozen
class Target:
    """The directory that a tree is to stand in, whether or not it is there yet.

    Attributes:
        path: Its real path.
        base: The nearest directory on the way to it that is there; itself when it is.
        missing: The components from ``base`` to it.
    """

    path: Path
    base: Path
    missing: Parts

    @classmethod
    def at(cls, path: Path) -> Self:
        """Look where ``path`` is.

        Raises:
            CheckpointError: It is a symbolic link; or something else than a directory is
                there, or on the way to it.
        """
        path = path.absolute()
        try:
            nearest = _nearest(path)
            if not nearest.is_dir() or (nearest == path and path.is_symlink()):
                message = "a symbolic link, or something else than a directory, is in the way"
                raise CheckpointError(message, path=nearest)
            real = path.resolve()
            base = _nearest(real)
        except (OSError, RuntimeError) as error:  # a loop of links is one or the other
            raise CheckpointError("the directory cannot be found", path=path) from error
        return cls(real, base, real.relative_to(base).parts)

    def free_bytes(self) -> int:
        """Return how many bytes can be written there.

        Raises:
            CheckpointError: That cannot be told.
        """
        try:
            return available_bytes(self.base)
        except OSError as error:
            message = f"the directory cannot be looked at: {error.strerror}"
            raise CheckpointError(message, path=self.base) from error


class Staging:
    """A tree under construction; a context manager that removes what was not published.

    What the disk refuses is a CheckpointError in all of it, and nothing was changed.

    Args:
        target: Where the tree is to stand.
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
            stack.callback(shutil.rmtree, self._name, ignore_errors=True, dir_fd=self._base_fd)
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
        """Make a file; what it gives writes to it.

        Args:
            parts: Its path in the target.
            mode: Its permissions.
            mtime_ns: When it was changed, in nanoseconds since 1970; None leaves that to be now.

        Raises:
            CheckpointPathError: The path is taken already on this file system.
        """
        with self._translated(parts):
            fd = os.open(parts[-1], _NEW_FILE, mode, dir_fd=self._directory(parts[:-1]))
        try:
            yield partial(self._write, fd)
            with self._translated(parts):
                os.fchmod(fd, mode)  # whatever the umask is
                if mtime_ns is not None:
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(fd)

    def new_link(self, parts: Parts, target: str) -> None:
        """Make a symbolic link, which nothing can be made through.

        Raises:
            CheckpointPathError: As :meth:`new_file` says.
        """
        with self._translated(parts):
            os.symlink(target, parts[-1], dir_fd=self._directory(parts[:-1]))

    def new_directory(self, parts: Parts) -> None:
        """Make a directory unless it has been made.

        Raises:
            CheckpointPathError: As :meth:`new_file` says.
        """
        with self._translated(parts):
            self._directory(parts)

    def refuse_existing(self, names: Sequence[Parts]) -> None:
        """Refuse to take a place that is taken.

        Args:
            names: What is to appear in the target, each at most one directory down.

        Raises:
            CheckpointError: One of them is there already, or what should be its directory is
                something else.
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
        """Make the tree durable, and let it appear in the target.

        A target that is missing appears with all that is in it, in one step. Otherwise each of
        ``names`` does; when one cannot, those before it are taken back.

        Args:
            names: What is to appear in the target: what :meth:`refuse_existing` was asked for.

        Raises:
            CheckpointError: One of them is there already; nothing was changed.
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
        """Move what stands in the target into the tree, with which it disappears.

        Args:
            names: What is moved, each at most one directory down; what is not there is passed over.

        Raises:
            CheckpointError: Something cannot be moved; what came before it is gone.
        """
        for parts in names:
            with self._translated(parts), contextlib.suppress(FileNotFoundError):
                self.new_directory(parts[:-1])
                with (
                    self._parent(self._fd, parts) as staged,
                    self._parent(self._base_fd, parts) as final,
                ):
                    _rename(final, staged, parts[-1])
                    os.fsync(final)

    def remove_empty(self, name: str) -> None:
        """Remove a directory of the target, unless there is something in it."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self._base_fd)

    @contextlib.contextmanager
    def _translated(self, parts: Parts = ()) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            message = "the name of an entry collides with another one on this file system"
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
        """Exchange the descriptor of a directory for that of one in it, made if it is new."""
        if path not in self._made:
            os.mkdir(path[-1], PRIVATE_DIR, dir_fd=parent)
            self._made.add(path)
        fd = os.open(path[-1], _DIRECTORY, dir_fd=parent)
        os.close(parent)
        return fd

    def _topmost(self, parts: Parts) -> Parts:
        """Return what has to be moved for ``parts`` to appear: a missing directory as a whole."""
        try:
            with self._parent(self._base_fd, parts):
                return parts
        except FileNotFoundError:
            return parts[:1]

    @contextlib.contextmanager
    def _parent(self, root: int, parts: Parts) -> Iterator[int]:
        """Open the directory of what has at most one above it."""
        if len(parts) == 1:
            yield root
            return
        try:
            fd = os.open(parts[0], _DIRECTORY, dir_fd=root)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            message = "something else than a directory is in the way"
            raise CheckpointError(message, path=self._place(parts[:1])) from error
        try:
            yield fd
        finally:
            os.close(fd)

    def _move(self, parts: Parts) -> None:
        with (
            self._parent(self._fd, parts) as staged,
            self._parent(self._base_fd, parts) as final,
        ):
            try:
                _rename(staged, final, parts[-1])
            except FileExistsError as error:
                raise self._in_the_way(parts) from error
            self._moved.append(parts)
            os.fsync(final)

    def _take_back(self) -> None:
        for parts in reversed(self._moved):
            with (
                contextlib.suppress(OSError),
                self._parent(self._fd, parts) as staged,
                self._parent(self._base_fd, parts) as final,
            ):
                _rename(final, staged, parts[-1])

    def _in_the_way(self, parts: Parts) -> CheckpointError:
        return CheckpointError(
            "it is there already, and a load replaces nothing",
            path=self._place(parts),
            hint="load into another run directory, or move it out of the way",
        )

    def _place(self, parts: Parts) -> Path:
        return self._target.base.joinpath(*parts)


def _nearest(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


def _sweep(base: int) -> None:
    """Remove what loads left whose process is gone."""
    for name in os.listdir(base):
        found = _LEFTOVER.fullmatch(name)
        if found and not is_same_process(int(found["pid"]), int(found["start"])):
            shutil.rmtree(name, ignore_errors=True, dir_fd=base)


def _rename(source: int, destination: int, name: str) -> None:
    """Move ``name`` from one directory to another that has no such name."""
    if rename_with(NO_REPLACE, name, name, source_dir=source, destination_dir=destination):
        return
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=destination, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    os.rename(name, name, src_dir_fd=source, dst_dir_fd=destination)
