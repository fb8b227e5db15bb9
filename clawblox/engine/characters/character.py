"""A Humanoid in Workspace: its members for scripts, and the motion of its body in a tick.

Its clothes and accessories are stored for scripts but not drawn.
"""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.characters.walker import WALKER, Gait, Triple, Walker
from clawblox.engine.instances.instance import (
    ACCESSORIES,
    DESCRIPTION,
    DISABLED_STATES,
    ROTATION,
    Instance,
)
from clawblox.engine.instances.members import instance_argument, number_argument, wrong_argument
from clawblox.engine.instances.spec import ClassTable, methods_in
from clawblox.engine.instances.tree_changes import clone
from clawblox.engine.physics.walking import Movement
from clawblox.engine.saved_state import Stored, optional, record
from clawblox.engine.scheduler import TICK_S
from clawblox.engine.values.enums import ENUM, EnumItem, enum_item
from clawblox.engine.values.value import as_list, singles
from clawblox.engine.values.vector3 import ZERO
from clawblox.luau import LuaTable, RuntimeFault, Vector, make_vector

ROOT_NAME: Final = "HumanoidRootPart"
AIRBORNE: Final = ("Jumping", "Freefall")
JUMPING_SPEED: Final = 0.05
"""Vertical speed above which a character in the air is jumping, in studs/s."""
STANDING_SPEED: Final = 3.0
"""``Running`` fires when the speed crosses this value, in studs/s."""
SPEED_CHANGE: Final = 6.0
"""``Running`` fires when the speed changes by this much, in studs/s."""
SHORTEST_MOTION: Final = 1e-4
"""Minimum motion per tick that has a direction, in studs."""
TURNING_MOTION: Final = 0.05
"""A character faces the direction of a motion longer than this per tick, in studs."""
TURN_RATE: Final = 10.0
"""Turning speed of a character, in rad/s."""
SAME_ANGLE: Final = 1e-4


def find_root(mover: Instance) -> Instance | None:
    """Return the part that a Humanoid moves, or None."""
    model = mover.parent
    root = None if model is None else model.find_child(ROOT_NAME)
    return root if root is not None and "BasePart" in root.spec.lineage else None


def find_humanoid(player: Instance) -> Instance | None:
    """Return the Humanoid of a player's character, or None."""
    character: Instance | None = player.read("Character")
    return None if character is None else character.find_child_of_class("Humanoid")


def state_item(name: str) -> EnumItem:
    """Return an item of ``Enum.HumanoidStateType``."""
    return enum_item("HumanoidStateType", name)


