"""Instance records: what runs in a run directory, on disk for every other process to read.

``<run dir>/.clawblox/instances/<name>.json`` tells where an instance is and how it ended. Its
lock, held by the orchestrator that owns it, makes the name unique in the run directory. A
record holds no secret. An orchestrator that runs many instances claims the run directory too, so
that no second one starts many there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import attrs
import msgspec

from clawblox.errors import RunLockedError
from clawblox.results import WorldExit
from clawblox.rundir.paths import records_dir, run_lock, state_dir
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import (
    LockOwner,
    lock_file,
    lock_owner,
    make_private_dir,
    publish_bytes,
    unlock_file,
)
from clawblox.system.process_tree import boot_id, command_line, is_same_process, read_process

__all__ = [
    "Claim",
    "InstanceRecord",
    "RunClaim",
    "claim_name",
    "claim_run",
    "close_stale_records",
    "free_names",
    "has_records",
    "read_record",
    "read_records",
    "read_running",
    "replace_record",
    "write_record",
]

RecordState = Literal["starting", "ready", "exited", "failed", "interrupted"]


@attrs.frozen
class InstanceRecord:
    """One instance of a run, as the disk tells it.

    Attributes:
        name: Its name.
        state: What its orchestrator wrote last; see :attr:`is_alive`.
        world: Name of the world.
        world_dir: Directory with the ``world.toml``.
        instance_dir: Directory with its manifest and its files.
        index: Its place among many; None for one that was started alone.
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
        control: Name of the control socket of its orchestrator; empty for none.
        restarts: How often it was brought back.
        exit: How it ended, the last time.
        halt: Why it had halted before it was ended, in the world's words.
        run_id: Id of its run; empty in a record of an older version.
    """

    name: str
    state: RecordState
    world: str
    world_dir: str
    instance_dir: str
    index: int | None
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
    control: str
    restarts: int
    exit: WorldExit | None
    halt: str | None = None
    run_id: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the world's process lives now, whatever the record says."""
        return (
            self.pid > 0
            and self.boot_id == boot_id()
            and is_same_process(self.pid, self.start_time)
            and read_process(self.pid) is not None
        )

    def ended(self, *, was_interrupted: bool) -> InstanceRecord:
        """Return the record of an instance that has ended without its orchestrator.

        Args:
            was_interrupted: Whether it had ended before anyone looked, in an unknown way.
        """
        state: RecordState = "exited" if self.state == "ready" else "failed"
        state = "interrupted" if was_interrupted else state
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


@attrs.define
class _HeldRun:
    """What this process has of a run directory that it has claimed.

    Attributes:
        fd: Its lock.
        users: How many claims there are.
        planned: Names that are about to be claimed.
        naming: Held while somebody chooses names.
    """

    fd: int
    users: int = 0
    planned: set[str] = attrs.field(factory=set)
    naming: threading.Lock = attrs.field(factory=threading.Lock)


class RunClaim:
    """The right to start many instances in a run directory, shared by all of one process."""

    def __init__(self, path: Path, held: _HeldRun) -> None:
        self._path = path
        self._held = held
        self._is_held = True

    @contextlib.contextmanager
    def naming(self) -> Iterator[set[str]]:
        """Choose names, which nobody else in this process does meanwhile. Blocks.

        Yields:
            Names that are about to be claimed; those that are chosen are to be added, and taken
            away by :meth:`forget` when they are claimed or given up.
        """
        with self._held.naming:
            yield self._held.planned

    def forget(self, names: Collection[str]) -> None:
        """Take names away from those that are about to be claimed."""
        self._held.planned.difference_update(names)

    def release(self) -> None:
        """Give it back; a second call does nothing, nor does one in a fork of the owner."""
        with _run_claims_lock:
            if not self._is_held:
                return
            self._is_held = False
            self._held.users -= 1
            is_inherited = _run_claims.get(self._path) is not self._held  # we are a fork
            if not self._held.users and not is_inherited:
                del _run_claims[self._path]
                unlock_file(self._path, self._held.fd)


_run_claims_lock = threading.Lock()
_run_claims: dict[Path, _HeldRun] = {}
"""The run directories that this process has claimed, by the path of their lock."""


def _forget_run_claims() -> None:
    # They are the parent's; so is its lock, which another of its threads may have held.
    global _run_claims_lock  # noqa: PLW0603, RUF100 - a fork is like a new process
    _run_claims_lock = threading.Lock()
    _run_claims.clear()


os.register_at_fork(after_in_child=_forget_run_claims)


