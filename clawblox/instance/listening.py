"""Detects from outside that a world which runs does not listen where it must.

Before it is ready, it may listen at another address than the one it must bind: its program has a
fixed port, or binds another address. Or a wrapper that does not exec keeps the socket that the
world should inherit. A state that can still change is a warning and does not end a start.

Later, a wrapper that waits for more than its server runs on when the server has ended, and so does
a program that has closed its port. Neither has an exit to wait for. All instances of an event loop
share each look at the sockets of this machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import anyio
import attrs

from clawblox import protocol
from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.health import find_members
from clawblox.system.ports import (
    connect_host,
    describe_process,
    every_listener,
    find_owners,
    join_address,
    listeners_at,
    serves,
)
from clawblox.system.process_tree import Mark, Proc, all_processes, waits_for_child
from clawblox.system.sock_diag import Listener, can_list_sockets
from clawblox.telemetry.own_log import OwnLog

EXEC_HINT: Final = (
    'with [run] listen = "inherit" only the process that the command starts can serve: a wrapper'
    ' has to end in exec, or the world needs listen = "bind"'
)
_log = OwnLog(__name__)

_IN_USE: Final = re.compile(r"address (is )?already in use|EADDRINUSE", re.IGNORECASE)
"""The error of a bind in the words of C libraries, Go and Node."""
_PORT: Final = re.compile(r"(?:[:,] ?|\bport[ =])(\d{4,5})\b")
"""A port in such an error, after its address or the word."""
_SHOWN = 3
LOOK_INTERVAL_S = 5.0
"""Seconds between two looks while the instance listens."""
GONE_INTERVAL_S = 1.0
"""Seconds between two looks while it does not."""
GONE_AFTER_S: Final = 10
"""Seconds without a listener after which it is gone, counted in looks: time in which this process
did not run does not count."""
_FRESH_S: Final = 0.5
"""Age in seconds up to which a look of another instance is good enough."""


@attrs.frozen
class Obstacle:
    """Why a world is not ready.

    Attributes:
        text: The observation, a sentence without its subject.
        hint: What the author of the world has to do.
        is_final: Whether the world can no longer become ready.
    """

    text: str
    hint: str
    is_final: bool = False

    def __str__(self) -> str:
        return self.text


class NeverReady(Exception):  # noqa: N818 - names the condition; the caller raises the public error
    """A world that runs can no longer become ready.

    Args:
        obstacle: The reason.
    """

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.text)
        self.obstacle = obstacle


def find_in_use(port: int, log_lines: Iterable[str]) -> list[str]:
    """Return the lines in which a program reports that a port, or one without number, is in use."""
    return [line for line in log_lines if _IN_USE.search(line) and not _names_other(port, line)]


def _names_other(port: int, line: str) -> bool:
    ports = _PORT.findall(line)
    return bool(ports) and str(port) not in ports


def find_kept_socket(
    host: str, port: int, leader: int, processes: Iterable[Proc], log_lines: Sequence[str]
) -> Obstacle | None:
    """Return that a wrapper keeps the socket which its world should inherit, if one does. Blocks.

    A wrapper sleeps until another process ends. It may yet become the world, unless a program has
    failed to bind meanwhile: in vain, because the wrapper has the port.

    Args:
        host: The address of the socket.
        port: Its port.
        leader: Pid of the process that the socket was handed to.
        processes: Live processes, the world's among them.
        log_lines: The last lines of the world's log.

    Raises:
        OSError: They cannot be looked at, for lack of file descriptors.
    """
    children = [proc.pid for proc in processes if proc.ppid == leader]
    in_use = find_in_use(port, log_lines)
    is_waiting = bool(children) and waits_for_child(leader)
    # Other programs than shells wait for more than their children; the port shows what failed.
    if not is_waiting and not any(re.search(rf"\b{port}\b", line) for line in in_use):
        return None
    if not find_owners({listener.inode for listener in listeners_at(host, port)}, [leader]):
        return None
    parts = [f"its socket was handed to {describe_process(leader)}"]
    parts += [f"which waits for {describe_process(children[0])}"] if is_waiting else []
    parts += ["and a program failed to bind the port"] if in_use else []
    return Obstacle(", ".join(parts), EXEC_HINT, is_final=bool(in_use))


def find_elsewhere(host: str, port: int, leader: int, processes: Iterable[Proc]) -> Obstacle | None:
    """Return where a world listens if that is only elsewhere. Blocks.

    Args:
        host: The address that it must bind.
        port: The port that it must bind.
        leader: Pid of the world's first process. A process outside its session does not count: a
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
    seen = [join_address(*place) for place in sorted({listeners[inode] for inode in owned})]
    shown = ", ".join([*seen[:_SHOWN], *(["…"] if len(seen) > _SHOWN else [])])
    address = connect_host(host)
    if any(listeners[inode][1] == port for inode in owned):
        hint = f"a world must bind {protocol.HOST_ENV} ({address})"
    else:
        hint = f"a world must bind {protocol.PORT_ENV} ({port})"
    return Obstacle(f"it listens on {shown} instead of {join_address(address, port)}", hint)


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


_current_listeners = per_loop(_Listeners)
"""Returns the listeners that all instances of this event loop look at."""


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
        """Wait until no process of the instance has listened for :data:`GONE_AFTER_S`.

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
