"""The guard: the small process that ends the instances of a dead orchestrator, and its client.

Each orchestrator process has a guard. It has the read end of a pipe (the lifeline) and a pidfd of
the orchestrator. The client sends it the cookie of every instance *before* the instance is spawned,
and its leaders after; when the orchestrator has ended for any reason, the guard sends TERM to all
processes of the marks, waits a grace, and kills the rest. To detach an instance, the client has the
guard forget it. A guard that dies, perhaps for lack of memory, is replaced immediately: a thread
waits for its end.

Standard library only: the program runs as ``python -I -S`` and stays near 9 MB.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
from pathlib import Path

from clawblox.system.helper import detach_from_parent, open_parent, spawn_helper
from clawblox.system.process_tree import (
    Mark,
    all_processes,
    command_line,
    find_tree,
    kill_tree,
    signal_processes,
)

GUARD_NAME = "clawblox-guard"
"""Identifies the guard in a process list: a word of its command line."""

ORPHAN_GRACE_S = 2.0
"""Seconds between TERM and KILL for the instances of an orchestrator that is gone."""

KEEPER_THREAD = "clawblox-guard-keeper"
"""Name of the thread that waits for the end of a guard, to replace it."""

_KEEPER_PAUSE_S = 1.0
"""Pause in seconds before the replacement of a guard that died early or could not be started."""

_KILL_TIMEOUT_S = 30.0
_SCAN_INTERVAL_S = 0.02
_QUIET_S = 0.5
"""Seconds without a process of the marks after which the guard ends. A child that was being
spawned as its orchestrator died has no mark until its exec is done."""


class Guard:
    """Client of the guard process of this orchestrator. Thread-safe; never blocks for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._lifeline = -1
        self._marks: dict[bytes, Mark] = {}

    def watch(self, mark: Mark) -> None:
        """End the processes of ``mark`` when this process is gone.

        A later call with the same cookie replaces the mark, for example to add leaders.

        Raises:
            OSError: The guard cannot be started.
        """
        with self._lock:
            self._marks[mark.cookie] = mark
            if self._is_running():
                self._write(_message("watch", mark))
            else:
                self._start()

    def forget(self, mark: Mark) -> None:
        """Undo :meth:`watch`; the tree has ended or is to outlive this process."""
        with self._lock:
            self._marks.pop(mark.cookie, None)
            if self._is_running():
                self._write(_message("forget", mark))

    def _is_running(self) -> bool:
        if not self._pid:
            return False
        try:
            ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:  # ended, and reaped by other code that waits for every child
            pass
        else:
            if ended is None:
                return True
        self._close()  # now, since the pid may soon belong to another child
        return False

    def _start(self) -> None:
        read_end, write_end = os.pipe()
        marks = b"".join(_message("watch", mark) for mark in self._marks.values())
        try:
            # Fill the pipe before the spawn, since this process may end at any moment.
            os.set_blocking(write_end, False)
            size = os.write(write_end, marks)
            os.set_blocking(write_end, True)
            self._pid = _spawn(os.getpid(), read_end)
        except OSError:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        self._lifeline = write_end
        self._write(marks[size:])
        keeper = threading.Thread(
            target=self._replace, args=(self._pid,), name=KEEPER_THREAD, daemon=True
        )
        # From Python 3.12 on, no thread can be started while the interpreter shuts down.
        with contextlib.suppress(RuntimeError):
            keeper.start()

    def _replace(self, pid: int) -> None:
        """Wait for the end of a guard, and start another if there are marks."""
        started_at = time.monotonic()
        with contextlib.suppress(ChildProcessError):  # other code waits for every child
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        may_start = time.monotonic() - started_at > _KEEPER_PAUSE_S
        while True:
            if not may_start:
                time.sleep(_KEEPER_PAUSE_S)
            may_start = False
            with self._lock, contextlib.suppress(OSError):
                # `watch` may have replaced the guard already, and started another keeper.
                if self._pid in (0, pid) and not self._is_running() and self._marks:
                    self._start()
                return

    def _write(self, data: bytes) -> None:
        # If the guard has just died, its keeper or the next `watch` replaces it.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._lifeline, data)

    def _close(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
        self._pid, self._lifeline = 0, -1

    def after_fork(self) -> None:
        """Drop the parent's guard in a forked child, since that is a separate orchestrator."""
        self._lock = threading.Lock()
        self._marks.clear()
        self._close()


guard = Guard()
"""The client that all instances of this process share."""

os.register_at_fork(after_in_child=guard.after_fork)


def find_guarded() -> set[int]:
    """Return the orchestrators that live and have a guard. Blocks.

    A process that has the pid of an earlier orchestrator is none, because its guard is not a child
    of that process.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    return {
        proc.ppid
        for proc in all_processes().values()
        if command_line(proc.pid).endswith(f" {GUARD_NAME} {proc.ppid}")
    }


def _message(verb: str, mark: Mark) -> bytes:
    return json.dumps([verb, mark.cookie.decode(), mark.leaders]).encode() + b"\n"


def _spawn(orchestrator: int, lifeline: int) -> int:
    return spawn_helper(
        GUARD_NAME,
        "clawblox.system.guard:main",
        str(orchestrator),
        channel=lifeline,
        paths=[str(Path(__file__).parents[2])],
    )


def main(orchestrator: str) -> None:
    """Run the guard program: wait for the end of the orchestrator, then clean up after it."""
    detach_from_parent()
    _clean_up(_watch_until_gone(int(orchestrator)))


def _watch_until_gone(orchestrator: int) -> list[Mark]:
    """Read the lifeline until it or the orchestrator ends; return the marks left."""
    os.set_blocking(0, False)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    is_gone = (pidfd := open_parent(orchestrator)) is None
    if pidfd is not None:
        poller.register(pidfd, select.POLLIN)
    marks: dict[str, Mark] = {}
    pending = b""
    while True:
        is_gone = is_gone or {descriptor for descriptor, _ in poller.poll()} != {0}
        # Read after the death was noticed, so that the last messages are not missed.
        received, is_closed = _read_lifeline()
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            verb, cookie, leaders = json.loads(line)
            if verb == "watch":
                marks[cookie] = Mark(cookie.encode(), tuple(map(tuple, leaders)))
            else:
                marks.pop(cookie, None)
        if is_gone or is_closed:
            return list(marks.values())


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


def _clean_up(marks: list[Mark]) -> None:
    if not marks:
        return
    members = find_tree(marks)
    signal_processes(members, signal.SIGTERM)
    now = time.monotonic()
    deadline, quiet_at = now + ORPHAN_GRACE_S, now + _QUIET_S
    while now < deadline:
        members = find_tree(marks, members)
        if members:
            quiet_at = now + _QUIET_S
        elif now >= quiet_at:
            return
        time.sleep(_SCAN_INTERVAL_S)
        now = time.monotonic()
    kill_tree(marks, _KILL_TIMEOUT_S, members)
