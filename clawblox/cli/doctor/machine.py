"""Checks of the machine: kernel, clock, limits, network, and processes left behind."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.checks import Check, CheckResult, missing, ok, warning
from clawblox.errors import ManifestError
from clawblox.rundir.records import InstanceRecord, read_records
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.port_leases import LeaseFile
from clawblox.system.ports import LEASE_RANGE, ephemeral_range, every_listener
from clawblox.system.process_tree import all_processes, boot_id, read_process, read_variables
from clawblox.views.formatting import format_bytes

_NO_PORT = 0
"""Its slot in the lease file is never used."""

_CLOCK_LOOK_S = 0.05
_CLOCK_ERROR_S = 0.02
_BASE_DESCRIPTORS, _DESCRIPTORS_EACH = 32, 4
"""Descriptors of an orchestrator, and those that each instance adds."""
_FEW_INSTANCES = 64
_FEW_PROCESSES = 100
_LITTLE_MEMORY = 500_000_000
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")
_SHOWN = 3
_FEW_PORTS = 100


def _look_for_pidfds() -> CheckResult:
    pidfd = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(pidfd, 0)
        with suppress(ChildProcessError):  # this process is no child of its own
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    finally:
        os.close(pidfd)
    return ok(f"Linux {os.uname().release}")


def _look_at_proc() -> CheckResult:
    with Path("/proc/self/environ").open("rb"):
        boot_id()
    return missing("/proc shows no processes") if read_process(os.getpid()) is None else ok("/proc")


def _look_at_leases() -> CheckResult:
    leases = LeaseFile()
    leases.take(_NO_PORT)  # False while another doctor has it: that works too
    leases.release(_NO_PORT)
    return ok("open file description locks in /tmp")


def _look_at_wall_clock() -> CheckResult:
    wall, monotonic = utc_now(), time.monotonic()
    installed_at = Path(__file__).stat().st_mtime
    if wall.timestamp() < installed_at:
        return warning(f"{format_utc(wall)}, before clawblox was installed")
    time.sleep(_CLOCK_LOOK_S)
    drift = (utc_now() - wall).total_seconds() - (time.monotonic() - monotonic)
    if abs(drift) > _CLOCK_ERROR_S:
        return warning(f"it jumped by {drift:+.3f} s while it was watched")
    return ok(format_utc(wall))


_kernel_check = partial(Check, "Kernel", is_required=True)

KERNEL_CHECKS: Final = (
    _kernel_check(
        "pidfds",
        _look_for_pidfds,
        "No world can be started: its end would not be noticed.",
        "Use Linux 5.4 or later; in a container, let its seccomp profile allow pidfd_open.",
    ),
    _kernel_check(
        "process table",
        _look_at_proc,
        "No world can be started: its processes would not be found.",
        "Mount /proc: mount -t proc proc /proc.",
    ),
    _kernel_check(
        "port leases",
        _look_at_leases,
        "No world can be started: two could get the same port.",
        "Make /tmp writable for you, on a local file system.",
    ),
    Check(
        "Clock",
        "wall clock",
        _look_at_wall_clock,
        "The times in manifests, and the names of runs and saves, are wrong.",
        "Set the clock: timedatectl set-ntp true.",
    ),
)


def look_at_open_files() -> CheckResult:
    """Compare the limit of open files with what instances need."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return ok("unlimited")
    instances = (limit - _BASE_DESCRIPTORS) // _DESCRIPTORS_EACH
    if instances < 1:
        return missing(f"limit {limit}")
    text = f"limit {limit}, enough for about {instances} instances at once"
    return ok(text) if instances >= _FEW_INSTANCES else warning(text)


def look_at_processes() -> CheckResult:
    """Compare the limits of processes with those that run."""
    room = [limit - used for limit, used in _process_limits()]
    if not room:
        return ok("unlimited")
    text = f"{max(0, min(room))} more can be started"
    if min(room) < 1:
        return missing(text)
    return ok(text) if min(room) >= _FEW_PROCESSES else warning(text)


def _process_limits() -> Iterator[tuple[int, int]]:
    """Yield limits and their usage: of the user, and of the control group."""
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


_limit_check = partial(Check, "Limits")

