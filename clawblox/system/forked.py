"""Sockets that a forked child must not keep: there they would outlive us, and clients would wait.

Programs that are started inherit none of them anyway.
"""

from __future__ import annotations

import os
import socket
import weakref

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_in_forked_child(owned: socket.socket) -> None:
    """Close a socket in each child that this process forks from now on."""
    _sockets.add(owned)


def _close_inherited() -> None:
    for inherited in list(_sockets):
        inherited.close()


os.register_at_fork(after_in_child=_close_inherited)
