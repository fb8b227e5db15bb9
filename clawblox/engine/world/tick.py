"""The phases of a tick, in order."""

from __future__ import annotations

from clawblox.engine.scheduler import TICK_RATE
from clawblox.engine.world.assembly import Assembly

__all__ = ["run_tick"]


def run_tick(parts: Assembly) -> None:
    """Run one tick.

    Raises:
        WorldHalted: A script fails.
    """
    scheduler, services = parts.scheduler, parts.model.services
    with scheduler.phase("Begin frame error"):
        scheduler.resume_due()
        services["RunService"].fire("Stepped", scheduler.time, 1.0 / TICK_RATE)
    with scheduler.phase("End frame error"):
        services["RunService"].fire("Heartbeat", 1.0 / TICK_RATE)
    scheduler.tick += 1
