"""The block of a world, with the fleet that it opens and the calls for all instances."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from clawblox.concurrency.tasks import Residence
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import (
    check_path,
    check_read_path,
    is_world_url,
)
from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.errors import ConfigError, UsageError
from clawblox.protocol import TickRate
from clawblox.results import (
    Labels,
    StartedWorld,
)
from clawblox.rundir.control_server import Operations
from clawblox.rundir.manifest_updates import RunStatus, run_update
from clawblox.rundir.paths import make_run_dir, resolve_run_dir
from clawblox.rundir.records import read_running
from clawblox.telemetry.events import EventStream
from clawblox.telemetry.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.telemetry.metrics import Metrics
from clawblox.world.fleet import Fleet
from clawblox.world.properties import WorldMetadata
from clawblox.world.save import Autosave
from clawblox.world.settling import settle_sessions

if TYPE_CHECKING:
    from clawblox.rundir.lineage import Lineage
from clawblox.world.sources import find_world_dir


class OpenWorld(WorldMetadata):
    """The block of a world, and the calls for all its instances.

    Args:
        dir: As for :class:`~clawblox.world.async_world.AsyncWorld`.
        run_dir: As for ``AsyncWorld``.
        max_log_bytes: As for ``AsyncWorld``.
    """

    def __init__(
        self,
        dir: str | Path,  # noqa: A002 - the documented name
        *,
        run_dir: str | Path | None = None,
        max_log_bytes: int | None = DEFAULT_LOG_BYTES,
    ) -> None:
        self._source = str(dir)
        self._run_dir = None if run_dir is None else check_path(run_dir, "run_dir").absolute()
        self._max_log_bytes = max_log_bytes
        self._config_read: WorldConfig | None = None
        self._latest_started: StartedWorld | None = None
        self._first_run_dir: Path | None = None
        self._attach_dir: Path | None = None
        self._fleet: Fleet | None = None
        self._autosave: Autosave | None = None
        self._residence: Residence[Fleet]
        if not is_world_url(self._source):
            self._config_read = read_world_config(check_read_path(dir, "dir"))

    @classmethod
    def attach(cls, run_dir: str | Path) -> Self:
        """Return the world whose detached instances run in a run directory. Blocks.

        Entering the block adopts the instances; they keep running after the block. Restarts use the
        options of the original starts.

        Args:
            run_dir: The run directory.

        Raises:
            UsageError: No instance is running there, or instances of several worlds are.
            ConfigError: The run directory, or the ``world.toml`` of the world, cannot be read.
        """
        directory = resolve_run_dir(run_dir)
        try:
            worlds = {record.world_dir for record in read_running(directory)}
        except OSError as error:
            message = f"the run directory cannot be read: {error.strerror}"
            raise ConfigError(message, key="run_dir", value=str(directory)) from error
        if len(worlds) != 1:
            raise UsageError(
                f"attach needs instances of one world; {directory} runs instances of {len(worlds)}",
                hint="clawblox ps lists the instances of a run directory",
            )
        world = cls(worlds.pop(), run_dir=directory)
        world._attach_dir = directory
        return world

    def __repr__(self) -> str:
        name = self._source if self._config_read is None else self._config_read.name
        counts = "not open" if self._fleet is None else _count_states(self._fleet)
        return f"{type(self).__name__}({name!r}, {counts})"

    @property
    def _config(self) -> WorldConfig:
        if self._config_read is None:
            self._config_read = read_world_config(find_world_dir(self._source))
        return self._config_read

    @property
    def _latest(self) -> StartedWorld | None:
        return self._latest_started

    def _note_started(self, started: Sequence[StartedWorld]) -> None:
        """Note instances that became ready, in the order of their starts."""
        if started:
            self._latest_started = started[-1]
            self._first_run_dir = self._first_run_dir or started[0].run_dir

    @property
    def is_open(self) -> bool:
        """True while its ``async with`` block runs."""
        return self._fleet is not None

    @property
    def instances(self) -> tuple[str, ...]:
        """Names of the instances that are ready, in the order of their starts."""
        return self._fleet.ready_names if self._fleet else ()

    @property
    def labels(self) -> dict[str, Labels]:
        """Labels of the instances that became ready and were not stopped, by name."""
        instances = self._fleet.instances if self._fleet else ()
        return {instance.name: instance.labels for instance in instances}

    @property
    def tick_rates(self) -> dict[str, TickRate]:
        """Tick rates of the ready instances that report them, by name."""
        instances = self._fleet.instances if self._fleet else ()
        rates = {instance.name: instance.rate for instance in instances}
        return {name: rate for name, rate in rates.items() if rate is not None}

    @property
    def metrics(self) -> Metrics:
        """Counters and measurements since the block was entered."""
        return self._open_fleet().recorder.snapshot()

    # -- the block --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._fleet is not None:
            raise UsageError("this world is already open", hint="use another AsyncWorld object")
        self._residence = Residence(self._opened())
        self._fleet = await self._residence.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        if exc_info[1] is None and self._fleet is not None:
            self._fleet.end_on_purpose()
        try:
            await self._residence.__aexit__(*exc_info)
        finally:
            self._fleet = None
            self._autosave = None

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Fleet]:
        config = await run_blocking(lambda: self._config)
        async with Fleet(self._max_log_bytes, self._operations, settle_sessions).opened() as fleet:
            if self._attach_dir is not None:
                attached = await fleet.attach(config, self._attach_dir)
                self._note_started(attached)
            yield fleet

    @abstractmethod
    def _operations(self, fleet: Fleet, run_dir: Path) -> Operations:
        """Return the operations on the instances of a run directory."""

    def _open_fleet(self) -> Fleet:
        if self._fleet is None:
            raise UsageError(
                "this world is not open", hint="async with AsyncWorld(dir=…) as world: …"
            )
        return self._fleet

    def _use_run_dir(self, given: str | Path | None) -> Path:
        """Return the run directory for many instances, created if it is missing. Blocks."""
        given = self._run_dir if given is None else given
        if given is None:
            given = self._latest.run_dir if self._latest else self.dir
        return make_run_dir(resolve_run_dir(given))

    def interrupt(self) -> None:
        """Treat every stop from now on as an interruption, so that the instances can be resumed.

        :meth:`resume_all` and ``clawblox resume`` skip instances that were stopped on purpose.
        """
        if self._fleet is not None:
            self._fleet.interrupt()

    def kill_now(self) -> None:
        """Cut the grace of every stop in progress, and kill the remaining processes."""
        if self._fleet is not None:
            self._fleet.kill_now()

    # -- the run ----------------------------------------------------------------------------

    async def record_run(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the documented name
        index: int | None = None,
        status: RunStatus | None = None,
        started_at: datetime | str | None = None,
        ended_at: datetime | str | None = None,
        resume_from: str | Path | Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        """Label a run in its manifest, without starting, stopping or saving an instance.

        A label that is None stays as it is in the manifest.

        Args:
            id: Id of the run. It also replaces the run id of the checkpoints and agents of the
                instances that this object is running in the directory, or of the last one that it
                ran there.
            index: Index of the run in a series, from 0.
            status: ``running``, ``complete``, ``failed`` or ``interrupted``.
            started_at: Start of the run; a datetime without a zone is UTC, text is ISO 8601.
            ended_at: End of the run.
            resume_from: The checkpoint that the run was resumed from: a path, or a result of
                ``save``.
            run_dir: Directory of the run; by default that of the latest start, else that of this
                object, else the world directory.

        Raises:
            ConfigError: A value has the wrong type or format; the error names it.
            ManifestError: The manifest cannot be written.

        Cancellation: the label is written completely or not at all.
        """
        fleet = self._open_fleet()
        update = run_update(
            id=id,
            index=index,
            status=status,
            started_at=started_at,
            ended_at=ended_at,
            resume_from=resume_from,
        )
        latest = self._latest.instance_dir if self._latest else self._run_dir or self.dir
        directory = latest if run_dir is None else await run_blocking(resolve_run_dir, run_dir)
        await fleet.tasks.own(partial(fleet.label_run, directory, update))

    async def lineage(self, run_dir: str | Path | None = None) -> Lineage:
        """Read the lineage of a run directory: origins, starts and saves of its instances.

        Args:
            run_dir: The run directory; by default that of the latest start, else that of this
                object, else the world directory.

        Returns:
            The lineage of running and ended instances, from the manifests and records.

        Raises:
            ManifestError: No instance ever ran in the run directory.
            ConfigError: ``run_dir`` is not a path.

        Cancellation: has no effect.
        """
        from clawblox.rundir.lineage import read_lineage

        latest = self._latest.run_dir if self._latest else self._run_dir or self.dir
        return await run_blocking(read_lineage, latest if run_dir is None else run_dir)

    def events(self) -> EventStream:
        """Return the events of all instances, from now until the world is closed.

        Returns:
            An async context manager and iterator of :class:`~clawblox.results.WorldEvent`.
        """
        return self._open_fleet().hub.subscribe()


def _count_states(fleet: Fleet) -> str:
    """Return the number of instances in each state: ``8 ready, 1 starting``."""
    states = [instance.state.value for instance in fleet.instances]
    counts = Counter([*states, *("starting" for _ in fleet.starting)])
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no instances"
