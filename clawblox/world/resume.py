"""Resumes the instances of an interrupted run, and restarts an instance on request.

``rundir.interrupted`` finds interrupted instances and their saves. A resume is a start of many
instances, whose launches are made from records, with the same launcher, ramp and batch.

A running instance is restarted by its supervisor. For an instance that has died, a new supervisor
continues the name, the run and the count of restarts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import msgspec

from clawblox.concurrency.batch import Batch
from clawblox.concurrency.progress import ProgressLike
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_progress
from clawblox.config.options import RestartOptions, SaveOptions
from clawblox.config.world_toml import WorldConfig
from clawblox.errors import (
    ConfigError,
    ManifestError,
    SnapshotError,
    UsageError,
    WorldExitedError,
    WorldStartError,
)
from clawblox.instance.launch import Launch, Past, find_variables, plan_resume
from clawblox.instance.seeds import require_seedable
from clawblox.results import StartedWorld, describe_end
from clawblox.rundir.interrupted import (
    Interrupted,
    InterruptedRun,
    left_instances,
    read_interruption,
    select_interrupted,
)
from clawblox.rundir.leftovers import remove_leftovers, settle_unlisted_saves
from clawblox.rundir.records import InstanceRecord, adopt_moved, read_records
from clawblox.supervision.orphans import end_orphans
from clawblox.system.clock import format_utc, utc_now
from clawblox.world.fleet import Fleet, ManyStart
from clawblox.world.handle import InstanceHandle
from clawblox.world.known_instances import Plan, Planned
from clawblox.world.save import save_instance


async def resume_all(
    fleet: Fleet,
    config: WorldConfig,
    run_dir: Path,
    names: Sequence[str],
    env: Mapping[str, str],
    *,
    found: InterruptedRun | None = None,
    progress: ProgressLike = False,
) -> Batch[StartedWorld]:
    """Resume interrupted instances; fails, and is cancelled, like ``AsyncWorld.resume_all``.

    Args:
        fleet: The fleet that starts the instances.
        config: The world; instances of other worlds are left alone.
        run_dir: The run directory, resolved.
        names: Names of the instances; empty means all that were interrupted.
        env: Values of environment variables, which take precedence over those of this process.
        found: Recent result of :func:`find_resumable`; None searches now.
        progress: Shows the progress of the starts.
    """

    async def prepare() -> Plan:
        current = found
        if current is None or not await run_blocking(_is_current, run_dir, current):
            current = await find_resumable(run_dir, names, world_dir=config.dir)
        variables = _find_variables(current.instances, env)
        ended = {record.name for record in current.records}
        for instance in fleet.instances:
            if instance.name in ended:  # it is being cleaned up
                await instance.stop(0.0, on_purpose=False)
        resumable = [
            instance.record.name for instance in current.instances if instance.problem is None
        ]
        await run_blocking(partial(fleet.leftovers.close_runs, run_dir, without=resumable))
        return partial(_plan, fleet, config, run_dir, current.instances, variables)

    start = ManyStart(run_dir=run_dir, prepare=prepare, verb="Resuming")
    return await fleet.start_many(start, progress=check_progress(progress, "progress"))


def _find_variables(
    instances: Iterable[Interrupted], env: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the values of the environment variables, which are not on disk.

    Raises:
        ConfigError: Some variables have no value here; the error names them.
    """
    missing: dict[str, list[str]] = {}
    variables: dict[str, dict[str, str]] = {}
    for instance in instances:
        name = instance.record.name
        variables[name], lacking = find_variables(instance.record, env, os.environ)
        for variable in lacking:
            missing.setdefault(variable, []).append(name)
    if missing:
        wanted = ", ".join(sorted(missing))
        first = next(iter(missing.values()))
        more = f" and {len(first) - 1} more" if len(first) > 1 else ""
        raise ConfigError(
            f"no value for {wanted}, which {first[0]}{more} had; values are never on disk",
            key="env",
            hint="set the variables in the environment, or give env=",
        )
    return variables


