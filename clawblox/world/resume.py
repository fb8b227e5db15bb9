"""Brings back the instances of a run that were interrupted; see ``AsyncWorld.resume_all``.

``rundir.interrupted`` says which they are and what they go on from. A resume is a start of many
with launches that are made from records: same launcher, same ramp, same batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import attrs

from clawblox.concurrency.batch import Batch
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import WorldConfig
from clawblox.errors import ConfigError, UsageError, WorldStartError
from clawblox.instance.launch import Launch, find_variables, plan_resume
from clawblox.results import StartedWorld
from clawblox.rundir.interrupted import Interrupted, Interruption, find_interrupted
from clawblox.rundir.records import InstanceRecord, read_records
from clawblox.rundir.status import make_mark
from clawblox.system.process import Grace, end_tree
from clawblox.system.process_tree import Search, boot_id, find_trees
from clawblox.world.fleet import Fleet

__all__ = ["resume_all"]

_LEFTOVER_GRACE_S = 2.0
"""Seconds between TERM and KILL for what a killed orchestrator left, as its guard has them."""


async def resume_all(
    fleet: Fleet,
    config: WorldConfig,
    run_dir: Path,
    names: Sequence[str],
    env: Mapping[str, str],
    *,
    found: Interruption | None = None,
) -> Batch[StartedWorld]:
    """Bring interrupted instances back; fails, and is cancelled, as ``AsyncWorld`` says.

    Args:
        fleet: Starts them.
        config: The world; instances of other worlds are left alone.
        run_dir: Their run directory, resolved.
        names: The instances that are meant; none means all that were interrupted.
        env: Values of their environment variables, before those of this process.
        found: What was found by :func:`find_interrupted` a moment ago; None looks now.
    """
    resume = _Resume(fleet, config, run_dir, names, env, found)
    batch = await fleet.start_many(
        run_dir, resume.plan, reuse=False, stop_all=False, prepare=resume.prepare
    )
    return Batch(batch.done, {**resume.failed, **batch.failed})


@attrs.define
class _Resume:
    """One resume, from the claim of the run directory to the launches."""

    fleet: Fleet
    config: WorldConfig
    run_dir: Path
    names: Sequence[str]
    env: Mapping[str, str]
    found: Interruption | None
    failed: dict[str, Exception] = attrs.field(factory=dict, init=False)
    _going_on: list[Interrupted] = attrs.field(factory=list, init=False)
    _variables: dict[str, dict[str, str]] = attrs.field(factory=dict, init=False)

    async def prepare(self) -> None:
        """Find the instances, end what is left of them, and close the runs of all others."""
        await self.fleet.leftovers.remove(self.run_dir)
        found = await run_blocking(self._find)
        self._going_on = list(found.instances)
        self._find_variables()
        await self._end_leftovers(found.records)
        names = [record.name for record in found.records]
        await self.fleet.leftovers.clear(self.run_dir, without=names)

    def _find(self) -> Interruption:
        if self.found is not None:
            latest = {record.name: record for record in read_records(self.run_dir)}
            if all(latest.get(record.name) == record for record in self.found.records):
                return self.found
        return find_interrupted(self.run_dir, self.names, world_dir=self.config.dir)

    def _find_variables(self) -> None:
        """Find the values of the environment variables, which are not on disk.

        Raises:
            ConfigError: Some have no value here; names them.
        """
        missing: dict[str, list[str]] = {}
        for instance in self._going_on:
            name = instance.record.name
            values, lacking = find_variables(instance.record, self.env, os.environ)
            self._variables[name] = values
            for variable in lacking:
                missing.setdefault(variable, []).append(name)
        if missing:
            wanted = ", ".join(sorted(missing))
            first = next(iter(missing.values()))
            more = f" and {len(first) - 1} more" if len(first) > 1 else ""
            raise ConfigError(
                f"no value for {wanted}, which {first[0]}{more} had; values are never on disk",
                key="env",
                hint="set the variables in the environment, or say env= (--env)",
            )

    async def _end_leftovers(self, records: Iterable[InstanceRecord]) -> None:
        """End the processes that a killed orchestrator's guard has not ended yet."""
        here = boot_id()
        stale = [one for one in records if one.state != "exited" and one.boot_id == here]
        left = await run_blocking(_find_processes, stale)
        async with anyio.create_task_group() as ends:
            for record in left:
                ends.start_soon(self._end, record)

    async def _end(self, record: InstanceRecord) -> None:
        end = await end_tree(make_mark(record), None, Grace(_LEFTOVER_GRACE_S))
        if end.survivors:
            self.failed[record.name] = WorldStartError(
                f"processes of its run before do not end: {', '.join(end.survivors)}",
                instance=record.name,
            )

    def plan(self, _names: Iterator[str]) -> list[Launch]:
        """Return the launches of the instances that can go on. Blocks."""
        launches: list[Launch] = []
        inherited = dict(os.environ)
        for instance in self._going_on:
            name = instance.record.name
            if name in self.failed:
                continue
            if self.fleet.is_named(name):
                self.failed[name] = UsageError(f"this world has an instance {name!r} already")
            elif instance.problem is not None:
                self.failed[name] = WorldStartError(instance.problem, instance=name)
            else:
                plan = partial(plan_resume, self.config, self.run_dir, instance)
                try:
                    launch = plan(self._variables[name])
                except ConfigError as error:
                    self.failed[name] = error
                else:
                    launches.append(attrs.evolve(launch, inherited=inherited))
        return launches


def _find_processes(records: Sequence[InstanceRecord]) -> list[InstanceRecord]:
    """Return the instances that have processes, by one pass over all processes. Blocks."""
    if not records:
        return []
    trees = find_trees([Search((make_mark(record),)) for record in records])
    return [record for record, tree in zip(records, trees, strict=True) if tree]
