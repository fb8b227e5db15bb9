"""Detects from outside why a world that runs is not ready.

Either it listens at another address than the one it must bind: its program has a fixed port, or
binds another address. Or a wrapper that does not exec keeps the socket that the world should
inherit. What can still change is a warning and does not end a start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from clawblox import protocol
from clawblox.system.ports import (
    connect_host,
    describe_process,
    every_listener,
    find_owners,
    join_address,
    listeners_at,
)
from clawblox.system.process_tree import Proc, waits_for_child

EXEC_HINT: Final = (
    'with [run] listen = "inherit" only the process that the command starts can serve: a wrapper'
    ' has to end in exec, or the world needs listen = "bind"'
)
_IN_USE: Final = re.compile(r"address (is )?already in use|EADDRINUSE", re.IGNORECASE)
"""The error of a bind in the words of C libraries, Go and Node."""
_PORT: Final = re.compile(r"(?:[:,] ?|\bport[ =])(\d{4,5})\b")
"""A port in such an error, after its address or the word."""
_SHOWN = 3


@attrs.frozen
class Obstacle:
    """Why a world is not ready.

    Attributes:
        text: What was seen, a sentence without its subject.
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
    seen = [join_address(*place) for place in sorted({listeners[inode] for inode in owned})]
    shown = ", ".join([*seen[:_SHOWN], *(["…"] if len(seen) > _SHOWN else [])])
    address = connect_host(host)
    if any(listeners[inode][1] == port for inode in owned):
        hint = f"a world must bind {protocol.HOST_ENV} ({address})"
    else:
        hint = f"a world must bind {protocol.PORT_ENV} ({port})"
    return Obstacle(f"it listens on {shown} instead of {join_address(address, port)}", hint)
