"""Small objects: values with an event, and events that scripts fire themselves."""

from __future__ import annotations

import math
from typing import Any, Final

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.spec import ClassTable

_MOST: Final = 2.0**53


def set_value(holder: Instance, value: Any) -> None:
    """Set ``Value``; ``Changed`` gets the new value if it is another one."""
    if holder.store("Value", value) and holder.signals:
        holder.tell_changed("Value")
        holder.fire("Changed", value)


def set_whole_value(holder: Instance, value: float) -> None:
    """Set the ``Value`` of an IntValue: the nearest whole number, halves away from zero."""
    bounded = max(-_MOST, min(_MOST, value))
    set_value(holder, math.copysign(math.floor(abs(bounded) + 0.5), bounded) + 0.0)


def fire_event(event: Instance, *values: Any) -> Any:
    """``Fire(...)`` of a BindableEvent."""
    event.fire("Event", *values)
    return ()


def add_objects(classes: ClassTable) -> None:
    """Give value objects and bindable events their members."""
    classes.add("ValueBase", setters={"Value": set_value})
    classes.add("IntValue", setters={"Value": set_whole_value})
    classes.add("BindableEvent", methods={"Fire": fire_event})
