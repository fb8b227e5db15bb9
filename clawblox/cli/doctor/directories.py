"""Checks of file systems: space, and the features that run directories need."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from clawblox.checks import CheckResult, missing, ok, warning
from clawblox.cli.doctor import Checks
from clawblox.config.home import home_dir
from clawblox.rundir.control_client import short_path
from clawblox.system.files import EXCHANGE, rename_with
from clawblox.system.port_leases import LEASE_ROOT
from clawblox.views.formatting import format_bytes

_LITTLE_SPACE, _NO_SPACE = 1_000_000_000, 10_000_000
_SLOW_SYNC_S = 0.5
_MOVE: Final = "Put run directories on a local disk: --run-dir."
_HERE: Final = Path()

CHECKS: Final = Checks()
_check_here = partial(CHECKS.add, "Current directory")


@_check_here(
    "space",
    "Runs in this directory cannot write their logs, records and snapshots.",
    "Free some space, or put run directories elsewhere: --run-dir.",
    is_required=True,
)
def look_at_space(directory: Path = _HERE) -> CheckResult:
    """Write a file into a directory or its nearest existing parent, and look at the free space."""
    directory = directory.absolute()
    place = next(path for path in (directory, *directory.parents) if path.is_dir())
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(b"clawblox")
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    text = f"{format_bytes(free)} free in {place}"
    if disk.f_files and not disk.f_favail:  # file systems without a limit have no count
        return missing(f"{text}, but no file can be added")
    if free < _NO_SPACE:
        return missing(text)
    return ok(text) if free >= _LITTLE_SPACE else warning(text)


@_check_here(
    "file locks",
    "Nothing can run here: two orchestrators could use one run directory.",
    _MOVE,
    is_required=True,
)
def look_for_locks(directory: Path = _HERE) -> CheckResult:
    """Lock a file twice; the second lock must be refused."""
    with _scratch(directory) as scratch, _created(scratch / "lock") as first:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with _created(scratch / "lock") as second, contextlib.suppress(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return missing("flock locks nothing")
    return ok("flock")


@_check_here(
    "hard links",
    "Nothing can run here: manifests and snapshots cannot be written.",
    _MOVE,
    is_required=True,
)
def look_for_links(directory: Path = _HERE) -> CheckResult:
    """Give a file a second name."""
    with _scratch(directory) as scratch, _created(scratch / "file"):
        os.link(scratch / "file", scratch / "link")
    return ok("link")


@_check_here(
    "exchange of files",
    "If a world and clawblox write the manifest at the same moment, an entry can be lost.",
    _MOVE,
)
def look_for_exchange(directory: Path = _HERE) -> CheckResult:
    """Let two files change places."""
    with (
        _scratch(directory) as scratch,
        _created(scratch / "one"),
        _created(scratch / "other"),
    ):
        is_possible = rename_with(EXCHANGE, scratch / "one", scratch / "other")
    return ok("renameat2") if is_possible else missing("renameat2 cannot exchange files here")


@_check_here(
    "sockets",
    "Nothing can run here: orchestrators cannot listen for other commands.",
    _MOVE,
    is_required=True,
)
def look_for_sockets(directory: Path = _HERE) -> CheckResult:
    """Bind a socket to a name."""
    with (
        _scratch(directory) as scratch,
        short_path(scratch / "socket") as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound,
    ):
        bound.bind(path)
    return ok("unix sockets")


@_check_here(
    "speed",
    "Each save and each start waits for the disk.",
    "Put run directories on a faster disk: --run-dir.",
)
def look_at_durability(directory: Path = _HERE) -> CheckResult:
    """Measure how long it takes to make a small file durable."""
    with _scratch(directory) as scratch, _created(scratch / "file") as fd:
        os.write(fd, b"clawblox")
        begun_at = time.monotonic()
        os.fsync(fd)
        elapsed = time.monotonic() - begun_at
    text = f"fsync takes {1000 * elapsed:.1f} ms"
    return ok(text) if elapsed < _SLOW_SYNC_S else warning(text)


@contextlib.contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    scratch = Path(tempfile.mkdtemp(prefix=".clawblox-doctor-", dir=directory))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


CHECKS.add(
    "Other directories",
    "downloads",
    "Worlds from GitHub cannot be downloaded.",
    "Free some space, or set CLAWBLOX_HOME to another directory.",
)(lambda: look_at_space(home_dir()))
CHECKS.add(
    "Other directories",
    "temporary files",
    "No world can be started: the leases of ports are files there.",
    "Free some space.",
    is_required=True,
)(partial(look_at_space, LEASE_ROOT))
