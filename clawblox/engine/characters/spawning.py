"""How players get their characters."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.characters.character import ROOT_NAME
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.values.libraries import make_default
from clawblox.luau import Vector

SIZE: Final = Vector(2.0, 5.0, 2.0)
MODEL_URL: Final = "asset://player.glb"
HEIGHT: Final = 6.0
SPACING: Final = 3.0
ROW: Final = 4
"""Players who join are put into rows of this many."""


def spawn_character(player: Instance) -> None:
    """Give a player who joins the first character; ``CharacterAdded`` does not fire.

    It stands at a place of its own, by the number of players. With ``CharacterAutoLoads`` off
    there is none until ``LoadCharacter``.

    Args:
        player: The player, already among ``Players``.

    Raises:
        WorldHalted: A handler fails.
    """
    players = player.model.services["Players"]
    if players.read("CharacterAutoLoads"):
        count = len(players.children)
        x = (count % ROW - (ROW - 1) / 2) * SPACING
        _give_character(player, Vector(x, HEIGHT, count // ROW * SPACING))


def load_character(player: Instance) -> Any:
    """``LoadCharacter()``; nothing happens to a player who has left.

    ``CharacterRemoving`` fires, the old character leaves the tree, the new one enters it, and
    ``CharacterAdded`` fires.
    """
    if player.parent is not player.model.services["Players"]:
        return ()
    old = player.read("Character")
    if old is not None:
        player.fire("CharacterRemoving", old)
        if not old.is_destroyed:
            player.model.set_parent(old, None)
    player.fire("CharacterAdded", _give_character(player, Vector(0.0, HEIGHT, 0.0)))
    return ()


def _give_character(player: Instance, at: Vector) -> Instance:
    model = player.model
    character = model.make("Model")
    character.name = player.name
    root = model.make("Part", name=ROOT_NAME)
    root.props.update(
        Position=at,
        Size=SIZE,
        Shape=make_default("Enum.PartType", "Cylinder"),
        Color=make_default("Color3", (0.9, 0.45, 0.3)),
    )
    root.attributes["ModelUrl"] = MODEL_URL
    root.link(character)
    model.make("Humanoid").link(character)
    character.props["PrimaryPart"] = root
    player.change("Character", character)
    model.set_parent(character, model.workspace)
    return character


def add_spawning(classes: ClassTable) -> None:
    """Give players ``LoadCharacter``."""
    classes.add("Player", methods={"LoadCharacter": load_character})
