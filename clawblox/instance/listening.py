"""Detects from outside that a running world does not listen at its required address.

Before it is ready, a world may listen at a wrong address, because its program has a fixed port or
binds another address. Or a wrapper that does not exec keeps the socket that the world should
inherit. If the state can still change, it is reported as a warning and does not end the start.

Later, a program may close its port and continue, or a wrapper may continue after the end of its
server; in both cases there is no exit to wait for. One task, :func:`watch_listeners`, checks all
instances of an event loop with the same reading of the machine's sockets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

import anyio
import msgspec

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
"""Bind errors in the wording of C libraries, Go and Node."""
_PORT: Final = re.compile(r"(?:[:,] ?|\bport[ =])(\d{4,5})\b")
"""A port in such an error, after an address or the word ``port``."""
_SHOWN = 3
CHECK_INTERVAL_S = 1.0
"""Seconds between two checks of an instance that does not listen."""
LISTENING_INTERVAL = 5
"""Number of these intervals between two checks of an instance that listens."""
GONE_AFTER_S: Final = 10
"""Number of checks without a listener after which it counts as gone, about one per second. Time in
which this process was not running does not count."""


class Obstacle(msgspec.Struct, frozen=True):
    """A reason why a world is not ready.

    Attributes:
        text: The observation, as a sentence without its subject.
        hint: Instructions for the author of the world.
        is_final: Whether the world can no longer become ready.
    """

    text: str
    hint: str
    is_final: bool = False

    def __str__(self) -> str:
        return self.text


class NeverReady(Exception):  # noqa: N818 - names the condition; the caller raises the public error
    """A running world can no longer become ready.

    Args:
        obstacle: The reason.
    """

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.text)
        self.obstacle = obstacle


def find_in_use(port: int, log_lines: Iterable[str]) -> list[str]:
    """Return the log lines that report that this or an unnumbered port is in use."""
    return [line for line in log_lines if _IN_USE.search(line) and not _names_other(port, line)]


def _names_other(port: int, line: str) -> bool:
    ports = _PORT.findall(line)
    return bool(ports) and str(port) not in ports


def find_kept_socket(
    host: str, port: int, leader: int, processes: Iterable[Proc], log_lines: Sequence[str]
) -> Obstacle | None:
    """Return an obstacle if a wrapper keeps the socket that its world should inherit. Blocks.

    A wrapper sleeps until another process ends. It may still become the world, unless a program has
    failed to bind the port because the wrapper has it.

    Args:
        host: The address of the socket.
        port: Its port.
        leader: Pid of the process that received the socket.
        processes: Live processes, including the world's.
        log_lines: The last lines of the world's log.

    Raises:
        OSError: The processes cannot be examined, for lack of file descriptors.
    """
    children = [proc.pid for proc in processes if proc.ppid == leader]
    in_use = find_in_use(port, log_lines)
    is_waiting = bool(children) and waits_for_child(leader)
    # Programs other than shells also wait for more than their children, so require a bind error.
    if not is_waiting and not any(re.search(rf"\b{port}\b", line) for line in in_use):
        return None
    if not find_owners({listener.inode for listener in listeners_at(host, port)}, [leader]):
        return None
    parts = [f"its socket was handed to {describe_process(leader)}"]
    parts += [f"which waits for {describe_process(children[0])}"] if is_waiting else []
    parts += ["and a program failed to bind the port"] if in_use else []
    return Obstacle(", ".join(parts), EXEC_HINT, is_final=bool(in_use))


def find_elsewhere(host: str, port: int, leader: int, processes: Iterable[Proc]) -> Obstacle | None:
    """Return an obstacle if a world listens only at other addresses. Blocks.

    Args:
        host: The address that it must bind.
        port: The port that it must bind.
        leader: Pid of the world's first process. Processes outside its session do not count,
            because sidecars have their own ports.
        processes: Live processes, including the world's.

    Raises:
        OSError: The processes cannot be examined, for lack of file descriptors.
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


async def watch_listeners() -> None:
    """Check the listeners of all instances of this event loop, until cancelled.

    Each world runs this, and one of them at a time checks for all.

    Cancellation: waits for a running check.
    """
    await _current_listeners().check_repeatedly()


