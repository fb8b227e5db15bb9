"""Who owns the instances of a run directory, and whether that orchestrator can be asked.

An orchestrator that lives holds the locks of its instances' names. Behind its back nothing is ended
that it would start again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ControlError, OrchestratorSuspendedError
from clawblox.rundir.claims import find_name_owner
from clawblox.rundir.control_client import control_dir, find_sockets
from clawblox.rundir.records import InstanceRecord
from clawblox.rundir.status import is_over, is_owned, run_owner
from clawblox.system.process_tree import is_suspended

_PATIENCE_S: Final = 5.0
"""An orchestrator that has lost its control socket makes it again within a second."""
_LOOK_INTERVAL_S: Final = 0.1


@attrs.frozen
class Owners:
    """Instances by how they are reached.

    Attributes:
        owned: Those of each control socket that is served.
        free: Those that no orchestrator owns.
        lost: Those whose orchestrator lives and cannot be asked.
    """

    owned: dict[Path, list[InstanceRecord]] = attrs.field(factory=dict)
    free: list[InstanceRecord] = attrs.field(factory=list)
    lost: list[InstanceRecord] = attrs.field(factory=list)


def sort_by_owner(
    run_dir: Path, records: Iterable[InstanceRecord], *, with_ended: bool = False
) -> Owners:
    """Sort instances by their owners. Blocks.

    Args:
        run_dir: Their run directory.
        records: Their records.
        with_ended: Whether an instance that has ended still belongs to its orchestrator; otherwise
            it is free.
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
    """Sort instances by their owners, and give an owner that is not reached a few seconds.

    Args:
        run_dir: Their run directory.
        select: Returns their records. Blocks; what it raises is raised.
        with_ended: As :func:`sort_by_owner` takes it.

    Cancellation: changes nothing.
    """
    deadline = anyio.current_time() + _PATIENCE_S
    while True:
        owners = await run_blocking(lambda: sort_by_owner(run_dir, select(), with_ended=with_ended))
        may_come_back = any(record.control for record in owners.lost)
        if not may_come_back or anyio.current_time() >= deadline:
            return owners
        await anyio.sleep(_LOOK_INTERVAL_S)


def find_owner(run_dir: Path) -> int | None:
    """Return the pid of an orchestrator that runs in a run directory, whatever the records say.

    Blocks. It is known by its control socket, or by its locks.
    """
    for path in find_sockets(run_dir):
        pid = path.stem.partition("-")[0]  # as ``world.control_sockets`` names it
        if pid.isdecimal():
            return int(pid)
    return run_owner(run_dir) or find_name_owner(run_dir)


def would_come_back(run_dir: Path, record: InstanceRecord) -> bool:
    """Return whether an orchestrator that lives would start an instance again. Blocks."""
    is_to_begin = record.pid == 0
    has_policy = record.options.get("restart", "never") != "never"
    return (is_to_begin or has_policy) and is_owned(run_dir, record)


def unreachable_error(run_dir: Path, record: InstanceRecord) -> ControlError:
    """Return the error of an operation on an instance whose owner cannot be asked. Blocks."""
    pid = record.orchestrator_pid
    path = control_dir(run_dir) / f"{record.control}.sock"
    if is_suspended(pid):
        return OrchestratorSuspendedError(
            f"the orchestrator of {record.name!r}, pid {pid}, is suspended and cannot be asked",
            path=path,
            hint=f"let it go on: kill -CONT {pid}, or fg in the shell that started it",
        )
    return ControlError(
        f"the orchestrator of {record.name!r}, pid {pid}, runs and cannot be asked: "
        "its control socket is gone",
        path=path,
        hint=f"to end it with all its instances: kill {pid}",
    )