@attrs.define(eq=False)
class Character:
    """A Humanoid in Workspace.

    Attributes:
        humanoid: The Humanoid.
        walker: The motion of its body.
        state: The name of its state.
        speed: The last speed that ``Running`` reported, in studs/s.
        asked: The walk that scripts have requested since the last tick: ``to`` and a position, or
            ``along`` and a direction; None without a request.
        is_cancelled: Whether scripts have cancelled a walk since the last tick.
    """

    humanoid: Instance
    walker: Walker = attrs.field(factory=Walker)
    state: str = "None"
    speed: float = 0.0
    asked: tuple[str, Triple] | None = None
    is_cancelled: bool = False

    # Requests of scripts

    def read_requests(self, tick: int) -> bool:
        """Apply the requests of scripts; return whether a walk was cancelled."""
        humanoid, walker = self.humanoid, self.walker
        if humanoid.props.get("Jump"):
            humanoid.store("Jump", False)
            if "Jumping" not in _disabled_states(humanoid):
                walker.jump_asked = tick
        is_cancelled, self.is_cancelled = self.is_cancelled, False
        if is_cancelled:
            walker.target = walker.direction = None
        if self.asked is not None:
            (kind, (x, y, z)), self.asked = self.asked, None
            walker.target = (x, y, z) if kind == "to" else None
            walker.target_since = tick
            walker.direction = (x, z) if kind == "along" else None
        return is_cancelled

    def gait(self, gravity: float) -> Gait:
        """Return the parameters of its motion."""
        read = self.humanoid.read
        return Gait(read("WalkSpeed"), read("JumpPower"), read("JumpHeight"), gravity)

    # Results of a tick

    def show_motion(self, root: Instance | None, moved: Movement) -> None:
        """Turn the root towards its motion; report direction, speed and state to scripts.

        Args:
            root: The root part; None if it should not turn.
            moved: The motion of the body in this tick.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        x, z = moved.x, moved.z
        length = math.hypot(x, z)
        humanoid = self.humanoid
        if root is not None and length > TURNING_MOTION and humanoid.read("AutoRotate"):
            _turn(root, math.atan2(-x, -z))
        direction = ZERO if length < SHORTEST_MOTION else make_vector(x / length, 0.0, z / length)
        if direction != humanoid.read("MoveDirection"):
            humanoid.change("MoveDirection", direction)
        self._update_state()
        self._update_speed(length / TICK_S)

    def _update_state(self) -> None:
        if self.walker.grounded:
            state = "Landed" if self.state in AIRBORNE else "Running"
        else:
            state = "Jumping" if self.walker.rising > JUMPING_SPEED else "Freefall"
        if state != self.state:
            before, self.state = self.state, state
            self.humanoid.fire("StateChanged", state_item(before), state_item(state))

    def _update_speed(self, speed: float) -> None:
        has_crossed = (speed > STANDING_SPEED) is not (self.speed > STANDING_SPEED)
        if has_crossed or abs(speed - self.speed) >= SPEED_CHANGE:
            self.speed = speed
            self.humanoid.fire("Running", speed)


CHARACTER: Final = record(
    Character,
    Stored(shapes.whole, lambda slots, humanoid: humanoid.number, lambda slots, number: number),
    WALKER,
    shapes.one_of(*map(shapes.constant, ENUM.enum("HumanoidStateType").numbers)),
    shapes.number,
    optional(
        (shapes.one_of(shapes.constant("to"), shapes.constant("along")), (shapes.number,) * 3)
    ),
    shapes.flag,
)
"""Saved form of a character; it is read with the number of its Humanoid."""


def _turn(root: Instance, yaw: float) -> None:
    """Turn a root part about the Y axis towards an angle."""
    rotation = root.props.get(ROTATION)
    now = 0.0 if rotation is None else math.atan2(rotation[2], rotation[8])
    rest = math.remainder(yaw - now, math.tau)
    if abs(rest) > SAME_ANGLE:
        most = TURN_RATE * TICK_S
        angle = now + max(-most, min(most, rest))
        c, s = math.cos(angle), math.sin(angle)
        root.props[ROTATION] = singles(c, 0.0, s, 0.0, 1.0, 0.0, -s, 0.0, c)


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


def _write_health(humanoid: Instance, value: float) -> None:
    """``Health = value``, clamped to the range from 0 to ``MaxHealth``."""
    _set_health(humanoid, max(0.0, min(value, humanoid.read("MaxHealth"))))


def take_damage(humanoid: Instance, amount: Any) -> Any:
    """``TakeDamage(amount)``: lower the health to 0 at most, or raise it by a negative amount."""
    if number_argument(amount, 1, "TakeDamage") != amount:
        raise RuntimeFault("invalid argument #1 to 'TakeDamage' (it is NaN)")
    health = humanoid.read("Health")
    most = max(health, humanoid.read("MaxHealth"))
    _set_health(humanoid, max(0.0, min(health - amount, most)))
    return ()


def _write_jump(humanoid: Instance, value: bool) -> None:
    """``Jump = true`` requests a jump; ``false`` does not cancel the request."""
    if value:
        humanoid.change("Jump", True)


def jump(humanoid: Instance) -> Any:
    """``Jump()``: request a jump."""
    _write_jump(humanoid, True)
    return ()


def move_to(humanoid: Instance, position: Any) -> Any:
    """``MoveTo(position)``: walk there; the old target is replaced without an event."""
    return _ask(humanoid, "to", _vector(position, "MoveTo"))


def move(humanoid: Instance, direction: Any) -> Any:
    """``Move(direction)``: walk in a direction until the next request; zero stops."""
    x, y, z = _vector(direction, "Move")
    length = max(1.0, math.hypot(x, z))
    return _ask(humanoid, "along", (x / length, y, z / length))


def _ask(humanoid: Instance, kind: str, place: Triple) -> Any:
    character: Character | None = humanoid.extra
    if character is not None:
        character.asked = (kind, place)
    return ()


def cancel_move_to(humanoid: Instance) -> Any:
    """``CancelMoveTo()``: fire ``MoveToFinished`` with false, even without a target."""
    character: Character | None = humanoid.extra
    if character is not None:
        character.asked, character.is_cancelled = None, True
    return ()


def get_state(humanoid: Instance) -> Any:
    """``GetState()``; ``None`` outside Workspace."""
    character: Character | None = humanoid.extra
    return state_item("None" if character is None else character.state)


def change_state(humanoid: Instance, state: Any) -> Any:
    """``ChangeState(state)``: overwrite the state until the next tick, without an event."""
    name = _state_name(state, "ChangeState")
    character: Character | None = humanoid.extra
    if character is not None:
        character.state = name
    return ()


def _state_name(state: Any, function: str) -> str:
    """Return the name of a state passed as an argument."""
    if not isinstance(state, EnumItem) or state.enum.name != "HumanoidStateType":
        raise wrong_argument(state, 1, function, "Enum.HumanoidStateType")
    return state.name


def _disabled_states(humanoid: Instance) -> set[str]:
    return set(filter(None, humanoid.props.get(DISABLED_STATES, "").split(",")))


def set_state_enabled(humanoid: Instance, state: Any, enabled: Any) -> Any:
    """``SetStateEnabled(state, enabled)``: only disabling Jumping has an effect."""
    name, disabled = _state_name(state, "SetStateEnabled"), _disabled_states(humanoid)
    if enabled in (None, False):
        disabled.add(name)
    else:
        disabled.discard(name)
    humanoid.props[DISABLED_STATES] = ",".join(sorted(disabled))
    return ()


def get_state_enabled(humanoid: Instance, state: Any) -> Any:
    """``GetStateEnabled(state)``: return whether a state is enabled."""
    return _state_name(state, "GetStateEnabled") not in _disabled_states(humanoid)


def add_humanoid(classes: ClassTable) -> None:
    """Add the members of Humanoids and descriptions."""
    classes.add(
        "Humanoid",
        methods={
            **methods_in(globals(), "humanoid"),
            "ApplyDescriptionAsync": apply_description,
        },
        getters={"RootPart": find_root},
        setters={"Health": _write_health, "Jump": _write_jump},
    )
    classes.add(_DESCRIPTION_CLASS, methods=methods_in(globals(), "description"))


# -- descriptions of a figure's clothes ----------------------------------------------------------

_DESCRIPTION_CLASS: Final = "HumanoidDescription"


def set_accessories(description: Instance, accessories: Any, include_rigid: Any) -> Any:
    """``SetAccessories(accessories, includeRigid)``: store a copy of the list."""
    rows: list[Any] = _rows(accessories) if isinstance(accessories, LuaTable) else [None]
    if not all(isinstance(row, LuaTable) for row in rows):
        raise wrong_argument(accessories, 1, "SetAccessories", "array of tables")
    description.props[ACCESSORIES] = _copy(description, rows)
    return ()


def get_accessories(description: Instance, include_rigid: Any) -> Any:
    """``GetAccessories(includeRigid)``: return a copy of the list that was set last."""
    return _copy(description, _rows(description.props.get(ACCESSORIES, LuaTable())))


def _rows(table: LuaTable) -> list[Any]:
    return [table.get(float(at)) for at in range(1, len(table) + 1)]


def _copy(description: Instance, rows: list[LuaTable]) -> LuaTable:
    description.model.scheduler.charge(sum(len(row) + 1 for row in rows))
    return as_list([LuaTable(row) for row in rows])


def apply_description(humanoid: Instance, description: Any) -> Any:
    """``ApplyDescription(description)``: store the description without drawing it."""
    given = instance_argument(description, 1, "ApplyDescription", _DESCRIPTION_CLASS)
    humanoid.props[DESCRIPTION] = clone(given)
    return ()


def get_applied_description(humanoid: Instance) -> Any:
    """``GetAppliedDescription()``: return a copy of the last description, or a default."""
    kept = humanoid.props.get(DESCRIPTION)
    return humanoid.model.make(_DESCRIPTION_CLASS) if kept is None else clone(kept)
