"""Processes, read from proc(5) without the package, so that its bugs are not repeated here."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import wait_until

INSTANCE_ENV = "CLAWBLOX_INSTANCE"
GUARD_NAME = "clawblox-guard"
SETTLED_S = 5.0


class Process(NamedTuple):
    """One process, according to ``/proc/<pid>/stat``; state ``Z`` is a zombie."""

    parent: int
    state: str
    start_time: int

    @property
    def is_live(self) -> bool:
        return self.state not in "ZX"

    @property
    def is_settled(self) -> bool:
        """True if it has run long enough to execute its own program."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        return self.start_time < now - SETTLED_S * os.sysconf("SC_CLK_TCK")


def read_process(pid: int) -> Process | None:
    """Return a process, or None."""
    stat = _read_proc(pid, "stat")
    if not stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Process(int(fields[1]), fields[0].decode(), int(fields[19]))


def all_processes() -> dict[int, Process]:
    """Return every process by its id."""
    return _read_processes(_all_pids())


def _all_pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _read_processes(pids: Iterable[int]) -> dict[int, Process]:
    found = {pid: read_process(pid) for pid in pids}
    return {pid: process for pid, process in found.items() if process}


def live_processes() -> set[int]:
    """Return every process that is not a zombie."""
    return {pid for pid, process in all_processes().items() if process.is_live}


def is_alive(pid: int) -> bool:
    """Return whether a process is alive; a zombie is not."""
    process = read_process(pid)
    return process is not None and process.is_live


def descendants(pid: int) -> set[int]:
    """Return the descendants of a process, including zombies."""
    return _descendants(pid, all_processes())


def _descendants(pid: int, processes: Mapping[int, Process]) -> set[int]:
    family = {pid}
    while (
        more := {child for child, process in processes.items() if process.parent in family} - family
    ):
        family |= more
    return family - {pid}


def find_guards(*orchestrators: int) -> list[int]:
    """Return the live guards of the given orchestrators."""
    return _find_guards({str(pid) for pid in orchestrators}, _younger_processes(all_processes()))


def _find_guards(named: Collection[str], pids: Iterable[int]) -> list[int]:
    words = {pid: command_line(pid).split() for pid in pids}
    return [
        pid
        for pid, line in words.items()
        if line[-3:-2] == [GUARD_NAME] and line[-2] in named and line[1] == "-I"
    ]


def marked_processes(cookie: str | None = None) -> set[int]:
    """Return the live processes that carry an instance's cookie.

    Args:
        cookie: Value of the cookie; None means any instance of this test session.
    """
    entry = f"{INSTANCE_ENV}={cookie or ''}".encode()
    marked = {
        pid
        for pid in _younger_processes(all_processes())
        if any(
            variable == entry if cookie else variable.startswith(entry)
            for variable in _read_proc(pid, "environ").split(b"\0")
        )
    }
    return marked if cookie else {pid for pid in marked if _is_in(pid, _Session.directory)}


def processes_in(directory: Path) -> set[int]:
    """Return the live processes that name a path below ``directory``, or work in it or below.

    Environment, arguments and working directory are checked. This process is excluded.
    """
    return {pid for pid in _younger_processes(all_processes()) if _is_in(pid, directory)}


def _is_in(pid: int, directory: Path) -> bool:
    below = f"{directory}/".encode()
    return (
        below in _read_proc(pid, "environ")
        or below in _read_proc(pid, "cmdline")
        or f"{_working_directory(pid)}/".encode().startswith(below)
    )


def _younger_processes(processes: Mapping[int, Process]) -> set[int]:
    """Return the live processes that started after this one, which include all its children."""
    return {
        pid
        for pid, process in processes.items()
        if process.start_time >= _SELF.start_time and process.is_live and pid != os.getpid()
    }


def command_line(pid: int) -> str:
    """Return the arguments of a process, separated by blanks."""
    return _read_proc(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def kill_processes(find: Callable[[], Iterable[int]]) -> None:
    """Kill the processes that ``find`` returns until it returns none."""

    def kill_once() -> bool:
        found = list(find())
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(kill_once, what="killed processes are gone")


def _read_proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""


_SELF = all_processes()[os.getpid()]


def _working_directory(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


class _Session:
    """The test session; conftest names its directory."""

    directory = Path("/nonexistent")
    _newest: bytes = b""
    _ended: int | None = None
    _processes: frozenset[int] = frozenset()
    _strangers: frozenset[int] = frozenset()

    @classmethod
    def processes(cls) -> frozenset[int]:
        """Return the processes that descend from this one, guard it, or work below the directory.

        Most tests start no process. So all processes are scanned only if a process from the last
        scan has ended, or if a process has started since: anywhere on the machine or, if there were
        only guards, which start no processes, as a child of this process.
        """
        newest, ended = _newest_pid(), _ended_children()
        has_more = newest != cls._newest and (ended is None or ended != cls._ended)
        if has_more or not all(map(is_alive, cls._processes)):
            guards = cls._look()
            cls._newest = newest
            cls._ended = ended if guards == cls._processes else None
        return cls._processes

    @classmethod
    def _look(cls) -> frozenset[int]:
        """Scan all processes except those known to belong to others; return the guards."""
        strangers = cls._strangers & (pids := _all_pids())
        processes = _read_processes(pids - strangers)
        younger = _younger_processes(processes)
        family = _descendants(os.getpid(), processes)
        guards = frozenset(_find_guards({str(pid) for pid in (os.getpid(), *family)}, younger))
        cls._processes = frozenset(pid for pid in younger if _is_in(pid, cls.directory))
        cls._processes |= family | guards
        ours = cls._processes | {os.getpid()}
        cls._strangers = strangers | {
            pid for pid in processes.keys() - ours if processes[pid].is_settled
        }
        return guards


def _ended_children() -> int | None:
    """Return a number that grows with each reaped child; None while there is a child.

    The number counts minor page faults of children, which every process has; see getrusage(2).
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    return None


def _newest_pid() -> bytes:
    """Return the id that the kernel assigned last, to a process or thread; see proc(5)."""
    with open("/proc/loadavg", "rb", buffering=0) as file:
        return file.read().split()[-1]


def session_processes() -> frozenset[int]:
    """Return the processes of this test session."""
    return _Session.processes()


def name_session(directory: Path) -> None:
    """Set the directory below which every test of this session works."""
    _Session.directory = directory
    look_again()


def look_again() -> None:
    """Scan all processes at the next call of :func:`session_processes`."""
    _Session._newest = b""
    _Session._ended = None
    _Session._strangers = frozenset()
