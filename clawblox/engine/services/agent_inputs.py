"""``AgentInputService``: the inputs of agents, as events and as queues.

An input reaches scripts twice: as ``InputReceived`` in the phase of inputs, and in the queue of its
player, where it waits for ``GetInputs``. A queue keeps only the newest inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import to_luau_text, to_text
from clawblox.engine.gui import CLICK, find_clicked
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.physics.numbers import LIMIT
from clawblox.engine.saved_state import SavedState
from clawblox.engine.slots import Slots
from clawblox.engine.values.value import as_list
from clawblox.foreign_values import finite_number
from clawblox.luau import LuaTable
from clawblox.luau.runtime.host import to_luau
from clawblox.server import InputError, Json
from clawblox.server.payload import encode_json

MAX_QUEUED: Final = 256
"""Maximum number of queued inputs per player; further inputs displace the oldest."""
_MAX_QUEUED_BYTES: Final = 1 << 20  # of their data as JSON

_POSITIONED: Final = ("MoveTo", "Pickup", "Place")
_RANGE: Final = "from -1e9 to 1e9"

Effect = Callable[[Instance, Json], None]
"""The effect of an input in addition to its event; called with the player and the data."""


def check_input(action: str, data: Json, *, allow_reset: bool) -> None:
    """Check an input before it is queued.

    Args:
        action: Its ``type``.
        data: Its ``data``.
        allow_reset: Whether the world accepts ``Reset``.

    Raises:
        InputError: The input is malformed, or not allowed; the message is for the agent.
    """
    fields = data if isinstance(data, dict) else {}
    if action in _POSITIONED and not _is_vector(fields.get("position")):
        raise InputError(f"{action}: data.position must be a finite [x, y, z], each {_RANGE}")
    if action == "Throw":
        if not _is_vector(fields.get("direction")):
            raise InputError(f"Throw: data.direction must be a finite [x, y, z], each {_RANGE}")
        if fields.get("speed") is not None and not _is_number(fields["speed"]):
            raise InputError(f"Throw: data.speed must be a finite number {_RANGE}")
    if action == "Reset" and not allow_reset:
        raise InputError("Reset is not allowed: set allow_reset in [agent_api] of world.toml")


def _is_vector(value: Json) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))  # noqa: PLR2004, RUF100


def _is_number(value: Json) -> bool:
    """Return whether a value is a number in the 32-bit range of a Vector3."""
    return finite_number(value, low=-LIMIT, high=LIMIT) is not None


@attrs.define(eq=False)
class _Input:
    """An input.

    Attributes:
        action: Its ``type``.
        data: Its ``data``.
        size_bytes: Length of the data as JSON.
    """

    action: str
    data: Json
    size_bytes: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.size_bytes = len(encode_json(self.data))

    def entry(self) -> LuaTable:
        """Return its entry in the result of ``GetInputs``."""
        entry = LuaTable({"type": to_luau_text(self.action)})
        if self.data is not None:
            entry["data"] = to_luau(self.data)
        return entry


class _Queue:
    """The newest inputs of a player that no script has taken."""

    def __init__(self, inputs: Iterable[_Input] = ()) -> None:
        self.inputs = deque(inputs)
        self._size_bytes = sum(waiting.size_bytes for waiting in self.inputs)

    def add(self, arrived: _Input) -> bool:
        """Add an input; return whether older inputs were displaced."""
        self.inputs.append(arrived)
        self._size_bytes += arrived.size_bytes
        count = len(self.inputs)
        while len(self.inputs) > MAX_QUEUED or self._size_bytes > _MAX_QUEUED_BYTES:
            self._size_bytes -= self.inputs.popleft().size_bytes
        return len(self.inputs) < count


class AgentInputs(SavedState):
    """The inputs that wait for scripts, by player.

    Args:
        model: The data model; the methods of ``AgentInputService`` are added to it.

    Attributes:
        effects: Effects of inputs in addition to their event, by type.
    """

    shape: ClassVar[shapes.Shape] = [
        (shapes.whole, shapes.whole, shapes.whole, [(shapes.text, shapes.anything)])
    ]

    def __init__(self, model: DataModel) -> None:
        self.effects: dict[str, Effect] = {"GuiClick": click}
        self._model = model
        self._arrived: dict[int, list[_Input]] = {}
        self._queues: dict[int, _Queue] = {}
        model.classes.add("AgentInputService", methods=bind_methods(self, "service"))

    def add(self, player: Instance, action: str, data: Json) -> None:
        """Queue an input that `check_input` has accepted for the next tick."""
        waiting = _Input(action, data)
        self._arrived.setdefault(player.number, []).append(waiting)
        has_dropped = self._queues.setdefault(player.number, _Queue()).add(waiting)
        is_heard = "InputReceived" in self._model.services["AgentInputService"].signals
        if has_dropped and not is_heard:
            self._model.scheduler.warn_once(
                f"AgentInputService: too many inputs of {to_text(player.name)} wait for GetInputs; "
                f"the oldest are dropped (a player has {MAX_QUEUED} at most)"
            )

    def remove_player(self, player: Instance) -> None:
        """Forget the inputs of a player who leaves."""
        self._arrived.pop(player.number, None)
        self._queues.pop(player.number, None)

    def process(self) -> None:
        """Fire ``InputReceived`` for each input, in the order in which the players joined.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        if not self._arrived:
            return
        arrived, self._arrived = self._arrived, {}
        service = self._model.services["AgentInputService"]
        for player in tuple(self._model.services["Players"].children):
            for item in arrived.get(player.number, ()):
                if player.parent is None:  # a handler has removed the player
                    break
                service.fire("InputReceived", player, to_luau_text(item.action), to_luau(item.data))
                effect = self.effects.get(item.action)
                if effect is not None:
                    effect(player, item.data)

    def get_inputs(self, service: Instance, player: Any) -> Any:
        """``GetInputs(player)``: return the queue of a player, and empty it."""
        queue = self._queues.pop(getattr(player, "number", 0), None)
        return as_list([] if queue is None else [waiting.entry() for waiting in queue.inputs])

    def has_pending_inputs(self, service: Instance, player: Any) -> Any:
        """``HasPendingInputs(player)``: return whether the queue of a player has inputs."""
        return getattr(player, "number", 0) in self._queues

    def document(self, slots: Slots) -> list[Any]:
        """Return the inputs not yet processed by a tick, and those not yet taken by a script.

        Both are the latest inputs of a player, so there is one list with two lengths per player.
        """
        saved = []
        for number in dict.fromkeys((*self._queues, *self._arrived)):
            arrived = self._arrived.get(number, [])
            queue = self._queues.get(number)
            queued = [] if queue is None else list(queue.inputs)
            inputs = [[waiting.action, waiting.data] for waiting in max(arrived, queued, key=len)]
            saved.append([number, len(arrived), len(queued), inputs])
        return saved

    def restore(self, document: list[Any], slots: Slots) -> None:
        """Restore the inputs of a snapshot."""
        for number, arrived, queued, saved in document:
            inputs = [_Input(action, data) for action, data in saved]
            if arrived:
                self._arrived[number] = inputs[-arrived:]
            if queued:
                self._queues[number] = _Queue(inputs[-queued:])


def click(player: Instance, data: Json) -> None:
    """Carry out a ``GuiClick``: fire the event of the element that the player clicks, if any.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    element_id = data.get("element_id") if isinstance(data, dict) else None
    element = find_clicked(player.read("PlayerGui"), element_id)
    if element is not None:
        element.fire(CLICK)
