"""Operations on a run directory from another process: save, restart, fork, stop.

Requests for owned instances go through the control socket of their orchestrator, so that its state
stays correct. Detached instances without an orchestrator are handled directly, through their
records. ``status`` reads the state of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import anyio
import attrs

from clawblox import protocol
from clawblox.concurrency.batch import BatchOperation, Outcome
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import RestartOptions, SaveOptions
from clawblox.errors import (
    ClawbloxError,
    ControlError,
    ManifestError,
    OrchestratorSuspendedError,
    RunLockedError,
    UsageError,
    WorldStopError,
)
from clawblox.printable import quote_words
from clawblox.results import SavedSnapshot, StopResult
from clawblox.rundir.claims import (
    Owners,
    claim_name,
    find_owners,
    sort_by_owner,
    unreachable_error,
    would_come_back,
)
from clawblox.rundir.control_client import find_sockets, request
from clawblox.rundir.interrupted import set_aside
from clawblox.rundir.leftovers import is_left_open, remove_leftovers
from clawblox.rundir.manifest_updates import RunStatus, run_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.records import (
    InstanceRecord,
    note_end_without_owner,
    read_record,
    read_records,
    write_records,
)
from clawblox.rundir.requests import Restarted, read_outcome, to_restarted, to_saved, to_stopped
from clawblox.rundir.saves import save_snapshot
from clawblox.rundir.status import OVER, is_ready, make_mark, run_owner, select_records
from clawblox.snapshot.capture import SnapshotSource
from clawblox.supervision.tree import Grace, end_tree
from clawblox.system.clock import utc_now
from clawblox.system.process_tree import read_variables
from clawblox.telemetry.own_log import OwnLog

_T = TypeVar("_T")

_log = OwnLog(__name__)

_OWNER_TIMEOUT_S = 5.0
_OWNER_POLL_S = 0.02

OnSaved: TypeAlias = Callable[[Outcome[SavedSnapshot]], None]
"""Called with the outcome of the save of an instance."""

OnRestarted: TypeAlias = Callable[[Outcome[Restarted]], None]
"""Called with the outcome of the restart of an instance."""

OnStopped: TypeAlias = Callable[[StopResult], None]
"""Called with the result of stopping an instance."""

OnEvent: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Called with an event of the orchestrator."""


# -- saves --------------------------------------------------------------------------------------


async def save_instances(
    run_dir: Path, names: Sequence[str], options: SaveOptions, *, on_saved: OnSaved
) -> None:
    """Save instances concurrently, regardless of the process that started them.

    Args:
        run_dir: The run directory.
        names: Names of the instances; empty means all that are ready.
        options: The options of the saves.
        on_saved: Called with each outcome as it arrives.

    Raises:
        UsageError: A named instance does not exist.

    Cancellation: each instance has both its file and its manifest entry, or neither.
    """
    owners = await find_owners(
        run_dir,
        lambda: [record for record in select_records(run_dir, names) if names or is_ready(record)],
    )
    asked = attrs.asdict(options, recurse=False)
    async with ManifestWriters() as writers, Tasks() as tasks:
        # A save does not affect the owner, so it is possible even if the owner does not answer.
        jobs = {
            record.name: partial(_save_record, record, options, writers)
            for record in (*owners.free, *owners.lost)
        }
        async with anyio.create_task_group() as saves:
            for path, group in owners.owned.items():
                ask = partial(_ask, path, "save", asked, to_saved, on_saved)
                saves.start_soon(ask, [record.name for record in group])
            async for outcome in BatchOperation(tasks, jobs):
                on_saved(outcome)


async def save_one(run_dir: Path, name: str) -> SavedSnapshot:
    """Save an instance, regardless of the process that started it.

    Raises:
        ClawbloxError: The instance could not be saved.

    Cancellation: leaves both the file and its manifest entry, or neither.
    """
    outcomes: list[Outcome[SavedSnapshot]] = []
    await save_instances(run_dir, [name], SaveOptions(), on_saved=outcomes.append)
    (outcome,) = outcomes
    return outcome.result()


