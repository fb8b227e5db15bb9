"""Starts small Python programs that serve only this process.

A helper runs as ``python -I -S`` with an empty environment, in its own session, so that Ctrl-C on
the terminal does not reach it. Its standard input is the channel to this process. The helper ends
when the channel is closed or this process ends. Standard library only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal  # noqa: TID251 - a helper ignores signals meant for its parent, and is killed by it
import socket
import sys
import threading
import weakref
from collections.abc import Collection, Iterable
from pathlib import Path

from clawblox.system.process_tree import open_same, parse_identity

_LEAVE_BEHIND = (
    '{ env -i "PATH=$PATH" "$@" <&3 3<&- >/dev/null & } 3<&0; '
    'read -r stat </proc/$!/stat && echo "$stat"'
)
"""Shell command that starts a program with its standard input and prints ``/proc/<pid>/stat``."""


MESSAGE_BYTES = 256 << 10
"""Buffer size that exceeds the kernel's limit for one message."""


def spawn_detached(
    name: str, function: str, *arguments: str, channel: int, paths: Iterable[str]
) -> int:
    """Spawn a helper that is not a child of this process; return its pidfd. Blocks for an instant.

    A program that kills the children of this process does not find the helper. The shell that
    spawns the helper ends immediately, so the helper's parent is the nearest subreaper, usually PID
    1.

    Args:
        name: Word in the helper's command line that identifies it in a process list.
        function: The function to call, as ``module:function``.
        *arguments: Arguments of that call.
        channel: Descriptor that becomes the helper's standard input.
        paths: Directories to import from, in addition to the standard library.

    Raises:
        OSError: The helper cannot be spawned, or ended immediately.
    """
    os.stat(sys.executable)  # noqa: PTH116 - a shell could only report that it has ended
    command = python_command(name, function, arguments, paths)
    shell = ["/bin/sh", "-c", _LEAVE_BEHIND, name, *command]
    read_end, write_end = os.pipe()
    try:
        middle = _spawn(shell, channel, write_end, None)
        with contextlib.suppress(ChildProcessError):  # other code may reap every child
            os.waitid(os.P_PID, middle, os.WEXITED)
        os.set_blocking(read_end, False)
        pidfd = open_same(*parse_identity(os.read(read_end, 4096)))
    except BlockingIOError:
        pidfd = None
    finally:
        os.close(read_end)
        os.close(write_end)
    if pidfd is None:
        raise ProcessLookupError(f"{name} ended immediately")
    return pidfd


def python_command(
    name: str, function: str, arguments: Iterable[str], paths: Iterable[str]
) -> list[str]:
    """Return the command of an isolated interpreter that calls a function.

    Args:
        name: Word in the command line that identifies the process in a process list.
        function: The function, as ``module:function``.
        arguments: Arguments of the call.
        paths: Directories to import from, in addition to the standard library.
    """
    module, _, call = function.partition(":")
    boot = (
        f"import sys; sys.path += {list(paths)!r}; "
        f"from {module} import {call}; {call}(*sys.argv[2:])"
    )
    return [sys.executable, "-I", "-S", "-c", boot, name, *arguments]


def _spawn(command: list[str], channel: int, output: int | None, errors: int | None) -> int:
    return os.posix_spawn(
        command[0],
        command,
        {"PATH": os.defpath},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, channel, 0),
            _redirect(1, output),
            _redirect(2, errors),
        ],
        setsid=True,
    )


def _redirect(standard: int, descriptor: int | None) -> tuple[int | str, ...]:
    if descriptor is None:
        return (os.POSIX_SPAWN_OPEN, standard, os.devnull, os.O_WRONLY, 0)
    return (os.POSIX_SPAWN_DUP2, descriptor, standard)


def import_paths(*packages: str) -> list[str]:
    """Return the directories of packages that a helper imports; missing packages are skipped."""
    specs = filter(None, map(importlib.util.find_spec, packages))
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec.origin))


class HelperLost(Exception):  # noqa: N818 - names the condition
    """A helper ended, or was interrupted, before it answered.

    Args:
        had_answered: Whether the helper had sent a message before.
    """

    def __init__(self, *, had_answered: bool) -> None:
        super().__init__("a helper process ended before it answered")
        self.had_answered = had_answered


