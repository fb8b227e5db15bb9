"""The lease of the process that drives an experiment, for file systems without reliable locks.

``.clawblox/driver.json`` names the driver, which updates the time in the file four times per lease.
A driver of this boot and pid namespace is checked directly. Any other driver is alive if the file
changes while it is watched for longer than a lease; clocks of machines are never compared.

To take over, a process links its file to ``driver.<id of the previous driver>.json``: link(2) lets
exactly one process succeed, even on NFS. A process killed after that step still counts as a driver,
because the last file of such a chain is valid. The winner renames its file to ``driver.json``. The
driver renews the file in place instead of renaming, because a file server could perform a rename
late and overwrite the file of a successor.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec

from clawblox.errors import ClawbloxError, RunLockedError
from clawblox.printable import printable_name, quote_words
from clawblox.rundir.claims import describe_holder
from clawblox.rundir.paths import state_dir
from clawblox.system.append_log import LogChangedError
from clawblox.system.files import PartialFile, make_private_dir, write_all
from clawblox.system.locks import LockOwner, is_file_at
from clawblox.system.process_tree import boot_id, read_process, read_start_time
from clawblox.system.regular_files import read_regular
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

LEASE_S: Final = 30.0
"""Time after which a driver that has not renewed its lease is replaced, in seconds."""
_LOOK_S: Final = 0.1
_NAME: Final = "driver.json"
_MAX_BYTES: Final = 4096
_MAX_CLAIMS: Final = 64


class DrivingProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The process that drives an experiment.

    Attributes:
        id: Unique identity of this driver.
        host: Name of the machine.
        boot_id: Boot of the machine.
        pid_ns: Pid namespace of the process, within the boot.
        pid: Pid of the process.
        start_time: Start of the process, in clock ticks since boot.
        lease_s: Length of the lease, in seconds.
        renewed_ns: Time since boot of the last renewal; always 20 digits, so that the file keeps
            its length.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    host: Annotated[str, msgspec.Meta(max_length=255)]
    boot_id: str
    pid_ns: int
    pid: Annotated[int, msgspec.Meta(ge=1)]
    start_time: int
    lease_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)]
    renewed_ns: str = ""

    @classmethod
    def own(cls) -> Self:
        """Return this process as a new driver. Blocks."""
        return cls(
            id=secrets.token_hex(8),
            host=os.uname().nodename,
            boot_id=boot_id(),
            pid_ns=Path("/proc/self/ns/pid").stat().st_ino,
            pid=os.getpid(),
            start_time=read_start_time(os.getpid()),
            lease_s=LEASE_S,
        )

    def is_beside(self, other: DrivingProcess) -> bool:
        """Return whether two drivers share a boot and a pid namespace, so pids are comparable."""
        return (self.boot_id, self.pid_ns) == (other.boot_id, other.pid_ns)


_decode = msgspec.json.Decoder(DrivingProcess).decode


class DriverLease:
    """The right to drive an experiment. Every method blocks.

    Args:
        directory: The existing directory of the experiment.

    Attributes:
        driver: This process as the driver, once it has the lease.
    """

    def __init__(self, directory: Path) -> None:
        self._root = state_dir(directory) / _NAME
        self._file: PartialFile | None = None
        self._renewed_at = 0.0
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="clawblox-driver", daemon=True)
        self.driver: DrivingProcess

    @property
    def remaining_s(self) -> float:
        """Seconds until the lease expires without a renewal; negative afterwards."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return self._renewed_at + self.driver.lease_s - now

    def take(self) -> None:
        """Take the lease, and keep it until :meth:`release`.

        A driver on another machine is first watched for the length of a lease; :meth:`interrupt`
        ends the wait.

        Raises:
            RunLockedError: Another process drives the experiment.
            ClawbloxError: The file of the previous driver is malformed.
            OSError: The lease cannot be taken.
        """
        make_private_dir(self._root.parent)
        self.driver = DrivingProcess.own()
        while not self._claim(*_follow(self._root)):
            pass
        self._keeper.start()
        own_next = _next(self._root, self.driver)
        for other in set(self._root.parent.glob("driver.*.json")) - {own_next}:
            other.unlink(missing_ok=True)

    def interrupt(self) -> None:
        """Make a :meth:`take` waiting in another thread fail with InterruptedError."""
        self._closing.set()

    def _claim(self, claims: list[bytes], path: Path) -> bool:
        """Outlast the last driver, and link a file to the next path; return whether that worked."""
        if claims:
            self._outlast(_decode(claims[-1]), claims)
        renewed_at, data = self._encode()
        file = PartialFile(self._root.parent, _NAME)
        try:
            write_all(file.fd, data)
            # A file server may have performed the link twice.
            with contextlib.suppress(FileExistsError):
                file.publish(path, overwrite=False)
            # The previous driver may have renewed its lease, or ended, since it was watched.
            if is_file_at(path, file.fd) and _follow(self._root)[0] == [*claims, data]:
                path.replace(self._root)
                self._file, self._renewed_at = file, renewed_at
            return self._file is not None
        finally:
            if self._file is None:
                if is_file_at(path, file.fd):
                    path.unlink()
                file.close()

    def _outlast(self, driver: DrivingProcess, claims: list[bytes]) -> None:
        """Wait until a driver has ended."""
        if self.driver.is_beside(driver):
            process = read_process(driver.pid)
            if process is not None and process.start_time == driver.start_time:
                raise driven_error(self._root, driver)
            return
        wait_s = driver.lease_s + 1.0
        event = f"waiting {wait_s:g} s to see whether the driver on another machine still runs"
        _log.warning(event, host=printable_name(driver.host), pid=driver.pid, path=str(self._root))
        deadline = time.monotonic() + wait_s
        while (found := _follow(self._root)[0]) == claims and time.monotonic() < deadline:
            if self._closing.wait(_LOOK_S):
                raise InterruptedError("another driver was waited for")
        if found != claims and driver.id.encode() in b"".join(found[-1:]):
            raise driven_error(self._root, driver)

    def _encode(self) -> tuple[float, bytes]:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        driver = msgspec.structs.replace(self.driver, renewed_ns=f"{now_ns:020}")
        return now_ns / 1e9, msgspec.json.encode(driver)

    def _keep(self) -> None:
        while not self._closing.wait(self.driver.lease_s / 4):
            with contextlib.suppress(OSError):
                self._renew()

    def _renew(self) -> None:
        assert self._file is not None
        renewed_at, data = self._encode()
        os.pwrite(self._file.fd, data, 0)
        os.fdatasync(self._file.fd)
        self._renewed_at = renewed_at

    def _is_held(self) -> bool:
        is_ours = self._file is not None and is_file_at(self._root, self._file.fd)
        return is_ours and not os.path.lexists(_next(self._root, self.driver))

    def require_held(self) -> None:
        """Check that this process still drives, and renew the lease if the renewal is late.

        Raises:
            LogChangedError: Another process drives, or the lease has expired and cannot be renewed.
        """
        if self.remaining_s < self.driver.lease_s * 0.75:  # after a pause or a hanging write
            try:
                self._renew()
            except OSError as error:
                if self.remaining_s < 0:
                    raise LogChangedError(f"{self._root} cannot be renewed: {error}") from error
        if not self._is_held():
            raise LogChangedError(f"{self._root} was removed or replaced by another driver")

    def release(self) -> None:
        """Stop driving, and remove the file. Idempotent; has no effect in a forked child."""
        if self._file is None or self.driver.pid != os.getpid():
            return
        self._closing.set()
        if self._keeper.is_alive():
            self._keeper.join()
        with contextlib.suppress(OSError):
            if self._is_held():
                self._root.unlink()
        self._file.close()
        self._file = None


