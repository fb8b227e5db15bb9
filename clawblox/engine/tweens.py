"""``TweenService``: properties that change over time.

A tween is an instance without a parent. Its goals, its initial values, and the ticks that it ran
before a pause are properties with names that scripts cannot write. Time is counted in ticks since
``Play``, so a restored tween continues exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import suggest
from clawblox.engine.instances.instance import (
    TWEEN_ELAPSED,
    TWEEN_GOALS,
    TWEEN_STARTS,
    DataModel,
    Instance,
)
from clawblox.engine.instances.kinds import check_value
from clawblox.engine.instances.members import instance_argument, wrong_argument
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.saved_state import SavedState
from clawblox.engine.scheduler import TICK_RATE
from clawblox.engine.slots import Slots
from clawblox.engine.values import vector3
from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.color3 import Color3
from clawblox.engine.values.enums import EnumItem, enum_item
from clawblox.engine.values.tween_info import TweenInfo, ease
from clawblox.engine.values.udim import UDim2, mix_udims
from clawblox.engine.values.vector2 import Vector2
from clawblox.luau import LuaTable, RuntimeFault
from clawblox.luau.core.values import describe_key, key_value

_CREATE_STEPS: Final = 10  # checking a goal
_TWEEN_STEPS: Final = 10  # per tween and tick
_PROPERTY_STEPS: Final = 20  # per property set
_NEARLY: Final = 1e-9  # tolerance for rounding, in seconds
_HALF: Final = 0.5


_MIXES: Final[dict[str, Callable[[Any, Any, float], Any]]] = {
    "number": lambda start, goal, share: start + (goal - start) * share,
    "boolean": lambda start, goal, share: goal if share >= _HALF else start,
    "Vector3": vector3.METHODS["Lerp"],
    "Vector2": Vector2.methods["Lerp"],
    "CFrame": CFrame.methods["Lerp"],
    "Color3": Color3.methods["Lerp"],
    "UDim": mix_udims,
    "UDim2": UDim2.methods["Lerp"],
}
"""Functions that interpolate values, by type of the property."""


@attrs.define(eq=False)
class _Active:
    """A tween that is running or delayed.

    Attributes:
        tween: The tween.
        since: The tick from which its time counts.
    """

    tween: Instance
    since: int


def _find_moment(info: TweenInfo, time: float) -> tuple[float | None, str]:
    """Return the eased progress of a tween, from 0 to 1, and its state.

    The progress is None during the delay before the first cycle.

    Args:
        info: The parameters of the tween.
        time: Time for which it has run, in seconds.
    """
    length, style, direction, repeats, reverses, delay = info.contents()
    way = length * 2.0 if reverses else length
    whole = delay + way
    end = 0.0 if reverses else 1.0
    cycle = int((time + _NEARLY) / whole) if whole > 0.0 else int(repeats) + 1
    if repeats >= 0.0 and cycle > repeats:
        return end, "Completed"
    at = time - cycle * whole - delay if whole > 0.0 else 0.0
    if at < -_NEARLY:
        return end if cycle else None, "Delayed"
    if at > length:
        at = way - at
    share = at / length if length > 0.0 else end
    return ease(share, style.name, direction.name), "Playing"


class Tweens(SavedState):
    """The running tweens of a world.

    Args:
        model: The data model; the methods of ``TweenService`` and of tweens are added to it.
    """

    shape: ClassVar[shapes.Shape] = [(shapes.whole, shapes.whole)]

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._active: dict[int, _Active] = {}
        for name, receiver in (("TweenService", "service"), ("TweenBase", "tween")):
            model.classes.add(name, methods=bind_methods(self, receiver))

    # Called by scripts

    def create(self, service: Instance, target: Any, info: Any, goals: Any) -> Any:
        """``Create(instance, info, goals)``: return a new tween, not yet running."""
        instance_argument(target, 1, "Create")
        if not isinstance(info, TweenInfo):
            raise wrong_argument(info, 2, "Create", "TweenInfo")
        if not isinstance(goals, LuaTable):
            raise wrong_argument(goals, 3, "Create", "table")
        self._model.scheduler.charge(len(goals) * _CREATE_STEPS)
        checked = {name: _check_goal(target, name, goal) for name, goal in goals.items()}
        tween = self._model.make("Tween")
        sorted_goals = {name: checked[name] for name in sorted(checked)}
        tween.props.update(
            {"Instance": target, "TweenInfo": info, TWEEN_GOALS: LuaTable(sorted_goals)}
        )
        return tween

    def play(self, tween: Instance) -> Any:
        """``Play()``: start from the current values, or resume; no effect on a running tween."""
        if tween.number in self._active:
            return ()
        elapsed = tween.props.pop(TWEEN_ELAPSED, None)
        if elapsed is None:
            tween.props.pop(TWEEN_STARTS, None)
        tick = self._model.scheduler.tick
        active = _Active(tween, tick - int(max(0.0, min(tick, elapsed or 0.0))))
        if elapsed is None and tween.read("TweenInfo")["DelayTime"] > 0.0:
            self._active[tween.number] = active
            _set_state(tween, "Delayed")
        else:
            self._begin(active)
        return ()

    def pause(self, tween: Instance) -> Any:
        """``Pause()``: let a later `Play` continue from here; no effect unless running."""
        active = self._active.get(tween.number)
        if active is not None and tween.read("PlaybackState").name == "Playing":
            del self._active[tween.number]
            tween.props[TWEEN_ELAPSED] = float(self._model.scheduler.tick - active.since)
            _set_state(tween, "Paused")
        return ()

    def cancel(self, tween: Instance) -> Any:
        """``Cancel()``: keep the current properties; a later `Play` takes the whole time."""
        is_paused = tween.props.pop(TWEEN_ELAPSED, None) is not None
        if self._active.pop(tween.number, None) is not None or is_paused:
            self._end(tween, "Cancelled")
        return ()

    def get_value(self, service: Instance, share: Any, style: Any, direction: Any) -> float:
        """``GetValue(alpha, style, direction)``: return the eased progress."""
        if share.__class__ is not float or not math.isfinite(share):
            raise wrong_argument(share, 1, "GetValue", "finite number")
        for at, value, enum in ((2, style, "EasingStyle"), (3, direction, "EasingDirection")):
            if not isinstance(value, EnumItem) or value.enum.name != enum:
                raise wrong_argument(value, at, "GetValue", f"Enum.{enum}")
        return ease(share, style.name, direction.name)

    # The phase of a tick

    def advance(self) -> None:
        """Set the properties of all tweens for this tick, in the order in which they were played.

        Raises:
            LuaError: The scripts have used up the steps of this tick, or a property refuses its
                value.
            WorldHalted: The error of a handler halts the world.
        """
        for number, active in tuple(self._active.items()):
            if self._active.get(number) is active:
                self._advance(active)

    def _advance(self, active: _Active) -> None:
        tween = active.tween
        self._model.scheduler.charge(_TWEEN_STEPS)
        if tween.read("Instance").is_destroyed:
            self.cancel(tween)
            return
        time = (self._model.scheduler.tick - active.since) / TICK_RATE
        share, state = _find_moment(tween.read("TweenInfo"), time)
        if share is None:
            return
        if TWEEN_STARTS not in tween.props:
            self._begin(active)
        if self._active.get(tween.number) is not active:
            return
        self._set_properties(tween, share)
        if self._active.get(tween.number) is not active:
            return  # stopped by a handler
        if state == "Completed":
            del self._active[tween.number]
            self._end(tween, state)
        else:
            _set_state(tween, state)

    def _begin(self, active: _Active) -> None:
        """Store the initial values of a tween; end other tweens of the same properties."""
        tween = active.tween
        target, goals = tween.read("Instance"), tween.props[TWEEN_GOALS]
        self._model.scheduler.charge(len(self._active) + len(goals) * _PROPERTY_STEPS)
        if TWEEN_STARTS not in tween.props:
            starts = {name: _check_start(target, name) for name in goals}
            tween.props[TWEEN_STARTS] = LuaTable(starts)
        self._active[tween.number] = active
        for other in tuple(self._active.values()):
            if (
                other is not active
                and other.tween.read("Instance") is target
                and TWEEN_STARTS in other.tween.props
                and any(name in goals for name in other.tween.props[TWEEN_GOALS])
            ):
                self.cancel(other.tween)
        if self._active.get(tween.number) is active:
            _set_state(tween, "Playing")

    def _set_properties(self, tween: Instance, share: float) -> None:
        target: Instance = tween.read("Instance")
        goals, starts = tween.props[TWEEN_GOALS], tween.props[TWEEN_STARTS]
        self._model.scheduler.charge(len(goals) * _PROPERTY_STEPS)
        for name, goal in tuple(goals.items()):
            start = starts[name]
            if share in (0.0, 1.0):
                target[name] = goal if share else start
            else:
                target[name] = _MIXES[target.spec.properties[name].kind](start, goal, share)

    def _end(self, tween: Instance, state: str) -> None:
        tween.props.pop(TWEEN_STARTS, None)
        _set_state(tween, state)
        tween.fire("Completed", enum_item("PlaybackState", state))

    def held(self) -> Iterator[Instance]:
        """Iterate over the tweens that are kept alive, to count their memory."""
        for active in self._active.values():
            yield active.tween

    # Snapshots

    def document(self, slots: Slots) -> Any:
        """Return the state of all tweens for a snapshot."""
        return [[slots.put(active.tween), active.since] for active in self._active.values()]

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore the tweens from a snapshot, after the instances.

        Raises:
            ValueError: The snapshot is damaged.
        """
        for instance in self._model.instances():
            if instance.spec.name == "Tween":
                _check_tween(instance)
        for number, since in document:
            tween = slots.take_as(number, Instance)
            if tween.spec.name != "Tween" or since > self._model.scheduler.tick:
                raise ValueError(f"{tween!r} is not a tween that has run since tick {since}")
            self._active[tween.number] = _Active(tween, since)


