"""All services of a world as a single value, and the services without state.

These are ``RunService``, ``HttpService``, value objects, bindable events and functions.
"""

from __future__ import annotations

import math
import uuid
from typing import Any, ClassVar, Final
from urllib.parse import quote

from clawblox.engine.instances import members
from clawblox.engine.instances import tree_changes as tree
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import instance_argument, text_argument
from clawblox.engine.instances.spec import ClassTable, methods_in
from clawblox.engine.instances.tree_changes import TAG_ADDED, TAG_REMOVED, TAG_SERVICE
from clawblox.engine.json_text import read_text, write_text
from clawblox.engine.saved_state import Layouts, SavedState
from clawblox.engine.scheduler import TICK_S
from clawblox.engine.services import terrain
from clawblox.engine.services.absent import add_absent
from clawblox.engine.services.agent_inputs import AgentInputs
from clawblox.engine.services.data_stores import DataStores
from clawblox.engine.services.game import ClosingCalls, DebrisQueue
from clawblox.engine.services.lighting import add_lighting
from clawblox.engine.services.memory_stores import MemoryStores
from clawblox.engine.services.messaging import add_messaging
from clawblox.engine.services.physics_groups import CollisionGroups
from clawblox.engine.services.players import Players
from clawblox.engine.services.prompts import Prompts, click_part
from clawblox.engine.services.remote_events import RemoteEvents
from clawblox.engine.services.remote_functions import RemoteFunctions
from clawblox.engine.services.sounds import add_sounds
from clawblox.engine.services.speech import Speech
from clawblox.engine.services.teams import add_teams
from clawblox.engine.services.terrain import (
    make_terrain,
    restore_terrain,
    terrain_document,
)
from clawblox.engine.shapes import Omittable, Shape
from clawblox.engine.slots import Slots
from clawblox.engine.values.value import as_list
from clawblox.luau import RuntimeFault
from clawblox.luau.core.operators import account_text


