"""Starting, watching and ending processes; with guard and tmux the only place that does.

Every process is the leader of its own session, has no standard input, and writes its output
to a descriptor it is given. It is watched through a pidfd, so nothing here needs SIGCHLD,
a thread per child, or a particular event loop.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import attrs

from clawblox.model import Rung, WorldExit
from clawblox.proctree import (
    Mark,
    Proc,
    command_line,
    find_tree,
    kill_tree,
    read_process,
    signal_processes,
    start_time_of,
)
from clawblox.threads import run_blocking

__all__ = [
    "CannotExecute",
    "Grace",
    "Process",
    "TreeEnd",
    "adopt",
    "end_tree",
    "signal_name",
    "spawn",
]

_SPAWNS_AT_ONCE = 2
"""More at once only makes the loop wait longer for each (measured)."""

_KILL_TIMEOUT_S = 10.0
_FIRST_SCAN_DELAY_S = 0.002
_LAST_SCAN_DELAY_S = 0.05

_released_lock = threading.Lock()
_released: set[int] = set()
"""Pidfds of children that nobody watches any more and nobody has reaped."""

_spawn_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar(
    "clawblox_spawn_limiter"
)


class CannotExecute(Exception):  # noqa: N818 - says the condition; the caller raises the public error
    """A program cannot be executed; the message says which and why."""


@attrs.define
class Process:
    """A process that leads the session of an instance or of one of its sidecars.

    Attributes:
        pid: Its process id.
        start_time: Its start, in clock ticks since boot; with the pid its identity.
        is_child: Whether this orchestrator spawned it, so that its status can be read.
    """

    pid: int
    start_time: int
    is_child: bool
    _pidfd: int = attrs.field(alias="pidfd", repr=False)
    _exit: WorldExit | None = attrs.field(default=None, alias="exit")
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock, init=False, repr=False)

    async def wait(self) -> WorldExit:
        """Wait until the process has ended; it is not reaped yet.

        Cancellation: changes nothing; it can be waited for again.
        """
        async with self._lock:  # one task at a time may wait for a descriptor
            if self._exit is None:
                await anyio.wait_readable(self._pidfd)
                self._exit = self._read_exit()
            return self._exit

    @property
    def has_exited(self) -> bool:
        """Whether the process has ended."""
        if self._exit is not None or self._pidfd < 0:
            return True
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(0))

    def kill(self) -> None:
        """Kill the process, and its group when it is a child, without opening anything."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self.is_child:  # unreaped, so the number of its group is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def release(self) -> None:
        """Reap the process and close its pidfd; a child that lives on is reaped later."""
        if self._pidfd < 0:
            return
        if self.is_child:
            _released.add(self._pidfd)
            _reap_released()
        else:
            os.close(self._pidfd)
        self._pidfd = -1

    def _read_exit(self) -> WorldExit:
        # Unreaped, so that the pid and its session cannot be taken by a stranger meanwhile.
        found = self._wait_id(os.WEXITED | os.WNOWAIT | os.WNOHANG) if self.is_child else None
        if found is None:
            return WorldExit()
        if found.si_code == os.CLD_EXITED:
            return WorldExit(status=found.si_status)
        return WorldExit(signal=signal_name(found.si_status))

    def _wait_id(self, options: int) -> os.waitid_result | None:
        try:
            return os.waitid(os.P_PIDFD, self._pidfd, options)
        except ChildProcessError:  # somebody in this process waits for every child
            return None


class Grace:
    """The time that a stopping instance still has; a second, shorter stop shortens it.

    Args:
        seconds: Time between TERM and KILL.
    """

    def __init__(self, seconds: float) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)

    def shorten(self, seconds: float) -> None:
        """Leave at most ``seconds`` from now."""
        self.scope.deadline = min(self.scope.deadline, anyio.current_time() + seconds)


@attrs.frozen
class TreeEnd:
    """How a process tree was ended.

    Attributes:
        rung: The rung of the ladder that did it.
        killed: What had to be killed, as ``pid command``.
        survivors: What even SIGKILL did not end within its time.
    """

    rung: Rung
    killed: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()


