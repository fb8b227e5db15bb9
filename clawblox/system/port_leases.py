"""Port leases: a file of locks that all orchestrators of a user honour, with a slot for each port.

A lease is a lock on the slot of its port, so the kernel releases it when its owner is gone. The
slot names the owner, for messages. The locks are open file description locks, see fcntl(2): they
belong to this process's descriptor rather than to every opener of the file.

A world may itself be an orchestrator and run its own world on the port that it was given. It claims
the port with the token of the lease, whose digest is in the slot, by locking the port's slot in the
next layer, which only one process can do. The original lease is unchanged.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import os
import secrets
import stat
import struct
import threading
from pathlib import Path

from clawblox.system.files import make_private_dir
from clawblox.system.locks import LockOwner, is_file_at, own_lock
from clawblox.system.regular_files import open_own

LEASE_ROOT = Path("/tmp")  # noqa: S108 - the directory in it is checked to be ours
"""Directory of the lease file, the same for all orchestrators of a user regardless of ``TMPDIR``.
Leases of other users are not visible, but their bound ports are.
"""

LEASE_RANGE = range(20000, 32000)
"""The ports that are leased."""

MAX_LEASES = len(LEASE_RANGE)
"""Number of instances that can run at the same time, since each has its own port."""

MAX_LAYERS = 8
"""Number of nested orchestrators that can share a port."""

_PORTS = 1 << 16
_TOKEN_BYTES = 32
_SLOT_BYTES = 256
_FLOCK = struct.Struct("hhqqi0q")
"""``struct flock``: type, whence, start, length, pid."""


class LeaseFile:
    """The leases of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = -1
        self._held: dict[int, int] = {}  # the layer of each port

    def take(self, port: int, given: str = "") -> str | None:
        """Lease a port; return the token of the lease, or None if the port is already leased.

        Args:
            port: The port.
            given: Token of a lease that another process passed on to this one, or empty.

        Raises:
            OSError: The file cannot be opened, or is not this user's.
        """
        with self._lock:
            self._open()
            try:
                layer = None if port in self._held else self._lock_layer(port, given)
                if layer is None:
                    return None
                self._held[port] = layer
                token = f"{layer}.{secrets.token_urlsafe(_TOKEN_BYTES)}"
                self._write(port, layer, " ".join((*map(str, own_lock()), _digest(token))))
                return token
            finally:
                self._close_unused()

    def _lock_layer(self, port: int, given: str) -> int | None:
        """Lock a slot of a port; return its layer, or None if this process may not lease it."""
        if self._set(port, 0, fcntl.F_WRLCK):
            return 0
        layer = next((n for n in range(MAX_LAYERS - 1) if given.startswith(f"{n}.")), None)
        if layer is None or not self._is_locked(port, layer):
            return None
        digest = self._read(port, layer).rpartition(" ")[2]
        is_given = hmac.compare_digest(digest.encode(), _digest(given).encode())
        return layer + 1 if is_given and self._set(port, layer + 1, fcntl.F_WRLCK) else None

    def release(self, port: int) -> None:
        """Release a port if this process has leased it."""
        with self._lock:
            if (layer := self._held.pop(port, None)) is not None:
                self._write(port, layer, "")
                self._set(port, layer, fcntl.F_UNLCK)
                self._close_unused()

    def owner(self, port: int) -> LockOwner | None:
        """Return the owner of a leased port; None if it is not readable.

        Raises:
            OSError: The file cannot be opened, or is not this user's.
        """
        with self._lock:
            self._open()
            try:
                text = self._read(port, 0)
            finally:
                self._close_unused()
        return LockOwner.parse(" ".join(text.split()[:3]))

    def after_fork(self) -> None:
        """Drop the parent's leases in a forked child, which would keep them locked forever."""
        self._lock = threading.Lock()
        self._held.clear()
        self._close_unused()

    def _close_unused(self) -> None:
        if self._fd >= 0 and not self._held:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        """Open the shared file again if the open file was removed."""
        home = f"{LEASE_ROOT}/clawblox-{os.getuid()}"
        path = f"{home}/leases"
        if self._fd >= 0 and is_file_at(path, self._fd):
            return
        make_private_dir(Path(home))
        found = os.lstat(home)
        if found.st_uid != os.getuid() or stat.S_ISLNK(found.st_mode):
            raise PermissionError(errno.EPERM, "made by another user", home)
        old, self._fd = self._fd, open_own(path, os.O_RDWR | os.O_CREAT)
        for port, layer in self._held.items():
            self._set(port, layer, fcntl.F_WRLCK)
        if old >= 0:
            os.close(old)

    def _set(self, port: int, layer: int, kind: int) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _pack_lock(port, layer, kind))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def _is_locked(self, port: int, layer: int) -> bool:
        """Return whether another process holds the lock of a slot."""
        found = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _pack_lock(port, layer, fcntl.F_WRLCK))
        return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)

    def _read(self, port: int, layer: int) -> str:
        text = os.pread(self._fd, _SLOT_BYTES, _offset(port, layer))
        return text.rstrip(b"\0").decode(errors="replace")

    def _write(self, port: int, layer: int, text: str) -> None:
        data = text.encode()[:_SLOT_BYTES].ljust(_SLOT_BYTES, b"\0")
        os.pwrite(self._fd, data, _offset(port, layer))


def _offset(port: int, layer: int) -> int:
    return (layer * _PORTS + port) * _SLOT_BYTES


def _pack_lock(port: int, layer: int, kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, _offset(port, layer), _SLOT_BYTES, 0)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


leases = LeaseFile()
"""The leases of this process."""

os.register_at_fork(after_in_child=leases.after_fork)
