"""The phases of a tick, in order."""

from __future__ import annotations

from clawblox.engine.services.run_service import fire_heartbeat, fire_stepped
from clawblox.engine.world.assembly import Assembly


def run_tick(world: Assembly) -> None:
    """Run one tick.

    Raises:
        WorldHalted: A script fails.
    """
    model, scheduler, services = world.model, world.scheduler, world.services
    with scheduler.phase("Begin frame error"):
        services.players.begin_tick()
        world.scripts.begin_tick()
        world.animations.advance()
        world.tweens.advance()
        services.data_stores.deliver()
        services.debris.collect()
        scheduler.resume_due()
        fire_stepped(model)
    world.characters.find_roots()
    world.parts.sync()
    with scheduler.phase("Failed to process agent inputs"):
        services.inputs.process()
        services.speech.process()
    world.characters.move()
    world.parts.step()
    with scheduler.phase("Touch event"):
        world.parts.report_touches()
    with scheduler.phase("End frame error"):
        world.parts.write_back()
        world.parts.apply_welds()
        fire_heartbeat(model)
    services.remote_events.publish()
    services.data_stores.submit()
    scheduler.tick += 1
