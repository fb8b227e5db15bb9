"""What scripts call on a Humanoid, and what their assignments do."""

from __future__ import annotations

import math
from typing import Any

from clawblox.engine.characters.character import Character, find_root, state_item, state_name
from clawblox.engine.characters.walker import Triple
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.members import wrong_argument
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.values.enums import EnumItem
from clawblox.luau import RuntimeFault, Vector


def _vector(value: Any, function: str) -> Triple:
    if value.__class__ is not Vector:
        raise wrong_argument(value, 1, function, "Vector3")
    if not (math.isfinite(value.x) and math.isfinite(value.y) and math.isfinite(value.z)):
        raise RuntimeFault(f"invalid argument #1 to '{function}' (it is not finite)")
    return value.x, value.y, value.z


def _set_health(humanoid: Instance, value: float) -> None:
    before = humanoid.read("Health")
    if value == before:
        return
    humanoid.change("Health", value)
    humanoid.fire("HealthChanged", value)
    if before > 0.0 and value == 0.0:
        humanoid.fire("Died")


def write_health(humanoid: Instance, value: float) -> None:
    """``Health = value``: between 0 and ``MaxHealth``."""
    _set_health(humanoid, max(0.0, min(value, humanoid.read("MaxHealth"))))


def take_damage(humanoid: Instance, amount: Any) -> Any:
    """``TakeDamage(amount)``: never below 0; a negative amount heals up to ``MaxHealth``."""
    if amount.__class__ is not float:
        raise wrong_argument(amount, 1, "TakeDamage", "number")
    if amount != amount:
        raise RuntimeFault("invalid argument #1 to 'TakeDamage' (it is NaN)")
    health = humanoid.read("Health")
    most = max(health, humanoid.read("MaxHealth"))
    _set_health(humanoid, max(0.0, min(health - amount, most)))
    return ()


def write_jump(humanoid: Instance, value: bool) -> None:
    """``Jump = true`` asks for a jump; ``false`` takes nothing back."""
    if value:
        humanoid.change("Jump", True)


def jump(humanoid: Instance) -> Any:
    """``Jump()``."""
    write_jump(humanoid, True)
    return ()


def move_to(humanoid: Instance, position: Any) -> Any:
    """``MoveTo(position)``: walk there; the new target replaces the old one silently."""
    return _ask(humanoid, "to", _vector(position, "MoveTo"))


def move(humanoid: Instance, direction: Any) -> Any:
    """``Move(direction)``: walk that way until told otherwise; zero stands still."""
    x, y, z = _vector(direction, "Move")
    length = max(1.0, math.hypot(x, z))
    return _ask(humanoid, "along", (x / length, y, z / length))


def _ask(humanoid: Instance, kind: str, place: Triple) -> Any:
    character: Character | None = humanoid.extra
    if character is not None:
        character.asked = (kind, place)
    return ()


def cancel_move_to(humanoid: Instance) -> Any:
    """``CancelMoveTo()``: ``MoveToFinished(false)`` fires with or without a target."""
    character: Character | None = humanoid.extra
    if character is not None:
        character.asked, character.is_cancelled = None, True
    return ()


def get_state(humanoid: Instance) -> Any:
    """``GetState()``; ``None`` outside Workspace."""
    return state_item(state_name(humanoid))


def change_state(humanoid: Instance, state: Any) -> Any:
    """``ChangeState(state)``: overwrites it until the next tick; no event."""
    if not isinstance(state, EnumItem) or state.enum.name != "HumanoidStateType":
        raise wrong_argument(state, 1, "ChangeState", "Enum.HumanoidStateType")
    character: Character | None = humanoid.extra
    if character is not None:
        character.state = state.name
    return ()


def add_humanoid(classes: ClassTable) -> None:
    """Give Humanoids their members."""
    classes.add(
        "Humanoid",
        methods={
            "TakeDamage": take_damage,
            "Jump": jump,
            "MoveTo": move_to,
            "Move": move,
            "CancelMoveTo": cancel_move_to,
            "GetState": get_state,
            "ChangeState": change_state,
        },
        getters={"RootPart": find_root},
        setters={"Health": write_health, "Jump": write_jump},
    )
