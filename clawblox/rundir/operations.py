"""What can be done to a run directory from another process: save, fork, stop.

Where an orchestrator owns the instances, it is asked through its control socket, so that it knows
what is going on. Where none does, for they are detached, the processes that the records name are
dealt with directly. What runs or ran, and what it wrote, is told by ``status``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import attrs
import msgspec

from clawblox import protocol
from clawblox.concurrency.batch import Outcome
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import (
    ClawbloxError,
    ControlError,
    ManifestError,
    OrchestratorSuspendedError,
    RunLockedError,
    UsageError,
    WorldStopError,
)
from clawblox.results import SavedSnapshot, StopResult
from clawblox.rundir.control_client import control_dir, find_sockets, request
from clawblox.rundir.leftovers import is_left_open, remove_leftovers
from clawblox.rundir.manifest_updates import RunStatus, checkpoint_update, run_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.paths import files_dir
from clawblox.rundir.records import InstanceRecord, claim_name, read_record, write_record
from clawblox.rundir.status import OVER, is_over, is_ready, mark_of, run_owner, select_records
from clawblox.snapshot.capture import DEFAULT_MAX_BYTES, SnapshotSource, capture
from clawblox.system.clock import utc_now
from clawblox.system.process import Grace, TreeEnd, end_tree
from clawblox.system.process_tree import read_variables
from clawblox.telemetry.own_log import OwnLog

__all__ = [
    "OnEvent",
    "OnSaved",
    "OnStopped",
    "find_orchestrator",
    "fork_instances",
    "save_instances",
    "stop_instances",
]

_log = OwnLog(__name__)

_OWNER_TIMEOUT_S = 5.0
_OWNER_POLL_S = 0.02

OnSaved: TypeAlias = Callable[[Outcome[SavedSnapshot]], None]
"""Takes what the save of an instance came to."""

OnStopped: TypeAlias = Callable[[StopResult], None]
"""Takes what it took to stop an instance."""

OnEvent: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Takes an event of an orchestrator that was asked."""


# -- saves --------------------------------------------------------------------------------------


async def save_instances(
    run_dir: Path,
    names: Sequence[str] = (),
    *,
    directory: Path | None,
    timeout: float,
    on_saved: OnSaved,
) -> None:
    """Save instances, whoever started them, all at once.

    Args:
        run_dir: The run directory.
        names: The instances that are meant; none means all that are ready.
        directory: Where the files go, absolute; None means ``checkpoints`` of each instance.
        timeout: Seconds for each transfer.
        on_saved: Called with each outcome as it lands.

    Raises:
        UsageError: One of ``names`` is not there.

    Cancellation: each instance has both file and entry, or neither.
    """
    owned, free = await run_blocking(lambda: _by_owner(run_dir, _savable(run_dir, names)))
    arguments = {"dir": directory and str(directory), "timeout": timeout}
    async with ManifestWriters() as writers, anyio.create_task_group() as saves:
        for path, group in owned.items():
            saves.start_soon(_ask_to_save, path, group, arguments, on_saved)
        for record in free:
            saves.start_soon(_save_one, record, directory, timeout, writers, on_saved)


def _savable(run_dir: Path, names: Sequence[str]) -> list[InstanceRecord]:
    """Return the records of the named instances, or of all that are ready. Blocks."""
    records = select_records(run_dir, names)
    return [one for one in records if names or is_ready(one)]


async def _ask_to_save(
    path: Path, records: Sequence[InstanceRecord], arguments: Mapping[str, Any], on_saved: OnSaved
) -> None:
    waiting = {record.name for record in records}

    def take(event: Mapping[str, Any]) -> None:
        waiting.discard(event["instance"])
        on_saved(_saved_outcome(event))

    try:
        await request(path, "save", {**arguments, "instances": sorted(waiting)}, take)
    except ControlError as error:
        for name in sorted(waiting):
            on_saved(Outcome(name, error=error))


def _saved_outcome(event: Mapping[str, Any]) -> Outcome[SavedSnapshot]:
    name = event["instance"]
    if event["event"] == "failed":
        return Outcome(name, error=ClawbloxError(event["error"]))
    value = dict(event["value"])
    return Outcome(name, SavedSnapshot(**{**value, "path": Path(value["path"])}))