def _plan(
    fleet: Fleet,
    config: WorldConfig,
    run_dir: Path,
    instances: Iterable[Interrupted],
    variables: Mapping[str, dict[str, str]],
    _names: Iterator[str],
) -> Planned:
    """Return the launches of resumable instances, and the errors of all others. Blocks."""
    launches: list[Launch] = []
    failed: dict[str, Exception] = {}
    inherited = dict(os.environ)
    for instance in instances:
        name = instance.record.name
        if fleet.is_named(name):
            failed[name] = UsageError(f"this world already has an instance {name!r}")
        elif instance.problem is not None:
            failed[name] = WorldStartError(instance.problem, instance=name)
        else:
            try:
                launch = plan_resume(config, run_dir, instance, variables[name])
            except ConfigError as error:
                failed[name] = error
            else:
                launches.append(attrs.evolve(launch, inherited=inherited))
    return Planned(launches, failed)


def _is_current(run_dir: Path, found: InterruptedRun) -> bool:
    latest = {record.name: record for record in read_records(run_dir)}
    return all(latest.get(record.name) == record for record in found.records)


# -- leftovers of killed orchestrators ------------------------------------------------------------


async def find_resumable(
    run_dir: Path, names: Sequence[str] = (), *, world_dir: Path | None = None
) -> InterruptedRun:
    """End leftover processes, and return the instances that can continue; see ``find_interrupted``.

    Cancellation: some processes may be ended, some files removed.
    """
    select = partial(select_interrupted, run_dir, names, world_dir=world_dir)
    records, left = await run_blocking(select)
    survivors = await _end_processes(run_dir, records)
    # All writers in the directory have ended by now.
    await run_blocking(adopt_moved, run_dir)
    await run_blocking(remove_leftovers, run_dir)
    await run_blocking(settle_unlisted_saves, run_dir)
    found = await run_blocking(read_interruption, records, left)
    return msgspec.structs.replace(
        found,
        instances=tuple(
            msgspec.structs.replace(
                instance, problem=survivors.get(instance.record.name, instance.problem)
            )
            for instance in found.instances
        ),
    )


async def _end_processes(run_dir: Path, records: Iterable[InstanceRecord]) -> dict[str, str]:
    """End the processes of instances and agents that a guard has not ended.

    Returns:
        Reasons why processes of instances are left, by name.
    """
    instances = await run_blocking(left_instances, run_dir)
    names = [record.name for record in records if record.state != "exited"]
    cookies = {name: instances[name] for name in names if name in instances}
    from clawblox.agents.status import left_agents  # only a resume needs agents

    agents = await run_blocking(left_agents, run_dir)
    left = await end_orphans([*cookies.values(), *agents])
    return {name: f"of its run before, {left[c]}" for name, c in cookies.items() if c in left}


async def restart(fleet: Fleet, instance: InstanceHandle, options: RestartOptions) -> StartedWorld:
    """Restart an instance; fails, and is cancelled, as ``AsyncWorld.restart`` does."""
    if options.wants_save and instance.is_ready:
        require_seedable(instance.launch.config, options.reseed, 1)
        try:
            await fleet.tasks.own(partial(save_instance, fleet, instance, SaveOptions()))
        except WorldExitedError:
            pass  # it has just died, so there is no state left to save
        except (SnapshotError, ManifestError) as error:
            error.hint = "without a save, it continues from its last good save, or starts over"
            raise
    if not instance.supervisor.has_died:
        try:
            return await fleet.tasks.own(partial(instance.restart, options))
        except UsageError:
            if not instance.supervisor.has_died:  # otherwise it died in the meantime
                raise
    await instance.wait()
    async with instance.restart_lock:
        latest = fleet.find(instance.name)
        if latest is instance:  # otherwise another request has restarted it
            revive = partial(_revive, fleet, instance, options)
            return await fleet.tasks.own(revive, undo=fleet.undo_start)
    return await latest.wait_started()


async def _revive(
    fleet: Fleet, dead: InstanceHandle, restart_options: RestartOptions
) -> StartedWorld:
    """Restart an instance that has died."""
    launch, reason = await dead.source.choose(restart_options)
    past = Past(
        run_id=dead.run_id,
        started_at=dead.instance.started_at,
        number=dead.restarts + 1,
        exit=describe_end(dead.instance.exit, dead.instance.halt),
        at=format_utc(utc_now()),
        reason=reason,
        port=dead.instance.port,
        by="request",
    )
    options = attrs.evolve(launch.options, name=dead.name)
    launch = attrs.evolve(launch, options=options, past=past, saves=dead.source.saves)
    return await fleet.revive(launch)
