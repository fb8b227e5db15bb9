"""Files that are complete or absent: atomic, durable publishing and private directories.

The recipe: an exclusive private partial file in the destination's directory, fsync of the file,
link or rename, fsync of the directory. A rename alone is atomic even if this process dies; the
fsyncs make it survive a loss of power. Everything here blocks.

Each start runs this code several times, so it uses ``os`` rather than ``pathlib``, whose overhead
would double the cost.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from clawblox.system.process_tree import is_same_process, read_start_time
from clawblox.system.regular_files import (
    PRIVATE_DIR,
    PRIVATE_FILE,
    closing_fd,
    digest_open,
    open_directory,
    open_regular,
    read_regular,
)

MAX_DIGEST_BYTES: Final = 64 << 30
"""Maximum size of a file whose digest is computed; a digest of this size takes about a minute."""

MAX_DATABASE_BYTES: Final = 4 << 30
"""Maximum apparent size of a copied database, and of its write-ahead log, in bytes."""

_PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)-(?P<start>\d+)\.[0-9a-f]+\.partial")


class PartialFile:
    """A private file next to its destination, which is published there or removed.

    The name contains the owner (pid and start time), so that :func:`sweep_partials` can remove the
    files of a killed owner.

    Args:
        directory: Directory of the destination; it must exist.
        stem: A word in the name, for people who see the file.

    Raises:
        OSError: The file cannot be created.

    Attributes:
        path: Path of the file until it is published.
        fd: Open descriptor for reading and writing.
    """

    def __init__(self, directory: Path | str, stem: str) -> None:
        self.path = os.path.join(directory, partial_name(stem))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self.path, flags, PRIVATE_FILE)
        self._is_there = True

    def publish(
        self,
        destination: Path | str,
        *,
        overwrite: bool,
        mode: int = PRIVATE_FILE,
        durable: bool = True,
    ) -> None:
        """Rename the file to ``destination``.

        Args:
            destination: The final path, in the same directory.
            overwrite: Whether to replace an existing file instead of raising a FileExistsError.
            mode: Permissions of the published file.
            durable: Whether the file must also survive a loss of power; a rename alone makes it
                complete or absent only for running processes.

        Raises:
            FileExistsError: ``destination`` exists and ``overwrite`` is False.
            OSError: The file is not published; or, if only the fsync of the directory failed, it is
                complete but perhaps not durable.
        """
        os.fchmod(self.fd, mode)
        if durable:
            os.fsync(self.fd)
        if overwrite:
            os.replace(self.path, destination)
        else:
            os.link(self.path, destination)
            os.unlink(self.path)
        self._is_there = False
        if durable:
            fsync_directory(os.path.dirname(destination) or ".")

    def close(self) -> None:
        """Close the descriptor and remove the partial file if it was not published.

        Raises:
            OSError: The file cannot be removed.
        """
        try:
            os.close(self.fd)
        finally:
            if self._is_there:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path)


def partial_name(stem: str) -> str:
    """Return a new name for a partial file or tree of this process; see :func:`sweep_partials`.

    Args:
        stem: A word in the name, for people who see the file.
    """
    return f".{stem}.{_identity(os.getpid())}.{secrets.token_hex(4)}.partial"


@functools.cache
def _identity(pid: int) -> str:
    return f"{pid}-{read_start_time(pid)}"


def publish_bytes(
    destination: Path | str, data: bytes, *, mode: int = PRIVATE_FILE, durable: bool = True
) -> None:
    """Write ``data`` to ``destination`` atomically, replacing an existing file.

    Args:
        destination: The file.
        data: The whole content.
        mode: Permissions of the file.
        durable: Whether the file must also survive a loss of power.

    Raises:
        OSError: The file is not published, or perhaps not durable; see :meth:`PartialFile.publish`.
    """
    with contextlib.closing(PartialFile(*os.path.split(destination))) as partial:
        write_all(partial.fd, data)
        partial.publish(destination, overwrite=True, mode=mode, durable=durable)


@contextlib.contextmanager
def partial_tree(parent: Path, stem: str) -> Iterator[Path]:
    """Provide a private directory for the block, removed afterwards unless it was published.

    Args:
        parent: An existing directory in the file system of the destination.
        stem: A word in the name, for people who see the directory, which :func:`sweep_partials`
            also finds.

    Raises:
        OSError: The directory cannot be created.
    """
    from clawblox.system.trees import discard_tree  # few commands make a tree

    partial = parent / partial_name(stem)
    os.mkdir(partial, PRIVATE_DIR)
    try:
        yield partial
    finally:
        discard_tree(partial)


def publish_tree(partial: Path, destination: Path) -> None:
    """Rename a complete directory to its destination, atomically and durably.

    Raises:
        FileExistsError: ``destination`` exists.
        OSError: The directory is not published, or perhaps not durable.
    """
    with closing_fd(open_directory(partial)) as fd:
        sync_file_system(fd)
    rename_new(partial, destination)
    fsync_directory(destination.parent)


def publish_changed(destination: Path | str, data: bytes, *, durable: bool = True) -> None:
    """Write ``data`` to ``destination`` atomically unless the file already has this content.

    Args:
        destination: The file; a link in its place is replaced, not followed.
        data: The whole content.
        durable: Whether the file must also survive a loss of power.

    Raises:
        OSError: As for :func:`publish_bytes`.
    """
    with contextlib.suppress(OSError):
        if read_regular(destination, max_bytes=len(data)) == data:
            return
    publish_bytes(destination, data, durable=durable)


def digest_file(
    path: Path,
    *,
    max_bytes: int = MAX_DIGEST_BYTES,
    check: Callable[[], object] = lambda: None,
) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal.

    Args:
        path: The file.
        max_bytes: Maximum apparent size in bytes; by default 64 GiB.
        check: Called for each mebibyte; ends the call by raising an error.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger.
    """
    with closing_fd(open_regular(path, max_bytes=max_bytes)) as fd:
        return digest_open(fd, max_bytes=max_bytes, check=check)


