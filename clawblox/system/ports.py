"""Leases free ports, and finds the processes that listen on a port.

Ports are leased below the ephemeral range, so that outgoing connections do not use them by
accident. ``port_leases`` shares the leases among orchestrators; ``sock_diag`` queries the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.printable import printable_name
from clawblox.protocol import LEASE_ENV
from clawblox.system.port_leases import LEASE_RANGE, leases
from clawblox.system.process_tree import all_processes, command_line
from clawblox.system.sock_diag import ANY_PORT, Listener, list_listeners

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_POLL_INTERVAL_S = 0.05
_BACKLOG = 128
_MAX_COMMAND_CHARS = 200

_FAMILIES = (socket.AF_INET, socket.AF_INET6)


class PortBusy(Exception):  # noqa: N818 - names the condition; the caller raises the public error
    """A port is leased or bound.

    Args:
        port: The port.
        owner: The process that uses the port, as ``pid 123 (command)``; '' if unreadable.
    """

    def __init__(self, port: int, owner: str) -> None:
        super().__init__(f"port {port} is in use{f' by {owner}' if owner else ''}")
        self.port = port
        self.owner = owner


class NoFreePort(Exception):  # noqa: N818 - names the condition
    """Every port of the lease range is taken."""


class PortLease:
    """A port that other orchestrators do not take until it is released.

    Attributes:
        port: The port.
        token: Lets the world on the port lease it again if the world is itself an orchestrator.
    """

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token
        self._is_held = True

    def release(self) -> None:
        """Release the port. Idempotent."""
        if self._is_held:
            self._is_held = False
            leases.release(self.port)


def take_port(host: str, port: int) -> PortLease:
    """Lease ``port`` if it is free, or if the orchestrator of this process passed it on.

    Args:
        host: The address to which the port will be bound.
        port: The port.

    Raises:
        PortBusy: The port is leased or bound.
        OSError: ``host`` is not an address of this machine, or the port needs privileges.
    """
    token = leases.take(port, os.environ.get(LEASE_ENV, ""))
    if token is None:
        owner = leases.owner(port)
        raise PortBusy(port, "" if owner is None else describe_process(owner.pid))
    lease = PortLease(port, token)
    try:
        _bind(host, port).close()
    except BaseException:
        lease.release()
        raise
    return lease


def take_free_port(host: str, *, first: int = 0) -> PortLease:
    """Lease any free port, outside the ephemeral range if possible.

    Args:
        host: The address to which the port will be bound.
        first: The port to try first; 0 for no preference.

    Raises:
        NoFreePort: All ports are taken.
        OSError: ``host`` is not an address of this machine.
    """
    for port in itertools.chain([first] if first else [], _candidates()):
        with contextlib.suppress(PortBusy):
            return take_port(host, port)
    raise NoFreePort(f"no free port in {LEASE_RANGE.start}..{LEASE_RANGE.stop - 1}")


def _candidates() -> Iterator[int]:
    """Yield the ports of the lease range from a random start, so orchestrators rarely collide."""
    ephemeral = ephemeral_range()
    leaves_none = LEASE_RANGE[0] in ephemeral and LEASE_RANGE[-1] in ephemeral
    count = len(LEASE_RANGE)
    first = secrets.randbelow(count)  # the caller may have seeded ``random``
    for offset in range(count):
        port = LEASE_RANGE[(first + offset) % count]
        if leaves_none or port not in ephemeral:
            yield port


async def wait_for_port(host: str, port: int, timeout: float) -> PortLease:
    """Lease ``port``, waiting for it to become free.

    Args:
        host: The address to which the port will be bound.
        port: The port.
        timeout: Time to wait, in seconds.

    Raises:
        PortBusy: The port did not become free in time.
        OSError: ``host`` is not an address of this machine, or the port needs privileges.

    Cancellation: no lease is held.
    """
    deadline = anyio.current_time() + timeout
    while True:
        try:
            return await run_blocking(take_port, host, port)
        except PortBusy as busy:
            if anyio.current_time() >= deadline:
                owner = busy.owner or await run_blocking(describe_owner, port)
                raise PortBusy(port, owner) from None
        await anyio.sleep(_POLL_INTERVAL_S)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a leased port, for a world to inherit.

    Raises:
        PortBusy: A process that does not use leases took the port in the meantime.
        OSError: ``host`` is not an address of this machine.
    """
    listener = _bind(host, port)
    listener.listen(_BACKLOG)
    return listener


