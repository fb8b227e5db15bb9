"""Checks of the machine: kernel, clock, and limits."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from clawblox.checks import MachineCheckResult, missing, ok, warning
from clawblox.cli.doctor import DoctorChecks
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.port_leases import LeaseFile
from clawblox.system.process_tree import all_processes, boot_id, read_process
from clawblox.system.regular_files import closing_fd

_NO_PORT = 0
"""Port whose slot in the lease file is never used otherwise."""

_CLOCK_LOOK_S = 0.05
_CLOCK_ERROR_S = 0.02
_BASE_DESCRIPTORS, _DESCRIPTORS_EACH = 32, 4
"""Descriptors that an orchestrator needs, and that each instance adds."""
_FEW_INSTANCES = 64
_FEW_PROCESSES = 100
_LITTLE_MEMORY = 500_000_000
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")

CHECKS: Final = DoctorChecks()
_kernel_check = partial(CHECKS.add, "Kernel", is_required=True)
_limit_check = partial(CHECKS.add, "Limits")


@_kernel_check(
    "pidfds",
    "No world can be started: its end would not be noticed.",
    "Use Linux 5.4 or later; in a container, let its seccomp profile allow pidfd_open.",
)
def _look_for_pidfds() -> MachineCheckResult:
    with closing_fd(os.pidfd_open(os.getpid())) as pidfd:
        signal.pidfd_send_signal(pidfd, 0)
        with suppress(ChildProcessError):  # a process cannot wait for itself
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    return ok(f"Linux {os.uname().release}")


@_kernel_check(
    "process table",
    "No world can be started: its processes would not be found.",
    "Mount /proc: mount -t proc proc /proc.",
)
def _look_at_proc() -> MachineCheckResult:
    with Path("/proc/self/environ").open("rb"):
        boot_id()
    return missing("/proc shows no processes") if read_process(os.getpid()) is None else ok("/proc")


@_kernel_check(
    "port leases",
    "No world can be started: two could get the same port.",
    "Make /tmp writable for you, on a local file system.",
)
def _look_at_leases() -> MachineCheckResult:
    leases = LeaseFile()
    leases.take(_NO_PORT)  # False while another doctor holds the slot, which is fine as well
    leases.release(_NO_PORT)
    return ok("open file description locks in /tmp")


@CHECKS.add(
    "Clock",
    "wall clock",
    "The times in manifests, and the names of runs and saves, are wrong.",
    "Set the clock: timedatectl set-ntp true.",
)
def _look_at_wall_clock() -> MachineCheckResult:
    wall, monotonic = utc_now(), time.monotonic()
    installed_at = Path(__file__).stat().st_mtime
    if wall.timestamp() < installed_at:
        return warning(f"{format_utc(wall)}, before clawblox was installed")
    time.sleep(_CLOCK_LOOK_S)
    drift = (utc_now() - wall).total_seconds() - (time.monotonic() - monotonic)
    if abs(drift) > _CLOCK_ERROR_S:
        return warning(f"it jumped by {drift:+.3f} s while it was watched")
    return ok(format_utc(wall))


@_limit_check(
    "open files",
    "Further instances fail with 'Too many open files'.",
    "Raise the limit: ulimit -n 65536, or LimitNOFILE= of the systemd unit.",
    is_required=True,
)
def look_at_open_files() -> MachineCheckResult:
    """Compare the limit of open files with the number that instances need."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return ok("unlimited")
    instances = (limit - _BASE_DESCRIPTORS) // _DESCRIPTORS_EACH
    if instances < 1:
        return missing(f"limit {limit}")
    text = f"limit {limit}, enough for about {instances} instances at once"
    return ok(text) if instances >= _FEW_INSTANCES else warning(text)


@_limit_check(
    "processes",
    "Further instances fail with 'Resource temporarily unavailable'.",
    "Raise the limit: ulimit -u, or the pids limit of the container.",
    is_required=True,
)
def look_at_processes() -> MachineCheckResult:
    """Compare the limits of processes with the number of running processes."""
    room = [limit - used for limit, used in _process_limits()]
    if not room:
        return ok("unlimited")
    text = f"{max(0, min(room))} more can be started"
    if min(room) < 1:
        return missing(text)
    return ok(text) if min(room) >= _FEW_PROCESSES else warning(text)


def _process_limits() -> Iterator[tuple[int, int]]:
    """Yield the limits and usage of the user and of the control group."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit != resource.RLIM_INFINITY and os.getuid() != 0:  # root has no limit
        yield limit, sum(_count_threads(pid) for pid in all_processes())
    yield from _control_group("pids.max", "pids.current")


def _count_threads(pid: int) -> int:
    try:
        tasks = Path(f"/proc/{pid}/task")
        return len(os.listdir(tasks)) if tasks.stat().st_uid == os.getuid() else 0  # noqa: PTH208
    except OSError:  # the process has ended
        return 0


@_limit_check(
    "memory",
    "The kernel may kill worlds (SIGKILL).",
    "Run fewer instances, or give the machine or container more memory.",
)
def look_at_memory() -> MachineCheckResult:
    """Measure the available memory of the machine and of the control group."""
    lines = (line.split() for line in _MEMINFO.read_text().splitlines())
    machine = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
    room = [limit - used for limit, used in _control_group("memory.max", "memory.current")]
    available = max(0, min([machine["MemAvailable:"], *room]))
    text = f"{format_bytes(available)} available of {format_bytes(machine['MemTotal:'])}"
    return ok(text) if available >= _LITTLE_MEMORY else warning(text)


def _control_group(limit_file: str, used_file: str) -> Iterator[tuple[int, int]]:
    """Yield limits and usage of our control group and its parents; see cgroups(7)."""
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
