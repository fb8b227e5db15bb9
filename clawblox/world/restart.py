"""Restarts an instance on request: saved first, from a save, or as it first began.

An instance that runs is restarted by its supervisor. For one that has died a new supervisor is
begun that continues its name, its run and its count of restarts.
"""

from __future__ import annotations

from functools import partial

import attrs

from clawblox.config.options import RestartOptions, SaveOptions
from clawblox.errors import ManifestError, SnapshotError, UsageError, WorldExitedError
from clawblox.instance.launch import Past
from clawblox.instance.seeds import require_seedable
from clawblox.results import StartedWorld, describe_end
from clawblox.system.clock import format_utc, utc_now
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.save import save_instance


async def restart(fleet: Fleet, instance: InstanceHandle, options: RestartOptions) -> StartedWorld:
    """Restart an instance; fails, and is cancelled, as ``AsyncWorld.restart`` does."""
    if options.wants_save and instance.is_ready:
        require_seedable(instance.launch.config, options.reseed, 1)
        try:
            await fleet.tasks.own(partial(save_instance, fleet, instance, SaveOptions()))
        except WorldExitedError:
            pass  # it has just died, so there is nothing to save any more
        except (SnapshotError, ManifestError) as error:
            error.hint = "without a save, it continues from its last good save, or starts over"
            raise
    if not instance.supervisor.has_died:
        try:
            return await fleet.tasks.own(partial(instance.restart, options))
        except UsageError:
            if not instance.supervisor.has_died:  # else it died meanwhile
                raise
    await instance.wait()
    async with instance.restart_lock:
        latest = fleet.find(instance.name)
        if latest is instance:  # else another request has brought it back
            revive = partial(_revive, fleet, instance, options)
            return await fleet.tasks.own(revive, undo=fleet.undo_start)
    return await latest.wait_started()


async def _revive(
    fleet: Fleet, dead: InstanceHandle, restart_options: RestartOptions
) -> StartedWorld:
    """Start an instance again that has died."""
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
