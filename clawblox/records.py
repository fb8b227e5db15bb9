"""Instance records: what runs in a run directory, on disk for every other process to read.

``<run dir>/.clawblox/instances/<name>.json`` tells where an instance is and how it ended. Its
lock, held by the orchestrator that owns it, makes the name unique in the run directory. A
record holds no secret.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import attrs
import msgspec

from clawblox.clock import format_utc, utc_now
from clawblox.errors import RunLockedError
from clawblox.files import lock_file, lock_owner, make_private_dir, publish_bytes, unlock_file
from clawblox.model import WorldExit
from clawblox.proctree import boot_id, command_line, is_same_process, read_process

__all__ = [
    "Claim",
    "InstanceRecord",
    "claim_name",
    "close_stale_records",
    "read_record",
    "read_records",
    "read_running",
    "write_record",
]

RecordState = Literal["starting", "ready", "exited", "failed"]


@attrs.frozen
class InstanceRecord:
    """One instance of a run, as the disk tells it.

    Attributes:
        name: Its name.
        state: What its orchestrator wrote last; see :attr:`is_alive`.
        world: Name of the world.
        world_dir: Directory with the ``world.toml``.
        host: Address it was told to bind.
        port: Its port.
        base_path: Prefix of its routes.
        url: Its address.
        pid: Process of the world; 0 before there is one.
        start_time: Start of that process, in clock ticks since boot.
        boot_id: The boot in which pid and start time mean anything.
        cookie: Value of ``CLAWBLOX_INSTANCE`` in its processes.
        command_file: Script that reruns the launch.
        log_file: Its output.
        log_start: Offset of its first byte in the log.
        started_at: UTC time of the start.
        ended_at: UTC time of the end.
        resume_path: Snapshot that it was restored from.
        is_detached: Whether it outlives its orchestrator.
        orchestrator_pid: Who started it.
        exit: How it ended.
    """

    name: str
    state: RecordState
    world: str
    world_dir: str
    host: str
    port: int
    base_path: str
    url: str
    pid: int
    start_time: int
    boot_id: str
    cookie: str
    command_file: str
    log_file: str
    log_start: int
    started_at: str
    ended_at: str | None
    resume_path: str | None
    is_detached: bool
    orchestrator_pid: int
    exit: WorldExit | None

    @property
    def is_alive(self) -> bool:
        """Whether the world's process lives now, whatever the record says."""
        return (
            self.pid > 0
            and self.boot_id == boot_id()
            and is_same_process(self.pid, self.start_time)
            and read_process(self.pid) is not None
        )

    def ended(self) -> InstanceRecord:
        """Return the record of an instance that has ended now, nobody knows how."""
        state: RecordState = "exited" if self.state == "ready" else "failed"
        return attrs.evolve(self, state=state, ended_at=format_utc(utc_now()))


class Claim:
    """The exclusive right to a name in a run directory."""

    def __init__(self, name: str, lock_path: Path, fd: int) -> None:
        self.name = name
        self._lock_path = lock_path
        self._fd = fd

    def release(self) -> None:
        """Give the name back; a second call does nothing."""
        if self._fd >= 0:
            unlock_file(self._lock_path, self._fd)
            self._fd = -1


def claim_name(
    run_dir: Path,
    name: str | None,
    *,
    may_be_alive: bool = False,
    taken: Collection[str] = (),
) -> Claim:
    """Claim ``name``, or the first free of ``w000``, ``w001``, … for None. Blocks.

    Args:
        run_dir: The run directory.
        name: The name.
        may_be_alive: Also claim the name of a running instance that nobody owns.
        taken: Names that are not free, whatever stands in the run directory.

    Raises:
        RunLockedError: Another orchestrator, or a detached instance, holds the name.
    """
    directory = make_private_dir(_directory(run_dir))
    for candidate in [name] if name is not None else _names(taken):
        lock_path = directory / f"{candidate}.lock"
        fd = lock_file(lock_path)
        if fd is None:
            if name is not None:
                raise _locked(name, lock_path, lock_owner(lock_path))
            continue
        record = _read(directory / f"{candidate}.json")
        if record is None or may_be_alive or not record.is_alive:
            return Claim(candidate, lock_path, fd)
        unlock_file(lock_path, fd)
        if name is not None:
            raise _locked(name, lock_path, record.pid)
    raise AssertionError("unreachable: the names do not end")


def write_record(run_dir: Path, record: InstanceRecord) -> None:
    """Write a record in one step. Blocks.

    Raises:
        OSError: The old record is unchanged.
    """
    text = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    # After a loss of power there is nothing running that a record could tell of.
    publish_bytes(_directory(run_dir) / f"{record.name}.json", text, durable=False)


def read_records(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of a run directory by name; none when nothing ran there. Blocks."""
    paths = sorted(_directory(run_dir).glob("[!.]*.json"))
    return [record for path in paths if (record := _read(path)) is not None]


def read_record(run_dir: Path, name: str) -> InstanceRecord | None:
    """Return the record of one instance; None when there is none. Blocks."""
    return _read(_directory(run_dir) / f"{name}.json")


def read_running(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of the instances that live now. Blocks."""
    return [record for record in read_records(run_dir) if record.is_alive]


def close_stale_records(run_dir: Path) -> bool:
    """Mark the instances whose orchestrator and process are gone as ended. Blocks.

    Returns:
        Whether there were any: the run was interrupted.
    """
    stale = [record.name for record in read_records(run_dir) if _is_stale(record)]
    closed = [name for name in stale if _close(run_dir, name)]
    return bool(closed)


def _is_stale(record: InstanceRecord) -> bool:
    return record.state in ("starting", "ready") and not record.is_alive


def _close(run_dir: Path, name: str) -> bool:
    lock_path = _directory(run_dir) / f"{name}.lock"
    fd = lock_file(lock_path)
    if fd is None:
        return False
    try:
        # Whoever held the name until now may have written another record since.
        record = read_record(run_dir, name)
        if record is None or not _is_stale(record):
            return False
        write_record(run_dir, record.ended())
        return True
    finally:
        unlock_file(lock_path, fd)


def _directory(run_dir: Path) -> Path:
    return run_dir / ".clawblox" / "instances"


def _names(taken: Collection[str]) -> Iterator[str]:
    names = (f"w{index:03}" for index in itertools.count())
    return (name for name in names if name not in taken)


def _read(path: Path) -> InstanceRecord | None:
    """Return the record, or None for a file of another version, program or name."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=InstanceRecord)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return record if record.name == path.stem else None


def _locked(name: str, lock_path: Path, pid: int | None) -> RunLockedError:
    holder = f"pid {pid} ({command_line(pid)[:200]})" if pid else "another process"
    return RunLockedError(
        f"instance {name!r} of this run directory is held by {holder}",
        path=lock_path,
        pid=pid,
        hint="stop it, or choose another name= or run_dir=",
    )
