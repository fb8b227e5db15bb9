"""TCP sockets from the kernel's lists: the listeners on a port, and the user of a connection.

A query of the kernel's index, sock_diag(7), takes the same time for any number of sockets. The
tables in ``/proc/net`` list every connection; they are read only if a sandbox forbids queries of
the index. Formats: sock_diag(7), linux/inet_diag.h, proc_net(5).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ANY_PORT: Final = 0
"""Matches every port."""

_LISTEN = "0A"
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 0x1
_NLM_F_DUMP = 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_TCP_LISTEN = 10
_EVERY_STATE = 0xFFFFFFFF
_NO_COOKIE = b"\xff" * 8
_ANSWER_BYTES = 1 << 16
_NETLINK_HEADER = struct.Struct("=IHHII")
_DIAG_REQUEST = struct.Struct("=BBHI48s")
_SOCKET_ID = struct.Struct("!HH16s16s4x8s")
_DIAG_MESSAGE = struct.Struct("=4x48s12xII")
_ERROR_CODE = struct.Struct("=i")


class Listener(NamedTuple):
    """A listening TCP socket, with its address as text and its identifying inode."""

    address: str
    inode: int


class _Socket(NamedTuple):
    """A socket in the kernel's description."""

    port: int
    source: bytes
    peer_port: int
    peer: bytes
    uid: int
    inode: int


def has_sock_diag() -> bool:
    """Return whether the kernel's index of sockets can be queried."""
    try:
        next(_ask_listeners(socket.AF_INET, ANY_PORT), None)
    except OSError:
        return False
    return True


def can_list_sockets(pid: int) -> bool:
    """Return whether this process can list the sockets in another process's network. Blocks.

    The other process may be in another network namespace, and a sandbox may forbid the listing.
    """
    try:
        is_same = os.path.samefile(f"/proc/{pid}/ns/net", "/proc/self/ns/net")  # noqa: PTH121
    except OSError:
        return False
    return is_same and has_sock_diag()


def list_listeners(family: socket.AddressFamily, port: int) -> list[tuple[int, Listener]]:
    """Return (port, listener) of listening sockets.

    Args:
        family: IPv4 or IPv6.
        port: The port; listeners of other ports may be returned too. :data:`ANY_PORT` for all.

    Raises:
        OSError: The sockets cannot be looked up, for lack of file descriptors.
    """
    try:
        return list(_ask_listeners(family, port))
    except OSError:
        rows = _read_table("tcp6" if family == socket.AF_INET6 else "tcp")
        return [_parse_listener(fields) for fields in rows if fields[3] == _LISTEN]


def peer_uid(connection: socket.socket) -> int | None:
    """Return the user whose process made a connection from this machine over IPv4.

    The kernel is queried once, without waiting.

    Args:
        connection: The accepted connection.

    Returns:
        The user's id; None if the other end is no longer open in any process.

    Raises:
        OSError: The index cannot be queried; use :func:`read_peer_uid`.
    """
    peer, own = _end(connection.getpeername()), _end(connection.getsockname())
    request = _SOCKET_ID.pack(peer[1], own[1], peer[0], own[0], _NO_COOKIE)
    try:
        found = next(_ask(socket.AF_INET, _EVERY_STATE, request, _NLM_F_REQUEST))
    except OSError as error:
        if error.errno == errno.ENOENT and has_sock_diag():
            return None
        raise
    # If the connection is gone, the kernel describes a socket that listens on its port.
    ends = (found.source[:4], found.port), (found.peer[:4], found.peer_port)
    # If no process has it open, it has no inode, and the kernel names root as its user.
    return found.uid if ends == (peer, own) and found.inode else None


def read_peer_uid(connection: socket.socket) -> int | None:
    """Return the user as :func:`peer_uid` does, from the table of all connections. Blocks.

    Raises:
        OSError: The table cannot be read.
    """
    wanted = [_print_end(*_end(end())) for end in (connection.getpeername, connection.getsockname)]
    rows = (row for row in _read_table("tcp") if row[1:3] == wanted and row[9] != "0")
    return next((int(row[7]) for row in rows), None)


def _end(address: tuple[str, int]) -> tuple[bytes, int]:
    return socket.inet_aton(address[0]), address[1]


def _print_end(address: bytes, port: int) -> str:
    # The kernel prints the address as a 32-bit word in host byte order.
    return f"{int.from_bytes(address, sys.byteorder):08X}:{port:04X}"


def _ask_listeners(family: socket.AddressFamily, port: int) -> Iterator[tuple[int, Listener]]:
    """Yield (port, listener) of a family from the kernel's index.

    The kernel answers with the listeners of the requested port; for port 0, with all listeners.
    """
    request = port.to_bytes(2).ljust(48, b"\0")
    for found in _ask(family, 1 << _TCP_LISTEN, request, _NLM_F_REQUEST | _NLM_F_DUMP):
        raw = found.source if family == socket.AF_INET6 else found.source[:4]
        yield found.port, Listener(_address(raw), found.inode)


def _ask(
    family: socket.AddressFamily, states: int, socket_id: bytes, flags: int
) -> Iterator[_Socket]:
    request = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, states, socket_id)
    header = _NETLINK_HEADER.pack(
        _NETLINK_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, flags, 0, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.setblocking(False)  # the answer is ready once the request has been sent
        kernel.send(header + request)
        while True:
            answer = kernel.recv(_ANSWER_BYTES)
            while answer:
                length, kind = _NETLINK_HEADER.unpack_from(answer)[:2]
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    code = -_ERROR_CODE.unpack_from(answer, _NETLINK_HEADER.size)[0]
                    raise OSError(code, f"sock_diag: {os.strerror(code)}")
                yield _parse_message(answer[_NETLINK_HEADER.size : length])
                answer = answer[(length + 3) & ~3 :]
            if not flags & _NLM_F_DUMP:
                return


def _parse_message(message: bytes) -> _Socket:
    socket_id, uid, inode = _DIAG_MESSAGE.unpack_from(message)
    port, peer_port, source, peer, _ = _SOCKET_ID.unpack(socket_id)
    return _Socket(port, source, peer_port, peer, uid, inode)


def _read_table(name: str) -> Iterator[list[str]]:
    try:
        rows = (Path("/proc/net") / name).read_text().splitlines()[1:]
    except (FileNotFoundError, PermissionError):
        return  # after any other error, sockets may still listen
    for row in rows:
        yield row.split()


def _parse_listener(fields: Sequence[str]) -> tuple[int, Listener]:
    address, _, port = fields[1].partition(":")
    # The kernel prints the address as 32-bit words in host byte order.
    words = bytes.fromhex(address)
    raw = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    return int(port, 16), Listener(_address(raw), int(fields[9]))


def _address(raw: bytes) -> str:
    text = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return text.removeprefix("::ffff:")  # an IPv4 address served by an IPv6 socket, as in Java
