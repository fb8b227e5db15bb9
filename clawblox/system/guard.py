"""The guard: the small process that ends the instances of a dead orchestrator, and its client.

Each orchestrator process has a guard, which holds the read end of a pipe (the lifeline) and a pidfd
of the orchestrator. The client sends the guard the cookie of every instance *before* the instance
is spawned, and its leaders afterwards. When the orchestrator has ended for any reason, the guard
sends TERM to all processes of the marks, waits for a grace period, and kills the rest. To detach an
instance, the client makes the guard forget it. A thread waits for the end of the guard, and
replaces a guard that dies, perhaps for lack of memory, immediately.

The guard is not a child of the orchestrator, because programs that end an orchestrator may kill its
children first, as Ray does. An orchestrator that must not act after a certain time, when another
may take over its work, takes a lease: the guard kills the orchestrator and its instances at the
deadline, without a grace period.

Standard library only: the program runs as ``python -I -S`` and stays near 9 MB.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import threading
import time
from pathlib import Path
from typing import Any

from clawblox.system.helper import await_end, detach_from_parent, spawn_detached
from clawblox.system.process_tree import (
    Mark,
    all_processes,
    command_line,
    find_tree,
    kill_tree,
    open_same,
    read_start_time,
    signal_processes,
)

GUARD_NAME = "clawblox-guard"
"""Identifies the guard in a process list: a word of its command line."""

ORPHAN_GRACE_S = 2.0
"""Seconds between TERM and KILL for the instances of an orchestrator that is gone."""

KEEPER_THREAD = "clawblox-guard-keeper"
"""Name of the thread that waits for the end of a guard, to replace it."""

_KEEPER_PAUSE_S = 1.0
"""Pause before replacing a guard that died early or could not be started, in seconds."""

_LEASE_STEP_S = 0.1
"""Longest sleep of a guard with a lease, in seconds, because poll(2) ignores suspended time."""

_KILL_TIMEOUT_S = 30.0
_SCAN_INTERVAL_S = 0.02
_QUIET_S = 0.5
"""Seconds without marked processes after which the guard ends. A child that was being spawned when
its orchestrator died has no mark until its exec is done."""


class Guard:
    """Client of the guard process of this orchestrator. Thread-safe; never blocks for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pidfd = -1
        self._lifeline = -1
        self._marks: dict[bytes, Mark] = {}
        self._lease_until = 0.0

    def watch(self, mark: Mark) -> None:
        """End the processes of ``mark`` when this process has ended.

        A later call with the same cookie replaces the mark, for example to add leaders.

        Raises:
            OSError: The guard cannot be started.
        """
        with self._lock:
            self._marks[mark.cookie] = mark
            self._send("watch", *mark)

    def lease(self, until: float) -> None:
        """Kill this process and those of every mark at a deadline, without a grace period.

        A later deadline replaces an earlier one, unless that has passed.

        Args:
            until: The deadline in seconds of ``CLOCK_BOOTTIME``, which includes suspended time.

        Raises:
            OSError: The guard cannot be started.
        """
        with self._lock:
            self._lease_until = max(self._lease_until, until)
            self._send("lease", self._lease_until)

    def forget(self, mark: Mark) -> None:
        """Undo :meth:`watch`, because the tree has ended or should outlive this process."""
        with self._lock:
            self._marks.pop(mark.cookie, None)
            if self._is_running():
                self._write(_message("forget", *mark))

    def _send(self, verb: str, *arguments: Any) -> None:
        """Send the guard a change that the client has noted; send a new guard the whole state."""
        if self._is_running():
            self._write(_message(verb, *arguments))
        else:
            self._start()

    def _is_running(self) -> bool:
        is_running = self._pidfd >= 0 and not await_end(self._pidfd, 0)
        if not is_running:
            self._close()
        return is_running

    def _start(self) -> None:
        read_end, write_end = os.pipe()
        messages = [_message("watch", *mark) for mark in self._marks.values()]
        if self._lease_until:
            messages.insert(0, _message("lease", self._lease_until))
        text = b"".join(messages)
        try:
            # Fill the pipe before the spawn, since this process may end at any moment.
            os.set_blocking(write_end, False)
            size = os.write(write_end, text)
            os.set_blocking(write_end, True)
            self._pidfd = _spawn(os.getpid(), read_start_time(os.getpid()), read_end)
        except OSError:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        self._lifeline = write_end
        self._write(text[size:])
        keeper = threading.Thread(
            target=self._replace, args=(self._pidfd,), name=KEEPER_THREAD, daemon=True
        )
        # From Python 3.12 on, no thread can be started while the interpreter shuts down.
        with contextlib.suppress(RuntimeError):
            keeper.start()

    def _replace(self, pidfd: int) -> None:
        """Wait for the end of a guard, and start another if any marks are left."""
        started_at = time.monotonic()
        await_end(pidfd)
        may_start = time.monotonic() - started_at > _KEEPER_PAUSE_S
        while True:
            if not may_start:
                time.sleep(_KEEPER_PAUSE_S)
            may_start = False
            with self._lock, contextlib.suppress(OSError):
                # `watch` may have replaced the guard already, and started another keeper.
                is_mine = self._pidfd in (-1, pidfd) and not self._is_running()
                if is_mine and (self._marks or self._lease_until):
                    self._start()
                break
        os.close(pidfd)  # not earlier, so that its number is not reused

    def _write(self, data: bytes) -> None:
        # If the guard has just died, its keeper or the next `watch` replaces it.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._lifeline, data)

    def _close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._lifeline)
            # A subreaper, or PID 1, is the parent of its own guard.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        self._pidfd = self._lifeline = -1

    def after_fork(self) -> None:
        """Drop the parent's guard in a forked child, which is a separate orchestrator."""
        self._lock = threading.Lock()
        self._marks.clear()
        self._lease_until = 0.0
        pidfd = self._pidfd
        self._close()
        if pidfd >= 0:  # the thread that would close it does not exist in the child
            os.close(pidfd)


