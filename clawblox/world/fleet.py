"""The instances of one open world, and the services that run until the last one has ended.

A fleet exists between entering and leaving the block of an ``AsyncWorld``. It holds the instances
and finds them by name; each instance is run by its supervisor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import attrs
import msgspec

from clawblox.concurrency.batch import Batch, BatchOperation, Job
from clawblox.concurrency.deadlines import GAP_S, watch_loop
from clawblox.concurrency.progress import ProgressLike, counting
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_progress
from clawblox.config.options import StartOptions
from clawblox.config.world_toml import WorldConfig
from clawblox.errors import WorldStartError, WorldStopError
from clawblox.instance.bookkeeping import watch_records
from clawblox.instance.failures import start_stopped
from clawblox.instance.launch import Launch, new_run_id, plan_attach, plan_launch
from clawblox.instance.launcher import Launcher
from clawblox.instance.lifecycle import FAILED_START_GRACE_S
from clawblox.instance.listening import watch_listeners
from clawblox.instance.local import LocalInstance, watch_memory
from clawblox.instance.ramp import current_ramp
from clawblox.instance.supervisor import Supervisor
from clawblox.results import EventKind, Labels, StartedWorld, StopResult, WorldEvent
from clawblox.rundir.claims import refuse_held_run
from clawblox.rundir.control_server import ControlSockets, Operations
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.paths import make_run_dir
from clawblox.rundir.records import InstanceRecord, read_running
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import digest_file
from clawblox.telemetry.events import Hub
from clawblox.telemetry.log_watch import WatchedLog, watch_logs
from clawblox.telemetry.metrics import MetricsRecorder
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.handle import InstanceHandle
from clawblox.world.http_clients import HttpClients
from clawblox.world.known_instances import KnownInstances, Plan, rename_runs
from clawblox.world.measured import measure_recordings, run_measured
from clawblox.world.sources import register_start
from clawblox.world.starts import (
    Leftovers,
    Starts,
    begun_update,
    continued_update,
    forked_snapshots,
    list_members,
    lone_update,
    planned,
)

_log = OwnLog(__name__)


class ManyStart(msgspec.Struct, frozen=True, kw_only=True):
    """A start of many instances: new ones, or a resume.

    Attributes:
        run_dir: The claimed run directory; no other process can start many instances there.
        prepare: Closes interrupted runs of the claimed directory, and returns the plan.
        reuse: Whether the name of an instance that has ended can be used again.
        stops_all: Whether the first failure ends all other instances.
        verb: Verb for the progress line.
    """

    run_dir: Path
    prepare: Callable[[], Awaitable[Plan]]
    reuse: bool = False
    stops_all: bool = False
    verb: str = "Starting"


class Fleet(KnownInstances):
    """Instances by name, with their tasks and their shared writers and connections.

    Args:
        max_log_bytes: Size at which a log is cut to its newer half; None never cuts.
        make_operations: Returns the operations on the instances of a run directory.
        settle_sessions: Called when an instance was started, before it counts as ready; its result
            is called once the instance is ready.

    Attributes:
        tasks: Tasks of the instances, and calls that outlive a cancelled caller.
        hub: Distributes events.
        recorder: Counts events and measures durations.
        writers: The writers of the manifests.
        leftovers: Cleans up after killed orchestrators in the run directories.
    """

    def __init__(
        self,
        max_log_bytes: int | None,
        make_operations: Callable[[Fleet, Path], Operations],
        settle_sessions: Callable[[Fleet, InstanceHandle], Awaitable[Callable[[], None]]],
    ) -> None:
        super().__init__()
        report = partial(_log.defect, "task of a world failed")
        self.tasks = Tasks(on_error=report)
        self.hub = Hub[WorldEvent]()
        self.recorder = MetricsRecorder()
        self.writers = ManifestWriters()
        self._max_log_bytes = max_log_bytes
        self._services = Tasks(on_error=report)
        self._settle_sessions = partial(settle_sessions, self)
        self.leftovers = Leftovers(self.writers)
        self._launcher = Launcher(current_ramp())
        self._is_interrupted = False
        self.http_clients = HttpClients()
        self._controls = ControlSockets(self._services, partial(make_operations, self))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Run the services; leaving ends the instances that are not detached, then the services."""
        async with (
            self._services,
            self.http_clients,
            self._connections_and_claims(),
            self.writers,
            self._launcher.opened(),
            self.tasks,
        ):
            start = self._services.start_soon
            start(watch_logs, self._find_logs, self._max_log_bytes)
            start(watch_loop, self._note_lag)
            start(watch_listeners)
            start(watch_records, lambda: [handle.instance for handle in self.all])
            start(watch_memory, lambda: {h.instance: h.supervisor.end_at_limit for h in self.all})
            yield self

    @asynccontextmanager
    async def _connections_and_claims(self) -> AsyncIterator[None]:
        """Close the connections and release the claims after the instances have ended."""
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._controls.aclose()
                for instance in self.all:
                    instance.close_connections()
                await self._planning.release()
            self.hub.close()

    # -- start and stop ---------------------------------------------------------------------

    async def start(
        self,
        config: WorldConfig,
        options: StartOptions,
        archive: Path | None = None,
        sha256: str | None = None,
    ) -> StartedWorld:
        """Start an instance; fails, and is cancelled, like ``AsyncWorld.start``.

        Args:
            config: The world.
            options: The options of the start; ``resume`` is a snapshot, not an archive.
            archive: The archive that the snapshot was loaded from, or None.
            sha256: Digest of the snapshot, verified when it was loaded; None if not known.
        """
        with ExitStack() as planning:

            def prepare() -> Launch:
                launch = _plan_start(config, options, archive, sha256)
                planning.enter_context(self._planning.preparing(launch))
                refuse_held_run(launch.run_dir)
                self.leftovers.clear(launch.run_dir)
                self.writers.note_forks(forked_snapshots([launch]))
                return launch

            launch = await run_blocking(prepare)
            control = await self._controls.open(launch.run_dir)
            instance = self._make(launch, control, lone_update)
            self._begin(instance)
        return await self._wait_started(instance)

    async def _wait_started(self, instance: InstanceHandle) -> StartedWorld:
        try:
            return await instance.wait_started()
        except BaseException:
            await self._end([instance])
            raise

    async def undo_start(self, *started: StartedWorld) -> None:
        """End instances whose caller was cancelled before receiving the result of the start."""
        known = (self._instances.get(instance.name) for instance in started)
        await self._end([instance for instance in known if instance is not None])

    async def start_many(
        self, start: ManyStart, *, progress: ProgressLike = False
    ) -> Batch[StartedWorld]:
        """Start many instances; fails, and is cancelled, like ``AsyncWorld.start_many``.

        Args:
            start: The instances to start.
            progress: Shows the progress of the starts.
        """
        operation = partial(self._start_many, start, progress)
        return await self.tasks.own(operation, undo=lambda batch: self.undo_start(*batch))

    async def _start_many(self, start: ManyStart, progress: ProgressLike) -> Batch[StartedWorld]:
        run_dir = start.run_dir
        await self._planning.claim(run_dir)
        plan = await start.prepare()
        reservation = self._planning.reserved(run_dir, plan, self._names, reuse=start.reuse)
        async with (
            reservation as (launches, failed),
            counting(start.verb, len(launches), progress) as advance,
        ):
            control = await self._controls.open(run_dir)
            starts = Starts(len(launches), stop_all=start.stops_all, advance=advance)
            begun = {
                name: self._make_member(launch, control, starts.note)
                for name, launch in launches.items()
            }
            async with planned(run_dir, [handle.instance for handle in begun.values()]):
                await self.writers.of(run_dir).apply(list_members(launches))
                await run_blocking(self.writers.note_forks, forked_snapshots(launches.values()))
            for name, launch in launches.items():
                if launch.shares_rows_of_origin:
                    path, labels = launch.resume_path, launch.options.labels
                    self.emit("rows_shared", name, labels, path=path)
            for instance in begun.values():
                self._begin(instance)
            try:
                await starts.is_decided.wait()
                batch = await self._collect(begun, starts)
                await self._flush_manifests()
            except BaseException:
                await self._end(begun.values())
                raise
            self._put_in_order(batch.done)
            return Batch(batch.done, {**failed, **batch.failed})

    async def _collect(
        self, begun: Mapping[str, InstanceHandle], starts: Starts
    ) -> Batch[StartedWorld]:
        """Return the results of the starts; if the batch was aborted, end all of them first."""
        failed = list(starts.failed)
        if starts.is_aborted:
            await self._end(begun.values())
            failed += [name for name in begun if name not in failed]
        done = {name: instance.started for name, instance in begun.items() if name not in failed}
        errors: dict[str, Exception] = {}
        for name in failed:
            error = start_stopped()
            if starts.is_aborted:
                message = f"the start was abandoned because {failed[0]!r} failed"
                error = WorldStartError(message, instance=name)
            errors[name] = begun[name].supervisor.failure or error
        return Batch(done, errors)  # type: ignore[arg-type]  # not failed, hence started

    async def _end(self, instances: Iterable[InstanceHandle]) -> None:
        """End instances whose start failed or was cancelled."""

        async def end(instance: InstanceHandle) -> None:
            with suppress(WorldStopError):  # it is logged; the guard ends the rest
                await instance.stop(FAILED_START_GRACE_S, on_purpose=False)
            self._forget(instance)

        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as ends:
                for instance in instances:
                    ends.start_soon(end, instance)

    def _make_member(
        self, launch: Launch, control: str, on_settled: Callable[[InstanceHandle], None]
    ) -> InstanceHandle:
        """Create an instance of a start of many, with its own run."""
        begun_at = utc_now()
        run_id = new_run_id(str(launch.options.name), begun_at)
        describe: Callable[[Launch], Update] = continued_update
        if launch.past is None:
            describe = partial(begun_update, run_id=run_id, begun_at=begun_at)
        return self._make(
            launch, control, describe, durable=False, run_id=run_id, on_settled=on_settled
        )

    async def attach(self, config: WorldConfig, run_dir: Path) -> list[StartedWorld]:
        """Adopt the instances that run in a run directory; raises ``RunLockedError``."""

        def plan() -> list[tuple[InstanceRecord, Launch]]:
            return [
                (record, plan_attach(config, run_dir, record)) for record in read_running(run_dir)
            ]

        found = await run_blocking(plan)
        control = await self._controls.open(run_dir)
        begun = [self._make(launch, control, record=record) for record, launch in found]
        for instance in begun:
            self._begin(instance)
        attached = [await instance.wait_started() for instance in begun]
        self._put_in_order(started.name for started in attached)
        return attached

    async def revive(self, launch: Launch) -> StartedWorld:
        """Restart an instance that has died, under its name and as part of its run."""
        control = await self._controls.open(launch.run_dir)
        instance = self._make(launch, control, continued_update)
        self._begin(instance)
        return await self._wait_started(instance)

    async def stop(self, name: str | None, grace_seconds: float) -> StopResult:
        """End an instance if it is running; fails, and is cancelled, like ``AsyncWorld.stop``."""
        if name is not None and self._has_started and not self._was_asked_for(name):
            raise self._no_instance(name)
        if not self._instances or (name is not None and name not in self._instances):
            return StopResult(name or "", "not_running")
        on_purpose = not self._is_interrupted
        return await self.stop_known(self.find(name), grace_seconds, on_purpose=on_purpose)

    async def stop_known(
        self, instance: InstanceHandle, grace_seconds: float, *, on_purpose: bool
    ) -> StopResult:
        """End an instance, which may still be starting; see ``Supervisor.stop``."""
        try:
            return await instance.stop(grace_seconds, on_purpose=on_purpose)
        finally:
            if instance.is_over:
                self._forget(instance)
            else:  # the caller was cancelled, but the instance still ends
                self.tasks.start_soon(self._forget_ended, instance)

    async def _forget_ended(self, instance: InstanceHandle) -> None:
        await instance.wait()
        self._forget(instance)

    async def stop_all(
        self, names: Iterable[str], grace_seconds: float, *, progress: ProgressLike = False
    ) -> Batch[StopResult]:
        """End many instances concurrently; see ``AsyncWorld.stop_all``."""
        jobs: dict[str, Job[StopResult]] = {
            name: partial(self.stop, name, grace_seconds) for name in names
        }
        batch = await BatchOperation(
            self.tasks, jobs, verb="Stopping", progress=check_progress(progress, "progress")
        )
        await self._flush_manifests()
        return batch

    async def _flush_manifests(self) -> None:
        """Sync all manifests that a batch has written in one pass."""
        with _log.contain("manifest not synced"):
            await self.writers.flush()

    def interrupt(self) -> None:
        """Treat every end of an instance from now on as an interruption that can be resumed."""
        self._is_interrupted = True

    def end_on_purpose(self) -> None:
        """Treat instances that end with the block as stopped on purpose."""
        for instance in self.all:
            instance.supervisor.ends_on_purpose |= not self._is_interrupted

    def kill_now(self) -> None:
        """Cut the grace of every stop in progress: remaining processes are killed immediately."""
        for instance in self._instances.values():
            instance.supervisor.kill_now()

    def _begin(self, instance: InstanceHandle) -> None:
        """Start the task that starts an instance or attaches to it."""
        past = instance.launch.past
        if instance.instance.record is None and (past is None or past.by != "request"):
            self.recorder.add("starts")
        self._expect(instance)
        self.tasks.start_soon(run_measured, instance, self.writers)

    def _make(
        self,
        launch: Launch,
        control: str,
        describe: Callable[[Launch], Update] = lambda _: Update(),
        *,
        record: InstanceRecord | None = None,
        durable: bool = True,
        run_id: str = "",
        on_settled: Callable[[InstanceHandle], None] = lambda _: None,
    ) -> InstanceHandle:
        """Create an instance that will be started, or attached to if ``record`` is given."""
        write = partial(self.writers.apply, launch.instance_dir)
        register = partial(register_start, launch, describe, partial(write, durable=durable))
        instance = LocalInstance(
            self._launcher,
            launch,
            record,
            names=self._names,
            control=control,
            register=register,
            run_id=run_id,
        )

        async def come_back() -> Callable[[], None]:
            if handle.restarts:
                self.tasks.start_soon(measure_recordings, handle.instance_dir, self.writers)
            await handle.begin_recording(self.tasks, self.writers)
            return await self._settle_sessions(handle)

        supervisor = Supervisor(
            instance,
            self.emit,
            write,
            on_settled=lambda: self._note_settled(handle, on_settled),
            on_back=come_back,
            on_over=lambda: handle.end_recording(),
        )
        handle = InstanceHandle(supervisor)
        old = None if launch.past is None else self._last.get(handle.name)
        if old is not None and old.run_id == handle.run_id:
            handle.roster = old.roster
        return handle

    def _note_settled(
        self, instance: InstanceHandle, on_settled: Callable[[InstanceHandle], None]
    ) -> None:
        """Add an instance that is ready; reduce one that failed to a short entry."""
        try:
            self._starting.discard(instance)
            if instance.started is None:
                self._forget(instance)
            elif (replaced := self._add(instance)) is not None:
                self._let_go(replaced)
        finally:
            on_settled(instance)

    async def label_run(self, directory: Path, update: Update) -> None:
        """Label a run in its manifest; fails, and is cancelled, like ``AsyncWorld.record_run``.

        A new id also applies to the runs of the instances running in ``directory``, and to the run
        of the last instance started there.
        """
        run_id = update.run.get("id")
        if run_id is not None:
            here = self._find_runs(directory)
            renamed = {run.run_id: run_id for run in here}
            update = msgspec.structs.replace(update, renamed_runs=renamed)
            await run_blocking(rename_runs, here, run_id)
        if (snapshot := update.run.get("resume_from")) is not None:
            await run_blocking(self.writers.note_forks, [Path(snapshot)])
        await self.writers.of(directory).apply(update)

    def _forget(self, instance: InstanceHandle) -> None:
        """Reduce an instance that was stopped or never became ready to a short entry."""
        self._remember(instance)
        self._let_go(instance)

    def _let_go(self, instance: InstanceHandle) -> None:
        """Close the connections to an instance; release its manifest if no other one uses it."""
        instance.close_connections()
        if self._leave(instance):
            self.writers.leave(instance.instance_dir)

    # -- services ---------------------------------------------------------------------------

    def emit(self, kind: EventKind, instance: str, labels: Labels, **detail: Any) -> None:
        """Send an event to all subscribers, and count it."""
        time = format_utc(utc_now())
        event = WorldEvent(time=time, kind=kind, subject=instance, data=detail, labels=labels)
        self.hub.publish(event)
        self.recorder.count_event(kind)
        if kind == "ready":
            self.recorder.observe("ready_s", detail["ready_s"])

    def _note_lag(self, lag_s: float) -> None:
        self.recorder.observe("loop_lag_s", lag_s)
        if lag_s > GAP_S:
            _log.warning("this process did not run for a while", seconds=round(lag_s, 1))
            self.emit("lagged", "", {}, seconds=lag_s)

    def _find_logs(self) -> Iterator[WatchedLog]:
        """Yield the logs of the instances that have, or had, processes."""
        for handle in self.all:
            index = handle.instance.log_index
            if index is not None and not handle.is_over:
                yield index, handle.instance.sidecar_logs


def _plan_start(
    config: WorldConfig, options: StartOptions, archive: Path | None, sha256: str | None
) -> Launch:
    launch = plan_launch(config, options)
    make_run_dir(launch.run_dir)
    if archive is None or launch.resume_path is None:
        return launch
    digest = sha256 or digest_file(launch.resume_path)
    return attrs.evolve(launch, archive=archive, parent_sha256=digest)
