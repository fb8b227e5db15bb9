"""Processes, threads and descriptors of a test process at one moment."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from tests.support.processes import GUARD_NAME, command_line, session_processes

KEEPER_THREAD = "clawblox-guard-keeper"
PORTAL_THREAD = "clawblox-portal"
WORKER_THREADS = ("AnyIO worker thread", "Trio thread")


def open_fds() -> dict[int, str]:
    """Return the target of each descriptor of this process."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


@attrs.frozen
class Resources:
    """Resources of this process at one moment, including its processes and files."""

    fds: Mapping[int, str]
    threads: Mapping[int, str]
    processes: Mapping[int, str]
    files: frozenset[str]

    @classmethod
    def now(cls, *directories: Path) -> Resources:
        """Count, with the files below ``directories``."""
        return cls(
            fds=open_fds(),
            threads={t.ident or 0: t.name for t in threading.enumerate()},
            processes={pid: command_line(pid) for pid in session_processes()},
            files=frozenset(str(path) for root in directories for path in root.rglob("*")),
        )

    def processes_since(self, before: Resources) -> dict[int, str]:
        """Return the new processes since ``before``, without this process's guard.

        Processes are compared by id, because they have no command line for an instant after an
        exec.
        """
        added = {
            pid: command for pid, command in self.processes.items() if pid not in before.processes
        }
        if guard := next((pid for pid, command in added.items() if GUARD_NAME in command), None):
            del added[guard]
        return added

    def leaks_since(self, before: Resources) -> list[str]:
        """Return descriptions of all leaks since ``before``.

        The guard and the portal run as long as their orchestrator, this process. So one of each may
        appear with its descriptors, as well as workers of the event loops.
        """
        processes = self.processes_since(before)
        threads = _added(self.threads, before.threads)
        allowed: list[str] = []
        if self.processes.keys() - before.processes.keys() - processes.keys():
            allowed += ["pipe:", "anon_inode:[pidfd]"]  # the guard's lifeline, and itself
            if keeper := next((t for t in threads if threads[t] == KEEPER_THREAD), None):
                del threads[keeper]
        if portal := next((t for t in threads if threads[t] == PORTAL_THREAD), None):
            del threads[portal]
            allowed += ["anon_inode:[eventpoll]", "socket:", "socket:"]
        return [
            *(f"process {pid}: {command or 'zombie'}" for pid, command in processes.items()),
            *(f"thread {name}" for name in threads.values() if not name.startswith(WORKER_THREADS)),
            *_descriptors_beyond(_added(self.fds, before.fds), allowed),
            *(f"file {path}" for path in sorted(self.files - before.files)),
        ]


def _added(after: Mapping[int, str], before: Mapping[int, str]) -> dict[int, str]:
    return dict(after.items() - before.items())


def _descriptors_beyond(fds: Mapping[int, str], allowed: Iterable[str]) -> list[str]:
    left = dict(fds)
    for kind in allowed:
        if match := next((fd for fd, target in left.items() if target.startswith(kind)), None):
            del left[match]
    return [f"descriptor {fd}: {target}" for fd, target in left.items()]
