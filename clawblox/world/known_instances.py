"""The instances of a fleet by name: running and dead ones, and short entries of all others.

An instance that was stopped, or never became ready, is reduced to a short entry, because a world
object may start thousands of instances.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

import anyio
import msgspec

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import UsageError
from clawblox.instance.instance import Instance
from clawblox.instance.launch import Launch
from clawblox.results import ProcessExit
from clawblox.rundir.claims import RunClaim, claim_run, free_names
from clawblox.rundir.records import read_record, replace_record
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.handle import InstanceHandle

_log = OwnLog(__name__)


class Planned(msgspec.Struct, frozen=True):
    """The launches of a start of many.

    Attributes:
        launches: The launches; each has a name.
        failed: Errors of the instances that cannot be started, by name.
    """

    launches: Sequence[Launch]
    failed: Mapping[str, Exception] = msgspec.field(default_factory=dict)


Plan: TypeAlias = Callable[[Iterator[str]], Planned]
"""Plans the launches, given free names. Blocks."""


class Planning:
    """The run directories that an open world has claimed, and its planned launches.

    Attributes:
        launches: The planned launches by name, until their instances have claimed these names.
    """

    def __init__(self) -> None:
        self.launches: dict[str, Launch] = {}
        self._unnamed: list[Launch] = []
        self._claims: dict[Path, RunClaim] = {}
        self._lock = anyio.Lock()

    async def claim(self, run_dir: Path) -> None:
        """Claim a run directory for this process; a second call has no effect.

        Raises:
            RunLockedError: Another orchestrator runs many instances there.

        Cancellation: the directory may be claimed.
        """
        claim = await run_blocking(claim_run, run_dir)
        if self._claims.setdefault(run_dir, claim) is not claim:
            claim.release()

    async def release(self) -> None:
        """Release all run directories."""
        for claim in self._claims.values():
            await run_blocking(claim.release)

    @property
    def snapshots(self) -> set[Path | None]:
        """The snapshots that planned launches will restore."""
        return {launch.resume_path for launch in (*self.launches.values(), *self._unnamed)}

    @contextmanager
    def preparing(self, launch: Launch) -> Iterator[None]:
        """Protect the snapshot of an unnamed launch from removal until the block is left."""
        self._unnamed.append(launch)
        try:
            yield
        finally:
            self._unnamed.remove(launch)

    @asynccontextmanager
    async def reserved(
        self, run_dir: Path, plan: Plan, known: Collection[str], *, reuse: bool
    ) -> AsyncIterator[tuple[Mapping[str, Launch], Mapping[str, Exception]]]:
        """Plan launches by name, and reserve the names until the block is left.

        The block receives the launches and the errors of instances that cannot be started.

        Args:
            run_dir: The claimed run directory of the launches.
            plan: Plans the start.
            known: Names of the instances of this world.
            reuse: Whether the name of an instance that has ended can be used again.

        Raises:
            ConfigError: An option is not usable for these launches.
        """
        claim = self._claims[run_dir]

        def plan_here() -> tuple[dict[str, Launch], Mapping[str, Exception]]:
            with claim.naming() as taken:
                planned = plan(free_names(run_dir, {*known, *self.launches, *taken}, reuse=reuse))
                launches = {str(launch.options.name): launch for launch in planned.launches}
                taken.update(launches)
            return launches, planned.failed

        async with self._lock:
            launches, failed = await run_blocking(plan_here)
            self.launches.update(launches)
        try:
            yield launches, failed
        finally:
            for name in launches:
                del self.launches[name]
            claim.forget(launches)


class _PastInstance(msgspec.Struct):
    """The short entry of an instance that was stopped, or never became ready.

    Attributes:
        name: Name of the instance.
        run_dir: Run directory of the instance.
        instance_dir: Directory of the instance's manifest.
        run_id: Id of the instance's run.
        exit: Exit of the instance.
    """

    name: str
    run_dir: Path
    instance_dir: Path
    run_id: str
    exit: ProcessExit

    def rename_run(self, run_id: str) -> None:
        """Change the id of the run, also in the record. Blocks.

        Raises:
            OSError: The record cannot be written.
        """
        record = read_record(self.run_dir, self.name)
        if record is not None and record.run_id == self.run_id:
            replace_record(self.run_dir, msgspec.structs.replace(record, run_id=run_id))
        self.run_id = run_id


class KnownInstances:
    """The instances of a fleet by name."""

    def __init__(self) -> None:
        self._instances: dict[str, InstanceHandle] = {}
        self._starting: set[InstanceHandle] = set()
        self._users: dict[Path, set[InstanceHandle]] = {}
        self._names: dict[str, Instance] = {}
        self._past: dict[str, _PastInstance] = {}
        self._last: WeakValueDictionary[str, InstanceHandle] = WeakValueDictionary()
        self._last_in: dict[Path, str] = {}
        self._planning = Planning()
        self._has_started = False

    @property
    def instances(self) -> tuple[InstanceHandle, ...]:
        """The instances that became ready and were not stopped, in the order of their starts."""
        return tuple(self._instances.values())

    @property
    def starting(self) -> tuple[InstanceHandle, ...]:
        """The instances that are being started, including queued ones."""
        return tuple(self._starting)

    @property
    def all(self) -> tuple[InstanceHandle, ...]:
        """The started and the starting instances."""
        return (*self._instances.values(), *self._starting)

    @property
    def ready_names(self) -> tuple[str, ...]:
        """Names of the instances that are ready, in the order of their starts."""
        return tuple(name for name, instance in self._instances.items() if instance.is_ready)

    @property
    def snapshots_in_use(self) -> set[Path | None]:
        """The snapshots that instances were restored from, will be restored from, or may need."""
        restorable = (
            (instance.launch.resume_path, instance.source.first.resume_path)
            for instance in self.all
        )
        return self._planning.snapshots.union(*restorable)

    def find(self, name: str | None) -> InstanceHandle:
        """Return the named instance; None means the only instance.

        Raises:
            UsageError: There is no instance of that name; for None, there is not exactly one
                instance.
        """
        known = self._instances
        if name is None and len(known) == 1:
            return next(iter(known.values()))
        if name is not None and name in known:
            return known[name]
        raise self._no_instance(name)

    def find_latest(self, known: InstanceHandle) -> InstanceHandle:
        """Return the current handle of an instance; after a revival it is a new one."""
        latest = self._last.get(known.name, known)
        return latest if latest.run_id == known.run_id else known

    def leave_elsewhere(self, directory: Path, joined: InstanceHandle) -> None:
        """Forget the sessions of an agent's proxy in all instances except ``joined``."""
        for roster in {instance.roster for instance in (*self.all, *self._last.values())}:
            if roster is not joined.roster:
                roster.release(directory)

    async def wait_ended(self, name: str | None) -> ProcessExit:
        """Wait until an instance has ended for good, and return its exit.

        Raises:
            UsageError: As :meth:`find`.

        Cancellation: has no effect.
        """
        if name is not None and name not in self._instances and name in self._past:
            return self._past[name].exit
        return await self.find(name).wait()

    def _no_instance(self, name: str | None) -> UsageError:
        names = ", ".join(self._instances)
        past = ", ".join(name for name in self._past if name not in self._instances)
        asked = "no instance was named" if name is None else f"no instance {name!r}"
        ended = f", and there were: {past}" if past else ""
        if not self._instances:
            asked = "" if name is None else f"{asked}; "
            return UsageError(f"{asked}nothing runs{ended}", hint="start the world first")
        return UsageError(
            f"{asked}; there are: {names}{ended}", hint="name an instance with instance="
        )

    def last_run_dir(self, name: object) -> Path | None:
        """Return the run directory of the last instance called ``name``; None if there is none."""
        if not isinstance(name, str):
            return None
        known = self._instances.get(name) or self._past.get(name)
        return None if known is None else known.run_dir

    def is_named(self, name: str) -> bool:
        """Return whether an instance has that name or will have it soon."""
        return name in self._names or name in self._planning.launches

    def _was_asked_for(self, name: str) -> bool:
        """Return whether an instance of that name was or is being started here."""
        known = (self._instances, self._past, self._names, self._planning.launches)
        return any(name in names for names in known) or any(
            name == start.launch.options.name for start in self._starting
        )

    def _expect(self, instance: InstanceHandle) -> None:
        """Add an instance that is about to start."""
        self._starting.add(instance)
        self._users.setdefault(instance.instance_dir, set()).add(instance)

    def _leave(self, instance: InstanceHandle) -> bool:
        """Note that an instance stopped writing its manifest; return whether it was the last."""
        users = self._users.get(instance.instance_dir, set())
        users.discard(instance)
        if not users:
            self._users.pop(instance.instance_dir, None)
        return not users

    def _put_in_order(self, names: Iterable[str]) -> None:
        """Sort instances by the order of the request instead of the order of readiness."""
        for name in names:
            if name in self._instances:  # it may have been stopped in the meantime
                self._instances[name] = self._instances.pop(name)

    def _add(self, instance: InstanceHandle) -> InstanceHandle | None:
        """Add a ready instance; return the instance that had the same name before, if any."""
        replaced = self._instances.pop(instance.name, None)
        self._instances[instance.name] = instance
        self._last[instance.name] = instance
        self._last_in[instance.instance_dir] = instance.name
        self._past.pop(instance.name, None)
        self._has_started = True
        return replaced

    def _remember(self, instance: InstanceHandle) -> None:
        """Reduce an instance that was stopped or never became ready to a short entry."""
        name = instance.name
        if self._instances.get(name) is instance:
            del self._instances[name]
        if name and name not in self._instances:
            directories = instance.run_dir, instance.instance_dir
            exit_ = instance.instance.exit or ProcessExit()
            self._past[name] = _PastInstance(name, *directories, instance.run_id, exit_)

    def _find_runs(self, instance_dir: Path) -> list[Instance | _PastInstance]:
        """Return the instances running in a directory, and the last one started there."""
        here: list[Instance | _PastInstance] = [
            handle.instance
            for handle in self._instances.values()
            if handle.instance_dir == instance_dir
        ]
        last = self._past.get(self._last_in.get(instance_dir, ""))
        if last is not None and last.instance_dir == instance_dir:
            here.append(last)
        return here


def rename_runs(instances: Iterable[Instance | _PastInstance], run_id: str) -> None:
    """Change the run id of instances; report records that cannot be written. Blocks."""
    for instance in instances:
        try:
            instance.rename_run(run_id)
        except OSError as error:
            _log.warning("instance record not written", instance=instance.name, error=str(error))
