"""``RunService``: the two events of each tick."""

from __future__ import annotations

from clawblox.engine.instances.model import DataModel
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.ticks import TICK_S


def fire_stepped(model: DataModel) -> None:
    """Fire ``Stepped(time, dt)``, before inputs and physics.

    Raises:
        WorldHalted: A handler fails.
    """
    model.services["RunService"].fire("Stepped", model.scheduler.time, TICK_S)


def fire_heartbeat(model: DataModel) -> None:
    """Fire ``Heartbeat(dt)``, after physics.

    Raises:
        WorldHalted: A handler fails.
    """
    model.services["RunService"].fire("Heartbeat", TICK_S)


def add_run_service(classes: ClassTable) -> None:
    """Give the service its members: scripts run on a server, which is always running."""
    classes.add(
        "RunService",
        methods={
            "IsServer": lambda service: True,
            "IsClient": lambda service: False,
            "IsStudio": lambda service: False,
            "IsRunning": lambda service: True,
        },
    )