async def _save_one(
    record: InstanceRecord,
    directory: Path | None,
    timeout: float,
    writers: ManifestWriters,
    on_saved: OnSaved,
) -> None:
    home = Path(record.instance_dir)
    target = directory or files_dir(Path(record.world_dir), home) / "checkpoints"
    try:
        source = await run_blocking(_source_of, record)
        saved = await capture(source, target, timeout=timeout, max_bytes=DEFAULT_MAX_BYTES)
        with anyio.CancelScope(shield=True):
            await writers.of(home).apply(checkpoint_update(saved, run_id=record.run_id))
    except ClawbloxError as error:
        on_saved(Outcome(record.name, error=error))
    else:
        on_saved(Outcome(record.name, saved))


def _source_of(record: InstanceRecord) -> SnapshotSource:
    # The token is on no disk; the world's own environment is where it is.
    token = read_variables(record.pid).get(protocol.OPERATOR_TOKEN_ENV)
    if not record.is_alive or token is None:
        raise UsageError(f"instance {record.name!r} does not run")
    return SnapshotSource(
        instance=record.name,
        host=record.host,
        port=record.port,
        base_path=record.base_path,
        operator_token=token,
    )


# -- forks --------------------------------------------------------------------------------------


async def fork_instances(
    run_dir: Path,
    world_dir: Path,
    checkpoint: Path | Mapping[str, Any],
    count: int,
    *,
    reseed: int | None,
    on_event: OnEvent,
    options: Mapping[str, Any] | None = None,
) -> bool:
    """Have the orchestrator of a run directory start instances from a snapshot.

    Args:
        run_dir: The run directory.
        world_dir: The world that the snapshot is of.
        checkpoint: The snapshot, absolute: its path, or a mapping with ``path`` and ``sha256``.
        count: How many instances.
        reseed: Seed of the first one; None leaves the random state as it is.
        on_event: Called with events: ``progress`` as each instance is ready or has failed; at the
            end ``started`` or ``failed`` for each.
        options: Further arguments of ``AsyncWorld.fork``, plain values.

    Returns:
        Whether there is an orchestrator of that world.

    Raises:
        ControlError: It refused, or went away.

    Cancellation: nothing of the new instances is left.
    """
    path = await run_blocking(find_orchestrator, run_dir, world_dir)
    if path is None:
        return False
    entry = checkpoint if isinstance(checkpoint, Mapping) else {"path": checkpoint}
    arguments = {"checkpoint": entry, "count": count, "reseed": reseed, **(options or {})}
    await request(path, "fork", arguments, on_event)
    return True


def find_orchestrator(run_dir: Path, world_dir: Path) -> Path | None:
    """Return the control socket of who may start instances of a world in a run directory. Blocks.

    Returns:
        None when nobody runs it there. Of several it is the one that has claimed the run
        directory, for any other would find it locked.
    """
    owned, _ = _by_owner(run_dir, select_records(run_dir, ()))
    owner = run_owner(run_dir)
    for path, (first, *_) in owned.items():  # each serves one world
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
    """End instances, whoever started them: TERM, the grace, KILL for whatever is left.

    Ending what does not run is a no-op. Where all are meant, starts that an orchestrator has not
    begun yet are given up too.

    Args:
        run_dir: The run directory.
        names: The instances that are meant; none means all.
        grace_seconds: Seconds between TERM and KILL.
        on_stopped: Called with each result as it lands.

    Returns:
        What it took, an entry an instance, by name.

    Raises:
        UsageError: One of ``names`` is not there.
        WorldStopError: A process survived even SIGKILL; the other instances have ended.
        OrchestratorSuspendedError: Those of an orchestrator that is stopped go on.
        OSError: The end of one, which nobody owned, cannot be noted; all have ended.

    Cancellation: what has not ended yet may go on.
    """
    async with ManifestWriters() as writers:
        stopping = _Stopping(run_dir, names, grace_seconds, on_stopped, writers)
        await stopping.run()
    await run_blocking(remove_leftovers, run_dir)
    for failure in stopping.failures.values():
        raise failure
    return [result for _, result in sorted(stopping.results.items())]


