"""``Sound``: sounds as data for spectators; the engine neither plays them nor knows their length.

A playing sound continues until a script stops it. Its time position is computed from the tick in
which it started, so playing is free.
"""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.errors import to_text
from clawblox.engine.instances.attributes import attribute_json
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.scheduler import TICK_RATE

_SINCE: Final = "PlayingSince"
"""Key of `Instance.props`: the tick in which a playing sound started or resumed."""
_BEGAN: Final = "PlayedTo"
"""Key of `Instance.props`: the time position at that tick, in seconds."""

Json = Any


def time_position(sound: Instance) -> float:
    """Return the time position of a sound, in seconds of the sound."""
    since = sound.props.get(_SINCE)
    began: float = sound.props.get(_BEGAN, 0.0)
    if since is None:
        return began
    ticks: float = sound.model.scheduler.tick - since
    return began + ticks / TICK_RATE * float(sound.read("PlaybackSpeed"))


def _begin(sound: Instance, position: float) -> None:
    sound.props[_BEGAN] = position
    if sound.read("Playing"):
        sound.props[_SINCE] = float(sound.model.scheduler.tick)
    else:
        sound.props.pop(_SINCE, None)


def set_playing(sound: Instance, playing: bool) -> None:
    """Resume a sound at its time position, or pause it."""
    if playing == sound.read("Playing"):
        return
    position = time_position(sound)
    sound.store("Playing", playing)
    _begin(sound, position)
    sound.tell_changed("Playing")
    sound.fire("Played" if playing else "Paused", sound.read("SoundId"))


def set_time_position(sound: Instance, position: float) -> None:
    """Continue a sound at another position."""
    _begin(sound, position)
    sound.tell_changed("TimePosition")


def set_playback_speed(sound: Instance, speed: float) -> None:
    """Continue a sound at another speed."""
    position = time_position(sound)
    if sound.store("PlaybackSpeed", speed):
        _begin(sound, position)
        sound.tell_changed("PlaybackSpeed")


def play(sound: Instance) -> Any:
    """``Play()``, from the beginning."""
    _rewind(sound, playing=True)
    sound.fire("Played", sound.read("SoundId"))
    return ()


def stop(sound: Instance) -> Any:
    """``Stop()``: the next ``Play`` or ``Resume`` starts from the beginning."""
    if _rewind(sound, playing=False):
        sound.fire("Stopped", sound.read("SoundId"))
    return ()


def _rewind(sound: Instance, *, playing: bool) -> bool:
    """Set a sound to its beginning; return whether this starts or stops it."""
    has_changed = sound.store("Playing", playing)
    _begin(sound, 0.0)
    if has_changed:
        sound.tell_changed("Playing")
    return has_changed


def pause(sound: Instance) -> Any:
    """``Pause()``, keeping the time position."""
    set_playing(sound, False)
    return ()


def resume(sound: Instance) -> Any:
    """``Resume()``, from the position of the pause."""
    set_playing(sound, True)
    return ()


def spectate_sounds(root: Instance) -> list[dict[str, Json]]:
    """Return the playing sounds below an instance, in tree order.

    Each has the id of its parent; for a sound in a part, that is an entity.
    """
    return [
        {
            "id": sound.number,
            "name": to_text(sound.name),
            "parent_id": sound.parent.number,
            "sound_id": to_text(sound.read("SoundId")),
            "volume": attribute_json(sound.read("Volume")),
            "playback_speed": attribute_json(sound.read("PlaybackSpeed")),
            "looped": sound.read("Looped"),
            "time_position": round(time_position(sound), 2),
            "roll_off_min_distance": attribute_json(sound.read("RollOffMinDistance")),
            "roll_off_max_distance": attribute_json(sound.read("RollOffMaxDistance")),
        }
        for sound in root.descendants()
        if sound.spec.name == "Sound" and sound.parent is not None and sound.read("Playing")
    ]


def add_sounds(classes: ClassTable) -> None:
    """Add the members of sounds."""
    classes.add(
        "Sound",
        methods={"Play": play, "Stop": stop, "Pause": pause, "Resume": resume},
        getters={
            "TimePosition": time_position,
            "IsPlaying": lambda sound: sound.read("Playing"),
            "IsPaused": lambda sound: not sound.read("Playing"),
            "TimeLength": lambda sound: 0.0,
        },
        setters={
            "Playing": set_playing,
            "TimePosition": set_time_position,
            "PlaybackSpeed": set_playback_speed,
        },
    )
