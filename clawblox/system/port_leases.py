"""Port leases: a file of locks that all orchestrators of a user honour, one slot for each port.

A lease is a lock on the port's slot of one file, so that the kernel gives it back when its owner
is gone. The slot names the owner, for messages. The locks are open file description locks, see
fcntl(2): they belong to this process's descriptor, and not to every opener of the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
from pathlib import Path

from clawblox.system.files import LockOwner, make_private_dir, own_lock
from clawblox.system.regular_files import open_own

__all__ = ["LeaseFile", "leases"]

LEASE_ROOT = Path("/tmp")  # noqa: S108 - the directory in it is checked to be ours
"""One place for all orchestrators of a user, whatever ``TMPDIR`` says. Another user's lease is not
seen, but the port that it binds is.
"""

_SLOT_BYTES = 256
_FLOCK = struct.Struct("hhqqi0q")
"""``struct flock``: type, whence, start, length, pid."""


class LeaseFile:
    """The leases of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = -1
        self._held: set[int] = set()

    def take(self, port: int) -> bool:
        """Lease a port; return False when it is leased already, here or elsewhere.

        Raises:
            OSError: The file cannot be opened, or is not this user's.
        """
        with self._lock:
            self._open()
            try:
                if port in self._held or not self._set(port, fcntl.F_WRLCK):
                    return False
                self._held.add(port)
                self._write(port, " ".join(map(str, own_lock())))
                return True
            finally:
                self._close_unused()

    def release(self, port: int) -> None:
        """Give a port back; does nothing to one that is not leased here."""
        with self._lock:
            if port in self._held:
                self._held.remove(port)
                self._write(port, "")
                self._set(port, fcntl.F_UNLCK)
                self._close_unused()

    def owner(self, port: int) -> LockOwner | None:
        """Return the owner of a leased port; None if it is not readable.

        Raises:
            OSError: The file cannot be opened, or is not this user's.
        """
        with self._lock:
            self._open()
            try:
                text = os.pread(self._fd, _SLOT_BYTES, port * _SLOT_BYTES)
            finally:
                self._close_unused()
        return LockOwner.parse(text.rstrip(b"\0").decode(errors="replace"))

    def after_fork(self) -> None:
        """Drop the parent's leases in a forked child, which would hold them for ever."""
        self._lock = threading.Lock()
        self._held.clear()
        self._close_unused()

    def _close_unused(self) -> None:
        if self._fd >= 0 and not self._held:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        """Have the file open that others open too; the one opened before may have been removed."""
        home = f"{LEASE_ROOT}/clawblox-{os.getuid()}"
        path = f"{home}/leases"
        if self._fd >= 0 and _is_same(self._fd, path):
            return
        _require_private(home)
        old, self._fd = self._fd, open_own(path, os.O_RDWR | os.O_CREAT)
        for port in self._held:
            self._set(port, fcntl.F_WRLCK)
        if old >= 0:
            os.close(old)

    def _set(self, port: int, kind: int) -> bool:
        slot = _FLOCK.pack(kind, os.SEEK_SET, port * _SLOT_BYTES, _SLOT_BYTES, 0)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, slot)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def _write(self, port: int, text: str) -> None:
        data = text.encode()[:_SLOT_BYTES].ljust(_SLOT_BYTES, b"\0")
        os.pwrite(self._fd, data, port * _SLOT_BYTES)


leases = LeaseFile()
"""The leases of this process."""

os.register_at_fork(after_in_child=leases.after_fork)


def _require_private(home: str) -> None:
    make_private_dir(Path(home))
    found = os.lstat(home)
    if found.st_uid != os.getuid() or stat.S_ISLNK(found.st_mode):
        raise PermissionError(errno.EPERM, "made by another user", home)


def _is_same(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
