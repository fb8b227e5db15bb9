"""Tools: the ``Backpack`` of a player, and the tool that a character holds.

A Tool is held while it is below a character in Workspace: its ``Handle`` is welded to the root
part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from clawblox.engine.characters.character import find_humanoid, find_root
from clawblox.engine.errors import to_luau_text, to_text
from clawblox.engine.instances.containers import open_container
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import instance_argument
from clawblox.engine.instances.spec import methods_in
from clawblox.engine.instances.tree_changes import clone, destroy, set_parent
from clawblox.engine.values.cframe import CFrame, make_cframe

_BACKPACK: Final = "Backpack"
_TOOL: Final = "Tool"
_GRIP: Final = "RightGrip"
_HAND: Final = (1.5, -1.0, 0.0, (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0))
"""Position and rotation of the right hand of a figure, in the space of its root part."""

Json = Any


def fill_backpack(owner: Instance) -> None:
    """Replace a player's tools by copies of those in StarterPack, for a new character.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    backpack = owner.find_child_of_class(_BACKPACK)
    if backpack is not None:
        for tool in _list_tools(backpack):
            destroy(tool)
    pack = owner.model.services.get("StarterPack")
    for item in () if pack is None else tuple(pack.children):
        set_parent(clone(item), open_container(owner, _BACKPACK))


def _list_tools(holder: Instance | None) -> list[Instance]:
    """Return the tools among the children of an instance."""
    children = () if holder is None else holder.children
    return [child for child in children if child.spec.name == _TOOL]


# Holding


def _holder(tool: Instance) -> Instance | None:
    """Return the character that holds a tool, or None."""
    character = tool.parent
    if character is None or not tool.in_workspace:
        return None
    return None if character.find_child_of_class("Humanoid") is None else character


def _move_tool(tool: Instance, parent: Instance | None) -> None:
    """``Parent = parent`` of a tool: move the tool, and equip or unequip it."""
    before = _holder(tool)
    set_parent(tool, parent)
    after = _holder(tool)
    if before is after:
        return
    if before is not None:
        _release(tool, before)
    if after is not None:
        _grip(tool, after)


def _grip(tool: Instance, character: Instance) -> None:
    """Weld the handle to the hand and fire ``Equipped``."""
    root = _root(character)
    handle = tool.find_child("Handle")
    if root is not None and handle is not None and handle.is_a("BasePart"):
        weld = tool.model.make("Weld", name=_GRIP)
        grip: CFrame = tool["Grip"]
        weld.props.update(Part0=root, Part1=handle, C0=make_cframe(*_HAND), C1=grip)
        set_parent(weld, root)
    tool.fire("Equipped")


def _release(tool: Instance, character: Instance) -> None:
    """Remove the weld to the hand and fire ``Unequipped``."""
    root = _root(character)
    for weld in () if root is None else tuple(root.children):
        if weld.name == _GRIP and weld.spec.name == "Weld":
            held = weld.read("Part1")
            if held is not None and (held.parent is tool or held.parent is None):
                destroy(weld)
    tool.fire("Unequipped")


def _root(character: Instance) -> Instance | None:
    humanoid = character.find_child_of_class("Humanoid")
    return None if humanoid is None else find_root(humanoid)


def _release_destroyed(tool: Instance) -> None:
    """Release a tool that is being destroyed."""
    if tool.spec.name == _TOOL:
        character = _holder(tool)
        if character is not None:
            _release(tool, character)


def equip_tool(humanoid: Instance, tool: Any) -> Any:
    """``EquipTool(tool)``: let the character hold this tool only."""
    instance_argument(tool, 1, "EquipTool", _TOOL)
    character = humanoid.parent
    if character is not None and tool.parent is not character:
        unequip_tools(humanoid)
        _move_tool(tool, character)
    return ()


def unequip_tools(humanoid: Instance) -> Any:
    """``UnequipTools()``: move tools to the Backpack, or to Workspace if there is no player."""
    character = humanoid.parent
    players = humanoid.model.services["Players"].children
    owners = (player for player in players if player.read("Character") is character)
    player = next(owners, None)
    for tool in _list_tools(character):
        place = humanoid.model.workspace if player is None else open_container(player, _BACKPACK)
        _move_tool(tool, place)
    return ()


def activate(tool: Instance) -> Any:
    """``Activate()``: fire ``Activated`` if the tool is held and enabled."""
    if tool.read("Enabled") and _holder(tool) is not None:
        tool.fire("Activated")
    return ()


def deactivate(tool: Instance) -> Any:
    """``Deactivate()``: fire ``Deactivated`` if the tool is held."""
    if _holder(tool) is not None:
        tool.fire("Deactivated")
    return ()


# Agents


def equip_named(sender: Instance, data: Json) -> None:
    """Carry out an input ``EquipTool``: let the player hold the first tool with a name.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    name = data.get("name") if isinstance(data, dict) else None
    humanoid = find_humanoid(sender)
    if humanoid is None or not isinstance(name, str):
        return
    tools = _list_tools(sender.find_child_of_class(_BACKPACK))
    tool = next((tool for tool in tools if tool.name == to_luau_text(name)), None)
    if tool is not None:
        equip_tool(humanoid, tool)


def unequip(sender: Instance, data: Json) -> None:
    """Carry out an input ``UnequipTools``.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    humanoid = find_humanoid(sender)
    if humanoid is not None:
        unequip_tools(humanoid)


def _use_held(use: Callable[[Instance], Any], sender: Instance, data: Json) -> None:
    """Carry out an input ``ActivateTool`` or ``DeactivateTool``."""
    for tool in _list_tools(sender.read("Character"))[:1]:
        use(tool)


INPUTS: Final[dict[str, Callable[[Instance, Json], None]]] = {
    "EquipTool": equip_named,
    "UnequipTools": unequip,
    "ActivateTool": partial(_use_held, activate),
    "DeactivateTool": partial(_use_held, deactivate),
}
"""Handlers of agent inputs, by input type; the event of the input fires too."""


def observe_tools(owner: Instance) -> dict[str, Json]:
    """Return the key with a player's tools, the held tool first; empty without tools."""
    held = _list_tools(owner.read("Character"))
    tools = [(tool, True) for tool in held]
    tools += [(tool, False) for tool in _list_tools(owner.find_child_of_class(_BACKPACK))]
    if not tools:
        return {}
    shown = [{"name": to_text(tool.name), "equipped": is_held} for tool, is_held in tools]
    return {"tools": shown}


def add_tools(model: DataModel) -> None:
    """Add the tool members of tools, Humanoids and players."""
    add = model.classes.add
    add("Humanoid", methods=methods_in(globals(), "humanoid"))
    tool_methods = {"Activate": activate, "Deactivate": deactivate}
    add(_TOOL, methods=tool_methods, setters={"Parent": _move_tool})
    model.destroying.append(_release_destroyed)