def _check_goal(target: Instance, name: Any, goal: Any) -> Any:
    rules = target.spec.properties
    rule = rules.get(name) if name.__class__ is str else None
    if rule is None:
        shown = describe_key(key_value(name))
        raise RuntimeFault(f"{shown} is not a property of {target.spec.name}{suggest(name, rules)}")
    if rule.read_only or rule.kind not in _MIXES:
        raise RuntimeFault(f"property '{name}' of {target.spec.name} cannot be tweened")
    return check_value(name, rule, goal)


def _check_start(target: Instance, name: str) -> Any:
    rule = target.spec.properties[name]
    value = target[name]
    if value is None:
        raise RuntimeFault(f"property '{name}' of {target.spec.name} has no start value")
    return check_value(name, rule, value)


def _check_tween(tween: Instance) -> None:
    """Check that a tween is able to run.

    Raises:
        ValueError: The tween is damaged.
    """
    target: Any = tween.props.get("Instance")
    goals, starts = tween.props.get(TWEEN_GOALS), tween.props.get(TWEEN_STARTS)
    try:
        if not isinstance(tween.props.get("TweenInfo"), TweenInfo) or not isinstance(
            goals, LuaTable
        ):
            raise ValueError(f"{tween!r} is not a tween")
        for values in (goals, starts):
            for name, value in {} if values is None else values.items():
                _check_goal(target, name, value)
        if starts is not None and starts.keys() != goals.keys():
            raise ValueError(f"{tween!r} has start values of other properties than it sets")
    except (RuntimeFault, AttributeError) as error:
        raise ValueError(f"{tween!r}: {error}") from None


def _set_state(tween: Instance, state: str) -> None:
    tween.change("PlaybackState", enum_item("PlaybackState", state))
