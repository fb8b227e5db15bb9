"""The guard: the small process that ends what an orchestrator left behind, and its client.

One guard serves one orchestrator process. It holds the read end of a pipe (the lifeline) and
a pidfd of the orchestrator. The client tells it the cookie of every instance *before* the
instance is spawned; when the orchestrator is gone, however it went, the guard sends TERM to
everything that carries a known cookie, waits a grace, and kills the rest. A detached instance
is one the guard was told to forget.

Standard library only: the program runs as ``python -I -S`` and stays near 9 MB.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from clawblox.proctree import Mark, find_tree, kill_tree, signal_processes

__all__ = ["GUARD_NAME", "ORPHAN_GRACE_S", "Guard", "guard", "main"]

GUARD_NAME = "clawblox-guard"
"""Stands in the guard's command line, for whoever reads a process list."""

ORPHAN_GRACE_S = 2.0
"""Seconds between TERM and KILL for the instances of an orchestrator that is gone."""

_KILL_TIMEOUT_S = 30.0
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from clawblox.guard import main; main(int(sys.argv[3]))"
)


class Guard:
    """Client of the guard process of this orchestrator. Thread-safe; never blocks for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._lifeline = -1
        self._cookies: set[str] = set()

    def watch(self, cookie: str) -> None:
        """Have everything that carries ``cookie`` ended when this process is gone.

        Raises:
            OSError: The guard cannot be started.
        """
        with self._lock:
            self._cookies.add(cookie)
            if self._is_running():
                self._send("watch", cookie)
            else:
                self._start()

    def forget(self, cookie: str) -> None:
        """Take back :meth:`watch`: nothing of it is left, or it shall outlive this process."""
        with self._lock:
            self._cookies.discard(cookie)
            if self._is_running():
                self._send("forget", cookie)

    def _is_running(self) -> bool:
        if not self._pid:
            return False
        try:
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return False
        return _is_alive(self._pid)

    def _start(self) -> None:
        self._close()
        read_end, write_end = os.pipe()
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                _guard_command(),
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, read_end, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
            )
        except OSError:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        self._lifeline = write_end
        for cookie in self._cookies:
            self._send("watch", cookie)

    def _send(self, verb: str, cookie: str) -> None:
        line = json.dumps([verb, cookie]).encode() + b"\n"
        # A guard that died this instant is replaced by the next `watch`.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._lifeline, line)

    def _close(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
        self._pid, self._lifeline = 0, -1

    def after_fork(self) -> None:
        """Drop the parent's guard in a forked child, which is an orchestrator of its own."""
        self._lock = threading.Lock()
        self._cookies.clear()
        self._close()


guard = Guard()
"""The client that all instances of this process share."""

os.register_at_fork(after_in_child=guard.after_fork)


def _guard_command() -> list[str]:
    package_root = str(Path(__file__).parent.parent)
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _BOOT,
        GUARD_NAME,
        package_root,
        str(os.getpid()),
    ]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def main(orchestrator: int) -> None:
    """Run the guard program: wait for the end of ``orchestrator``, then clean up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    _clean_up(_watch_until_gone(orchestrator))


def _watch_until_gone(orchestrator: int) -> set[str]:
    """Read the lifeline until it or the orchestrator ends; return the cookies left."""
    poller = select.poll()
    poller.register(0, select.POLLIN)
    with contextlib.suppress(OSError):
        # A forked child of the orchestrator may hold the pipe open; its pidfd cannot be held.
        poller.register(os.pidfd_open(orchestrator), select.POLLIN)
    cookies: set[str] = set()
    pending = b""
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        chunk = os.read(0, 65536) if 0 in ready else b""
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            verb, cookie = json.loads(line)
            (cookies.add if verb == "watch" else cookies.discard)(cookie)
        if not chunk:
            return cookies


def _clean_up(cookies: set[str]) -> None:
    marks = [Mark(cookie.encode()) for cookie in cookies]
    if not marks:
        return
    signal_processes(find_tree(marks), signal.SIGTERM)
    deadline = time.monotonic() + ORPHAN_GRACE_S
    while time.monotonic() < deadline:
        if not find_tree(marks):
            return
        time.sleep(0.02)
    kill_tree(marks, _KILL_TIMEOUT_S)
