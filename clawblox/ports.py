"""Ports: leases that all orchestrators of a machine honour, and who listens on a port.

A lease is a locked file; the lock dies with its owner. Ports are leased below the ephemeral
range, where no outgoing connection can take one by accident. Formats: proc(5), proc_net(5).
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread

from clawblox.files import lock_file, lock_owner, make_private_dir, unlock_file
from clawblox.proctree import all_processes, command_line

__all__ = [
    "Lease",
    "Listener",
    "NoFreePort",
    "PortBusy",
    "connect_host",
    "listeners_on",
    "owner_of",
    "owners_of",
    "take_free_port",
    "take_port",
    "wait_for_port",
]

LEASE_RANGE = range(20000, 32000)
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_POLL_INTERVAL_S = 0.05
_LISTEN = "0A"


class PortBusy(Exception):  # noqa: N818 - says the condition; the caller raises the public error
    """A port is leased or bound; ``owner`` says by whom, as far as it can be read."""

    def __init__(self, port: int, owner: str) -> None:
        super().__init__(f"port {port} is in use{f' by {owner}' if owner else ''}")
        self.port = port
        self.owner = owner


class NoFreePort(Exception):  # noqa: N818 - says the condition
    """Every port of the lease range is taken."""


class Lease:
    """A port that no other orchestrator takes until it is released."""

    def __init__(self, port: int, path: Path, fd: int) -> None:
        self.port = port
        self._path = path
        self._fd = fd

    def release(self) -> None:
        """Give the port back; a second call does nothing."""
        if self._fd >= 0:
            unlock_file(self._path, self._fd)
            self._fd = -1


class Listener(NamedTuple):
    """A listening TCP socket: its address in text and the inode that identifies it."""

    address: str
    inode: int


def take_port(host: str, port: int) -> Lease:
    """Lease ``port`` if nobody holds or binds it.

    Raises:
        PortBusy: Somebody does.
        OSError: ``host`` is not an address of this machine, or the port needs privileges.
    """
    path = _lease_dir() / str(port)
    fd = lock_file(path)
    if fd is None:
        pid = lock_owner(path)
        raise PortBusy(port, "" if pid is None else _describe(pid))
    try:
        _test_bind(host, port)
    except BaseException:
        unlock_file(path, fd)
        raise
    return Lease(port, path, fd)


def take_free_port(host: str) -> Lease:
    """Lease any free port, outside the ephemeral range where that leaves any.

    Raises:
        NoFreePort: There is none.
        OSError: ``host`` is not an address of this machine.
    """
    ephemeral = _ephemeral_range()
    candidates = [port for port in LEASE_RANGE if port not in ephemeral] or LEASE_RANGE
    # A random start keeps orchestrators apart and lets closed connections of a port age.
    for port in random.sample(candidates, len(candidates)):
        with contextlib.suppress(PortBusy):
            return take_port(host, port)
    raise NoFreePort(f"no free port in {LEASE_RANGE.start}..{LEASE_RANGE.stop - 1}")


async def wait_for_port(host: str, port: int, timeout: float) -> Lease:
    """Lease ``port``, waiting up to ``timeout`` seconds for it to become free.

    Raises:
        PortBusy: It did not.

    Cancellation: no lease is held.
    """
    deadline = anyio.current_time() + timeout
    while True:
        try:
            return await anyio.to_thread.run_sync(take_port, host, port)
        except PortBusy as busy:
            if anyio.current_time() >= deadline:
                raise PortBusy(port, busy.owner or await _find_owner(port)) from None
        await anyio.sleep(_POLL_INTERVAL_S)


async def _find_owner(port: int) -> str:
    return await anyio.to_thread.run_sync(owner_of, port)


def connect_host(host: str) -> str:
    """Return the literal address at which a world bound to ``host`` is reached."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)  # noqa: S104


def listeners_on(port: int) -> list[Listener]:
    """Return the sockets that listen on ``port``, IPv4 and IPv6."""
    return [listener for name in ("tcp", "tcp6") for listener in _parse_table(name, port)]


def owners_of(inodes: Iterable[int], pids: Iterable[int]) -> dict[int, int]:
    """Return ``{inode: pid}`` for those sockets that a process of ``pids`` has open."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, int] = {}
    for pid in pids:
        for target in _descriptor_targets(pid):
            if target in wanted:
                found[wanted[target]] = pid
        if len(found) == len(wanted):
            break
    return found


def owner_of(port: int) -> str:
    """Name the process that listens on ``port``, as ``pid 123 (command)``; '' if unreadable."""
    inodes = [listener.inode for listener in listeners_on(port)]
    owners = owners_of(inodes, all_processes()) if inodes else {}
    for pid in owners.values():
        return _describe(pid)
    return ""


def _lease_dir() -> Path:
    # One place for all orchestrators of this user, whatever TMPDIR says. Another user's
    # lease is not seen; its bound port is.
    return make_private_dir(Path("/tmp") / f"clawblox-{os.getuid()}" / "ports")  # noqa: S108


def _describe(pid: int) -> str:
    return f"pid {pid} ({command_line(pid)[:200]})"


def _test_bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: closed connections of the previous run do not count, listeners do.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortBusy(port, "") from None


def _ephemeral_range() -> range:
    first, last = _EPHEMERAL_RANGE.read_text().split()
    return range(int(first), int(last) + 1)


def _parse_table(name: str, port: int) -> Iterator[Listener]:
    try:
        rows = (Path("/proc/net") / name).read_text().splitlines()[1:]
    except OSError:
        return
    suffix = f":{port:04X}"
    for row in rows:
        fields = row.split()
        if fields[3] == _LISTEN and fields[1].endswith(suffix):
            yield Listener(_decode_address(fields[1].partition(":")[0]), int(fields[9]))


def _decode_address(text: str) -> str:
    # The kernel prints the address as 32-bit words in host byte order.
    raw = bytes.fromhex(text)
    words = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    text = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, words)
    return text.removeprefix("::ffff:")  # an IPv4 address that an IPv6 socket serves, as Java's do


def _descriptor_targets(pid: int) -> Iterator[str]:
    try:
        entries = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{entry}")  # noqa: PTH115