def has_digest(
    path: Path,
    digest: str,
    *,
    max_bytes: int = MAX_DIGEST_BYTES,
    check: Callable[[], object] = lambda: None,
) -> bool:
    """Return whether a file exists and has that SHA-256 digest; see :func:`digest_file`."""
    try:
        return digest_file(path, max_bytes=max_bytes, check=check) == digest
    except InterruptedError:  # of ``check``
        raise
    except OSError:
        return False


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of ``data``, unlike ``os.write``, which may write less.

    Raises:
        OSError: The data cannot be written; a part may have been written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_all_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at an offset of a file that is not open for appending.

    Raises:
        OSError: The data cannot be written; a part may have been written.
    """
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def memory_file(name: str, content: bytes) -> int:
    """Return a descriptor of a file in memory with the given content, positioned at its start.

    The kernel creates such files with an executable mode.

    Raises:
        OSError: No descriptor or no memory is available.
    """
    descriptor = os.memfd_create(name)
    try:
        write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def make_private_dir(path: Path) -> Path:
    """Create ``path`` and its missing parents, each 0700 regardless of the umask; return it.

    Raises:
        OSError: The directory cannot be created, or another kind of entry has its name.
    """
    missing = []
    directory = os.fspath(path)
    while not _is_dir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory) or "."
    for directory in reversed(missing):
        try:
            os.mkdir(directory, PRIVATE_DIR)
        except FileExistsError as error:
            if not _is_dir(directory):  # otherwise another process was faster
                reason = os.strerror(errno.ENOTDIR)
                raise NotADirectoryError(errno.ENOTDIR, reason, directory) from error
        else:
            os.chmod(directory, PRIVATE_DIR)
    return path


def read_size(path: Path) -> int:
    """Return the apparent size of a file in bytes; 0 if it is missing."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _is_dir(path: str) -> bool:
    """Return whether a directory exists; an invalid name is an error."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def find_partials(directory: Path) -> Iterator[Path]:
    """Yield the partial files and trees in ``directory`` whose owner has ended.

    Raises:
        OSError: The directory cannot be read.
    """
    for entry in os.scandir(directory):
        found = _PARTIAL.fullmatch(entry.name)
        if found and not is_same_process(int(found["pid"]), int(found["start"])):
            yield Path(entry.path)


def sweep_partials(directory: Path) -> None:
    """Remove the partial files and trees in ``directory`` whose owner has ended.

    Raises:
        OSError: The directory cannot be read.
    """
    for path in find_partials(directory):
        # A file that cannot be removed, such as another user's, is harmless.
        if path.is_dir() and not path.is_symlink():
            from clawblox.system.trees import discard_tree  # few find one

            discard_tree(path)
            continue
        with contextlib.suppress(OSError):
            os.unlink(path)


def is_below(path: Path, directory: Path) -> bool:
    """Return whether a path is in a directory after all links are resolved. Blocks.

    Args:
        path: The path, which need not exist.
        directory: The directory, which counts as being below itself.
    """
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def available_bytes(directory: Path | str) -> int:
    """Return the number of bytes that an unprivileged process can still write below a directory.

    Raises:
        OSError: The directory cannot be inspected.
    """
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def fsync_directory(directory: Path | str) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: The names may not be durable.
    """
    with closing_fd(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        os.fsync(fd)


# -- system calls that Python lacks: renameat2(2) and syncfs(2) ---------------------------------

NO_REPLACE: Final = 1
"""``RENAME_NOREPLACE``: raise a FileExistsError if the destination exists."""

EXCHANGE: Final = 2
"""``RENAME_EXCHANGE``: exchange source and destination."""

_AT_FDCWD: Final = -100
_NO_FLAGS: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
"""Errors of kernels, file systems and sandboxes that do not support the flags."""


def rename_with(
    flag: int,
    source: Path | str,
    destination: Path | str,
    *,
    source_dir: int = _AT_FDCWD,
    destination_dir: int = _AT_FDCWD,
) -> bool:
    """Rename atomically, with a flag of renameat2(2).

    Args:
        flag: :data:`NO_REPLACE` or :data:`EXCHANGE`.
        source: The file or directory.
        destination: The new name.
        source_dir: Descriptor of the directory that a relative ``source`` is in.
        destination_dir: Descriptor of the directory that a relative ``destination`` is in.

    Returns:
        True; False if the system does not support the flag, without any change.

    Raises:
        OSError: The source was not renamed.
    """
    renameat2 = _libc("renameat2")
    if renameat2 is None:
        return False
    names = source_dir, os.fsencode(source), destination_dir, os.fsencode(destination)
    if renameat2(*names, flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_FLAGS:
        return False
    raise OSError(code, os.strerror(code), str(destination))


def rename_new(
    source: Path | str,
    destination: Path | str,
    *,
    source_dir: int = _AT_FDCWD,
    destination_dir: int = _AT_FDCWD,
) -> None:
    """Rename to an unused name, atomically if the system supports it.

    Args:
        source: The file or directory.
        destination: The new name.
        source_dir: Descriptor of the directory that a relative ``source`` is in.
        destination_dir: Descriptor of the directory that a relative ``destination`` is in.

    Raises:
        FileExistsError: ``destination`` exists.
        OSError: The source was not renamed.
    """
    places = {"source_dir": source_dir, "destination_dir": destination_dir}
    if rename_with(NO_REPLACE, source, destination, **places):
        return
    with contextlib.suppress(FileNotFoundError):
        os.stat(destination, dir_fd=destination_dir, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(destination))
    os.rename(source, destination, src_dir_fd=source_dir, dst_dir_fd=destination_dir)


def sync_file_system(fd: int) -> None:
    """Make all writes to a file system durable, with a single wait for any number of files.

    Args:
        fd: Descriptor of any file on the file system.

    Raises:
        OSError: The writes may not be durable.
    """
    syncfs = _libc("syncfs")
    if syncfs is None:
        os.sync()
    elif syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@functools.cache
def _libc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)