@attrs.define
class _Stopping:
    """The end of instances: first by those who own them, the rest directly."""

    run_dir: Path
    names: Sequence[str]
    grace_seconds: float
    on_stopped: OnStopped
    writers: ManifestWriters
    results: dict[str, StopResult] = attrs.field(factory=dict, init=False)
    failures: dict[str, ClawbloxError | OSError] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        records = await run_blocking(select_records, self.run_dir, self.names)
        owned, free = await run_blocking(_by_owner, self.run_dir, records)
        sockets = owned if self.names else await run_blocking(find_sockets, self.run_dir)
        async with anyio.create_task_group() as stops:
            for path in sockets:
                stops.start_soon(self._ask, path, [one.name for one in owned.get(path, ())])
            for record in free:
                stops.start_soon(self._stop, record)
        # What its orchestrator could not end, or did not live to end, is ended here.
        records = await run_blocking(select_records, self.run_dir, self.names)
        async with anyio.create_task_group() as stops:
            for record in records:
                if record.name not in self.results.keys() | self.failures.keys():
                    stops.start_soon(self._stop, record)

    async def _ask(self, path: Path, names: Sequence[str]) -> None:
        arguments: dict[str, Any] = {"grace_seconds": self.grace_seconds}
        if self.names:
            arguments["instances"] = names

        def take(event: Mapping[str, Any]) -> None:
            if event["event"] == "stopped":
                self._note(msgspec.convert(event["value"], StopResult))

        try:
            await request(path, "stop", arguments, take)
        except OrchestratorSuspendedError as error:
            # It would bring back what is ended behind its back.
            self.failures.update(dict.fromkeys(names, error))
        except ControlError:
            pass  # what it did not live to end is ended here

    async def _stop(self, record: InstanceRecord) -> None:
        try:
            self._note(await _stop_one(self.run_dir, record, self.grace_seconds, self.writers))
        except (WorldStopError, OSError) as error:
            self.failures[record.name] = error

    def _note(self, result: StopResult) -> None:
        if result.instance:  # else it had not even got a name
            self.results[result.instance] = result
            self.on_stopped(result)


async def _stop_one(
    run_dir: Path, record: InstanceRecord, grace_seconds: float, writers: ManifestWriters
) -> StopResult:
    begun_at = anyio.current_time()
    mark = await run_blocking(mark_of, record)
    end = await end_tree(mark, None, Grace(grace_seconds))
    if end.survivors:
        raise _stop_error(record, end)
    was_interrupted = end.rung == "already_exited"
    close = partial(_close_record, run_dir, record.name, writers, was_interrupted=was_interrupted)
    with anyio.move_on_after(_OWNER_TIMEOUT_S):
        await _wait_until(close)
    latest = await run_blocking(read_record, run_dir, record.name)
    return StopResult(
        instance=record.name,
        rung="not_running" if end.rung == "already_exited" else end.rung,
        exit=latest.exit if latest else None,
        killed=end.killed,
        elapsed_s=anyio.current_time() - begun_at,
    )


async def _wait_until(condition: Callable[[], bool]) -> None:
    while True:
        if await run_blocking(condition):
            return
        await anyio.sleep(_OWNER_POLL_S)


def _close_record(
    run_dir: Path, name: str, writers: ManifestWriters, *, was_interrupted: bool
) -> bool:
    """Note the end of an instance that nobody owns; return whether nobody does."""
    try:
        claim = claim_name(run_dir, name)
    except RunLockedError:
        return False
    try:
        record = read_record(run_dir, name)
        if record is not None and record.state not in OVER:
            write_record(run_dir, record.ended(was_interrupted=was_interrupted))
            _label_end(record, writers, was_interrupted=was_interrupted)
    except ManifestError as error:
        _log.warning("manifest not written", instance=name, error=str(error))
    finally:
        claim.release()
    return True


def _label_end(record: InstanceRecord, writers: ManifestWriters, *, was_interrupted: bool) -> None:
    directory = Path(record.instance_dir)
    # Who runs one alone labels it, unless it was killed before it could.
    if record.index is not None or (was_interrupted and is_left_open(directory)):
        status: RunStatus = "interrupted" if was_interrupted else "complete"
        writers.apply(directory, run_update(status=status, ended_at=utc_now()))


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


# -- owners -------------------------------------------------------------------------------------


def _by_owner(
    run_dir: Path, records: Iterable[InstanceRecord]
) -> tuple[dict[Path, list[InstanceRecord]], list[InstanceRecord]]:
    """Part instances into those of each control socket that is served, and the others. Blocks."""
    served = set(find_sockets(run_dir))
    owned: dict[Path, list[InstanceRecord]] = {}
    free: list[InstanceRecord] = []
    for record in records:
        path = control_dir(run_dir) / f"{record.control}.sock"
        if path in served and not is_over(record):
            owned.setdefault(path, []).append(record)
        else:
            free.append(record)
    return owned, free
