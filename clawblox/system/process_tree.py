"""Process trees on Linux: finds the processes of an instance, and signals them.

Standard library only, because the guard runs this module in an isolated interpreter. The processes
of an instance are found by the cookie in their environment, by the session of its leaders, and by
descent from these processes. A process is identified by pid *and* start time, so that a recycled
pid is never confused with the old process. Formats: proc(5).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal  # noqa: TID251 - the shared half of process.py and guard.py
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_CHUNK_BYTES = 16384
_START_TIME = 19
"""Index of the start time among the fields of ``/proc/<pid>/stat`` after the name."""

_FLAGS, _ENVIRONMENT_END = 6, 48
"""Indices of the kernel's flags, and of the end address of the environment."""

_PF_EXITING, _PF_KTHREAD = 0x4, 0x200000
"""Flags of processes that have no memory (include/linux/sched.h)."""

_PF_FORKNOEXEC = 0x40
"""Flag of processes that have not executed a program since they were forked."""

_YOUNG_S = 1.0
"""Maximum age of a forked process that may still execute a program, in seconds."""

_SPAWN_TIMEOUT_S = 0.5

_EXEC_TIMEOUT_S, _EXEC_INTERVAL_S = 0.25, 0.0005
"""Longest wait for the end of an exec, which took 0.02 s on a busy machine, and its interval."""

_WAIT_CHANNEL = b"do_wait"
"""Kernel function in which wait4(2) and waitid(2) sleep; see ``/proc/<pid>/wchan``."""

_DEAD = (b"Z", b"X")
_SUSPENDED = (b"T", b"t")


class Proc(NamedTuple):
    """A live process, according to ``/proc/<pid>/stat``."""

    pid: int
    ppid: int
    session: int
    start_time: int


class Mark(NamedTuple):
    """Marks of the processes of an instance.

    ``cookie`` is the environment entry, for example ``b"CLAWBLOX_INSTANCE=ab12"``. ``leaders`` are
    processes whose whole session belongs to the instance; a leader counts only while (pid, start
    time) still names the same process, which may be dead but unreaped.
    """

    cookie: bytes
    leaders: tuple[tuple[int, int], ...] = ()


class Search(NamedTuple):
    """A search of :func:`find_trees` for the processes of one or several instances.

    ``known`` is an earlier answer: processes in it that are still alive belong to the next answer
    too, even if their ancestor is gone.
    """

    marks: tuple[Mark, ...]
    known: tuple[Proc, ...] = ()


def _read(pid: int, name: str) -> bytes | None:
    """Return a file of a process; None if the process is gone or the file is not readable.

    Raises:
        OSError: This process lacks descriptors or memory; the other may still exist.
    """
    text = b""
    try:
        # A pass reads a file of every process; file objects would cost more than the reads.
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
        try:
            while len(chunk := os.read(descriptor, _CHUNK_BYTES)) == _CHUNK_BYTES:
                text += chunk
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return None
    return text + chunk


def _read_fields(pid: int, most: int = -1) -> list[bytes]:
    """Return the fields of ``/proc/<pid>/stat`` after the name; empty if the process is gone.

    Args:
        pid: The process, which may be dead and unreaped.
        most: Number of fields to split, before the unsplit rest; -1 splits all fields.
    """
    text = _read(pid, "stat")
    return text[text.rindex(b")") + 2 :].split(None, most) if text else []


def _read_stat(pid: int) -> tuple[bytes, Proc] | None:
    """Return the state and the identity of a process, even if it is dead and unreaped."""
    fields = _read_fields(pid, _START_TIME + 1)
    if not fields:
        return None
    return fields[0], Proc(pid, int(fields[1]), int(fields[3]), int(fields[_START_TIME]))


def read_process(pid: int) -> Proc | None:
    """Return the process ``pid``, or None if it is not alive (a zombie is not).

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    stat = _read_stat(pid)
    return None if stat is None or stat[0] in _DEAD else stat[1]


def is_suspended(pid: int) -> bool:
    """Return whether a live process was suspended by SIGSTOP, a terminal or a debugger.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    stat = _read_stat(pid)
    return stat is not None and stat[0] in _SUSPENDED


def read_start_time(pid: int) -> int:
    """Return the start of ``pid`` in clock ticks since boot, even if it is dead and unreaped.

    Raises:
        ProcessLookupError: There is no such process.
        OSError: This process lacks descriptors or memory.
    """
    stat = _read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return stat[1].start_time


def is_same_process(pid: int, start_time: int) -> bool:
    """Return whether ``pid`` still names the process that started at ``start_time``.

    Args:
        pid: The process id.
        start_time: In clock ticks since boot.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    stat = _read_stat(pid)
    return stat is not None and stat[1].start_time == start_time


def open_same(pid: int, start_time: int) -> int | None:
    """Return a pidfd of the process that started at ``start_time``; None if it is gone.

    Args:
        pid: Pid of the process, which another process may have reused.
        start_time: In clock ticks since boot.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as stack:
        pidfd = os.pidfd_open(pid)
        stack.callback(os.close, pidfd)
        if is_same_process(pid, start_time):
            stack.pop_all()
            return pidfd
    return None


