"""The requests that other processes can send to an orchestrator through its control socket.

The requests start, save, restart, fork and stop instances of one run directory like the Python API,
follow logs and events, and transfer files. Arguments and results are plain values, which
``rundir.requests`` defines; ``rundir.control_server`` serves the socket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import anyio
import attrs
import msgspec

from clawblox.concurrency.batch import Batch, BatchOperation, Job
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.config.options import RestartOptions, SaveOptions
from clawblox.errors import UsageError
from clawblox.results import StartedWorld, StopResult
from clawblox.rundir.blobs import describe_blob, read_piece, write_piece
from clawblox.rundir.control_server import Handler, Operation, SendEvent
from clawblox.rundir.requests import (
    ALLOWED,
    NEEDED,
    Restarted,
    describe_error,
    describe_event,
    describe_outcome,
    read_flag,
    read_grace_seconds,
    read_names,
    read_options,
    read_tail,
)
from clawblox.rundir.run_logs import read_logs
from clawblox.rundir.status import select_records
from clawblox.telemetry.events import EventStream
from clawblox.telemetry.log_reader import LogReader
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.resume import restart
from clawblox.world.save import save_all

_T = TypeVar("_T")

Start: TypeAlias = Callable[..., Awaitable[StartedWorld]]
"""Starts an instance: ``AsyncWorld.start``."""

Fork: TypeAlias = Callable[..., Awaitable[Batch[StartedWorld]]]
"""Starts instances from a snapshot: ``AsyncWorld.fork``."""

_MoveBlob: TypeAlias = Callable[[Path, Mapping[str, Any], Callable[[], None]], Mapping[str, Any]]


def make_operations(fleet: Fleet, start: Start, fork: Fork, run_dir: Path) -> dict[str, Operation]:
    """Return the operations on the instances of a run directory, by ``op``."""
    operations = _Operations(fleet, start, fork, run_dir)
    handlers: dict[str, Handler] = {
        "start": operations.start,
        "logs": operations.send_logs,
        "events": operations.send_events,
        "describe_blob": partial(operations.move_blob, describe_blob),
        "read_blob": partial(operations.move_blob, read_piece),
        "write_blob": partial(operations.move_blob, write_piece),
        "save": operations.save_named,
        "fork": operations.fork,
        "stop": operations.stop,
        "restart": operations.restart,
    }
    return {
        op: Operation(handler, takes=ALLOWED.get(op, ()), needs=NEEDED.get(op, ()))
        for op, handler in handlers.items()
    }


class _Operations(msgspec.Struct, frozen=True):
    """Operations on the instances of a run directory, run by the orchestrator that owns them."""

    fleet: Fleet
    start_world: Start
    fork_world: Fork
    run_dir: Path

    async def start(self, asked: Mapping[str, Any], _: SendEvent) -> Mapping[str, Any]:
        """Start an instance and return its facts."""
        started = await self.start_world(run_dir=self.run_dir, **read_options("start", asked))
        facts = {name: getattr(started, name) for name in ("url", "port", "pid", "resume_path")}
        return {"instance": started.name, **facts}

    async def send_logs(self, asked: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        """Send log lines of the named instances, or of all; with ``follow``, until they end."""
        read = partial(
            read_logs,
            self.run_dir,
            read_names(asked) or (),
            follow=read_flag(asked, "follow", default=False),
            tail=read_tail(asked),
        )
        readers = await run_blocking(read)
        async with anyio.create_task_group() as tasks:
            for reader in readers.values():
                tasks.start_soon(_send_lines, reader, send_event)
        return {}

    async def send_events(self, _: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        """Send the events of these instances and of the world until cancelled."""
        fleet = self.fleet
        async with fleet.hub.subscribe() as events:
            # A stopped instance is forgotten before its last event is read.
            here = {"", *self._named((*fleet.instances, *fleet.starting))}
            await send_event("subscribed")
            async for event in events:
                here |= self._named((*fleet.instances, *fleet.starting)).keys()
                if event.subject in here:
                    await send_event("event", value=describe_event(event))
        return {}

    async def move_blob(
        self, move: _MoveBlob, asked: Mapping[str, Any], _: SendEvent
    ) -> Mapping[str, Any]:
        """Read or write a piece of a file of the run directory, or describe a file."""
        return await run_checked(partial(move, self.run_dir, asked))

    async def save_named(
        self, asked: Mapping[str, Any], send_event: SendEvent
    ) -> Mapping[str, Any]:
        """Save the named instances, or all that are ready."""
        options = SaveOptions(**read_options("save", asked))
        here = self._named(self.fleet.instances)
        names = read_names(asked)
        if names is None:
            names = [name for name, instance in here.items() if instance.is_ready]
        await self._check_names(names, {*here, *self._named(self.fleet.starting)})
        for name in names:
            if name not in here:
                error = f"instance {name!r} is not ready"
                await send_event("failed", instance=name, error=error)
        meant = [here[name] for name in names if name in here]
        return await _send_outcomes(save_all(self.fleet, meant, options), "saved", send_event)

    async def stop(self, asked: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        """Stop the named instances, or all, including those that are still queued."""
        grace_seconds = read_grace_seconds(asked)
        names = read_names(asked)
        jobs: dict[str, Job[StopResult]] = {
            name: partial(self.fleet.stop_known, instance, grace_seconds, on_purpose=True)
            for name, instance in self._named(self.fleet.starting).items()
        }
        for name in self._named(self.fleet.instances):
            jobs[name] = partial(self.fleet.stop, name, grace_seconds)
        if names is not None:
            await self._check_names(names, jobs)
            jobs = {name: job for name, job in jobs.items() if name in names}
        return await _send_outcomes(BatchOperation(self.fleet.tasks, jobs), "stopped", send_event)

    async def restart(self, asked: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        """Restart the named instances, or all that are running or have died."""
        options = RestartOptions(
            save=read_flag(asked, "save", default=True),
            fresh=read_flag(asked, "fresh", default=False),
            resume=asked.get("resume"),
            reseed=asked.get("reseed"),
            grace_seconds=read_grace_seconds(asked),
        )
        here = self._named(self.fleet.instances)
        names = read_names(asked)
        names = list(here) if names is None else names
        await self._check_names(names, {*here, *self._named(self.fleet.starting)})
        jobs: dict[str, Job[Restarted]] = {
            name: partial(self._restart, name, here.get(name), options) for name in names
        }
        return await _send_outcomes(BatchOperation(self.fleet.tasks, jobs), "restarted", send_event)

    async def _restart(
        self, name: str, instance: InstanceHandle | None, options: RestartOptions
    ) -> Restarted:
        if instance is None:
            raise UsageError(f"instance {name!r} is not ready, or was stopped")
        started = await restart(self.fleet, instance, options)
        return Restarted(started.url, started.pid, started.resume_path, started.ready_s)

    async def fork(self, asked: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        """Start instances from a snapshot; send an event for each that is ready or has failed."""
        options = read_options("fork", asked)
        async with self.fleet.hub.subscribe() as events, Tasks() as tasks:
            tasks.start_soon(_send_progress, events, send_event)
            batch = await self.fork_world(
                asked["checkpoint"], asked["count"], run_dir=self.run_dir, **options
            )
        for name, started in batch.done.items():
            await send_event("started", instance=name, url=started.url, pid=started.pid)
        for name, error in batch.failed.items():
            await send_event("failed", instance=name, error=describe_error(name, error))
        return {"done": len(batch.done), "failed": len(batch.failed)}

    def _named(self, instances: Iterable[InstanceHandle]) -> dict[str, InstanceHandle]:
        """Return the instances of the run directory by name; unnamed ones by a placeholder."""
        here = [instance for instance in instances if instance.run_dir == self.run_dir]
        return {instance.name or f"(unnamed {at})": instance for at, instance in enumerate(here)}

    async def _check_names(self, names: Sequence[str], known: Iterable[str]) -> None:
        """Raise UsageError if no instance of the run directory ever had one of the names."""
        if unknown := [name for name in names if name not in known]:
            await run_blocking(select_records, self.run_dir, unknown)


async def _send_lines(reader: LogReader, send_event: SendEvent) -> None:
    async for line in reader:
        await send_event("line", value=attrs.asdict(line))


async def _send_progress(events: EventStream, send_event: SendEvent) -> None:
    async for event in events:
        if event.kind in ("ready", "start_failed"):
            await send_event("progress", instance=event.subject)


async def _send_outcomes(
    outcomes: BatchOperation[_T], event: str, send_event: SendEvent
) -> dict[str, int]:
    """Send each outcome as it arrives; return how many succeeded and failed."""
    counts = {"done": 0, "failed": 0}
    async for outcome in outcomes:
        counts["done" if outcome.error is None else "failed"] += 1
        members = describe_outcome(event, outcome)
        await send_event(members.pop("event"), **members)
    return counts