async def spawn(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int
) -> Process:
    """Start a process in a session of its own.

    Args:
        command: Program and arguments; a relative program is taken from ``cwd``.
        cwd: Working directory.
        env: The whole environment.
        output: Descriptor for standard output and error.

    Raises:
        CannotExecute: It is missing, not executable, or the system has no room for it.

    Cancellation: waits for a spawn that has begun, then the process is killed.
    """
    limiter = _spawn_limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_SPAWNS_AT_ONCE)
        _spawn_limiter.set(limiter)
    return await run_blocking(_spawn, command, cwd, env, output, limiter=limiter)


def _reap_released() -> None:
    """Reap the released children that have ended; the others are looked at again later."""
    with _released_lock:
        for pidfd in tuple(_released):
            try:
                is_over = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is not None
            except ChildProcessError:  # somebody in this process waits for every child
                is_over = True
            if is_over:
                _released.discard(pidfd)
                os.close(pidfd)


def _spawn(command: Sequence[str], cwd: Path, env: Mapping[str, str], output: int) -> Process:
    _reap_released()
    try:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        place = "" if error.filename in (None, command[0]) else f": {error.filename}"
        raise CannotExecute(f"cannot execute {command[0]!r}: {error.strerror}{place}") from error
    try:
        process = _open(child.pid, is_child=True)
    except ProcessLookupError:  # ended, and reaped by whoever waits for every child here
        process = Process(child.pid, 0, is_child=True, pidfd=-1, exit=WorldExit())
    except OSError:
        child.kill()
        child.wait()
        raise
    # From here on the pidfd stands for the child: Popen shall neither wait nor warn.
    child.returncode = 0
    return process


def adopt(pid: int) -> Process:
    """Watch a process that somebody else spawned, or that was let go here before.

    Raises:
        ProcessLookupError: It does not live.
    """
    found = read_process(pid)
    return _open(pid, is_child=found is not None and found.ppid == os.getpid())


def _open(pid: int, *, is_child: bool) -> Process:
    pidfd = os.pidfd_open(pid)
    try:
        return Process(pid, start_time_of(pid), is_child, pidfd)
    except ProcessLookupError:
        os.close(pidfd)
        raise


async def end_tree(mark: Mark, leader: Process | None, grace: Grace) -> TreeEnd:
    """End everything that belongs to ``mark``: TERM, the grace, KILL until nothing is left.

    Args:
        mark: Marks the processes; it must name the leader, so that its session counts.
        leader: The process to wait for first, if there is one.
        grace: Time between TERM and KILL.

    Raises:
        OSError: The processes cannot be looked at, for want of descriptors.

    Cancellation: stops climbing; call it shielded.
    """
    members = await _scan(mark)
    if not members:
        return TreeEnd("already_exited")
    await run_blocking(signal_processes, members, signal.SIGTERM)
    with grace.scope:
        if leader is not None:
            await leader.wait()
        delay = _FIRST_SCAN_DELAY_S
        while members := await _scan(mark, members):
            await anyio.sleep(delay)
            delay = min(delay * 2, _LAST_SCAN_DELAY_S)
        return TreeEnd("terminated")
    return await run_blocking(_kill, mark, members)


async def _scan(mark: Mark, known: Sequence[Proc] = ()) -> list[Proc]:
    return await run_blocking(find_tree, [mark], known)


def _kill(mark: Mark, known: Sequence[Proc]) -> TreeEnd:
    killed = find_tree([mark], known)
    described = _describe(killed)
    survivors = kill_tree([mark], _KILL_TIMEOUT_S, killed)
    return TreeEnd("killed" if killed else "terminated", described, _describe(survivors))


def _describe(processes: Sequence[Proc]) -> tuple[str, ...]:
    return tuple(f"{proc.pid} {command_line(proc.pid)[:200]}".rstrip() for proc in processes)


def signal_name(number: int) -> str:
    """Return the name of a signal, for example ``SIGKILL``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
