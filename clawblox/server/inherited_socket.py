"""A listening socket that the world was started with: the convention of sd_listen_fds(3).

Whoever starts the world binds and listens, so the world has no port to lose to another
process and whoever connects early waits in the backlog. Serving on the socket, and binding
where there is none, is for ``launch``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from clawblox.protocol import LISTEN_FD, LISTEN_FDNAMES_ENV, LISTEN_FDS_ENV, LISTEN_PID_ENV

__all__ = ["take_inherited_listener"]


def take_inherited_listener(environ: MutableMapping[str, str]) -> socket.socket | None:
    """Return the listening socket that this process was started with; None when there is none.

    The variables are taken *out* of ``environ`` and the descriptor is closed on exec, so that
    no child process takes the socket for its own. Variables that are meant for another
    process, which passed its environment on to this one, are not followed.

    Args:
        environ: The environment.

    Raises:
        OSError: The descriptor is not open, or not a socket.
        ValueError: The count of descriptors is no number, or the socket does not listen for
            TCP connections.
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
        raise ValueError("it is not a TCP socket that listens")
    return listener


def _listens_for_tcp(candidate: socket.socket) -> bool:
    is_tcp = candidate.family in (socket.AF_INET, socket.AF_INET6) and (
        candidate.type == socket.SOCK_STREAM
    )
    return is_tcp and bool(candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