class Services(SavedState):
    """The services with state.

    A new world calls `begin` after building its tree; a restored world calls `restore` after
    filling its tree.

    Attributes:
        model: The data model.
        players: The players.
        data_stores: The calls that wait for the database.
        memory_stores: The values that expire.
        inputs: The inputs of agents.
        speech: The chat messages of agents.
        remote_events: The events that scripts send to spectators.
        prompts: The prompts that players hold.
        remote_functions: The requests between scripts and agents.
        collision_groups: The collision groups of parts.
        debris: The instances that will be destroyed.
        at_close: The functions that scripts have bound to the close of the world.
    """

    layouts: ClassVar[Layouts] = {
        "players": Players,
        "data_stores": DataStores,
        "inputs": AgentInputs,
        "speech": Speech,
        "remote_events": RemoteEvents,
        "collision_groups": CollisionGroups,
        "debris": DebrisQueue,
        "at_close": ClosingCalls,
    }
    late: ClassVar[Layouts] = {
        "prompts": Prompts,
        "remote_functions": RemoteFunctions,
        "memory_stores": MemoryStores,
    }
    shape: ClassVar[Shape] = {
        **{name: part.shape for name, part in layouts.items()},
        **{name: Omittable(part.shape) for name, part in late.items()},
        "terrain": terrain.SHAPE,
    }

    def __init__(self, model: DataModel, players: Players, data_stores: DataStores) -> None:
        self.model = model
        self.players = players
        self.data_stores = data_stores
        self.memory_stores = MemoryStores(model)
        self.inputs = AgentInputs(model)
        self.speech = Speech(model)
        self.remote_events = RemoteEvents(model)
        self.collision_groups = CollisionGroups(model)
        self.debris = DebrisQueue(model)
        self.at_close = ClosingCalls(model)
        model.classes.add("DataModel", getters={"JobId": lambda game: data_stores.game_id})
        self.remote_functions = RemoteFunctions(model, self.remote_events)
        self.prompts = Prompts(model)
        self.inputs.effects["Click"] = click_part
        self.inputs.effects["Prompt"] = self.prompts.hold
        add_messaging(model)
        add_absent(model)
        add_teams(model)
        self.inputs.effects["RemoteEvent"] = self.remote_events.receive
        self.inputs.effects["RemoteFunction"] = self.remote_functions.receive

    def begin(self) -> None:
        """Create the ground of a new world."""
        make_terrain(self.model)
        self._show_max_players()

    def _show_max_players(self) -> None:
        self.players.service.store("MaxPlayers", float(self.players.max_players))

    def document(self, slots: Slots) -> dict[str, Any]:
        """Return the state of the services for a snapshot."""
        return {**super().document(slots), "terrain": terrain_document(self.model)}

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore the services from a snapshot, after the tree.

        Raises:
            ValueError: The snapshot is damaged.
        """
        self._show_max_players()
        super().restore(document, slots)
        restore_terrain(self.model, document["terrain"])


_MOST: Final = 2.0**53


def set_value(holder: Instance, value: Any) -> None:
    """Set ``Value``; fire ``Changed`` with the new value if it differs."""
    if holder.store("Value", value):
        holder.tell_changed("Value")
        holder.fire("Changed", value)


def set_whole_value(holder: Instance, value: float) -> None:
    """Set the ``Value`` of an IntValue, rounded with halves away from zero."""
    bounded = max(-_MOST, min(_MOST, value))
    set_value(holder, math.copysign(math.floor(abs(bounded) + 0.5), bounded) + 0.0)


def fire_event(event: Instance, *values: Any) -> Any:
    """``Fire(...)`` of a BindableEvent."""
    event.fire("Event", *values)
    return ()


def invoke(function: Instance, *values: Any) -> Any:
    """``Invoke(...)`` of a BindableFunction: call ``OnInvoke`` in the thread of the caller."""
    callback = function.read("OnInvoke")
    if callback is None:
        raise RuntimeFault(f"OnInvoke of {function.spec.name} '{function.name}' is not set")
    return callback(*values)


def fire_stepped(model: DataModel) -> None:
    """Fire ``Stepped(time, dt)`` and ``PreSimulation(dt)``, before inputs and physics.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    service = model.services["RunService"]
    service.fire("Stepped", model.scheduler.time, TICK_S)
    service.fire("PreSimulation", TICK_S)