LIMIT_CHECKS: Final = (
    _limit_check(
        "open files",
        look_at_open_files,
        "Further instances fail with 'Too many open files'.",
        "Raise the limit: ulimit -n 65536, or LimitNOFILE= of the systemd unit.",
        is_required=True,
    ),
    _limit_check(
        "processes",
        look_at_processes,
        "Further instances fail with 'Resource temporarily unavailable'.",
        "Raise the limit: ulimit -u, or the pids limit of the container.",
        is_required=True,
    ),
    _limit_check(
        "memory",
        look_at_memory,
        "The kernel may kill worlds (SIGKILL).",
        "Run fewer instances, or give the machine or container more memory.",
    ),
)


def look_for_free_ports(leased: range) -> CheckResult:
    """Count the ports that worlds can get, on which no process listens."""
    taken = {port for port, _ in every_listener() if port in leased}
    free = len(leased) - len(taken)
    text = f"{free} of {len(leased)} free, {leased.start} to {leased.stop - 1}"
    if not free:
        return missing(text)
    return ok(text) if free >= _FEW_PORTS else warning(text)


def look_at_range(leased: range, ephemeral: range) -> CheckResult:
    """Compare the ports of worlds with those that the kernel gives to outgoing connections."""
    shared = range(max(leased.start, ephemeral.start), min(leased.stop, ephemeral.stop))
    text = f"the kernel uses {ephemeral.start} to {ephemeral.stop - 1}"
    return warning(f"{text}, {len(shared)} of ours") if shared else ok(text)


def look_for_loopback(host: str) -> CheckResult:
    """Listen on an address and connect to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(family) as client:
        listener.bind((host, 0))
        listener.listen()
        client.settimeout(1.0)
        client.connect(listener.getsockname())
    return ok(host)


_network_check = partial(Check, "Network")

NETWORK_CHECKS: Final = (
    _network_check(
        "free ports",
        partial(look_for_free_ports, LEASE_RANGE),
        "Further instances fail with 'no free port'.",
        "Stop what listens on these ports.",
        is_required=True,
    ),
    _network_check(
        "port ranges",
        lambda: look_at_range(LEASE_RANGE, ephemeral_range()),
        "An outgoing connection can take the port of a world that starts.",
        "Separate them: sysctl net.ipv4.ip_local_port_range='32768 60999'.",
    ),
    _network_check(
        "IPv4 loopback",
        partial(look_for_loopback, "127.0.0.1"),
        "No world can be started with its default address.",
        "Bring the loopback up: ip link set lo up.",
        is_required=True,
    ),
)


def _look_for_orphans() -> CheckResult:
    orphans = dict(_find_orphans())
    if not orphans:
        return ok("none")
    commands = sorted({f"clawblox stop {shlex.quote(run_dir)}" for run_dir in orphans.values()})
    pids = ", ".join(map(str, list(orphans)[:_SHOWN]))
    more = f" and {len(orphans) - _SHOWN} more" if len(orphans) > _SHOWN else ""
    return warning(f"pid {pids}{more}: {'; '.join(commands)}")


def _find_orphans() -> Iterator[tuple[int, str]]:
    """Yield processes of instances whose orchestrator is gone, with their run directory."""
    for pid in all_processes():
        variables = read_variables(pid)
        cookie = variables.get(protocol.INSTANCE_ENV)
        manifest = variables.get(protocol.MANIFEST_ENV)
        if cookie and manifest:
            for run_dir in _possible_run_dirs(Path(manifest)):
                with suppress(ManifestError):  # a later version of clawblox wrote it
                    if any(_is_orphan(record, cookie) for record in read_records(run_dir)):
                        yield pid, str(run_dir)


def _possible_run_dirs(manifest: Path) -> tuple[Path, ...]:
    """Return the directory of an instance, and of the run if it has many instances."""
    instance_dir = manifest.parent.parent
    return instance_dir, instance_dir.parent.parent


def _is_orphan(record: InstanceRecord, cookie: str) -> bool:
    is_its_own = record.cookie == cookie and not record.is_detached
    return is_its_own and read_process(record.orchestrator_pid) is None


ORPHAN_CHECKS: Final = (
    Check(
        "Processes",
        "left behind",
        _look_for_orphans,
        "Worlds without an orchestrator keep their ports and use the processor.",
        "End them with the commands above.",
    ),
)
