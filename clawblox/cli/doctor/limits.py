"""Checks of resource limits: open files, processes, memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clawblox.cli.doctor.check import Check, CheckResult, missing, ok, warning
from clawblox.cli.tables.formatting import format_bytes
from clawblox.system.process_tree import all_processes

_BASE_DESCRIPTORS, _DESCRIPTORS_EACH = 32, 4
"""What an orchestrator has open, and what it has open for each instance."""
_FEW_INSTANCES = 64
_FEW_PROCESSES = 100
_LITTLE_MEMORY = 500_000_000
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")


def look_at_open_files() -> CheckResult:
    """Compare the limit of open files with what instances need."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return ok("unlimited")
    instances = (limit - _BASE_DESCRIPTORS) // _DESCRIPTORS_EACH
    if instances < 1:
        return missing(f"limit {limit}")
    found = f"limit {limit}, enough for about {instances} instances at once"
    return ok(found) if instances >= _FEW_INSTANCES else warning(found)


def look_at_processes() -> CheckResult:
    """Compare the limits of processes with those that run."""
    room = [limit - used for limit, used in _process_limits()]
    if not room:
        return ok("unlimited")
    found = f"{max(0, min(room))} more can be started"
    if min(room) < 1:
        return missing(found)
    return ok(found) if min(room) >= _FEW_PROCESSES else warning(found)


def _process_limits() -> Iterator[tuple[int, int]]:
    """Yield limits with what is used of them: of the user, and of the control group."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit != resource.RLIM_INFINITY and os.getuid() != 0:  # root has no limit
        yield limit, sum(_count_threads(pid) for pid in all_processes())
    yield from _control_group("pids.max", "pids.current")


def _count_threads(pid: int) -> int:
    try:
        tasks = Path(f"/proc/{pid}/task")
        return len(os.listdir(tasks)) if tasks.stat().st_uid == os.getuid() else 0  # noqa: PTH208
    except OSError:  # it has ended
        return 0


def look_at_memory() -> CheckResult:
    """Look how much memory is available, in the machine and in the control group."""
    lines = (line.split() for line in _MEMINFO.read_text().splitlines())
    machine = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
    room = [limit - used for limit, used in _control_group("memory.max", "memory.current")]
    available = max(0, min([machine["MemAvailable:"], *room]))
    found = f"{format_bytes(available)} available of {format_bytes(machine['MemTotal:'])}"
    return ok(found) if available >= _LITTLE_MEMORY else warning(found)


def _control_group(limit_file: str, used_file: str) -> Iterator[tuple[int, int]]:
    """Yield limits of our control group and those above it, with what is used; see cgroups(7)."""
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        return
    names = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    for name in names:
        own = _CGROUPS / name
        for group in (own, *own.parents[: len(Path(name).parts)]):
            try:
                limit = (group / limit_file).read_text().strip()
                if limit != "max":
                    yield int(limit), int((group / used_file).read_text())
            except OSError:  # the topmost group has no limits
                continue


_GROUP: Final = "Limits"

LIMIT_CHECKS: Final = (
    Check(
        _GROUP,
        "open files",
        look_at_open_files,
        "Further instances fail with 'Too many open files'.",
        "Raise the limit: ulimit -n 65536, or LimitNOFILE= of the systemd unit.",
        is_required=True,
    ),
    Check(
        _GROUP,
        "processes",
        look_at_processes,
        "Further instances fail with 'Resource temporarily unavailable'.",
        "Raise the limit: ulimit -u, or the pids limit of the container.",
        is_required=True,
    ),
    Check(
        _GROUP,
        "memory",
        look_at_memory,
        "The kernel may kill worlds (SIGKILL).",
        "Run fewer instances, or give the machine or container more memory.",
    ),
)