async def _save_record(
    record: InstanceRecord, options: SaveOptions, writers: ManifestWriters
) -> SavedSnapshot:
    return await save_snapshot(
        await run_blocking(_find_source, record),
        options,
        writers,
        world_dir=Path(record.world_dir),
        instance_dir=Path(record.instance_dir),
        run_id=lambda: record.run_id,
    )


def _find_source(record: InstanceRecord) -> SnapshotSource:
    # The token is not on disk, only in the world's environment.
    token = read_variables(record.pid).get(protocol.OPERATOR_TOKEN_ENV)
    if not record.is_alive or token is None:
        raise UsageError(f"instance {record.name!r} is not running")
    rows = record.datastore_path is not None
    return SnapshotSource(
        record.name, record.host, record.port, record.base_path, token, has_own_rows=rows
    )


# -- restarts ------------------------------------------------------------------------------------


async def restart_instances(
    run_dir: Path, names: Sequence[str], options: RestartOptions, *, on_restarted: OnRestarted
) -> None:
    """Restart instances concurrently through their orchestrators.

    Args:
        run_dir: The run directory.
        names: Names of the instances; empty means all.
        options: The options of the restarts; the path of a snapshot is absolute.
        on_restarted: Called with each outcome as it arrives.

    Raises:
        UsageError: A named instance does not exist.
        ClawbloxError: ``names`` is empty, and no orchestrator is running there.

    Cancellation: restarts in progress continue.
    """
    select = partial(select_records, run_dir, names)
    owners = await find_owners(run_dir, select, with_ended=True)
    asked = attrs.asdict(options, recurse=False)
    if not (names or owners.owned or owners.lost):
        raise _no_orchestrator(f"no orchestrator is running in {run_dir}", run_dir)
    for record in owners.free if names else ():
        error = _no_orchestrator("its orchestrator is no longer running", run_dir, record.name)
        on_restarted(Outcome(record.name, error=error))
    for record in owners.lost:
        unreachable = await run_blocking(unreachable_error, run_dir, record)
        on_restarted(Outcome(record.name, error=unreachable))
    async with anyio.create_task_group() as requests:
        for path, group in owners.owned.items():
            ask = partial(_ask, path, "restart", asked, to_restarted, on_restarted)
            requests.start_soon(ask, [record.name for record in group] if names else None)


def _no_orchestrator(message: str, run_dir: Path, *names: str) -> ClawbloxError:
    words = quote_words(("clawblox", "resume", str(run_dir), *names))
    return ClawbloxError(f"{message}, so nothing can be restarted", hint=f"to go on: {words}")


# -- forks --------------------------------------------------------------------------------------


async def fork_instances(
    run_dir: Path,
    world_dir: Path,
    checkpoint: Path | Mapping[str, Any],
    count: int,
    *,
    on_event: OnEvent,
    options: Mapping[str, Any] | None = None,
) -> bool:
    """Start instances from a snapshot through the orchestrator of a run directory.

    Args:
        run_dir: The run directory.
        world_dir: The world of the snapshot.
        checkpoint: The snapshot: an absolute path, or a mapping with ``path`` and ``sha256``.
        count: Number of instances.
        on_event: Called with events: ``progress`` when an instance is ready or has failed, and
            ``started`` or ``failed`` for each at the end.
        options: Further options of ``AsyncWorld.fork`` by name, as plain values.

    Returns:
        Whether there is an orchestrator of that world.

    Raises:
        ControlError: The orchestrator refused, or ended.

    Cancellation: the new instances are ended and removed.
    """
    path = await run_blocking(find_orchestrator, run_dir, world_dir)
    if path is None:
        return False
    entry = checkpoint if isinstance(checkpoint, Mapping) else {"path": checkpoint}
    arguments = {"checkpoint": entry, "count": count, **(options or {})}
    await request(path, "fork", arguments, on_event)
    return True


def find_orchestrator(run_dir: Path, world_dir: Path) -> Path | None:
    """Return the control socket of the orchestrator that runs a world in a run directory. Blocks.

    Returns:
        The socket; None without such an orchestrator. If there are several, the socket of the owner
        of the run directory, because the others would find it locked.
    """
    owners = sort_by_owner(run_dir, select_records(run_dir, ()))
    owner = run_owner(run_dir)
    for path, (first, *_) in owners.owned.items():  # each serves one world
        if owner in (None, first.orchestrator_pid) and Path(first.world_dir) == world_dir:
            return path
    return None


