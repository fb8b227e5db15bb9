"""Animations: the tracks that play on characters, and their progress.

The engine does not move limbs. It keeps the time, weights and events of tracks for scripts and
renderers. A track is an instance without a parent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import to_text
from clawblox.engine.instances.attributes import hundredths
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.members import instance_argument, text_argument, wrong_argument
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.instances.tree_changes import set_parent
from clawblox.engine.saved_state import SavedState
from clawblox.engine.scheduler import TICK_RATE
from clawblox.engine.slots import Slots
from clawblox.engine.values.enums import EnumItem
from clawblox.engine.values.value import as_list
from clawblox.luau import RuntimeFault

LENGTHS: Final = {
    "local://fire_rifle": 0.16,
    "local://fire_shotgun": 0.22,
    "local://reload_rifle": 1.15,
    "local://reload_shotgun": 1.35,
    "local://idle_default": 0.9,
    "local://walk_default": 1.2,
}
"""Lengths in seconds, by id."""
OTHER_LENGTH: Final = 0.5
FADE: Final = 0.1
"""Default fade-in and fade-out time of a track, in seconds."""
CORE: Final = -1.0
"""The priority ``Core``, below all others although its item has a higher number."""

FASTEST: Final = 1e300
"""Maximum change of a weight per second; finite because JSON has no infinity."""

ID: Final = "AnimationId"
ANIMATOR: Final = "Animator"
_PLAYED: Final = "AnimationPlayed"
_MARKER: Final = "!"  # prefix of the names of marker signals


@attrs.define(eq=False)
class _Active:
    """A track that is playing or fading out.

    Attributes:
        track: The track.
        fade: Rate at which its weight changes, per second.
        is_stopping: Whether it is fading out.
    """

    track: Instance
    fade: float
    is_stopping: bool = False


class Animations(SavedState):
    """The tracks of a world that are playing or fading out.

    Args:
        model: The data model; the methods of animators and tracks are added to it.
    """

    shape: ClassVar[shapes.Shape] = [(shapes.whole, shapes.number, shapes.flag)]

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._active: dict[int, _Active] = {}
        model.moved.append(self._follow)
        add = model.classes.add
        holder_methods: dict[str, Callable[..., Any]] = {
            "LoadAnimation": self._load_below,
            "GetPlayingAnimationTracks": self._playing_below,
        }
        for holder in ("Humanoid", "AnimationController"):
            add(holder, methods=holder_methods)
        add("Animator", methods=bind_methods(self, "animator"))
        track_methods = bind_methods(self, "track")
        add("AnimationTrack", methods=track_methods, setters={"Priority": _set_priority})

    def _follow(self, instance: Instance) -> None:
        """End the tracks of an animator that leaves Workspace, without firing events."""
        if instance.spec.name == "Animator" and not instance.in_workspace:
            for active in self._of(instance):
                self._drop(active)

    def _of(self, animator: Instance) -> list[_Active]:
        return [state for state in self._active.values() if state.track.props[ANIMATOR] is animator]

    # Called by scripts

    def _load_below(self, holder: Instance, animation: Any) -> Any:
        """``LoadAnimation(animation)`` of its Animator, created by the first call."""
        _check_animation(animation)
        animator = holder.find_child_of_class(ANIMATOR)
        if animator is None:
            animator = self._model.make(ANIMATOR)
            set_parent(animator, holder)
        return self.load_animation(animator, animation)

    def _playing_below(self, holder: Instance) -> Any:
        """``GetPlayingAnimationTracks()`` of its child Animators."""
        animators = [child for child in holder.children if child.spec.name == ANIMATOR]
        playing = (state for state in self._active.values() if not state.is_stopping)
        return as_list(state.track for state in playing if state.track.props[ANIMATOR] in animators)

    def load_animation(self, animator: Instance, animation: Any) -> Any:
        """``Animator:LoadAnimation(animation)``: return a new track, not yet playing."""
        ident = _check_animation(animation)
        track = self._model.make("AnimationTrack")
        track.name = animation.name
        track.props.update(
            {
                "Animation": animation,
                "Length": LENGTHS.get(ident, OTHER_LENGTH),
                ID: ident,
                ANIMATOR: animator,
            }
        )
        return track

    def get_playing_animation_tracks(self, animator: Instance) -> Any:
        """``GetPlayingAnimationTracks()``, in the order in which the tracks were started."""
        return as_list(state.track for state in self._of(animator) if not state.is_stopping)

    def play(self, track: Instance, fade: Any, weight: Any, speed: Any) -> Any:
        """``Play(fade, weight, speed)``: start the track, or restart it if it is playing.

        Outside Workspace the call has no effect.
        """
        seconds = _number(fade, FADE, 1, "Play")
        target = max(0.0, _number(weight, 1.0, 2, "Play"))
        rate = _number(speed, 1.0, 3, "Play")
        if not track.props[ANIMATOR].in_workspace:
            return ()
        self._active.pop(track.number, None)
        self._active[track.number] = active = _Active(track, 0.0)
        track.change("Speed", rate)
        track.change("TimePosition", 0.0)
        track.change("IsPlaying", True)
        _aim(active, target, seconds)
        animator: Instance = track.props[ANIMATOR]
        animator.fire(_PLAYED, track)
        if animator.parent is not None:
            animator.parent.fire(_PLAYED, track)
        return ()

    def get_marker_reached_signal(self, track: Instance, name: Any) -> Any:
        """``GetMarkerReachedSignal(name)``: the signal never fires; markers are not supported."""
        return track.signal(_MARKER + text_argument(name, 1, "GetMarkerReachedSignal"))

    def stop(self, track: Instance, fade: Any) -> Any:
        """``Stop(fade)``: ``Stopped`` fires now, ``Ended`` after the fade-out."""
        seconds = _number(fade, FADE, 1, "Stop")
        active = self._active.get(track.number)
        if active is None or active.is_stopping:
            return ()
        active.is_stopping = True
        track.change("IsPlaying", False)
        _aim(active, 0.0, seconds)
        track.fire("Stopped")
        if track.read("WeightCurrent") == 0.0 and self._active.get(track.number) is active:
            self._end(active)
        return ()

    def adjust_speed(self, track: Instance, speed: Any) -> Any:
        """``AdjustSpeed(speed)``: change the playback speed."""
        track.change("Speed", _number(speed, 1.0, 1, "AdjustSpeed"))
        return ()

    def adjust_weight(self, track: Instance, weight: Any, fade: Any) -> Any:
        """``AdjustWeight(weight, fade)``: change the weight within a fade time in seconds."""
        target = max(0.0, _number(weight, 1.0, 1, "AdjustWeight"))
        seconds = _number(fade, FADE, 2, "AdjustWeight")
        active = self._active.get(track.number)
        if active is not None and not active.is_stopping:
            _aim(active, target, seconds)
        return ()

    # The phase of a tick

    def advance(self) -> None:
        """Advance every track by one tick.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        for number, active in tuple(self._active.items()):
            if self._active.get(number) is active:
                self._advance(active)

    def _advance(self, active: _Active) -> None:
        track = active.track
        _fade(active)
        if active.is_stopping and track.read("WeightCurrent") == 0.0:
            self._end(active)
            return
        length, at = track.read("Length"), track.read("TimePosition")
        at += track.read("Speed") / TICK_RATE
        if 0.0 <= at < length:
            track.props["TimePosition"] = at
        elif track.read("Looped") and length > 0.0:
            track.props["TimePosition"] = at % length
            track.fire("DidLoop")
        else:
            track.props["TimePosition"] = 0.0 if at < 0.0 else length
            if not active.is_stopping:
                active.is_stopping = True
                track.change("IsPlaying", False)
                track.fire("Stopped")
                if self._active.get(track.number) is active:
                    self._end(active)

    def _end(self, active: _Active) -> None:
        self._drop(active)
        active.track.fire("Ended")

    def _drop(self, active: _Active) -> None:
        del self._active[active.track.number]
        for name, value in (("IsPlaying", False), ("WeightCurrent", 0.0), ("WeightTarget", 0.0)):
            active.track.store(name, value)

    # For spectators

    def spectate(self, humanoid: Instance) -> list[dict[str, Any]]:
        """Return the tracks that are playing or fading out on a Humanoid.

        They are in the order in which weights are taken until the total reaches 1: high priorities
        first, then by number.
        """
        states = self._active.values()
        playing = [state for state in states if state.track.props[ANIMATOR].parent is humanoid]
        playing.sort(key=lambda state: (-_rank(state.track), state.track.number))
        rest, seen = 1.0, []
        for active in playing:
            effective = min(rest, active.track.read("WeightCurrent"))
            rest -= effective
            seen.append(_entry(active, effective))
        return seen

    # Snapshots

    def document(self, slots: Slots) -> Any:
        """Return the state of all tracks for a snapshot."""
        states = self._active.values()
        return [[slots.put(state.track), state.fade, state.is_stopping] for state in states]

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore the tracks from a snapshot, after the instances.

        Raises:
            ValueError: The snapshot is damaged.
        """
        for number, fade, is_stopping in document:
            track = slots.take_as(number, Instance)
            self._active[track.number] = _Active(track, fade, is_stopping)


def _check_animation(animation: Any) -> str:
    """Return the id of an animation that is an argument."""
    ident: str = instance_argument(animation, 1, "LoadAnimation", "Animation").read(ID)
    if not ident:
        raise RuntimeFault("AnimationId is empty")
    return ident


def _number(value: Any, default: float, at: int, function: str) -> float:
    """Return an optional argument that must be a finite number."""
    if value is None:
        return default
    if not _is_finite(value):
        raise wrong_argument(value, at, function, "finite number")
    return float(value)


def _is_finite(value: Any) -> bool:
    return value.__class__ is float and math.isfinite(value)


def _set_priority(track: Instance, value: Any) -> None:
    is_item = isinstance(value, EnumItem) and value.enum.name == "AnimationPriority"
    if not is_item and not _is_finite(value):
        raise refuse_value("Priority", "Enum.AnimationPriority or finite number", value)
    track.change("Priority", value)


def _rank(track: Instance) -> float:
    priority = track.read("Priority")
    if isinstance(priority, EnumItem):
        return CORE if priority.name == "Core" else float(priority.number)
    return float(priority)


def _aim(active: _Active, target: float, seconds: float) -> None:
    """Change the weight of a track to a target within a time in seconds."""
    track = active.track
    track.change("WeightTarget", target)
    way = abs(target - track.read("WeightCurrent"))
    active.fade = min(way / seconds, FASTEST) if seconds > 1.0 / TICK_RATE else 0.0
    if active.fade == 0.0:
        track.change("WeightCurrent", target)


def _fade(active: _Active) -> None:
    track = active.track
    now, target = track.read("WeightCurrent"), track.read("WeightTarget")
    if now != target:
        step = active.fade / TICK_RATE
        is_near = abs(target - now) <= step + 1e-9
        track.props["WeightCurrent"] = (
            target if is_near else now + (step if target > now else -step)
        )


def _entry(active: _Active, effective: float) -> dict[str, Any]:
    read = active.track.read
    return {
        "track_id": active.track.number,
        "animation_id": to_text(active.track.props[ID]),
        "length": hundredths(read("Length")),
        "priority": hundredths(_rank(active.track)),
        "time_position": hundredths(read("TimePosition")),
        "speed": hundredths(read("Speed")),
        "looped": read("Looped"),
        "is_playing": read("IsPlaying"),
        "is_stopping": active.is_stopping,
        "weight_current": hundredths(read("WeightCurrent")),
        "weight_target": hundredths(read("WeightTarget")),
        "effective_weight": hundredths(effective),
    }