guard = Guard()
"""The client that all instances of this process share."""

os.register_at_fork(after_in_child=guard.after_fork)


def find_guarded() -> set[int]:
    """Return the pids of the live orchestrators with a guard. Blocks.

    A process that reuses the pid of an earlier orchestrator is left out, because a guard also names
    the start time of its orchestrator.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    processes = all_processes()
    lines = (command_line(pid).split(" ")[-3:] for pid in processes)
    named = {(line[1], line[2]) for line in lines if line[0] == GUARD_NAME and len(line) == 3}
    return {pid for pid, proc in processes.items() if (str(pid), str(proc.start_time)) in named}


def _message(verb: str, *arguments: Any) -> bytes:
    return json.dumps([verb, *arguments], default=bytes.decode).encode() + b"\n"


def _spawn(orchestrator: int, start_time: int, lifeline: int) -> int:
    return spawn_detached(
        GUARD_NAME,
        "clawblox.system.guard:main",
        str(orchestrator),
        str(start_time),
        channel=lifeline,
        paths=[str(Path(__file__).parents[2])],
    )


def main(orchestrator: str, start_time: str) -> None:
    """Run the guard program: wait for the end of the orchestrator, then end its instances."""
    detach_from_parent()
    pidfd = open_same(int(orchestrator), int(start_time))
    marks, lease_until = _watch_until_gone(pidfd)
    if pidfd is not None and _boottime() >= lease_until:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    _clean_up(marks, lease_until)


def _watch_until_gone(pidfd: int | None) -> tuple[list[Mark], float]:
    """Read the lifeline until it, the orchestrator or the lease ends.

    Args:
        pidfd: The orchestrator; None if it is gone.

    Returns:
        The marks left, and the end of the lease; infinity without a lease.
    """
    os.set_blocking(0, False)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    is_over = pidfd is None
    if pidfd is not None:
        poller.register(pidfd, select.POLLIN)
    marks: dict[str, Mark] = {}
    lease_until = math.inf
    pending = b""
    while True:
        if not is_over:
            events = poller.poll(_milliseconds_until(lease_until))
            is_over = any(descriptor != 0 for descriptor, _ in events)
        # Read after the death was noticed, so that the last messages are not missed.
        received, is_closed = _read_lifeline()
        # Then check the clock: a renewal that was read too late does not count.
        has_expired = _boottime() >= lease_until
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            match json.loads(line):
                case ["watch", cookie, leaders]:
                    marks[cookie] = Mark(cookie.encode(), tuple(map(tuple, leaders)))
                case ["forget", cookie, _]:
                    marks.pop(cookie, None)
                case ["lease", until] if not has_expired:
                    lease_until = until
        if is_over or is_closed or has_expired:
            return list(marks.values()), lease_until


def _milliseconds_until(lease_until: float) -> int | None:
    if lease_until == math.inf:
        return None
    return math.ceil(min(max(0.0, lease_until - _boottime()), _LEASE_STEP_S) * 1000)


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _read_lifeline() -> tuple[bytes, bool]:
    """Return the bytes that wait in the lifeline, and whether its other end is closed."""
    received = b""
    while True:
        try:
            chunk = os.read(0, 65536)
        except BlockingIOError:
            return received, False
        if not chunk:
            return received, True
        received += chunk


def _clean_up(marks: list[Mark], lease_until: float) -> None:
    if not marks:
        return
    members = find_tree(marks)
    now = _boottime()
    deadline, quiet_at = min(now + ORPHAN_GRACE_S, lease_until), now + _QUIET_S
    if now < deadline:
        signal_processes(members, signal.SIGTERM)
    while now < deadline:
        members = find_tree(marks, members)
        if members:
            quiet_at = now + _QUIET_S
        elif now >= quiet_at:
            return
        time.sleep(_SCAN_INTERVAL_S)
        now = _boottime()
    while kill_tree(marks, _KILL_TIMEOUT_S, members) == [] and _boottime() < quiet_at:
        time.sleep(_SCAN_INTERVAL_S)