def parse_identity(stat: bytes) -> tuple[int, int]:
    """Return pid and start time of a process from the content of its ``/proc/<pid>/stat``."""
    return int(stat.split(None, 1)[0]), int(stat[stat.rindex(b")") + 2 :].split()[_START_TIME])


def all_processes() -> dict[int, Proc]:
    """Return every live process by pid, in one pass.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    return _View().live


class _View:
    """Processes seen by passes over ``/proc``; a later pass reads only new processes.

    It must be used only briefly, so that pids are not recycled in the meantime.
    """

    def __init__(self) -> None:
        self.live: dict[int, Proc] = {}
        self.dead: dict[int, Proc] = {}
        self._environments: dict[int, list[bytes]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Make a pass."""
        listed = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
        for pid in listed - self.live.keys() - self.dead.keys():
            if (found := _read_stat(pid)) is not None:
                state, proc = found
                (self.dead if state in _DEAD else self.live)[pid] = proc

    def environment(self, pid: int) -> list[bytes]:
        """Return the entries of a process's environment; see :func:`_read_environment`."""
        if not (entries := self._environments.get(pid)):
            entries = self._environments[pid] = _read_environment(pid)
        return entries

    def lives(self, pid: int, start_time: int) -> bool:
        """Return whether the same process is alive."""
        return (proc := self.live.get(pid)) is not None and proc.start_time == start_time

    def exists(self, pid: int, start_time: int) -> bool:
        """Return whether the same process exists, even if it is dead and unreaped."""
        proc = self.live.get(pid) or self.dead.get(pid)
        return proc is not None and proc.start_time == start_time


def measure_usage(pids: Iterable[int]) -> tuple[int, float]:
    """Return resident memory in bytes and processor time in seconds, summed over some processes.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    pages = ticks = 0
    for pid in pids:
        if fields := _read_fields(pid):
            ticks += int(fields[11]) + int(fields[12])
            pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK")


def _read_environment(pid: int) -> list[bytes]:
    """Return the entries of a process's environment; empty if they cannot be read.

    A process has no environment during an exec, and so right after its spawn. This function waits
    for the end of the exec.
    """
    deadline = time.monotonic() + _EXEC_TIMEOUT_S
    raw = _read(pid, "environ")
    while raw == b"" and _is_in_exec(pid) and time.monotonic() < deadline:
        time.sleep(_EXEC_INTERVAL_S)
        raw = _read(pid, "environ")
    if raw == b"":  # the exec may have ended between the two reads
        raw = _read(pid, "environ")
    return raw.split(b"\0") if raw else []


def _is_in_exec(pid: int) -> bool:
    """Return whether a process has new memory, but no environment in it yet."""
    fields = _read_fields(pid)
    if not fields or fields[0] in _DEAD:
        return False
    has_memory = not int(fields[_FLAGS]) & (_PF_EXITING | _PF_KTHREAD)
    return has_memory and int(fields[_ENVIRONMENT_END]) == 0


def await_spawns() -> None:
    """Wait until recently forked processes have executed their programs. Blocks.

    A search misses processes that another process spawned while it was killed: until its program is
    executed, such a process looks like its parent. The wait ends after half a second even if a
    process does not execute a program.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    deadline = time.monotonic() + _SPAWN_TIMEOUT_S
    while any(map(_is_being_spawned, all_processes())) and time.monotonic() < deadline:
        time.sleep(_EXEC_INTERVAL_S)


def _is_being_spawned(pid: int) -> bool:
    fields = _read_fields(pid, _START_TIME + 1)
    if not fields or fields[0] in _DEAD or not int(fields[_FLAGS]) & _PF_FORKNOEXEC:
        return False
    now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    is_young = now - int(fields[_START_TIME]) < _YOUNG_S * os.sysconf("SC_CLK_TCK")
    return is_young and not int(fields[_FLAGS]) & (_PF_EXITING | _PF_KTHREAD)


def read_variables(pid: int) -> dict[str, str]:
    """Return the environment variables of a process at its start; empty if they cannot be read.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    entries = (os.fsdecode(entry).partition("=") for entry in _read_environment(pid))
    return {name: value for name, is_variable, value in entries if is_variable}


def find_variables(name: str) -> Iterator[dict[str, str]]:
    """Yield the variables of each live process of this user that was started with a given variable.

    Args:
        name: The variable.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    for pid in all_processes():
        if _is_own(pid) and name in (variables := read_variables(pid)):
            yield variables


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116 - called many times
    except OSError:
        return False


