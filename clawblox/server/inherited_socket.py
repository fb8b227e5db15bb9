"""A listening socket that the world was started with, as in sd_listen_fds(3).

The starting process binds and listens. No other process can then take the port, and clients that
connect early wait in the backlog. ``program`` serves on the socket, or binds one itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from clawblox.protocol import LISTEN_FD, LISTEN_FDNAMES_ENV, LISTEN_FDS_ENV, LISTEN_PID_ENV


def take_inherited_listener(environ: MutableMapping[str, str]) -> socket.socket | None:
    """Return the listening socket that this process was started with, or None.

    The variables are removed from ``environ`` and the descriptor is set to close on exec, so no
    child process mistakes the socket for its own. Variables for another process, from which
    this one inherited its environment, are ignored.

    Args:
        environ: The environment; changed in place.

    Raises:
        OSError: The descriptor is not open, or is not a socket.
        ValueError: ``LISTEN_FDS`` is not a number above 0, or the socket is not a listening
            TCP socket.
    """
    names = (LISTEN_PID_ENV, LISTEN_FDS_ENV, LISTEN_FDNAMES_ENV)
    pid, count, _ = (environ.pop(name, "").strip() for name in names)
    if pid != str(os.getpid()) or not count:
        return None
    if not count.isdecimal() or int(count) == 0:
        raise ValueError(f"{LISTEN_FDS_ENV} must be a number above 0, not {count!r}")
    listener = socket.socket(fileno=LISTEN_FD)
    listener.set_inheritable(False)
    if not _listens_for_tcp(listener):
        listener.close()
        raise ValueError("it is not a listening TCP socket")
    return listener


def _listens_for_tcp(candidate: socket.socket) -> bool:
    is_tcp = candidate.family in (socket.AF_INET, socket.AF_INET6) and (
        candidate.type == socket.SOCK_STREAM
    )
    return is_tcp and bool(candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
