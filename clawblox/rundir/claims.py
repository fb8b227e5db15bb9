"""Claims: exclusive rights to instance names and run directories, and their owners.

The orchestrator that owns an instance claims the name with the lock
``<run dir>/.clawblox/instances/<name>.lock``. An orchestrator that runs many instances also claims
the run directory, so that no other orchestrator starts many instances there. The kernel releases
the locks when their process dies.

Other processes must not end an instance that its orchestrator would restart.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import anyio
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ControlError, RunLockedError
from clawblox.rundir.control_client import control_dir, find_sockets, suspended_error
from clawblox.rundir.paths import name_lock, records_dir, run_lock, state_dir
from clawblox.rundir.records import InstanceRecord, read_record, read_records
from clawblox.rundir.status import is_over, is_owned, living_owner
from clawblox.system.files import make_private_dir
from clawblox.system.locks import LockOwner, lock_file, lock_owner, renew_lock, unlock_file
from clawblox.system.process_tree import command_line, is_suspended, read_process


class Claim:
    """The exclusive right to a name in a run directory."""

    def __init__(self, name: str, lock_path: Path, fd: int) -> None:
        self.name = name
        self._lock_path = lock_path
        self._fd = fd

    def renew(self) -> None:
        """Claim the name again if the lock file was removed or replaced. Blocks.

        Raises:
            OSError: The lock cannot be taken.
        """
        if self._fd >= 0:
            self._fd = renew_lock(self._lock_path, self._fd)

    def release(self) -> None:
        """Release the name. Idempotent."""
        if self._fd >= 0:
            unlock_file(self._lock_path, self._fd)
            self._fd = -1


class _HeldRun(msgspec.Struct):
    """The claim of this process on a run directory.

    Attributes:
        fd: Descriptor of the lock.
        users: Number of claims.
        planned: Names that are about to be claimed.
        naming: Held while a thread chooses names.
    """

    fd: int
    users: int = 0
    planned: set[str] = msgspec.field(default_factory=set)
    naming: threading.Lock = msgspec.field(default_factory=threading.Lock)


class RunClaim:
    """The right to start many instances in a run directory, shared by all users in one process."""

    def __init__(self, path: Path, held: _HeldRun) -> None:
        self._path = path
        self._held = held
        self._is_held = True

    @contextlib.contextmanager
    def naming(self) -> Iterator[set[str]]:
        """Choose names, one thread of this process at a time. Blocks.

        Yields:
            Names that are about to be claimed. Add the chosen names, and call :meth:`forget` when
            they are claimed or given up.
        """
        with self._held.naming:
            yield self._held.planned

    def forget(self, names: Collection[str]) -> None:
        """Remove names from those that are about to be claimed."""
        self._held.planned.difference_update(names)

    def release(self) -> None:
        """Release the claim. Idempotent; has no effect in a forked child."""
        with _run_claims_lock:
            if not self._is_held:
                return
            self._is_held = False
            self._held.users -= 1
            is_inherited = _run_claims.get(self._path) is not self._held  # this is a forked child
            if not self._held.users and not is_inherited:
                del _run_claims[self._path]
                unlock_file(self._path, self._held.fd)


_run_claims_lock = threading.Lock()
_run_claims: dict[Path, _HeldRun] = {}
"""The run directories that this process has claimed, by the path of their lock."""


def _forget_run_claims() -> None:
    # After a fork, the claims are the parent's, and another thread may have held the lock.
    global _run_claims_lock  # noqa: PLW0603, RUF100 - a fork is like a new process
    _run_claims_lock = threading.Lock()
    _run_claims.clear()


os.register_at_fork(after_in_child=_forget_run_claims)


def claim_run(run_dir: Path) -> RunClaim:
    """Claim a run directory for this process. Blocks.

    Raises:
        RunLockedError: Another orchestrator, named in the message, has claimed the directory.
    """
    make_private_dir(state_dir(run_dir))
    path = run_lock(run_dir)
    with _run_claims_lock:
        if path not in _run_claims:
            if (fd := lock_file(path)) is None:
                raise _held_run_error(run_dir, path)
            _run_claims[path] = _HeldRun(fd)
        held = _run_claims[path]
        held.users += 1
    return RunClaim(path, held)


def refuse_held_run(run_dir: Path) -> None:
    """Raise an error if another process runs many instances in a run directory. Blocks.

    The directory is not claimed, because several processes may start single instances in it.

    Raises:
        RunLockedError: Another orchestrator has claimed the directory.
    """
    path = run_lock(run_dir)
    with _run_claims_lock:
        if path in _run_claims:
            return
    if living_owner(path) is not None:
        raise _held_run_error(run_dir, path)


def _held_run_error(run_dir: Path, path: Path) -> RunLockedError:
    owner = lock_owner(path)
    holder = describe_holder(owner and owner.pid)
    since = f" on {owner.host} since {owner.since}" if owner else ""
    return RunLockedError(
        f"the run directory {run_dir} is held by {holder}{since}",
        path=path,
        pid=owner.pid if owner else None,
        hint="stop it, or choose another run directory; clawblox ps, logs and stop still work",
    )


def claim_name(
    run_dir: Path, name: str | None, *, may_be_alive: bool = False, taken: Collection[str] = ()
) -> Claim:
    """Claim ``name``, or the first free of ``w000``, ``w001``, … for None. Blocks.

    Args:
        run_dir: The run directory.
        name: The name.
        may_be_alive: Whether the name of a running instance without an owner may be claimed.
        taken: Further names in use.

    Raises:
        RunLockedError: Another orchestrator, or a detached instance, has the name.
    """
    make_private_dir(records_dir(run_dir))
    for candidate in [name] if name is not None else instance_names(taken):
        lock_path = name_lock(run_dir, candidate)
        holder: LockOwner | InstanceRecord | None = None
        if (fd := lock_file(lock_path)) is not None:
            is_free = False
            try:
                holder = read_record(run_dir, candidate)
                is_free = holder is None or may_be_alive or not holder.is_alive
            finally:
                if not is_free:
                    unlock_file(lock_path, fd)
            if is_free:
                return Claim(candidate, lock_path, fd)
        if name is not None:
            holder = holder or lock_owner(lock_path)
            pid = holder.pid if holder else None
            raise RunLockedError(
                f"instance {name!r} of this run directory is held by {describe_holder(pid)}",
                path=lock_path,
                pid=pid,
                hint="stop it, or choose another run_dir=, or another name=",
            )
    raise AssertionError("unreachable: the names do not end")


def free_names(run_dir: Path, taken: Collection[str], *, reuse: bool) -> Iterator[str]:
    """Yield the free names of ``w000``, ``w001``, … in a run directory. Blocks.

    Args:
        run_dir: The run directory.
        taken: Further names in use.
        reuse: Whether the name of an instance that has ended can be used again.
    """
    held = {record.name for record in read_records(run_dir) if not reuse or record.is_alive}
    # A dead instance may be restarted soon, and an instance without a record may be starting.
    return instance_names({*taken, *held, *claimed_names(run_dir)})


def claimed_names(run_dir: Path) -> set[str]:
    """Return the names that a living process has claimed. Blocks."""
    # Trying to take the locks would briefly deny them to others.
    owners = ((path.stem, lock_owner(path)) for path in records_dir(run_dir).glob("*.lock"))
    return {name for name, owner in owners if owner is None or read_process(owner.pid)}


def instance_names(taken: Collection[str]) -> Iterator[str]:
    """Yield the names of ``w000``, ``w001``, … that are not taken."""
    names = (f"w{index:03}" for index in itertools.count())
    return (name for name in names if name not in taken)


def describe_holder(pid: int | None) -> str:
    """Describe the process that holds a claim. Blocks.

    Args:
        pid: The process; None if unknown.
    """
    return f"pid {pid} ({command_line(pid)[:200]})" if pid else "another process"


# -- owners ----------------------------------------------------------------------------------------


_PATIENCE_S: Final = 5.0
"""Seconds to wait for an owner, which recreates a lost control socket within a second."""
_LOOK_INTERVAL_S: Final = 0.1


class Owners(msgspec.Struct, frozen=True):
    """Instances grouped by the state of their orchestrator.

    Attributes:
        owned: Instances by the control socket that their orchestrator serves.
        free: Instances without an orchestrator.
        lost: Instances whose orchestrator is alive but does not answer.
    """

    owned: dict[Path, list[InstanceRecord]] = msgspec.field(default_factory=dict)
    free: list[InstanceRecord] = msgspec.field(default_factory=list)
    lost: list[InstanceRecord] = msgspec.field(default_factory=list)


def sort_by_owner(
    run_dir: Path, records: Iterable[InstanceRecord], *, with_ended: bool = False
) -> Owners:
    """Sort instances by their owners. Blocks.

    Args:
        run_dir: The run directory.
        records: Records of the instances.
        with_ended: Whether an instance that has ended still belongs to its orchestrator instead of
            being free.
    """
    served = set(find_sockets(run_dir))
    owners = Owners()
    for record in records:
        path = control_dir(run_dir) / f"{record.control}.sock"
        if is_over(record) and not with_ended:
            owners.free.append(record)
        elif path in served:
            owners.owned.setdefault(path, []).append(record)
        else:
            (owners.lost if is_owned(run_dir, record) else owners.free).append(record)
    return owners


async def find_owners(
    run_dir: Path, select: Callable[[], Iterable[InstanceRecord]], *, with_ended: bool = False
) -> Owners:
    """Sort instances by their owners, waiting a few seconds for owners that do not answer.

    Args:
        run_dir: The run directory.
        select: Returns the records of the instances. Blocks; errors propagate.
        with_ended: As for :func:`sort_by_owner`.

    Cancellation: has no effect.
    """
    deadline = anyio.current_time() + _PATIENCE_S
    while True:
        owners = await run_blocking(lambda: sort_by_owner(run_dir, select(), with_ended=with_ended))
        may_come_back = any(record.control for record in owners.lost)
        if not may_come_back or anyio.current_time() >= deadline:
            return owners
        await anyio.sleep(_LOOK_INTERVAL_S)


def find_owner(run_dir: Path) -> int | None:
    """Return the pid of an orchestrator that is running in a run directory, or None. Blocks.

    The orchestrator is found by its control socket or its locks, not by records.
    """
    for path in find_sockets(run_dir):
        pid = path.stem.partition("-")[0]  # the name that ``control_server`` gives it
        if pid.isdecimal():
            return int(pid)
    locks = (run_lock(run_dir), *sorted(records_dir(run_dir).glob("*.lock")))
    return next(filter(None, map(living_owner, locks)), None)


def would_come_back(run_dir: Path, record: InstanceRecord) -> bool:
    """Return whether a running orchestrator would restart an instance. Blocks."""
    is_to_begin = record.pid == 0
    has_policy = record.options.get("restart", "never") != "never"
    return (is_to_begin or has_policy) and is_owned(run_dir, record)


def unreachable_error(run_dir: Path, record: InstanceRecord) -> ControlError:
    """Return the error for an instance whose owner cannot be reached. Blocks."""
    pid = record.orchestrator_pid
    path = control_dir(run_dir) / f"{record.control}.sock"
    if is_suspended(pid):
        return suspended_error(f"the orchestrator of {record.name!r}", pid, path)
    return ControlError(
        f"the orchestrator of {record.name!r}, pid {pid}, is running but cannot be reached: "
        "its control socket is gone",
        path=path,
        hint=f"to end it with all its instances: kill {pid}",
    )