def read_driver(directory: Path) -> DrivingProcess | None:
    """Return the driver recorded for an experiment, alive or not; None if there is none. Blocks.

    Args:
        directory: The directory of the experiment.
    """
    try:
        claims, _ = _follow(state_dir(directory) / _NAME)
    except (OSError, ClawbloxError):
        return None
    return _decode(claims[-1]) if claims else None


def _next(root: Path, driver: DrivingProcess) -> Path:
    return root.with_name(f"driver.{driver.id}.json")


def _follow(root: Path) -> tuple[list[bytes], Path]:
    """Return the contents of a chain of claims, the driver last, and the path of the next."""
    claims: list[bytes] = []
    path = root
    try:
        while len(claims) < _MAX_CLAIMS:
            claims.append(read_regular(path, max_bytes=_MAX_BYTES))
            path = _next(root, _decode(claims[-1]))
    except FileNotFoundError:
        return claims, path
    except msgspec.DecodeError:
        pass
    hint = "if no process runs the experiment, remove this file"
    raise ClawbloxError(f"{path} is malformed: it names no driver", hint=hint)


def driven_error(path: Path, owner: DrivingProcess | LockOwner | None) -> RunLockedError:
    """Return the error for an experiment that another process drives. Blocks.

    Args:
        path: The file that names this process, in the state directory of the experiment.
        owner: The process; None if unknown.
    """
    directory = path.parent.parent
    pid = None if owner is None else owner.pid
    holder, where = describe_holder(pid), ""
    if owner is not None and owner.host != os.uname().nodename:  # its command is unknown here
        host = printable_name(owner.host)
        holder, where = f"pid {pid} on {host}", f"on {host}: "
    stop = quote_words(("clawblox", "experiment", "stop", str(directory)))
    return RunLockedError(
        f"{holder} runs the experiment in {directory}",
        path=path,
        pid=pid,
        hint=f"{where}{stop} stops it; status and results still work",
    )
