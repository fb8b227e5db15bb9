"""Watches whether an instance that was ready still listens on its port.

A wrapper that waits for more than its server lives on when the server has ended, and so does a
program that has closed its port. Neither has an exit to wait for. All instances of an event loop
share each look at the sockets of this machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import anyio
import attrs

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.health import find_members
from clawblox.system.ports import every_listener, find_owners, serves
from clawblox.system.process_tree import Mark, all_processes
from clawblox.system.sock_diag import Listener, can_list_sockets
from clawblox.telemetry.own_log import OwnLog

LOOK_INTERVAL_S = 5.0
"""Seconds between two looks while the instance listens."""
GONE_INTERVAL_S = 1.0
"""Seconds between two looks while it does not."""
GONE_AFTER_S: Final = 10
"""Seconds without a listener after which it is gone, counted in looks: time in which this process
did not run does not count."""
_FRESH_S: Final = 0.5
"""Age in seconds up to which a look of another instance is good enough."""

_log = OwnLog(__name__)


class _Listeners:
    """The listening sockets of this machine, read once for the instances that look together."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._read_at = -math.inf
        self._by_port: dict[int, list[Listener]] = {}

    async def at(self, host: str, port: int) -> set[int]:
        """Return the inodes of the sockets that serve connections to ``host`` and ``port``.

        Raises:
            OSError: They cannot be looked up, for lack of file descriptors.
        """
        async with self._lock:
            if anyio.current_time() - self._read_at >= _FRESH_S:
                self._by_port = await run_blocking(_read_listeners)
                self._read_at = anyio.current_time()
        listeners = self._by_port.get(port, ())
        return {listener.inode for listener in listeners if serves(listener, host)}


def _read_listeners() -> dict[int, list[Listener]]:
    by_port: dict[int, list[Listener]] = {}
    for port, listener in every_listener():
        by_port.setdefault(port, []).append(listener)
    return by_port


def _time_until_shared(interval_s: float, now: float) -> float:
    """Return the time until the next look but half an interval, which all instances share."""
    left_s = interval_s - now % interval_s
    return left_s if left_s > interval_s / 2 else left_s + interval_s


@per_loop
def _current_listeners() -> _Listeners:
    """Return the listeners that all instances of this event loop look at."""
    return _Listeners()


@attrs.define
class ListenerWatch:
    """Watches the listening socket of one instance.

    Args:
        host: The address that it has bound.
        port: Its port.
        mark: Marks its processes.
        pid: Its own process.
        is_proven: Whether its socket was found to be its own a moment ago.
    """

    host: str
    port: int
    mark: Mark
    pid: int
    is_proven: bool
    _own: Collection[int] | None = attrs.field(default=None, init=False)

    async def wait_gone(self) -> None:
        """Wait until nothing of the instance has listened for :data:`GONE_AFTER_S`.

        An instance whose sockets this process may not see, because they are in another network
        namespace, never counts as gone unless its socket was seen before.

        Cancellation: has no effect.
        """
        is_visible = self.is_proven or await run_blocking(can_list_sockets, self.pid)
        misses = 0
        while misses <= GONE_AFTER_S:
            try:
                has_listener = await self._has_listener()
            except OSError as error:  # our lack of descriptors is no fault of the world
                _log.warning("listener not looked for", error=str(error))
            else:
                is_visible |= has_listener
                misses = 0 if has_listener or not is_visible else misses + 1
            interval_s = GONE_INTERVAL_S if misses else LOOK_INTERVAL_S
            await anyio.sleep(_time_until_shared(interval_s, anyio.current_time()))

    async def _has_listener(self) -> bool:
        inodes = await _current_listeners().at(self.host, self.port)
        if not inodes:
            return False
        if self._own is None and self.is_proven:
            self._own = inodes
        elif self._own is None or inodes.isdisjoint(self._own):
            self._own = await run_blocking(self._find_own, inodes)
        return not inodes.isdisjoint(self._own)

    def _find_own(self, inodes: set[int]) -> Collection[int]:
        """Return the sockets of the instance among new ones; an owner that is unreadable may be."""
        own = find_owners(inodes, find_members(self.mark)).keys()
        return own or inodes - find_owners(inodes, all_processes()).keys()
