"""Run directories seen from outside: what runs or ran there, its logs, and how to end it.

Everything goes by the instance records and the processes that they name, so it works from any
process, on runs that another orchestrator owns, on detached instances and on finished runs.
Starting, saving and adopting instances is for ``async_world``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import attrs

from clawblox.errors import RunLockedError, UsageError, WorldStopError
from clawblox.logs import LogReader
from clawblox.model import StopResult, WorldExit
from clawblox.process import Grace, TreeEnd, end_tree
from clawblox.proctree import Mark, boot_id, read_process
from clawblox.protocol import INSTANCE_ENV
from clawblox.records import InstanceRecord, claim_name, read_record, read_records, write_record
from clawblox.threads import run_blocking

__all__ = [
    "InstanceState",
    "InstanceStatus",
    "own_start",
    "read_instances",
    "read_logs",
    "stop_instances",
]

InstanceState: TypeAlias = Literal[
    "starting", "ready", "stopping", "exited", "failed", "interrupted"
]
"""Where an instance stands: what its record says, corrected by what lives.

``stopping`` has no process any more while its orchestrator still cleans up; ``interrupted``
was left behind by an orchestrator that is gone; ``failed`` was never ready.
"""

_OVER = ("exited", "failed", "interrupted")
_OWNER_TIMEOUT_S = 5.0
_OWNER_POLL_S = 0.02


@attrs.frozen
class InstanceStatus:
    """One instance of a run directory, as it is now.

    Attributes:
        name: Its name.
        state: Where it stands.
        world: Name of the world.
        world_dir: Directory with the ``world.toml``.
        pid: Process of the world; None when it does not live.
        host: Address it was told to bind.
        port: Its port.
        url: Its address.
        uptime_s: Seconds that it has lived, or did live; None when that is not known.
        started_at: UTC time of the start.
        ended_at: UTC time of the end; None when it lives, or nobody noted it.
        exit: How the world's process ended, when that is known.
        is_detached: Whether it outlives its orchestrator.
        orchestrator_pid: Who started it.
        resume_path: Snapshot that it was restored from, if any.
        command_file: Script that reruns the launch.
        log_file: Its output.
    """

    name: str
    state: InstanceState
    world: str
    world_dir: Path
    pid: int | None
    host: str
    port: int
    url: str
    uptime_s: float | None
    started_at: str
    ended_at: str | None
    exit: WorldExit | None
    is_detached: bool
    orchestrator_pid: int
    resume_path: Path | None
    command_file: Path
    log_file: Path


def read_instances(run_dir: Path, names: Sequence[str] = ()) -> list[InstanceStatus]:
    """Return what runs or ran in a run directory, by name. Blocks.

    Args:
        run_dir: The run directory; one in which nothing ever ran has no instances.
        names: The instances that are meant; none means all.

    Raises:
        UsageError: One of ``names`` is not there.
    """
    return [_status_of(record) for record in _select(run_dir, names)]


def own_start(run_dir: Path) -> InstanceRecord | None:
    """Return the record of what this process is starting in a run directory, if any. Blocks."""
    mine = (found for found in read_records(run_dir) if found.orchestrator_pid == os.getpid())
    return next((found for found in mine if found.state == "starting"), None)


def read_logs(
    run_dir: Path, names: Sequence[str] = (), *, follow: bool, tail: int | None
) -> dict[str, LogReader]:
    """Return a reader for the log of each instance by its name, from its first line on. Blocks.

    Args:
        run_dir: The run directory.
        names: The instances that are meant; none means all.
        follow: Wait for more lines until the instance has ended.
        tail: Begin so many lines before the end; None begins at the start.

    Raises:
        UsageError: One of ``names`` is not there.
    """
    return {
        record.name: LogReader(
            record.name,
            Path(record.log_file),
            follow=follow,
            tail=tail,
            start=record.log_start,
            is_over=_Ending(run_dir, record),
        )
        for record in _select(run_dir, names)
    }


async def stop_instances(
    run_dir: Path, names: Sequence[str] = (), *, grace_seconds: float
) -> list[StopResult]:
    """End instances, whoever started them: TERM, the grace, KILL for whatever is left.

    An orchestrator that owns one sees its world exit and cleans up; that is waited for, a few
    seconds at most. Ending what does not run is a no-op.

    Args:
        run_dir: The run directory.
        names: The instances that are meant; none means all.
        grace_seconds: Seconds between TERM and KILL.

    Returns:
        What it took, an entry an instance.

    Raises:
        UsageError: One of ``names`` is not there.
        WorldStopError: A process survived even SIGKILL; the other instances have ended.
        OSError: The end of one, which nobody owned, cannot be noted; all have ended.

    Cancellation: what has not ended yet may go on.
    """
    records = await run_blocking(_select, run_dir, names)
    results: dict[str, StopResult] = {}
    failures: list[WorldStopError | OSError] = []

    async def stop(record: InstanceRecord) -> None:
        try:
            results[record.name] = await _stop_one(run_dir, record, grace_seconds)
        except (WorldStopError, OSError) as error:
            failures.append(error)

    async with anyio.create_task_group() as stops:
        for record in records:
            stops.start_soon(stop, record)
    for failure in failures:
        raise failure
    return [results[record.name] for record in records]


def _select(run_dir: Path, names: Sequence[str]) -> list[InstanceRecord]:
    records = read_records(run_dir)
    known = [record.name for record in records]
    for name in names:
        if name not in known:
            raise UsageError(
                f"no instance {name!r} in {run_dir}; there are: {', '.join(known) or 'none'}"
            )
    return [record for record in records if not names or record.name in names]


def _status_of(record: InstanceRecord) -> InstanceStatus:
    is_alive = record.is_alive
    return InstanceStatus(
        name=record.name,
        state=_state_of(record, is_alive=is_alive),
        world=record.world,
        world_dir=Path(record.world_dir),
        pid=record.pid if is_alive else None,
        host=record.host,
        port=record.port,
        url=record.url,
        uptime_s=_age_of(record.start_time) if is_alive else _lifetime_of(record),
        started_at=record.started_at,
        ended_at=record.ended_at,
        exit=record.exit,
        is_detached=record.is_detached,
        orchestrator_pid=record.orchestrator_pid,
        resume_path=Path(record.resume_path) if record.resume_path else None,
        command_file=Path(record.command_file),
        log_file=Path(record.log_file),
    )


def _state_of(record: InstanceRecord, *, is_alive: bool) -> InstanceState:
    if is_alive or record.state in _OVER:
        return record.state
    is_owned = record.boot_id == boot_id() and read_process(record.orchestrator_pid) is not None
    if not is_owned:
        return "interrupted"
    return "stopping" if record.pid else "starting"


def _age_of(start_time: int) -> float:
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, since_boot - start_time / os.sysconf("SC_CLK_TCK"))


def _lifetime_of(record: InstanceRecord) -> float | None:
    if record.ended_at is None:
        return None
    begin, end = map(datetime.fromisoformat, (record.started_at, record.ended_at))
    return max(0.0, (end - begin).total_seconds())


@attrs.frozen
class _Ending:
    """Says whether an instance has ended, in its latest record; a later start counts too."""

    run_dir: Path
    record: InstanceRecord

    def __call__(self) -> bool:
        latest = read_record(self.run_dir, self.record.name)
        if latest is None or latest.cookie != self.record.cookie:
            return True
        return _state_of(latest, is_alive=latest.is_alive) in _OVER


async def _stop_one(run_dir: Path, record: InstanceRecord, grace_seconds: float) -> StopResult:
    begun_at = anyio.current_time()
    end = await end_tree(_mark_of(record), None, Grace(grace_seconds))
    if end.survivors:
        raise _stop_error(record, end)
    with anyio.move_on_after(_OWNER_TIMEOUT_S):
        await _wait_until_unowned(run_dir, record.name)
    latest = await run_blocking(read_record, run_dir, record.name)
    return StopResult(
        instance=record.name,
        rung="not_running" if end.rung == "already_exited" else end.rung,
        exit=latest.exit if latest else None,
        killed=end.killed,
        elapsed_s=anyio.current_time() - begun_at,
    )


async def _wait_until_unowned(run_dir: Path, name: str) -> None:
    while True:
        if await run_blocking(_close_record, run_dir, name):
            return
        await anyio.sleep(_OWNER_POLL_S)


def _mark_of(record: InstanceRecord) -> Mark:
    is_this_boot = record.pid > 0 and record.boot_id == boot_id()
    leaders = ((record.pid, record.start_time),) if is_this_boot else ()
    return Mark(f"{INSTANCE_ENV}={record.cookie}".encode(), leaders)


def _close_record(run_dir: Path, name: str) -> bool:
    """Note the end of an instance that nobody owns; return whether nobody does."""
    try:
        claim = claim_name(run_dir, name)
    except RunLockedError:
        return False
    try:
        record = read_record(run_dir, name)
        if record is not None and record.state not in _OVER:
            write_record(run_dir, record.ended())
    finally:
        claim.release()
    return True


def _stop_error(record: InstanceRecord, end: TreeEnd) -> WorldStopError:
    return WorldStopError(
        f"not even SIGKILL ended {', '.join(end.survivors)}",
        instance=record.name,
        world_dir=Path(record.world_dir),
        command_file=Path(record.command_file),
        log_file=Path(record.log_file),
        url=record.url,
        phase="stopping",
    )
