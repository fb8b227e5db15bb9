"""Process trees on Linux: who belongs to an instance, and how to signal them.

Standard library only, because the guard runs it in an isolated interpreter. Formats: proc(5).
An instance's processes are found by the cookie in their environment, by the session of its
leaders, and by descent from any of those; a process is identified by pid *and* start time, so
that a recycled pid is never taken for the old process.
"""

from __future__ import annotations

import errno
import os
import signal  # noqa: TID251 - the shared half of process.py and guard.py
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Mark",
    "Proc",
    "all_processes",
    "boot_id",
    "command_line",
    "environment",
    "find_tree",
    "is_same_process",
    "kill_tree",
    "read_process",
    "signal_processes",
    "start_time_of",
]


_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Proc(NamedTuple):
    """One live process, as ``/proc/<pid>/stat`` shows it."""

    pid: int
    ppid: int
    session: int
    start_time: int


class Mark(NamedTuple):
    """What marks the processes of one instance.

    ``cookie`` is the environment entry, for example ``b"CLAWBLOX_INSTANCE=ab12"``. ``leaders``
    are processes whose whole session belongs to the instance; a leader counts only while
    (pid, start time) still names the same process, dead and unreaped included.
    """

    cookie: bytes
    leaders: tuple[tuple[int, int], ...] = ()


def _read(pid: int, name: str) -> bytes | None:
    """Return a file of a process; None when the process is gone or may not be looked at.

    Raises:
        OSError: This process has no descriptor or memory left, which says nothing of the other.
    """
    try:
        # A scan reads two files of every process: a Path would cost more than the reading.
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.readall()
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return None


def _read_stat(pid: int) -> tuple[str, Proc] | None:
    text = _read(pid, "stat")
    if text is None:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    proc = Proc(pid, int(fields[1]), int(fields[3]), int(fields[19]))
    return fields[0].decode(), proc


def read_process(pid: int) -> Proc | None:
    """Return the live process ``pid``, or None when there is none (a zombie is not live)."""
    found = _read_stat(pid)
    return None if found is None or found[0] in "ZX" else found[1]


def start_time_of(pid: int) -> int:
    """Return the start of ``pid`` in clock ticks since boot, dead and unreaped included.

    Raises:
        ProcessLookupError: There is no such process.
    """
    found = _read_stat(pid)
    if found is None:
        raise ProcessLookupError(f"no process {pid}")
    return found[1].start_time


def is_same_process(pid: int, start_time: int) -> bool:
    """Say whether ``pid`` still names the process that began at ``start_time`` (in ticks)."""
    found = _read_stat(pid)
    return found is not None and found[1].start_time == start_time


def all_processes() -> dict[int, Proc]:
    """Return every live process by pid, in one pass."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {proc.pid: proc for proc in found if proc is not None}


def environment(pid: int) -> list[bytes]:
    """Return the entries of a process's initial environment; empty when it is not readable."""
    raw = _read(pid, "environ")
    return raw.split(b"\0") if raw else []


def command_line(pid: int) -> str:
    """Return a process's command line, or an empty string."""
    raw = _read(pid, "cmdline") or b""
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def boot_id() -> str:
    """Return the identity of this boot; pids and start times mean nothing across it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def find_tree(marks: Iterable[Mark], known: Iterable[Proc] = ()) -> list[Proc]:
    """Return the live processes that belong to any of ``marks``.

    The calling process and its ancestors are never part of the answer.

    Args:
        marks: The instances.
        known: An earlier answer: whoever is in it and lives belongs to them still, even when
            the process that it descended from is gone.
    """
    marks, known = tuple(marks), tuple(known)
    # A process that forks and ends, or is in the middle of an exec, while the pass goes by is
    # overlooked; two passes that find nothing mean that there is nothing.
    return _find_once(marks, known) or _find_once(marks, known)


def _find_once(marks: Collection[Mark], known: Iterable[Proc]) -> list[Proc]:
    cookies = {mark.cookie for mark in marks}
    leaders = {
        pid
        for mark in marks
        for pid, start_time in mark.leaders
        if is_same_process(pid, start_time)
    }
    processes = all_processes()
    protected = _ancestors(os.getpid(), processes)
    identities = {(proc.pid, proc.start_time) for proc in known}
    oldest = _oldest_possible(marks)
    members = {
        proc.pid
        for proc in processes.values()
        if proc.session in leaders
        or (proc.pid, proc.start_time) in identities
        or (proc.start_time >= oldest and not cookies.isdisjoint(environment(proc.pid)))
    }
    return [processes[pid] for pid in _with_descendants(members, processes) - protected]


def _oldest_possible(marks: Iterable[Mark]) -> int:
    """Return the start of the first process that can carry a cookie: a mark's first leader."""
    starts = [[start_time for _, start_time in mark.leaders] for mark in marks]
    return min(map(min, starts)) if starts and all(starts) else 0


def _ancestors(pid: int, processes: Mapping[int, Proc]) -> set[int]:
    line = {pid}
    while (proc := processes.get(pid)) is not None and proc.ppid not in line:
        pid = proc.ppid
        line.add(pid)
    return line


def _with_descendants(members: set[int], processes: Mapping[int, Proc]) -> set[int]:
    children: dict[int, list[int]] = {}
    for proc in processes.values():
        children.setdefault(proc.ppid, []).append(proc.pid)
    found = set(members)
    pending = list(members)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def signal_processes(processes: Iterable[Proc], number: int) -> None:
    """Send a signal to each process that is still the same one; the others are skipped."""
    for proc in processes:
        try:
            pidfd = os.pidfd_open(proc.pid)
        except ProcessLookupError:
            continue
        try:
            if is_same_process(proc.pid, proc.start_time):
                signal.pidfd_send_signal(pidfd, number)
        except (ProcessLookupError, PermissionError):
            continue
        finally:
            os.close(pidfd)


def kill_tree(marks: Iterable[Mark], timeout: float, known: Iterable[Proc] = ()) -> list[Proc]:
    """Kill every process of ``marks``, again and again until none is left. Blocks.

    Args:
        marks: The instances.
        timeout: Seconds until it gives up (a process in uninterruptible sleep does not die).
        known: An earlier answer of :func:`find_tree`, whose processes are meant too.

    Returns:
        What is still alive: empty, but for such processes.
    """
    marks = tuple(marks)
    deadline = time.monotonic() + timeout
    delay = 0.002
    left = list(known)
    while (left := find_tree(marks, left)) and time.monotonic() < deadline:
        signal_processes(left, signal.SIGKILL)
        time.sleep(delay)
        delay = min(delay * 2, 0.05)
    return left
