"""Helpers for the tests of processes: commands, marks, and a thread that reaps children."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

from clawblox.system.process import Process
from clawblox.system.process_tree import Mark

SLEEP = ("sleep", "60")
STUBBORN = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")

Spawn = Callable[..., Awaitable[Process]]


def make_mark(cookie: str, *leaders: Process) -> Mark:
    identities = tuple((leader.pid, leader.start_time) for leader in leaders)
    return Mark(f"CLAWBLOX_INSTANCE={cookie}".encode(), identities)


@contextlib.contextmanager
def reaping_everything() -> Iterator[set[int]]:
    """Run a thread that waits for every child, like some libraries; yield the reaped pids."""
    reaped: set[int] = set()
    is_over = threading.Event()

    def reap() -> None:
        while not is_over.is_set():
            with contextlib.suppress(ChildProcessError):
                pid, _ = os.waitpid(-1, os.WNOHANG)
                reaped.add(pid)
            time.sleep(0.001)

    thread = threading.Thread(target=reap)
    thread.start()
    try:
        yield reaped
    finally:
        is_over.set()
        thread.join()