def fire_heartbeat(model: DataModel) -> None:
    """Fire ``PostSimulation(dt)`` and ``Heartbeat(dt)``, after physics.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    service = model.services["RunService"]
    service.fire("PostSimulation", TICK_S)
    service.fire("Heartbeat", TICK_S)


def json_encode(service: Instance, value: Any) -> Any:
    """``JSONEncode(value)``, with sorted keys, and null for a value without a JSON form."""
    try:
        text = write_text(value, service.model.scheduler.vm.charge, strict=False)
    except ValueError as error:
        raise RuntimeFault(f"JSONEncode: {error}") from None
    return text.encode("utf-8", "replace").decode("latin-1")


def json_decode(service: Instance, text: Any) -> Any:
    """``JSONDecode(text)``: return the value, or nil for null and for invalid JSON."""
    if not isinstance(text, str):
        return None
    try:
        decoded = text.encode("latin-1").decode()
        return read_text(decoded, service.model.scheduler.vm.charge)
    except ValueError:
        return None


def generate_guid(service: Instance, in_braces: Any) -> Any:
    """``GenerateGUID(inBraces)``, from the random numbers of the world, so replays repeat it."""
    random = service.model.scheduler.vm.random
    number = 0
    for _ in range(4):
        number = number << 32 | random.next()
    text = str(uuid.UUID(int=number, version=4)).upper()
    return text if in_braces is False else f"{{{text}}}"


def url_encode(service: Instance, text: Any) -> Any:
    """``UrlEncode(text)``: percent-encode all characters but letters, digits and ``-_.~``."""
    plain = text_argument(text, 1, "UrlEncode")
    service.model.scheduler.vm.charge(len(plain))
    return account_text(quote(plain.encode("latin-1"), safe=""))


def refuse_request(service: Instance, *values: Any) -> Any:
    """Refuse a request to another host."""
    raise RuntimeFault("HTTP requests are not enabled")


def get_server_time_now(workspace: Instance) -> float:
    """``GetServerTimeNow()``: return the simulation time."""
    return workspace.model.scheduler.time


def add_tag(collection: Instance, instance: Any, tag: Any) -> Any:
    """``AddTag(instance, tag)``: add a tag to an instance."""
    name = text_argument(tag, 2, "AddTag")
    tree.add_tag(instance_argument(instance, 1, "AddTag"), name)
    return ()


def remove_tag(collection: Instance, instance: Any, tag: Any) -> Any:
    """``RemoveTag(instance, tag)``: remove a tag from an instance."""
    name = text_argument(tag, 2, "RemoveTag")
    tree.remove_tag(instance_argument(instance, 1, "RemoveTag"), name)
    return ()


def has_tag(collection: Instance, instance: Any, tag: Any) -> Any:
    """``HasTag(instance, tag)``: return whether an instance has a tag."""
    return text_argument(tag, 2, "HasTag") in instance_argument(instance, 1, "HasTag").tags


def get_tags(collection: Instance, instance: Any) -> Any:
    """``GetTags(instance)``, in the order in which they were added."""
    return members.get_tags(instance_argument(instance, 1, "GetTags"))


def get_tagged(collection: Instance, tag: Any) -> Any:
    """``GetTagged(tag)``: return the instances below ``game``, in the order of creation."""
    return as_list(tree.find_tagged(collection.model, text_argument(tag, 1, "GetTagged")))


def get_all_tags(collection: Instance) -> Any:
    """``GetAllTags()``, sorted."""
    tagged = collection.model.tagged
    collection.model.scheduler.charge(len(tagged) * tree.LISTED_STEPS)
    return as_list(sorted(tagged))


def get_instance_added_signal(collection: Instance, tag: Any) -> Any:
    """``GetInstanceAddedSignal(tag)``, fired when an instance below ``game`` gets the tag."""
    return collection.signal(TAG_ADDED + text_argument(tag, 1, "GetInstanceAddedSignal"))


def get_instance_removed_signal(collection: Instance, tag: Any) -> Any:
    """``GetInstanceRemovedSignal(tag)``, fired when an instance below ``game`` loses the tag."""
    return collection.signal(TAG_REMOVED + text_argument(tag, 1, "GetInstanceRemovedSignal"))


def add_services(classes: ClassTable) -> None:
    """Add the members of the services without state and of their classes."""
    classes.add("ValueBase", setters={"Value": set_value})
    classes.add("IntValue", setters={"Value": set_whole_value})
    classes.add("BindableEvent", methods={"Fire": fire_event})
    classes.add("BindableFunction", methods={"Invoke": invoke})
    classes.add(TAG_SERVICE, methods=methods_in(globals(), "collection"))
    classes.add("Terrain", methods=methods_in(vars(terrain), "terrain"))
    classes.add(
        "RunService",  # scripts always run on a running server
        methods={
            "IsServer": lambda service: True,
            "IsClient": lambda service: False,
            "IsStudio": lambda service: False,
            "IsRunMode": lambda service: False,
            "IsRunning": lambda service: True,
        },
    )
    classes.add("Workspace", methods={"GetServerTimeNow": get_server_time_now})
    classes.add(
        "HttpService",
        methods={
            "JSONEncode": json_encode,
            "JSONDecode": json_decode,
            "GenerateGUID": generate_guid,
            "UrlEncode": url_encode,
            **dict.fromkeys(("GetAsync", "GetSecret", "PostAsync", "RequestAsync"), refuse_request),
        },
    )
    add_lighting(classes)
    add_sounds(classes)
