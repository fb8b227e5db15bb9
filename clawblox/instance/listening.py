"""Detects from outside why a world that runs is not ready.

Either it listens at another address than the one it must bind: its program has a fixed port, or
binds another address. Or a wrapper that does not exec keeps the socket that the world should
inherit. Both can still change, so they are warnings, and end no start by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs

from clawblox import protocol
from clawblox.system.ports import (
    connect_host,
    describe_process,
    every_listener,
    find_owners,
    listeners_at,
)
from clawblox.system.process_tree import Proc, waits_for_child

EXEC_HINT: Final = (
    'with [run] listen = "inherit" only the process that the command starts can serve: a wrapper'
    ' has to end in exec, or the world needs listen = "bind"'
)
_IN_USE: Final = re.compile(r"address (is )?already in use|EADDRINUSE", re.IGNORECASE)
"""The error of a bind in the words of C libraries, Go and Node."""
_SHOWN = 3


@attrs.frozen
class Obstacle:
    """Why a world is not ready.

    Attributes:
        text: What was seen, a sentence without its subject.
        hint: What the author of the world has to do.
        keeps_socket: Whether a wrapper keeps the socket of the world.
    """

    text: str
    hint: str
    keeps_socket: bool = False

    def __str__(self) -> str:
        return self.text


class SocketKept(Exception):  # noqa: N818 - names the condition; the caller raises the public error
    """A wrapper keeps the socket of a world that has failed to bind its port.

    Args:
        obstacle: What was seen.
    """

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.text)
        self.obstacle = obstacle


def find_obstacle(host: str, port: int, leader: int, processes: Iterable[Proc]) -> Obstacle | None:
    """Return why a world is not ready, as far as that can be seen. Blocks.

    Args:
        host: The address that it must bind.
        port: The port that it must bind.
        leader: Pid of the world's first process.
        processes: Live processes, the world's among them.

    Raises:
        OSError: They cannot be looked at, for lack of file descriptors.
    """
    expected = {listener.inode for listener in listeners_at(host, port)}
    processes = list(processes)
    if find_owners(expected, [leader]):
        return _find_wrapper(leader, processes)
    return _find_elsewhere(host, port, expected, leader, processes)


def is_in_use(log_lines: Iterable[str]) -> bool:
    """Return whether a program has reported that an address is in use."""
    return any(map(_IN_USE.search, log_lines))


def _find_wrapper(leader: int, processes: Iterable[Proc]) -> Obstacle | None:
    """Return that the leader, which has the socket, sleeps until another process ends."""
    children = [proc.pid for proc in processes if proc.ppid == leader]
    if not children or not waits_for_child(leader):
        return None
    wrapper, child = describe_process(leader), describe_process(children[0])
    text = f"its socket was handed to {wrapper}, which waits for {child}"
    return Obstacle(text, EXEC_HINT, keeps_socket=True)


def _find_elsewhere(
    host: str, port: int, expected: set[int], leader: int, processes: Iterable[Proc]
) -> Obstacle | None:
    """Return where a world listens if that is only elsewhere.

    What is not in the session of the leader does not count: a sidecar has ports of its own.
    """
    listeners = {listener.inode: (listener.address, at) for at, listener in every_listener()}
    pids = [proc.pid for proc in processes if proc.session == leader]
    owned = find_owners(listeners, pids).keys()
    if not owned or owned & expected:
        return None
    seen = [_join(*place) for place in sorted({listeners[inode] for inode in owned})]
    shown = ", ".join([*seen[:_SHOWN], *(["…"] if len(seen) > _SHOWN else [])])
    address = connect_host(host)
    if any(listeners[inode][1] == port for inode in owned):
        hint = f"a world must bind {protocol.HOST_ENV} ({address})"
    else:
        hint = f"a world must bind {protocol.PORT_ENV} ({port})"
    return Obstacle(f"it listens on {shown} instead of {_join(address, port)}", hint)


def _join(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
