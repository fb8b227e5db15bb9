"""Files that are complete or absent: atomic, durable publishing, and private directories, locks.

The recipe: an exclusive private partial file in the destination's directory, fsync of the
file, link or rename, fsync of the directory. A rename alone is atomic against the death of
this process; the fsyncs make it durable against the loss of power. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import hashlib
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

from clawblox.system.clock import format_utc, utc_now
from clawblox.system.process_tree import is_same_process, read_start_time

__all__ = [
    "EXCHANGE",
    "NO_REPLACE",
    "LockOwner",
    "PartialFile",
    "digest_file",
    "fsync_directory",
    "has_digest",
    "lock_file",
    "lock_owner",
    "make_private_dir",
    "own_lock",
    "partial_name",
    "publish_bytes",
    "rename_with",
    "sweep_partials",
    "sync_file_system",
    "unlock_file",
    "write_all",
]

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700

_held_locks: set[int] = set()
_PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)-(?P<start>\d+)\.[0-9a-f]+\.partial")


class PartialFile:
    """A private file beside its destination, which becomes the destination or disappears.

    The name tells its owner (pid and start time), so that :func:`sweep_partials` can remove
    what a killed owner left.

    Args:
        directory: Where the destination will be; it must exist.
        stem: A word for the name, for whoever finds the file.

    Attributes:
        path: Where it is now.
        fd: Open descriptor for reading and writing.
    """

    def __init__(self, directory: Path, stem: str) -> None:
        self.path = directory / partial_name(stem)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self.path, flags, PRIVATE_FILE)
        self._is_there = True

    def publish(
        self,
        destination: Path,
        *,
        overwrite: bool,
        mode: int = PRIVATE_FILE,
        durable: bool = True,
    ) -> None:
        """Make it ``destination``.

        Args:
            destination: The final path, in the same directory.
            overwrite: Replace what is there; otherwise that is a FileExistsError.
            mode: Permissions of the published file.
            durable: Whether it must outlive a loss of power too; without, a rename alone
                makes it complete or absent for every living reader.

        Raises:
            FileExistsError: ``destination`` exists and ``overwrite`` is False.
            OSError: The file is not published; or, from the directory's fsync alone, it is
                complete but perhaps not durable.
        """
        os.fchmod(self.fd, mode)
        if durable:
            os.fsync(self.fd)
        if overwrite:
            self.path.replace(destination)
        else:
            os.link(self.path, destination)
            self.path.unlink()
        self._is_there = False
        if durable:
            fsync_directory(destination.parent)

    def close(self) -> None:
        """Close the descriptor and remove the partial file if it was not published."""
        try:
            os.close(self.fd)
        finally:
            if self._is_there:
                self.path.unlink(missing_ok=True)


def partial_name(stem: str) -> str:
    """Return a new name for what this process is writing, as :func:`sweep_partials` knows it.

    Args:
        stem: A word for the name, for those who find it.
    """
    return f".{stem}.{_identity(os.getpid())}.{secrets.token_hex(4)}.partial"


@functools.cache
def _identity(pid: int) -> str:
    return f"{pid}-{read_start_time(pid)}"


def publish_bytes(
    destination: Path, data: bytes, *, mode: int = PRIVATE_FILE, durable: bool = True
) -> None:
    """Write ``data`` to ``destination`` in one step, replacing what is there.

    Args:
        destination: The file.
        data: Its whole content.
        mode: Its permissions.
        durable: Whether it must outlive a loss of power too.

    Raises:
        OSError: As :meth:`PartialFile.publish` says.
    """
    partial = PartialFile(destination.parent, destination.name)
    try:
        write_all(partial.fd, data)
        partial.publish(destination, overwrite=True, mode=mode, durable=durable)
    finally:
        partial.close()


class LockOwner(NamedTuple):
    """Who holds a lock: its process, the machine, and since when (UTC)."""

    pid: int
    host: str
    since: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what a lock says of its owner; None when it says nothing."""
        try:
            pid, host, since = text.split()
            return cls(int(pid), host, since)
        except ValueError:
            return None


