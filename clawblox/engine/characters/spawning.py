"""Gives players their characters and chooses the spawn positions."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.characters.character import ROOT_NAME
from clawblox.engine.characters.tools import fill_backpack
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.instances.tree_changes import clone, destroy, set_parent
from clawblox.engine.parts.pivots import part_box
from clawblox.engine.values.libraries import make_default
from clawblox.luau import Vector

SIZE: Final = Vector(2.0, 5.0, 2.0)
MODEL_URL: Final = "asset://player.glb"
HEIGHT: Final = 6.0
SPACING: Final = 3.0
ROW: Final = 4
"""Joining players are placed in rows of this many."""
_ABOVE: Final = 3.0
"""Height of a new character's centre above a SpawnLocation, in studs."""
_UP: Final = (0.0, 1.0, 0.0)
_LOCATION_STEPS: Final = 2  # per SpawnLocation examined


class Spawning:
    """Gives players characters, at a SpawnLocation if Workspace has one for the player.

    Args:
        model: The data model; the methods of players are added to it.
    """

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._locations: dict[int, Instance] | None = None  # None until the first search
        model.moved.append(self._follow)
        described = self.load_character_with_humanoid_description
        model.classes.add(
            "Player",
            methods={
                **bind_methods(self, "player"),
                "LoadCharacterAsync": self.load_character,
                "LoadCharacterWithHumanoidDescriptionAsync": described,
            },
        )

    def spawn(self, joined: Instance) -> None:
        """Give a joining player a first character, without firing ``CharacterAdded``.

        Without SpawnLocations, its position depends on the number of players. With
        ``CharacterAutoLoads`` off, the player gets a character only through ``LoadCharacter``.

        Args:
            joined: The player, already among ``Players``.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        players = self._model.services["Players"]
        if players.read("CharacterAutoLoads"):
            count = len(players.children)
            x = (count % ROW - (ROW - 1) / 2) * SPACING
            self._give_character(joined, Vector(x, HEIGHT, count // ROW * SPACING))

    def load_character(self, player: Instance) -> Any:
        """``LoadCharacter()``, without effect for a player who has left.

        ``CharacterRemoving`` fires, the old character leaves the tree, the new one enters it, and
        ``CharacterAdded`` and ``CharacterAppearanceLoaded`` fire.
        """
        if player.parent is not self._model.services["Players"]:
            return ()
        old = player.read("Character")
        if old is not None:
            player.fire("CharacterRemoving", old)
            if not old.is_destroyed:
                set_parent(old, None)
        character = self._give_character(player, Vector(0.0, HEIGHT, 0.0))
        player.fire("CharacterAdded", character)
        player.fire("CharacterAppearanceLoaded", character)
        return ()

    def load_character_with_humanoid_description(self, player: Instance, description: Any) -> Any:
        """``LoadCharacterWithHumanoidDescription(description)``: the same as ``LoadCharacter``."""
        return self.load_character(player)

    def _give_character(self, player: Instance, otherwise: Vector) -> Instance:
        """Create a player's character.

        Args:
            player: The player.
            otherwise: Position of the character if there is no SpawnLocation for the player.
        """
        model = self._model
        location = self._find_location(player)
        character = model.make("Model")
        character.name = player.name
        root = model.make("Part", name=ROOT_NAME)
        root.props.update(
            Position=otherwise if location is None else _place_above(location),
            Size=SIZE,
            Shape=make_default("Enum.PartType", "Cylinder"),
            Color=make_default("Color3", (0.9, 0.45, 0.3)),
        )
        root.attributes["ModelUrl"] = MODEL_URL
        root.link(character)
        model.make("Humanoid").link(character)
        character.props["PrimaryPart"] = root
        player.change("Character", character)
        set_parent(character, model.workspace)
        _give_screens(player)
        fill_backpack(player)
        return character

    # SpawnLocations

    def _follow(self, instance: Instance) -> None:
        """Add a SpawnLocation that has entered Workspace, or remove it after it has left."""
        if instance.spec.name == "SpawnLocation" and self._locations is not None:
            instance.list_in(self._locations)

    def _find_location(self, player: Instance) -> Instance | None:
        """Return the SpawnLocation for a player's character, or None.

        It is the player's ``RespawnLocation`` if set. Otherwise the players take the other
        SpawnLocations in turn.
        """
        if self._locations is None:
            below = self._model.workspace.descendants()
            found = (each for each in below if each.spec.name == "SpawnLocation")
            self._locations = {location.number: location for location in found}
        if not self._locations:
            return None
        self._model.scheduler.charge(len(self._locations) * _LOCATION_STEPS)
        wanted: Instance | None = player.read("RespawnLocation")
        if wanted is not None and wanted.in_workspace and wanted.read("Enabled"):
            return wanted
        fitting = [self._locations[number] for number in sorted(self._locations)]
        fitting = [location for location in fitting if _admits(location, player)]
        at = self._model.services["Players"].children.index(player)
        return fitting[at % len(fitting)] if fitting else None


def _give_screens(player: Instance) -> None:
    """Copy the children of StarterGui into the PlayerGui of a player who gets a character.

    A copy for an earlier character is replaced, unless ``ResetOnSpawn`` is off.
    """
    starter, gui = player.model.services.get("StarterGui"), player.read("PlayerGui")
    if starter is None or gui is None:
        return
    for screen in tuple(starter.children):
        old = gui.find_child(screen.name)
        if old is not None and screen.read("ResetOnSpawn") is False:
            continue
        if old is not None:
            destroy(old)
        set_parent(clone(screen), gui)


def _admits(location: Instance, player: Instance) -> bool:
    """Return whether a SpawnLocation is for a player: for everyone, or for the player's team."""
    if not location.read("Enabled"):
        return False
    if location.read("Neutral"):
        return True
    same_color = location["TeamColor"].number == player["TeamColor"].number
    return same_color and not player.read("Neutral")


def _place_above(location: Instance) -> Vector:
    """Return the centre of a character that appears above a SpawnLocation."""
    box = part_box(location)
    x, y, z = box.centre
    return Vector(x, y + box.extent(_UP) + _ABOVE, z)
