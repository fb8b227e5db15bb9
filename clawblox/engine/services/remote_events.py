"""``RemoteEventService`` and the remote events of scripts: events for spectators and agents.

At the end of a tick, the events that scripts have fired in it become recent events, with the
number of the tick. Only the player's agent and spectators see an event for a single player.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from clawblox.engine import shapes
from clawblox.engine.errors import to_luau_text, to_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import instance_argument
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.json_text import MAX_DEPTH, array_length, key_text
from clawblox.engine.saved_state import Layouts, SavedState
from clawblox.engine.scheduler import TICK_RATE
from clawblox.luau import LuaTable, RuntimeFault, Userdata, Vector
from clawblox.luau.core.operators import shown_type
from clawblox.luau.runtime.host import to_luau
from clawblox.server import Json

_UNRELIABLE: Final = "UnreliableRemoteEvent"
_KEPT: Final = 512
_SHOWN: Final = 128
_TEXT_PER_STEP: Final = 64


def payload_json(value: Any, charge: Callable[[int], None], depth: int = MAX_DEPTH) -> Json:
    """Return a Luau value as the payload of an event.

    A table without holes becomes an array, even if empty. Any other table becomes an object with
    text keys.

    Args:
        value: The value.
        charge: Charges steps for the entries of tables.
        depth: Maximum nesting of tables.

    Raises:
        RuntimeFault: Tables are nested too deeply.
        LuaError: The script has used up its steps.
    """
    if value is None or value.__class__ is bool:
        return value
    if value.__class__ is float:
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) <= 1 << 53 else value
    if isinstance(value, str):
        charge(len(value) // _TEXT_PER_STEP)
        return to_text(value)
    if isinstance(value, Vector):
        return [payload_json(part, charge) for part in (value.x, value.y, value.z)]
    if isinstance(value, LuaTable):
        return _table_json(value, charge, depth)
    if isinstance(value, Userdata):
        return _userdata_json(value, charge)
    return None


def _table_json(table: LuaTable, charge: Callable[[int], None], depth: int) -> Json:
    if depth == 0:
        raise RuntimeFault(f"the payload of an event is nested more than {MAX_DEPTH} deep")
    charge(len(table))
    if len(table) == (array_length(table) or 0):
        items = (table.get(float(at)) for at in range(1, len(table) + 1))
        return [payload_json(item, charge, depth - 1) for item in items]
    fields = ((key_text(key), value) for key, value in list(table.items()))
    return {
        to_text(name): payload_json(value, charge, depth - 1)
        for name, value in fields
        if name is not None
    }


def _userdata_json(value: Any, charge: Callable[[int], None]) -> Json:
    kind = shown_type(value)
    if kind == "Color3":
        return [payload_json(value[part], charge) for part in "RGB"]
    if kind == "CFrame":
        numbers = [payload_json(part, charge) for part in value.contents()[1:]]
        rotation = [numbers[0:3], numbers[3:6], numbers[6:9]]
        return {"position": payload_json(value["Position"], charge), "rotation": rotation}
    return "[userdata]"


_RECIPIENT: Final = shapes.optional(shapes.text)  # the id of an agent; null for everyone
_EVENT: Final = {
    "id": shapes.whole,
    "tick": shapes.whole,
    "server_time_ms": shapes.whole,
    "name": shapes.text,
    "reliable": shapes.flag,
    "payload": shapes.anything,
}


def _flat(payload: Json) -> Json:
    """Return a payload with tuples in place of objects, because the VM cannot measure objects."""
    if isinstance(payload, dict):
        return tuple(_flat(member) for item in payload.items() for member in item)
    return [_flat(member) for member in payload] if isinstance(payload, list) else payload


def find_remote(model: DataModel, class_name: str, data: Json) -> Instance | None:
    """Return the instance below ReplicatedStorage with the ``name`` in an input, or None.

    Args:
        model: The data model.
        class_name: Its class or base class.
        data: The data of the input.
    """
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str):
        return None
    shown = to_luau_text(name)
    below = model.services["ReplicatedStorage"].descendants()
    named = (instance for instance in below if instance.name == shown)
    return next((instance for instance in named if instance.is_a(class_name)), None)


def player_argument(value: Any, at: int, function: str) -> Instance:
    """Return an argument that must be a player.

    Raises:
        RuntimeFault: The argument is not a player.
    """
    return instance_argument(value, at, function, "Player")


def _is_reliable(event: Instance) -> bool:
    return event.spec.name != _UNRELIABLE


class RemoteEvents(SavedState):
    """The events of a world.

    Args:
        model: The data model; the methods of ``RemoteEventService`` and of remote events are
            added to it.
    """

    layouts: ClassVar[Layouts] = {
        "_fired": [(_RECIPIENT, shapes.text, shapes.flag, shapes.anything)],
        "_recent": [(_RECIPIENT, _EVENT)],
        "_published": shapes.whole,
    }

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._fired: deque[list[Json]] = deque(maxlen=_KEPT)
        self._recent: deque[tuple[str | None, dict[str, Json]]] = deque(maxlen=_KEPT)
        self._published = 0
        model.classes.add("RemoteEventService", methods=bind_methods(self, "service"))
        event_methods = {**bind_methods(self, "event"), "FireAllClients": self._fire_own}
        for name in ("RemoteEvent", _UNRELIABLE):
            model.classes.add(name, methods=event_methods)

    def fire(
        self, name: Any, values: Sequence[Any], *, reliable: bool = True, to: str | None = None
    ) -> None:
        """Fire an event; trim its name, and ignore an event without a name.

        Args:
            name: The name, as a Luau value.
            values: The payload: a single value, an array of several values, or null without values.
            reliable: Whether the event is marked as reliable.
            to: The id of the agent that sees it; None for everyone.

        Raises:
            RuntimeFault: The payload is nested too deeply.
        """
        shown = to_text(name).strip() if isinstance(name, str) else ""
        if shown:
            self.add(shown, self.payload(values), reliable=reliable, to=to)

    def payload(self, values: Sequence[Any]) -> Json:
        """Return the payload for values: a single value, an array of several values, or null.

        Raises:
            RuntimeFault: A value is nested too deeply.
        """
        charge = self._model.scheduler.vm.charge
        payloads = [payload_json(value, charge) for value in values]
        return payloads if len(payloads) > 1 else next(iter(payloads), None)

    def add(self, name: str, payload: Json, *, reliable: bool = True, to: str | None) -> None:
        """Add an event to those of this tick; see `fire`."""
        if len(self._fired) == _KEPT:
            self._published += 1  # it is dropped before anyone could see it
        self._fired.append([to, name, reliable, payload])

    def held(self) -> Iterator[Any]:
        """Iterate over the stored payloads, to count their memory."""
        for *_, payload in self._fired:
            yield _flat(payload)
        for _, event in self._recent:
            yield _flat(event["payload"])

    def publish(self) -> None:
        """Turn the events of this tick into recent events, at its end."""
        tick = self._model.scheduler.tick
        for to, name, reliable, payload in self._fired:
            self._published += 1
            event = {
                "id": self._published,
                "tick": tick,
                "server_time_ms": tick * 1000 // TICK_RATE,
                "name": name,
                "reliable": reliable,
                "payload": payload,
            }
            self._recent.append((to, event))
        self._fired.clear()

    def latest(self) -> list[dict[str, Json]]:
        """Return the last recent events, oldest first, as spectators see them.

        An event for a single player has the player's id as ``player``.
        """
        latest = islice(self._recent, max(0, len(self._recent) - _SHOWN), None)
        return [event if to is None else {**event, "player": to} for to, event in latest]

    def latest_for(self, agent_id: str) -> list[dict[str, Json]]:
        """Return the last recent events that an agent sees, oldest first."""
        seen = [event for to, event in self._recent if to is None or to == agent_id]
        return seen[-_SHOWN:]

    def receive(self, player: Instance, data: Json) -> None:
        """Fire ``OnServerEvent`` of the remote event named by a client.

        Args:
            player: The sender.
            data: ``name`` of a remote event below ReplicatedStorage, and ``payload``. Other data
                is ignored.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        event = find_remote(self._model, "BaseRemoteEvent", data)
        if event is not None:
            event.fire("OnServerEvent", player, to_luau(data.get("payload")))

    # Methods of the service and of remote events

    def fire_all_clients(self, service: Instance, name: Any = None, *payload: Any) -> Any:
        """``FireAllClients(name, payload)``: fire a reliable event for everyone."""
        self.fire(name, payload)
        return ()

    def fire_all_clients_unreliable(
        self, service: Instance, name: Any = None, *payload: Any
    ) -> Any:
        """``FireAllClientsUnreliable(name, payload)``: fire an unreliable event for everyone."""
        self.fire(name, payload, reliable=False)
        return ()

    def _fire_own(self, event: Instance, *payload: Any) -> Any:
        """``FireAllClients(...)`` of a remote event, under its name."""
        self.fire(event.name, payload, reliable=_is_reliable(event))
        return ()

    def fire_client(self, event: Instance, player: Any = None, *payload: Any) -> Any:
        """``FireClient(player, ...)`` under the event's name, unless the player has left."""
        recipient = player_argument(player, 1, "FireClient")
        if recipient.parent is not None:
            agent_id = recipient.extra.agent_id
            self.fire(event.name, payload, reliable=_is_reliable(event), to=agent_id)
        return ()
