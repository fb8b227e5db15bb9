"""Checks of the kernel's features, and of the clock."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from clawblox.cli.doctor.check import Check, CheckResult, missing, ok, warning
from clawblox.instance.ramp import read_stall_s
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.port_leases import LeaseFile
from clawblox.system.process_tree import boot_id, read_process
from clawblox.system.sock_diag import has_sock_diag

_NO_PORT = 0
"""Its slot in the lease file is never used."""

_CLOCK_LOOK_S = 0.05
_CLOCK_ERROR_S = 0.02
_TIME_ERROR = 5
"""What adjtimex(2) returns for a clock that is not synchronised."""
_TIMEX_BYTES = 512
"""More than ``struct timex`` has anywhere."""


def _look_for_pidfds() -> CheckResult:
    pidfd = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(pidfd, 0)
        with suppress(ChildProcessError):  # this process is no child of its own
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    finally:
        os.close(pidfd)
    return ok(f"Linux {os.uname().release}")


def _look_for_event_descriptors() -> CheckResult:
    os.close(os.eventfd(0))
    select.epoll().close()
    return ok("epoll and eventfd")


def _look_at_proc() -> CheckResult:
    with Path("/proc/self/environ").open("rb"):
        boot_id()
    return missing("/proc shows no processes") if read_process(os.getpid()) is None else ok("/proc")


def _look_at_leases() -> CheckResult:
    leases = LeaseFile()
    leases.take(_NO_PORT)  # False while another doctor has it, which shows that it works
    leases.release(_NO_PORT)
    return ok("open file description locks in /tmp")


def _look_for_sock_diag() -> CheckResult:
    return ok("sock_diag") if has_sock_diag() else missing("sock_diag is not available")


def _look_for_pressure() -> CheckResult:
    path = "/proc/pressure/cpu"
    return missing(f"no {path}") if read_stall_s() is None else ok(path)


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


def _look_at_synchronisation() -> CheckResult:
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    answer = -1 if adjtimex is None else adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if answer < 0:
        return warning("the kernel does not tell")
    return warning("not synchronised") if answer == _TIME_ERROR else ok("synchronised")


_KERNEL: Final = "Kernel"
_CLOCK: Final = "Clock"

KERNEL_CHECKS: Final = (
    Check(
        _KERNEL,
        "pidfds",
        _look_for_pidfds,
        "No world can be started: its end would not be noticed.",
        "Use Linux 5.4 or later; in a container, let its seccomp profile allow pidfd_open.",
        is_required=True,
    ),
    Check(
        _KERNEL,
        "event descriptors",
        _look_for_event_descriptors,
        "No world can be started: starts are watched through them.",
        "Use a Linux kernel, not an emulation of one.",
        is_required=True,
    ),
    Check(
        _KERNEL,
        "process table",
        _look_at_proc,
        "No world can be started: its processes would not be found.",
        "Mount /proc: mount -t proc proc /proc.",
        is_required=True,
    ),
    Check(
        _KERNEL,
        "port leases",
        _look_at_leases,
        "No world can be started: two could get the same port.",
        "Make /tmp writable for you, on a local file system.",
        is_required=True,
    ),
    Check(
        _KERNEL,
        "list of listeners",
        _look_for_sock_diag,
        "Starts are slower: the owner of a port is looked up among all connections.",
        "In a container, allow netlink sockets.",
    ),
    Check(
        _KERNEL,
        "CPU pressure",
        _look_for_pressure,
        "Starts of many worlds are limited by their times alone, and tables show no pressure.",
        "Boot with the kernel parameter psi=1.",
    ),
    Check(
        _CLOCK,
        "wall clock",
        _look_at_wall_clock,
        "The times in manifests, and the names of runs and saves, are wrong.",
        "Set the clock: timedatectl set-ntp true.",
    ),
    Check(
        _CLOCK,
        "synchronisation",
        _look_at_synchronisation,
        "Times of different machines cannot be compared.",
        "Run a time service: apt install chrony.",
    ),
)