# -- stops --------------------------------------------------------------------------------------


async def stop_instances(
    run_dir: Path,
    names: Sequence[str] = (),
    *,
    grace_seconds: float,
    on_stopped: OnStopped = lambda _: None,
) -> list[StopResult]:
    """End instances of any process: send TERM, wait for the grace, send KILL to the rest.

    An instance that has already ended is only marked as stopped on purpose, so that it is not
    resumed. If all instances are stopped, queued starts of an orchestrator are cancelled too.

    Args:
        run_dir: The run directory.
        names: Names of the instances; empty means all.
        grace_seconds: Seconds between TERM and KILL.
        on_stopped: Called with each result as it arrives.

    Returns:
        The results, one for each instance, by name.

    Raises:
        UsageError: A named instance does not exist.
        WorldStopError: A process survived even SIGKILL; the other instances have ended.
        ControlError: A running orchestrator does not answer; instances that it would restart keep
            running. An OrchestratorSuspendedError if it is suspended.
        OSError: The end of an instance cannot be recorded; all instances have ended.

    Cancellation: instances that have not ended yet may keep running.
    """
    async with ManifestWriters() as writers:
        stopping = _Stopping(run_dir, names, grace_seconds, on_stopped, writers)
        await stopping.run()
    await run_blocking(set_aside, run_dir, stopping.results)
    await run_blocking(remove_leftovers, run_dir)
    for failure in stopping.failures.values():
        raise failure
    return [result for _, result in sorted(stopping.results.items())]


@attrs.define
class _Stopping:
    """Ends instances, first through their orchestrators, then the rest directly."""

    run_dir: Path
    names: Sequence[str]
    grace_seconds: float
    on_stopped: OnStopped
    writers: ManifestWriters
    results: dict[str, StopResult] = attrs.field(factory=dict, init=False)
    failures: dict[str, Exception] = attrs.field(factory=dict, init=False)
    _refusals: dict[str, ControlError] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        owners = await self._find_owners()
        sockets = owners.owned if self.names else await run_blocking(find_sockets, self.run_dir)
        async with anyio.create_task_group() as stops:
            for path in sockets:
                its = [record.name for record in owners.owned.get(path, ())]
                stops.start_soon(self._ask, path, its)
            await self._stop_directly(owners.free)
        await self._stop_left()
        # The run directory was moved, so the orchestrator recorded these ends elsewhere.
        for record in await run_blocking(read_records, self.run_dir):
            if record.name in self.results and record.state not in OVER:
                await _close_in_time(self.run_dir, record.name, self.writers, False)

    async def _stop_left(self) -> None:
        """End the instances that their orchestrator did not end."""
        owners = await self._find_owners()
        asked = (record for group in owners.owned.values() for record in group)
        left = [*owners.free, *owners.lost, *asked]
        for record in left:
            if await run_blocking(would_come_back, self.run_dir, record):
                refusal = self._refusals.get(record.name)
                lost = await run_blocking(unreachable_error, self.run_dir, record)
                self.failures[record.name] = refusal or lost
        await self._stop_directly(record for record in left if record.name not in self.failures)

    async def _find_owners(self) -> Owners:
        return await find_owners(self.run_dir, self._select_left)

    def _select_left(self) -> list[InstanceRecord]:
        """Return the records of the instances without a result yet. Blocks."""
        known = self.results.keys() | self.failures.keys()
        records = select_records(self.run_dir, self.names)
        return [record for record in records if record.name not in known]

    async def _ask(self, path: Path, names: Sequence[str]) -> None:
        asked: dict[str, Any] = {"grace_seconds": self.grace_seconds}
        if self.names:
            asked["instances"] = names

        def take(event: Mapping[str, Any]) -> None:
            outcome = read_outcome(event, to_stopped)
            if outcome.error is None:  # otherwise this process ends it
                self._note(outcome)

        try:
            await request(path, "stop", asked, take)
        except OrchestratorSuspendedError as error:
            # The orchestrator would restart instances that others end.
            self.failures.update(dict.fromkeys(names, error))
        except ControlError as error:  # this process ends the rest
            self._refusals.update(dict.fromkeys(names, error))

    async def _stop_directly(self, records: Iterable[InstanceRecord]) -> None:
        stop = partial(_stop_record, self.run_dir, self.grace_seconds, self.writers)
        jobs = {record.name: partial(stop, record) for record in records}
        async with Tasks() as tasks:
            async for outcome in BatchOperation(tasks, jobs):
                self._note(outcome)

    def _note(self, outcome: Outcome[StopResult]) -> None:
        if outcome.error is not None:
            self.failures[outcome.instance] = outcome.error
        elif outcome.value is not None and outcome.value.instance:  # otherwise it had no name yet
            self.results[outcome.value.instance] = outcome.value
            self.on_stopped(outcome.value)