def claim_run(run_dir: Path) -> RunClaim:
    """Claim a run directory for this process. Blocks.

    Raises:
        RunLockedError: Another orchestrator has claimed it; says which, where and since when.
    """
    make_private_dir(state_dir(run_dir))
    path = run_lock(run_dir)
    with _run_claims_lock:
        if path not in _run_claims:
            _run_claims[path] = _HeldRun(_lock_run(run_dir, path))
        held = _run_claims[path]
        held.users += 1
    return RunClaim(path, held)


def _lock_run(run_dir: Path, path: Path) -> int:
    fd = lock_file(path)
    if fd is None:
        owner = lock_owner(path)
        raise RunLockedError(
            f"the run directory {run_dir} is held by {_describe(owner)}",
            path=path,
            pid=owner.pid if owner else None,
            hint="stop it, or choose another run_dir=; clawblox ps, logs and stop work",
        )
    return fd


def _describe(owner: LockOwner | None) -> str:
    if owner is None:
        return "another process"
    command = command_line(owner.pid)[:200]
    return f"pid {owner.pid} ({command}) on {owner.host} since {owner.since}"


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
    directory = make_private_dir(records_dir(run_dir))
    for candidate in [name] if name is not None else _names(taken):
        lock_path = directory / f"{candidate}.lock"
        fd = lock_file(lock_path)
        if fd is None:
            if name is not None:
                owner = lock_owner(lock_path)
                raise _locked(name, lock_path, owner.pid if owner else None)
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
    publish_bytes(records_dir(run_dir) / f"{record.name}.json", text, durable=False)


def replace_record(run_dir: Path, record: InstanceRecord) -> None:
    """Write another record of a start that has ended, unless its name is another's now. Blocks.

    Raises:
        OSError: The old record is unchanged.
    """
    with _locked_name(run_dir, record.name) as is_locked:
        known = read_record(run_dir, record.name) if is_locked else None
        if known is not None and known.cookie == record.cookie:
            write_record(run_dir, record)


def has_records(run_dir: Path) -> bool:
    """Return whether an instance ever ran in a run directory. Blocks."""
    return records_dir(run_dir).is_dir()


def read_records(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of a run directory by name; none when nothing ran there. Blocks."""
    paths = sorted(records_dir(run_dir).glob("[!.]*.json"))
    return [record for path in paths if (record := _read(path)) is not None]


def read_record(run_dir: Path, name: str) -> InstanceRecord | None:
    """Return the record of one instance; None when there is none. Blocks."""
    return _read(records_dir(run_dir) / f"{name}.json")


def read_running(run_dir: Path) -> list[InstanceRecord]:
    """Return the records of the instances that live now. Blocks."""
    return [record for record in read_records(run_dir) if record.is_alive]


def close_stale_records(run_dir: Path) -> list[InstanceRecord]:
    """Mark the instances whose orchestrator and process are gone as interrupted. Blocks.

    Returns:
        Their records as they were: these instances were interrupted.
    """
    stale = [record for record in read_records(run_dir) if _is_stale(record)]
    return [record for record in stale if _close(run_dir, record.name)]


def _is_stale(record: InstanceRecord) -> bool:
    return record.state in ("starting", "ready") and not record.is_alive


def _close(run_dir: Path, name: str) -> bool:
    with _locked_name(run_dir, name) as is_locked:
        # Whoever held the name until now may have written another record since.
        record = read_record(run_dir, name) if is_locked else None
        if record is None or not _is_stale(record):
            return False
        write_record(run_dir, record.ended(was_interrupted=True))
        return True


@contextlib.contextmanager
def _locked_name(run_dir: Path, name: str) -> Iterator[bool]:
    """Hold the lock of a name for a moment; yield whether it was free. Blocks."""
    lock_path = records_dir(run_dir) / f"{name}.lock"
    fd = lock_file(lock_path)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            unlock_file(lock_path, fd)


def free_names(run_dir: Path, taken: Collection[str], *, reuse: bool) -> Iterator[str]:
    """Yield the names ``w000``, ``w001``, … that an instance can have. Blocks.

    Args:
        run_dir: The run directory.
        taken: Names that are not free, whatever stands in the run directory.
        reuse: Whether the name of an instance that has ended is free.
    """
    held = {one.name for one in read_records(run_dir) if not reuse or one.is_alive}
    # Whoever is dead may be brought back, and who has no record yet may be about to be started.
    claimed = {path.stem for path in records_dir(run_dir).glob("*.lock") if _has_owner(path)}
    return _names({*taken, *held, *claimed})


def _has_owner(lock_path: Path) -> bool:
    # To try the lock would be a moment in which nobody else gets it.
    owner = lock_owner(lock_path)
    return owner is None or read_process(owner.pid) is not None


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
