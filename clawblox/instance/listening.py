"""Detects that a world listens at another address than the one it must bind.

Such a world is never ready: its program has a fixed port, or binds another address. It can still
bind the right port later, so this is a warning and does not end a start.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from clawblox import protocol
from clawblox.system.ports import connect_host, every_listener, find_owners, listeners_at
from clawblox.system.process_tree import Proc

_SHOWN = 3


@attrs.frozen
class Elsewhere:
    """Where a world listens, and where it must listen.

    Attributes:
        seen: Its addresses with their ports.
        expected: The address with the port that it must bind.
        hint: What its author has to do.
    """

    seen: tuple[str, ...]
    expected: str
    hint: str

    def __str__(self) -> str:
        more = ["…"] if len(self.seen) > _SHOWN else []
        return f"it listens on {', '.join([*self.seen[:_SHOWN], *more])} instead of {self.expected}"


def find_elsewhere(
    host: str, port: int, leader: int, processes: Iterable[Proc]
) -> Elsewhere | None:
    """Return where a world listens if that is only elsewhere. Blocks.

    Args:
        host: The address that it must bind.
        port: The port that it must bind.
        leader: Pid of the world's first process. What is not in its session does not count: a
            sidecar has ports of its own.
        processes: Live processes, the world's among them.

    Raises:
        OSError: They cannot be looked at, for lack of file descriptors.
    """
    listeners = {listener.inode: (listener.address, at) for at, listener in every_listener()}
    pids = [proc.pid for proc in processes if proc.session == leader]
    owned = find_owners(listeners, pids).keys()
    if not owned or owned & {listener.inode for listener in listeners_at(host, port)}:
        return None
    seen = sorted({listeners[inode] for inode in owned})
    address = connect_host(host)
    if any(at == port for _, at in seen):
        hint = f"a world must bind {protocol.HOST_ENV} ({address})"
    else:
        hint = f"a world must bind {protocol.PORT_ENV} ({port})"
    return Elsewhere(tuple(_join(*place) for place in seen), _join(address, port), hint)


def _join(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