async def _stop_record(
    run_dir: Path, grace_seconds: float, writers: ManifestWriters, record: InstanceRecord
) -> StopResult:
    begun_at = anyio.current_time()
    mark = await run_blocking(make_mark, record)
    end = await end_tree(mark, None, Grace(grace_seconds))
    if end.survivors:
        raise WorldStopError(
            f"not even SIGKILL ended {', '.join(end.survivors)}",
            instance=record.name,
            world_dir=Path(record.world_dir),
            command_file=Path(record.command_file),
            log_file=Path(record.log_file),
            url=record.url,
            phase="stopping",
        )
    was_interrupted = end.rung == "already_exited"
    await _close_in_time(run_dir, record.name, writers, was_interrupted)
    latest = await run_blocking(read_record, run_dir, record.name)
    return StopResult(
        instance=record.name,
        rung="not_running" if was_interrupted else end.rung,
        exit=latest.exit if latest else None,
        killed=end.killed,
        elapsed_s=anyio.current_time() - begun_at,
    )


async def _close_in_time(
    run_dir: Path, name: str, writers: ManifestWriters, was_interrupted: bool
) -> None:
    """Record the end of an instance once it has no owner; give up after a few seconds."""
    with anyio.move_on_after(_OWNER_TIMEOUT_S):
        while True:
            if await run_blocking(_close_record, run_dir, name, writers, was_interrupted):
                return
            await anyio.sleep(_OWNER_POLL_S)


def _close_record(
    run_dir: Path, name: str, writers: ManifestWriters, was_interrupted: bool
) -> bool:
    """Record the end of an instance without an owner; return False while it has an owner."""
    try:
        claim = claim_name(run_dir, name)
    except RunLockedError:
        return False
    try:
        record = read_record(run_dir, name)
        if record is not None and record.state not in OVER:
            note_end_without_owner(record, was_interrupted=was_interrupted)
            write_records(run_dir, record.ended(was_interrupted=was_interrupted))
            directory = Path(record.instance_dir)
            # The orchestrator of a single instance labels the end unless it was killed earlier.
            if record.index is not None or (was_interrupted and is_left_open(directory)):
                status: RunStatus = "interrupted" if was_interrupted else "complete"
                status = status if record.halt is None else "failed"
                update = run_update(
                    status=status, ended_at=utc_now(), script_errors=record.script_errors
                )
                writers.apply(directory, update)
    except ManifestError as error:
        _log.warning("manifest not written", instance=name, error=str(error))
    finally:
        claim.release()
    return True


# -- owners -------------------------------------------------------------------------------------


async def _ask(
    path: Path,
    op: str,
    asked: Mapping[str, Any],
    convert: Callable[[object], _T],
    on_outcome: Callable[[Outcome[_T]], None],
    names: Sequence[str] | None,
) -> None:
    """Send a request to an orchestrator; if it ends, the unfinished parts have failed.

    Raises:
        ControlError: No instance was named, and the orchestrator refused or ended.
    """
    waiting = set(names or ())

    def take(event: Mapping[str, Any]) -> None:
        waiting.discard(event["instance"])
        on_outcome(read_outcome(event, convert))

    try:
        await request(path, op, {**asked, "instances": names}, take)
    except ControlError as error:
        if names is None:
            raise
        for name in sorted(waiting):
            on_outcome(Outcome(name, error=error))