def waits_for_child(pid: int) -> bool:
    """Return whether the main thread of a process is known to sleep until a child ends.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    return (_read(pid, "wchan") or b"").startswith(_WAIT_CHANNEL)


def command_line(pid: int) -> str:
    """Return a process's command line; '' if it cannot be read.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    raw = _read(pid, "cmdline") or b""
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


@functools.cache
def boot_id() -> str:
    """Return the identity of this boot; pids and start times are valid only within it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def find_tree(marks: Iterable[Mark], known: Iterable[Proc] = ()) -> list[Proc]:
    """Return the live processes that belong to any of ``marks``; see :func:`find_trees`.

    Args:
        marks: The instances.
        known: An earlier answer.
    """
    return find_trees([Search(tuple(marks), tuple(known))])[0]


def find_trees(searches: Sequence[Search]) -> list[list[Proc]]:
    """Return for each search the live processes that belong to any of its marks.

    All searches share the passes over ``/proc``, because these are expensive. The calling process
    and its ancestors are never part of an answer.

    Raises:
        OSError: This process lacks descriptors or memory.
    """
    view = _View()
    found = _find_in(view, searches)
    # A pass can miss a process that forks and ends during the pass. Only two passes without results
    # prove that no process is left.
    empty = [place for place, members in enumerate(found) if not members]
    if empty:
        view.refresh()
        second = _find_in(view, [searches[place] for place in empty])
        for place, members in zip(empty, second, strict=True):
            found[place] = members
    return found


def _find_in(view: _View, searches: Sequence[Search]) -> list[list[Proc]]:
    children: dict[int, list[int]] = {}
    for proc in view.live.values():
        children.setdefault(proc.ppid, []).append(proc.pid)
    protected = set(ancestors(os.getpid(), view.live))
    return [
        [view.live[pid] for pid in _with_descendants(members, children) - protected]
        for members in _direct_members(view, searches)
    ]


def _direct_members(view: _View, searches: Sequence[Search]) -> list[set[int]]:
    """Return for each search the pids that belong to it for reasons other than descent."""
    found = [
        {proc.pid for proc in search.known if view.lives(proc.pid, proc.start_time)}
        for search in searches
    ]
    groups: dict[bytes, list[set[int]]] = {}
    for search, members in zip(searches, found, strict=True):
        for mark in search.marks:
            groups.setdefault(mark.cookie, []).append(members)
    for pid, cookies in _carriers(view, [mark for search in searches for mark in search.marks]):
        for cookie in cookies:
            for members in groups[cookie]:
                members.add(pid)
    return found


def _carriers(view: _View, marks: Sequence[Mark]) -> Iterator[tuple[int, Iterable[bytes]]]:
    """Yield the pids that carry cookies of ``marks``, or are in the sessions of their leaders."""
    wanted = {mark.cookie for mark in marks}
    sessions: dict[int, set[bytes]] = {}
    for mark in marks:
        for pid, start_time in mark.leaders:
            if view.exists(pid, start_time):
                sessions.setdefault(pid, set()).add(mark.cookie)
    oldest = _oldest_possible(marks)
    for proc in view.live.values():
        # A process in a session of the instance also has its cookie, so skip the expensive read of
        # its environment.
        if proc.session in sessions:
            yield proc.pid, sessions[proc.session]
        elif proc.start_time >= oldest:
            yield proc.pid, wanted.intersection(view.environment(proc.pid))


def _oldest_possible(marks: Iterable[Mark]) -> int:
    """Return the start time of the earliest leader; earlier processes carry no cookies."""
    starts = [[start_time for _, start_time in mark.leaders] for mark in marks]
    return min(map(min, starts)) if starts and all(starts) else 0


def ancestors(pid: int, processes: Mapping[int, Proc]) -> list[int]:
    """Return a process and its ancestors, the nearest first.

    Args:
        pid: The process.
        processes: The processes to search, by pid.
    """
    line = [pid]
    while (proc := processes.get(pid)) is not None and proc.ppid not in line:
        pid = proc.ppid
        line.append(pid)
    return line


def _with_descendants(members: set[int], children: Mapping[int, list[int]]) -> set[int]:
    found = set(members)
    pending = list(members)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def signal_processes(processes: Iterable[Proc], number: int) -> None:
    """Send a signal to each process that still exists; skip recycled pids.

    Raises:
        OSError: This process lacks descriptors.
    """
    for proc in processes:
        if (pidfd := open_same(proc.pid, proc.start_time)) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(pidfd, number)
            os.close(pidfd)


def kill_tree(marks: Iterable[Mark], timeout: float, known: Iterable[Proc] = ()) -> list[Proc]:
    """Kill every process of ``marks`` repeatedly, until all have ended. Blocks.

    Args:
        marks: The instances.
        timeout: Limit in seconds (a process in uninterruptible sleep does not die).
        known: An earlier answer of :func:`find_tree`, whose processes are killed too.

    Returns:
        The processes that are still alive.
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
