"""Checks of file systems and ports that no start makes, and of leftover worlds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.checks import MachineCheckResult, missing, ok, warning
from clawblox.cli.doctor import DoctorChecks
from clawblox.config.home import home_dir
from clawblox.errors import ManifestError
from clawblox.printable import name_some, quote_words
from clawblox.rundir.records import InstanceRecord, read_records
from clawblox.system.amounts import format_bytes
from clawblox.system.files import EXCHANGE, rename_with
from clawblox.system.locks import is_file_at
from clawblox.system.port_leases import LEASE_RANGE
from clawblox.system.ports import ephemeral_range
from clawblox.system.process_tree import all_processes, read_process, read_variables
from clawblox.system.regular_files import closing_fd
from clawblox.system.scratch import temporary_directory

_LITTLE_SPACE, _NO_SPACE = 1_000_000_000, 10_000_000
_SLOW_SYNC_S = 0.5
_MOVE: Final = "Put run directories on a local disk: --run-dir."
_HERE: Final = Path()
_SHOWN: Final = 3

_LOCK: Final = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = re.compile("nfs|lustre|cifs|smb|ceph|beegfs|gpfs|glusterfs|fuse|9p|virtiofs|afs")
"""Prefixes of the types of file systems that several machines may share."""

CHECKS: Final = DoctorChecks()
_check_here = partial(CHECKS.add, "Current directory", remedy=_MOVE)
_require_here = partial(_check_here, is_required=True)


@_require_here(
    "space",
    "Runs in this directory cannot write their logs, records and snapshots.",
    remedy="Free some space, or put run directories elsewhere: --run-dir.",
)
def look_at_space(directory: Path = _HERE) -> MachineCheckResult:
    """Write a file into a directory or its nearest existing parent, and measure the free space."""
    directory = directory.absolute()
    place = next(path for path in (directory, *directory.parents) if path.is_dir())
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(b"clawblox")
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    text = f"{format_bytes(free)} free in {place}"
    if disk.f_files and not disk.f_favail:  # file systems without a limit on inodes report 0
        return missing(f"{text}, but no file can be added")
    if free < _NO_SPACE:
        return missing(text)
    return ok(text) if free >= _LITTLE_SPACE else warning(text)


@_require_here(
    "file locks",
    "Nothing can run here: two orchestrators could use one run directory.",
)
def look_for_locks(directory: Path = _HERE) -> MachineCheckResult:
    """Lock a file, and check that another process cannot lock it as well."""
    with _scratch(directory) as scratch, _created(scratch / "lock") as first:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        words = [sys.executable, "-I", "-S", "-c", _LOCK, str(scratch / "lock")]
        if b"BlockingIOError" not in subprocess.run(words, capture_output=True, check=False).stderr:
            return missing("flock locks nothing")
    return ok("flock")


@_check_here("file system", "Experiments here end with the machine.")
def look_at_file_system(directory: Path = _HERE) -> MachineCheckResult:
    """Report the type of a file system and its lock against a second driver of an experiment."""
    mounts = {
        Path(line.split()[4].replace("\\040", " ")): line.partition(" - ")[2].split()[0]
        for line in _MOUNTS.read_text(errors="surrogateescape").splitlines()
    }
    places = filter(directory.resolve().is_relative_to, mounts)
    kind = mounts[max(places, key=lambda place: len(place.parts))]
    if kind in ("tmpfs", "ramfs"):
        return warning(f"{kind}: its files are lost with the machine")
    promise = "other machines wait for the lease of a driver" if _SHARED.match(kind) else "local"
    return ok(f"{kind}: {promise}")


@_require_here(
    "replaced files",
    "Nothing can run here: files would be incomplete, and two could drive one experiment.",
)
def look_for_replacing(directory: Path = _HERE) -> MachineCheckResult:
    """Rename a file over another file, and check that an existing file cannot be created again."""
    with (
        _scratch(directory) as scratch,
        _created(scratch / "new") as new,
        _created(scratch / "old"),
    ):
        (scratch / "new").replace(scratch / "old")
        if not is_file_at(scratch / "old", new):
            return missing("rename replaces nothing")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(scratch / "old", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            return missing("O_EXCL creates a file that exists")
    return ok("rename, O_EXCL")


@_check_here(
    "exchange of files",
    "If a world and clawblox write the manifest at the same moment, an entry can be lost.",
)
def look_for_exchange(directory: Path = _HERE) -> MachineCheckResult:
    """Exchange two files."""
    with _scratch(directory) as scratch, _created(scratch / "one"), _created(scratch / "other"):
        is_possible = rename_with(EXCHANGE, scratch / "one", scratch / "other")
    return ok("renameat2") if is_possible else missing("renameat2 cannot exchange files here")


@_check_here(
    "speed",
    "Each save and each start waits for the disk.",
    remedy="Put run directories on a faster disk: --run-dir.",
)
def look_at_durability(directory: Path = _HERE) -> MachineCheckResult:
    """Measure how long it takes to make a small file durable."""
    with _scratch(directory) as scratch, _created(scratch / "file") as fd:
        os.write(fd, b"clawblox")
        begun_at = time.monotonic()
        os.fsync(fd)
        elapsed = time.monotonic() - begun_at
    text = f"fsync takes {1000 * elapsed:.1f} ms"
    return ok(text) if elapsed < _SLOW_SYNC_S else warning(text)


def _scratch(directory: Path) -> AbstractContextManager[Path]:
    return temporary_directory(".clawblox-doctor-", parent=directory)


def _created(path: Path) -> AbstractContextManager[int]:
    return closing_fd(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


CHECKS.add(
    "Other directories",
    "downloads",
    "Worlds from GitHub cannot be downloaded.",
    "Free some space, or set CLAWBLOX_HOME to another directory.",
)(lambda: look_at_space(home_dir()))


@CHECKS.add(
    "Network",
    "port ranges",
    "An outgoing connection can take the port of a world that starts.",
    "Separate them: sysctl net.ipv4.ip_local_port_range='32768 60999'.",
)
def look_at_range(
    leased: range = LEASE_RANGE, ephemeral: range | None = None
) -> MachineCheckResult:
    """Compare the ports of worlds with the ports that the kernel gives to outgoing connections."""
    ephemeral = ephemeral or ephemeral_range()
    shared = range(max(leased.start, ephemeral.start), min(leased.stop, ephemeral.stop))
    text = f"the kernel uses {ephemeral.start} to {ephemeral.stop - 1}"
    return warning(f"{text}, {len(shared)} of ours") if shared else ok(text)


@CHECKS.add(
    "Processes",
    "left behind",
    "Worlds without an orchestrator keep their ports and use the processor.",
    "End them with the commands above.",
)
def _look_for_orphans() -> MachineCheckResult:
    orphans = dict(_find_orphans())
    if not orphans:
        return ok("none")
    commands = sorted({quote_words(("clawblox", "stop", path)) for path in orphans.values()})
    pids = name_some([*map(str, orphans)], _SHOWN)
    return warning(f"pid {pids}: {'; '.join(commands)}")


def _find_orphans() -> Iterator[tuple[int, str]]:
    """Yield processes of instances whose orchestrator is gone, with their run directory."""
    for pid in all_processes():
        variables = read_variables(pid)
        cookie = variables.get(protocol.INSTANCE_ENV)
        manifest = variables.get(protocol.MANIFEST_ENV)
        if cookie and manifest:
            # The run directory itself if it has one instance.
            instance_dir = Path(manifest).parent.parent
            for run_dir in (instance_dir, instance_dir.parent.parent):
                with contextlib.suppress(ManifestError):  # written by a later version of clawblox
                    if any(_is_orphan(record, cookie) for record in read_records(run_dir)):
                        yield pid, str(run_dir)


def _is_orphan(record: InstanceRecord, cookie: str) -> bool:
    is_its_own = record.cookie == cookie and not record.is_detached
    return is_its_own and read_process(record.orchestrator_pid) is None
