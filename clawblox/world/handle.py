"""Handles of the instances of an open world, with their facts and operations.

Only this module of ``world`` uses the supervisor and the processes of an instance.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.config.options import SaveOptions
from clawblox.instance.launch import Launch
from clawblox.instance.lifecycle import LifecycleState
from clawblox.instance.local import LocalInstance
from clawblox.instance.supervisor import Supervisor
from clawblox.protocol import TickRate
from clawblox.results import Labels, StartedWorld
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.snapshot.capture import capture
from clawblox.telemetry.log_reader import LogReader
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.rosters import Roster, Seat

if TYPE_CHECKING:
    from clawblox.system.connection import Connections
    from clawblox.world.recorder import AgentRecorder

_log = OwnLog(__name__)


class InstanceHandle:
    """Handle of one instance from its plan until it is forgotten; a revival makes a new handle.

    Args:
        supervisor: The task that owns the instance.

    Attributes:
        supervisor: The task that owns the instance.
        calls: The calls to the instance.
        source: The saves that a restart may restore.
        restart_lock: Held while a requested restart is in progress.
        wait_started: Waits until the instance is ready; see :meth:`Supervisor.wait_started`.
        wait: Waits until the instance has ended for good; see :meth:`Supervisor.wait_ended`.
        stop: Ends the instance; see :meth:`Supervisor.stop`.
        restart: Restarts the instance; see :meth:`Supervisor.restart`.
        roster: The agents that joined; shared with the handle from before a revival.
        recorder: Records the agents since the latest start; None if the world records itself or
            recording is off.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.calls = supervisor.calls
        self.source = supervisor.source
        self.restart_lock: anyio.Lock = supervisor.restart_lock
        self.wait_started = supervisor.wait_started
        self.wait = supervisor.wait_ended
        self.stop = supervisor.stop
        self.restart = supervisor.restart
        self.roster = Roster()
        self.recorder: AgentRecorder | None = None
        self._connections: tuple[int, Connections] | None = None

    # -- facts --------------------------------------------------------------------------

    @property
    def instance(self) -> LocalInstance:
        """Resources and record of the instance."""
        return self.supervisor.instance

    @property
    def name(self) -> str:
        """Name of the instance; '' until it is assigned."""
        return self.instance.name

    @property
    def launch(self) -> Launch:
        """Plan of the latest start."""
        return self.instance.launch

    @property
    def labels(self) -> Labels:
        """Labels of the instance."""
        return self.launch.options.labels

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self.launch.run_dir

    @property
    def instance_dir(self) -> Path:
        """Directory of the instance's manifest."""
        return self.launch.instance_dir

    @property
    def run_id(self) -> str:
        """Id of the instance's run."""
        return self.instance.run_id

    @property
    def url(self) -> str:
        """Local address, base path included, without a trailing slash."""
        return self.instance.url

    @property
    def restarts(self) -> int:
        """Number of restarts."""
        return self.instance.restarts

    @property
    def state(self) -> LifecycleState:
        """State of the instance."""
        return self.supervisor.lifecycle.state

    @property
    def is_ready(self) -> bool:
        """True if the instance is serving."""
        return self.state is LifecycleState.READY

    @property
    def is_over(self) -> bool:
        """True if the instance and all its processes have ended."""
        return self.supervisor.lifecycle.is_over

    @property
    def started(self) -> StartedWorld | None:
        """Public facts of the instance; None before it is ready."""
        return self.supervisor.started

    @property
    def rate(self) -> TickRate | None:
        """Tick rate of the world; None if unknown or after the end of the instance."""
        return None if self.instance.is_over else self.instance.rate

    @property
    def connections(self) -> Connections:
        """The current connections to the instance; a restart replaces them."""
        from clawblox.system.connection import Connections

        if self._connections is None or self._connections[0] != self.restarts:
            self.close_connections()
            self._connections = self.restarts, Connections(self.url)
        return self._connections[1]

    def close_connections(self) -> None:
        """Close the connections; a second call has no effect."""
        if self._connections is not None:
            self._connections[1].close()
            self._connections = None

    # -- recordings -------------------------------------------------------------------------

    async def begin_recording(self, tasks: Tasks, writers: ManifestWriters) -> None:
        """Start recording the agents if recording is on and the world cannot record itself.

        Args:
            tasks: Tasks that will include the recording.
            writers: Writers that register the recording in the manifest.

        Raises:
            OSError: The first recording of the instance cannot be written; later failures are only
                logged.
            ModuleNotFoundError: Zstandard is missing at the first recording.

        Cancellation: the recording ends.
        """
        launch = self.launch
        if launch.record_dir is None or launch.config.records_itself:
            return
        if self.started is None and self.instance.record is None:
            await self._begin_recording(launch.record_dir, tasks, writers)
            return
        expected = (OSError, ModuleNotFoundError)
        with _log.contain("agents are not recorded", expected=expected, instance=self.name):
            await self._begin_recording(launch.record_dir, tasks, writers)

    async def _begin_recording(
        self, directory: Path, tasks: Tasks, writers: ManifestWriters
    ) -> None:
        from clawblox.world.recorder import AgentRecorder, RecordedLife, register_recording

        launch, tokens = self.launch, self.instance.running.environment.secrets().values()
        times = (save.time for save in self.source.saves if save.path == launch.resume_path)
        self.recorder = None
        recorder = AgentRecorder(
            RecordedLife(
                instance=self.name,
                world=launch.config.name,
                directory=directory,
                api=launch.config.api,
                resumed=launch.resume_path is not None,
                time=next(times, None) or 0.0,
                reseed=launch.options.reseed,
                secrets=(*tokens, *self.roster.sessions),
                register=partial(register_recording, writers, self.instance_dir),
            )
        )
        tasks.start_soon(recorder.run)
        await recorder.is_open.wait()
        if recorder.failure is not None:
            raise recorder.failure
        self.recorder = recorder

    def note_join(self, seat: Seat, *, rejoined: bool) -> None:
        """Note in the recording that an agent has joined.

        Args:
            seat: The session of the agent.
            rejoined: Whether the agent had the session before.
        """
        if self.recorder is not None:
            self.recorder.note_join(seat.actor, rejoined=rejoined)

    def note_leave(self, session: str) -> None:
        """Note that an agent has left, in the roster and in the recording."""
        seat = self.roster.find(session)
        self.roster.leave(session)
        if self.recorder is not None and seat is not None:
            self.recorder.note_leave(seat.actor)

    def end_recording(self) -> None:
        """End the recording of the agents, if any, because the instance has ended."""
        if self.recorder is None:
            return
        with _log.contain("recording not ended", instance=self.name):
            exit_, halt = self.instance.exit, self.instance.halt
            self.recorder.end(
                exit=None if exit_ is None else str(exit_),
                halt=None if halt is None else self.instance.masked(halt),
            )

    # -- verbs --------------------------------------------------------------------------

    async def read_time(self, options: SaveOptions) -> float | None:
        """Return the simulation time from a temporary snapshot; None if the snapshot has no time.

        Raises:
            SnapshotError: The world gave no usable snapshot.
            WorldExitedError: The instance has ended.

        Cancellation: the snapshot is removed.
        """
        from clawblox.system.scratch import scratch_directory  # rarely needed

        source = attrs.evolve(self.instance.snapshot_source(), has_own_rows=False)
        async with scratch_directory(f"clawblox-{self.name}-") as scratch, self.calls.call():
            saved = await capture(
                source, scratch, timeout=options.timeout, max_bytes=options.max_bytes
            )
            return saved.time
        raise AssertionError("unreachable: the block returns or raises")

    def logs(self, *, follow: bool, tail: int | None) -> LogReader:
        """Return the log lines since the start of the instance; see ``AsyncWorld.logs``."""
        record = self.instance.make_record("ready")  # even while the instance has no process
        return LogReader(
            instance=record.name,
            path=Path(record.log_file),
            follow=follow,
            tail=tail,
            start=record.log_start,
            was_restarted=record.restarts > 0,
            is_over=lambda: self.is_over,
        )
