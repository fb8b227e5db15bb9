"""``Debris``: instances that are destroyed after a time."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.model import DataModel
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.slots import Slots
from clawblox.engine.ticks import ticks_in
from clawblox.luau import RuntimeFault

_DEFAULT_S: Final = 10.0


SHAPE: Final = [(shapes.whole, shapes.whole)]


class DebrisQueue:
    """The instances that wait to be destroyed, in the order in which they were added.

    Args:
        model: The data model.
    """

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._due: dict[Instance, int] = {}

    def add(self, instance: Instance, seconds: float) -> None:
        """Destroy an instance after a time; a second call replaces the first."""
        self._due.pop(instance, None)
        self._due[instance] = self._model.scheduler.tick + ticks_in(seconds)

    def collect(self) -> None:
        """Destroy what is due, at the start of a tick.

        Raises:
            WorldHalted: A handler fails.
        """
        tick = self._model.scheduler.tick
        for instance in [each for each, due in self._due.items() if due <= tick]:
            self._due.pop(instance, None)
            self._model.destroy(instance)

    def document(self, slots: Slots) -> list[list[int]]:
        """Return what a snapshot holds of it."""
        return [[slots.put(instance), due] for instance, due in self._due.items()]

    def restore(self, document: list[list[int]], slots: Slots) -> None:
        """Take over the instances of a snapshot.

        Raises:
            ValueError: The snapshot is damaged.
        """
        self._due = {slots.take_as(number, Instance): due for number, due in document}


def add_item(service: Instance, instance: Any, seconds: Any) -> Any:
    """``AddItem(instance, seconds)``."""
    if not isinstance(instance, Instance):
        raise RuntimeFault("invalid argument #1 to 'AddItem' (Instance expected)")
    time = seconds if seconds.__class__ is float else _DEFAULT_S
    queue: DebrisQueue = service.extra
    queue.add(instance, time)
    return ()


def add_debris(classes: ClassTable) -> None:
    """Give the service its members."""
    classes.add("Debris", methods={"AddItem": add_item})
