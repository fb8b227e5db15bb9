"""``Lighting``, with a clock for scripts, and visual methods without effect."""

from __future__ import annotations

import re
from typing import Any, Final

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.members import number_argument
from clawblox.engine.instances.spec import ClassTable, methods_in

_DAY_H: Final = 24.0
_DAY_S: Final = 24 * 3600
_TIME: Final = re.compile(r" *(-?\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))? *")


def _set_clock(lighting: Instance, hours: float) -> None:
    if lighting.store("ClockTime", hours % _DAY_H):
        lighting.tell_changed("ClockTime")
        lighting.tell_changed("TimeOfDay")


def _set_time_of_day(lighting: Instance, text: str) -> None:
    match = _TIME.fullmatch(text)
    if match is None:
        raise refuse_value("TimeOfDay", "time such as 14:30:00", text)
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    _set_clock(lighting, hours + minutes / 60 + seconds / 3600)


def _time_of_day(lighting: Instance) -> str:
    seconds = round(lighting.read("ClockTime") * 3600) % _DAY_S
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def get_minutes_after_midnight(lighting: Instance) -> Any:
    """``GetMinutesAfterMidnight()``: return the clock in minutes."""
    return lighting.read("ClockTime") * 60.0


def set_minutes_after_midnight(lighting: Instance, minutes: Any) -> Any:
    """``SetMinutesAfterMidnight(minutes)``, modulo one day."""
    lighting["ClockTime"] = number_argument(minutes, 1, "SetMinutesAfterMidnight") / 60.0
    return ()


def emit(emitter: Instance, count: Any) -> Any:
    """``Emit(count)``, without effect."""
    return ()


def clear(effect: Instance) -> Any:
    """``Clear()``, without effect."""
    return ()


def set_texture_offset(beam: Instance, offset: Any) -> Any:
    """``SetTextureOffset(offset)``, without effect."""
    return ()


def add_lighting(classes: ClassTable) -> None:
    """Add the members of ``Lighting``, and the visual methods."""
    classes.add(
        "Lighting",
        methods=methods_in(globals(), "lighting"),
        getters={"TimeOfDay": _time_of_day},
        setters={"ClockTime": _set_clock, "TimeOfDay": _set_time_of_day},
    )
    classes.add("ParticleEmitter", methods={"Emit": emit, "Clear": clear})
    classes.add("Trail", methods={"Clear": clear})
    classes.add("Beam", methods={"SetTextureOffset": set_texture_offset})
