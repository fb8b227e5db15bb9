"""What other processes can ask of an orchestrator through its control socket.

Save, fork and stop instances of one run directory: the same operations that a program has, with
plain values going in and out. The socket itself is ``control_server``'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs

from clawblox.concurrency.batch import Batch, BatchOperation, Job
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import UsageError
from clawblox.instance.lifecycle import State
from clawblox.instance.supervisor import DEFAULT_GRACE_S, Supervisor
from clawblox.results import StartedWorld, StopResult
from clawblox.rundir.control_server import Handler, Report
from clawblox.rundir.status import select_records
from clawblox.telemetry.events import EventStream
from clawblox.world.fleet import Fleet
from clawblox.world.save import DEFAULT_TIMEOUT_S, SaveOptions, save_all

__all__ = ["Fork", "handlers_of"]

_T = TypeVar("_T")

_FORK_OPTIONS = (
    "reseed",
    "record",
    "env",
    "host",
    "base_path",
    "health_timeout",
    "restart",
    "max_restarts",
    "restart_window",
    "on_failure",
)


Fork: TypeAlias = Callable[..., Awaitable[Batch[StartedWorld]]]
"""Starts instances from a snapshot: ``AsyncWorld.fork``."""


def handlers_of(fleet: Fleet, fork: Fork, run_dir: Path) -> dict[str, Handler]:
    """Return what can be asked about the instances of a run directory, by ``op``."""
    return {
        "save": _Save(fleet, run_dir),
        "fork": _Fork(fleet, fork, run_dir),
        "stop": _Stop(fleet, run_dir),
    }


@attrs.frozen
class _Save:
    """``{"instances"?, "dir"?, "timeout"?}``: an event ``saved`` or ``failed`` for each.

    Without names all are meant that are ready.
    """

    fleet: Fleet
    run_dir: Path

    async def __call__(self, asked: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        _require_members("save", asked, ("instances", "dir", "timeout"))
        here = {one.instance.name: one for one in _of_run(self.fleet.supervisors, self.run_dir)}
        ready = [name for name, one in here.items() if one.lifecycle.state is State.READY]
        named = _names_in(asked)
        names = ready if named is None else named
        missing = [name for name in names if name not in here]
        starting = {one.instance.name for one in _of_run(self.fleet.starting, self.run_dir)}
        await _require_known(self.run_dir, [name for name in missing if name not in starting])
        for name in missing:
            await report("failed", instance=name, error=f"instance {name!r} is not ready")
        directory = asked.get("dir")
        options = SaveOptions(
            Path(directory) if directory else None, asked.get("timeout", DEFAULT_TIMEOUT_S)
        )
        meant = [here[name] for name in names if name in here]
        return await _relay(save_all(self.fleet, meant, options), "saved", report)


@attrs.frozen
class _Stop:
    """``{"instances"?, "grace_seconds"?}``: an event ``stopped`` or ``failed`` for each.

    Without names all are meant, and starts that wait for their turn are given up.
    """

    fleet: Fleet
    run_dir: Path

    async def __call__(self, asked: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        _require_members("stop", asked, ("instances", "grace_seconds"))
        names = _names_in(asked)
        grace = asked.get("grace_seconds", DEFAULT_GRACE_S)
        starting = _of_run(self.fleet.starting, self.run_dir)
        jobs: dict[str, Job[StopResult]] = {
            one.instance.name: partial(one.stop, grace) for one in starting
        }
        for one in _of_run(self.fleet.supervisors, self.run_dir):
            jobs[one.instance.name] = partial(self.fleet.stop, one.instance.name, grace)
        if names is not None:
            await _require_known(self.run_dir, [name for name in names if name not in jobs])
        meant = {name: job for name, job in jobs.items() if names is None or name in names}
        return await _relay(BatchOperation(self.fleet.tasks, meant), "stopped", report)


@attrs.frozen
class _Fork:
    """``{"checkpoint": {"path", "sha256"?}, "count", "reseed"?, …}``: ``started`` or ``failed``.

    Everything beside ``checkpoint`` and ``count`` is an argument of ``AsyncWorld.fork``. Events
    ``progress`` come meanwhile.
    """

    fleet: Fleet
    fork: Fork
    run_dir: Path

    async def __call__(self, asked: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
        _require_members("fork", asked, _FORK_OPTIONS, ("checkpoint", "count"))
        options = {key: asked[key] for key in _FORK_OPTIONS if asked.get(key) is not None}
        async with self.fleet.hub.subscribe() as events, Tasks() as tasks:
            tasks.start_soon(_tell_progress, events, report)
            batch = await self.fork(
                asked["checkpoint"], asked["count"], run_dir=self.run_dir, **options
            )
        for name, started in batch.done.items():
            await report("started", instance=name, url=started.url, pid=started.pid)
        for name, error in batch.failed.items():
            await report("failed", instance=name, error=_describe(name, error))
        return {"done": len(batch.done), "failed": len(batch.failed)}


def _require_members(
    op: str, asked: Mapping[str, Any], allowed: Sequence[str], needed: Sequence[str] = ()
) -> None:
    """Refuse a request with a member that has no meaning: it may have been meant to limit it."""
    takes = (*needed, *allowed)
    for key in asked:
        if key not in takes:
            raise UsageError(f"{op} takes no {key!r}; it takes: {', '.join(takes)}")
    for key in needed:
        if key not in asked:
            raise UsageError(f"{op} needs {key!r}")


def _names_in(asked: Mapping[str, Any]) -> list[str] | None:
    """Return the instances that a request names; None when it names none, and means all."""
    names = asked.get("instances")
    if names is None or (isinstance(names, list) and all(isinstance(one, str) for one in names)):
        return names
    raise UsageError(f"instances is a list of names, not {names!r}")


async def _require_known(run_dir: Path, names: Sequence[str]) -> None:
    """Refuse names that no instance of the run directory ever had."""
    if names:
        await run_blocking(select_records, run_dir, names)


async def _tell_progress(events: EventStream, report: Report) -> None:
    async for event in events:
        if event.kind in ("ready", "start_failed"):
            await report("progress", instance=event.instance)


def _of_run(supervisors: Iterable[Supervisor], run_dir: Path) -> list[Supervisor]:
    return [one for one in supervisors if one.instance.launch.run_dir == run_dir]


async def _relay(many: BatchOperation[_T], event: str, report: Report) -> dict[str, int]:
    """Report each outcome as it lands; return how many there were of each kind."""
    counts = {"done": 0, "failed": 0}
    async for outcome in many:
        if outcome.error is None:
            counts["done"] += 1
            await report(event, instance=outcome.instance, value=outcome.value)
        else:
            counts["failed"] += 1
            failed = outcome.instance
            await report("failed", instance=failed, error=_describe(failed, outcome.error))
    return counts


def _describe(name: str, error: Exception | None) -> str:
    return str(error).removeprefix(f"{name}: ")  # the event names the instance