def connect_host(host: str) -> str:
    """Return the literal address at which a world bound to ``host`` is reached."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)  # noqa: S104


def join_address(host: str, port: int) -> str:
    """Return host and port in the form of a URL, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listeners_on(port: int) -> list[Listener]:
    """Return the sockets that listen on ``port``, IPv4 and IPv6.

    Raises:
        OSError: The sockets cannot be looked up, for lack of file descriptors.
    """
    return [found for family in _FAMILIES for found in _query_listeners(family, port)]


def listeners_at(host: str, port: int) -> list[Listener]:
    """Return the sockets that serve connections to ``host`` and ``port``.

    Raises:
        OSError: The sockets cannot be looked up, for lack of file descriptors.
    """
    address = connect_host(host)
    if ":" not in address:
        # An IPv4 socket has precedence over an IPv6 socket that would serve IPv4 too.
        listeners = _query_listeners(socket.AF_INET, port, address, "0.0.0.0")  # noqa: S104
        if listeners:
            return listeners
    return _query_listeners(socket.AF_INET6, port, address, "::")


def serves(listener: Listener, host: str) -> bool:
    """Return whether a socket may serve connections to ``host``."""
    address = connect_host(host)
    wildcards = ("::",) if ":" in address else ("0.0.0.0", "::")  # noqa: S104
    return listener.address in (address, *wildcards)


def every_listener() -> list[tuple[int, Listener]]:
    """Return all listening sockets, IPv4 and IPv6, as (port, listener).

    Raises:
        OSError: The sockets cannot be looked up, for lack of file descriptors.
    """
    return [found for family in _FAMILIES for found in list_listeners(family, ANY_PORT)]


def _query_listeners(family: socket.AddressFamily, port: int, *serving: str) -> list[Listener]:
    """Return the listeners on a port, limited to the given addresses if there are any."""
    listeners = [listener for at, listener in list_listeners(family, port) if at == port]
    return [found for found in listeners if not serving or found.address in serving]


def find_owners(inodes: Iterable[int], pids: Iterable[int]) -> dict[int, int]:
    """Return ``{inode: pid}`` for the sockets that a process of ``pids`` has open.

    Raises:
        OSError: The processes cannot be inspected, for lack of file descriptors.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, int] = {}
    for pid in pids:
        for target in _descriptor_targets(pid):
            if target in wanted:
                found[wanted[target]] = pid
        if len(found) == len(wanted):
            break
    return found


def describe_owner(port: int) -> str:
    """Return the process that listens on ``port`` as ``pid 123 (command)``; '' if unreadable.

    Raises:
        OSError: The processes cannot be inspected, for lack of file descriptors.
    """
    inodes = [listener.inode for listener in listeners_on(port)]
    owners = find_owners(inodes, all_processes()) if inodes else {}
    for pid in owners.values():
        return describe_process(pid)
    return ""


def describe_process(pid: int) -> str:
    """Return a process as ``pid 123 (command)``, the command shortened.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    return f"pid {pid} ({printable_name(command_line(pid)[:_MAX_COMMAND_CHARS])})"


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # As servers do, so that only listeners block the port, not closed connections.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortBusy(port, "") from None
    return bound


@functools.cache
def ephemeral_range() -> range:
    """Return the ports that the kernel gives to outgoing connections; see ip(7). Blocks.

    Raises:
        OSError: The range cannot be read.
    """
    first, last = _EPHEMERAL_RANGE.read_text().split()
    return range(int(first), int(last) + 1)


def _descriptor_targets(pid: int) -> Iterator[str]:
    try:
        entries = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return  # after any other error, sockets may still exist
    for entry in entries:
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{entry}")  # noqa: PTH115