def own_lock() -> LockOwner:
    """Return what a lock that is taken now says of its owner."""
    return LockOwner(os.getpid(), os.uname().nodename, format_utc(utc_now()))


def lock_file(path: Path) -> int | None:
    """Take the lock that ``path`` stands for; it ends with :func:`unlock_file` or with us.

    Returns:
        An open descriptor, or None when another process (or another owner here) holds it.

    Raises:
        OSError: The file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        fd = os.open(path, flags, PRIVATE_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file(path, fd):
                os.ftruncate(fd, 0)
                os.pwrite(fd, " ".join(map(str, own_lock())).encode(), 0)
                _held_locks.add(fd)
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_file(path: Path, fd: int) -> bool:
    # The previous owner may have removed the file between our open and our lock.
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def unlock_file(path: Path, fd: int) -> None:
    """Give back a lock and remove its file; a forked child has no lock to give back."""
    if fd not in _held_locks:
        return
    _held_locks.remove(fd)
    try:
        path.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _drop_inherited_locks() -> None:
    # A fork shares the open file, and with it the lock: the child would hold it for ever.
    while _held_locks:
        with contextlib.suppress(OSError):
            os.close(_held_locks.pop())


os.register_at_fork(after_in_child=_drop_inherited_locks)


def lock_owner(path: Path) -> LockOwner | None:
    """Return what a lock file says of its owner, for a message; None when it says nothing."""
    try:
        return LockOwner.parse(path.read_text())
    except (OSError, ValueError):
        return None


def digest_file(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal. Blocks.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_digest(path: Path, digest: str) -> bool:
    """Say whether a file is there and has that SHA-256 digest. Blocks."""
    try:
        return digest_file(path) == digest
    except OSError:
        return False


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of ``data``; ``os.write`` alone may write less."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def make_private_dir(path: Path) -> Path:
    """Create ``path`` and its missing parents, each 0700 whatever the umask; return it.

    Raises:
        OSError: It cannot be made, or something else is there.
    """
    missing = itertools.takewhile(lambda one: not one.is_dir(), (path, *path.parents))
    for directory in reversed(tuple(missing)):
        try:
            directory.mkdir(mode=PRIVATE_DIR)
        except FileExistsError as error:
            if not directory.is_dir():  # else another process was faster
                reason = os.strerror(errno.ENOTDIR)
                raise NotADirectoryError(errno.ENOTDIR, reason, str(directory)) from error
        else:
            directory.chmod(PRIVATE_DIR)
    return path


def sweep_partials(directory: Path) -> None:
    """Remove the partial files and trees in ``directory`` whose owner does not live any more."""
    for entry in os.scandir(directory):
        found = _PARTIAL.fullmatch(entry.name)
        if found and not is_same_process(int(found["pid"]), int(found["start"])):
            # What cannot be removed, another user's for example, is in nobody's way.
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
                continue
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()


def fsync_directory(directory: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: They may not be.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- system calls that Python lacks: renameat2(2) and syncfs(2) ---------------------------------

NO_REPLACE: Final = 1
"""``RENAME_NOREPLACE``: a FileExistsError where something is already."""

EXCHANGE: Final = 2
"""``RENAME_EXCHANGE``: the two change places."""

_AT_FDCWD: Final = -100
_NO_FLAGS: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
"""How kernels, file systems and sandboxes say that they know no flags."""


def rename_with(
    flag: int,
    source: Path | str,
    destination: Path | str,
    *,
    source_dir: int = _AT_FDCWD,
    destination_dir: int = _AT_FDCWD,
) -> bool:
    """Rename in one step, as ``flag`` says. Blocks.

    Args:
        flag: :data:`NO_REPLACE` or :data:`EXCHANGE`.
        source: What is renamed.
        destination: Its new name.
        source_dir: Descriptor of the directory that a relative ``source`` is in.
        destination_dir: The same for ``destination``.

    Returns:
        False where the system cannot do it; then nothing has happened.

    Raises:
        OSError: It was not renamed.
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


def sync_file_system(fd: int) -> None:
    """Make durable all that was written to a file system: one wait, however many files. Blocks.

    Args:
        fd: Descriptor of anything on it.

    Raises:
        OSError: It may not be.
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