class HelperProcess:
    """A helper with its message socket, which ends at :meth:`end` or with this process.

    Args:
        name: Word in the helper's command line that identifies it in a process list.
        function: The function to call, as ``module:function``; standard input is the socket, and
            the first argument is the pid of this process.
        *arguments: Further arguments of that call.
        paths: Directories to import from, in addition to the standard library.
        output: Descriptor that becomes standard output; None discards the output.
        errors: Descriptor that becomes standard error; None discards the errors.

    Raises:
        OSError: The helper cannot be spawned.

    Attributes:
        name: Name of the helper.
        pid: Pid of the helper.
        channel: The socket.
        has_answered: Whether the helper has sent a message.
    """

    def __init__(
        self,
        name: str,
        function: str,
        *arguments: str,
        paths: Iterable[str],
        output: int | None = None,
        errors: int | None = None,
    ) -> None:
        self.name = name
        self.has_answered = False
        self.channel, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = python_command(name, function, [str(os.getpid()), *arguments], paths)
        try:
            with far_end:
                self.pid = _spawn(command, far_end.fileno(), output, errors)
        except OSError:
            self.channel.close()
            raise
        _helpers.add(self)

    def send(self, message: bytes, *descriptors: int) -> None:
        """Send a message with open files. Blocks while the helper is busy.

        Raises:
            HelperLost: The helper ended.
        """
        try:
            socket.send_fds(self.channel, [message], descriptors)
        except OSError as error:
            raise HelperLost(had_answered=self.has_answered) from error

    def receive(self) -> bytes:
        """Return the next message. Blocks until it arrives.

        Raises:
            HelperLost: The helper ended, or was interrupted.
        """
        try:
            message = self.channel.recv(MESSAGE_BYTES)
        except OSError:  # it ended with an unread request
            message = b""
        if not message:
            raise HelperLost(had_answered=self.has_answered)
        self.has_answered = True
        return message

    def interrupt(self) -> None:
        """Make :meth:`receive` fail in another thread; the helper is unusable afterwards."""
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End the process and reap it. Blocks for an instant."""
        _helpers.discard(self)
        self.channel.close()
        # Other code in this process that waits for every child may have reaped it.
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG) is None:
                os.kill(self.pid, signal.SIGKILL)
                os.waitid(os.P_PID, self.pid, os.WEXITED)


def count_helpers(name: str) -> int:
    """Return the number of helpers with a name in this process."""
    return sum(helper.name == name for helper in tuple(_helpers))


_helpers: weakref.WeakSet[HelperProcess] = weakref.WeakSet()


def _close_inherited() -> None:
    # A forked child with an open channel would keep a helper alive after the parent's end.
    for helper in tuple(_helpers):
        helper.channel.close()
    _helpers.clear()


os.register_at_fork(after_in_child=_close_inherited)


def detach_from_parent() -> None:
    """Detach this helper from its parent; every helper calls this first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    # Close inherited descriptors, because another process may wait for them to be closed.
    close_all_but({0, 1, 2})


def close_all_but(wanted: Collection[int]) -> None:
    """Close all descriptors of this process except the given ones."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in wanted:
            with contextlib.suppress(OSError):  # the descriptor of this listing
                os.close(int(name))


def open_parent(parent: int) -> int | None:
    """Return a pidfd of the process that spawned this helper; None if it has ended.

    The pidfd shows the end of the parent even if a forked child keeps the channel open.

    Args:
        parent: Pid of the parent, which another process may have reused.
    """
    try:
        pidfd = os.pidfd_open(parent)
    except ProcessLookupError:
        return None
    if os.getppid() == parent:
        return pidfd
    os.close(pidfd)
    return None


def serve_parent(parent: str) -> socket.socket:
    """Detach this helper and return its end of the channel.

    From now on, the helper ends immediately when its parent has ended.

    Args:
        parent: The pid of the process that spawned it.
    """
    detach_from_parent()
    pidfd = open_parent(int(parent))
    if pidfd is None:
        os._exit(0)
    threading.Thread(target=_end_after, args=(pidfd,), daemon=True).start()
    return socket.socket(fileno=0)


def _end_after(pidfd: int) -> None:
    await_end(pidfd)
    os._exit(0)


def await_end(pidfd: int, timeout_ms: int | None = None) -> bool:
    """Wait until a process has ended, reaped or not; return whether it has ended. Blocks.

    Args:
        pidfd: Descriptor of the process, which need not be a child.
        timeout_ms: Limit in milliseconds; None means no limit.
    """
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_ms))