class _Listeners:
    """The watches of an event loop.

    Attributes:
        watches: The watches, each with the function that ends its wait.
    """

    def __init__(self) -> None:
        self.watches: dict[ListenerWatch, Callable[[], None]] = {}
        self._is_checking = anyio.Lock()

    async def check_repeatedly(self) -> None:
        """Check the watches until cancelled, while no other task does."""
        async with self._is_checking:
            for number in itertools.count():
                await anyio.sleep(CHECK_INTERVAL_S)
                with _log.contain("listeners not checked", expected=(OSError,)):
                    await self._check(is_for_all=number % LISTENING_INTERVAL == 0)

    async def _check(self, *, is_for_all: bool) -> None:
        due = [watch for watch in self.watches if is_for_all or watch.is_urgent]
        if not due:
            return
        by_port = await run_blocking(_read_listeners)
        for watch in due:
            if await watch.is_over(by_port.get(watch.port, ())) and watch in self.watches:
                self.watches[watch]()


def _read_listeners() -> dict[int, list[Listener]]:
    by_port: dict[int, list[Listener]] = {}
    for port, listener in every_listener():
        by_port.setdefault(port, []).append(listener)
    return by_port


_current_listeners = per_loop(_Listeners)
"""Returns the watches of all instances of this event loop."""


class ListenerWatch(msgspec.Struct, eq=False):
    """Watches the listening socket of an instance.

    Args:
        host: The address that it has bound.
        port: Its port.
        mark: Marks its processes.
        pid: The world's own process.
        is_proven: Whether the ownership of its socket was confirmed a moment ago.

    Attributes:
        is_urgent: Whether it was not listening at the last check, or was never checked.
    """

    host: str
    port: int
    mark: Mark
    pid: int
    is_proven: bool
    is_urgent: bool = True
    _is_visible: bool | None = None
    _misses: int = 0
    _defect: Exception | None = None
    _own: Collection[int] | None = None

    async def wait_gone(self, wait_exit: Callable[[], Awaitable[object]]) -> bool:
        """Wait until no process of the instance has listened for :data:`GONE_AFTER_S`.

        An instance whose sockets are invisible to this process, in another network namespace, never
        counts as gone unless its socket was seen before. :func:`watch_listeners` must be running.

        Args:
            wait_exit: Waits for the exit of the world; it is cancelled when the listener is gone.

        Returns:
            Whether the listener is gone; False if the world has ended.

        Raises:
            Exception: A defect in a check of this instance; the others are checked as before.

        Cancellation: has no effect.
        """
        watches = _current_listeners().watches
        with anyio.CancelScope() as scope:
            watches[self] = scope.cancel
            try:
                await wait_exit()
                return False
            finally:
                del watches[self]
        if self._defect is not None:
            raise self._defect
        return True

    async def is_over(self, listeners: Iterable[Listener]) -> bool:
        """Return whether the wait must end: the listener is gone, or its check has a defect.

        Args:
            listeners: The sockets that listen on the port now.
        """
        try:
            return await self._is_gone(listeners)
        except OSError as error:  # a lack of descriptors in this process, not a fault of the world
            _log.warning("listener not checked", error=str(error))
            return False
        except Exception as error:  # noqa: BLE001 - raised in the task of the instance
            self._defect = error
            return True

    async def _is_gone(self, listeners: Iterable[Listener]) -> bool:
        if self._is_visible is None:
            self._is_visible = self.is_proven or await run_blocking(can_list_sockets, self.pid)
        inodes = {listener.inode for listener in listeners if serves(listener, self.host)}
        has_listener = await self._owns(inodes)
        self._is_visible |= has_listener
        self._misses = 0 if has_listener or not self._is_visible else self._misses + 1
        self.is_urgent = self._misses > 0
        return self._misses > GONE_AFTER_S

    async def _owns(self, inodes: set[int]) -> bool:
        if not inodes:
            return False
        if self._own is None and self.is_proven:
            self._own = inodes
        elif self._own is None or inodes.isdisjoint(self._own):
            self._own = await run_blocking(self._find_own, inodes)
        return not inodes.isdisjoint(self._own)

    def _find_own(self, inodes: set[int]) -> Collection[int]:
        """Return the sockets that belong, or may belong, to the instance."""
        own = find_owners(inodes, find_members(self.mark)).keys()
        return own or inodes - find_owners(inodes, all_processes()).keys()
