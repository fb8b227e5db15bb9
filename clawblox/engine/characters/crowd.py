"""All characters of a world, and the phase of a tick in which they move."""

from __future__ import annotations

from typing import Any, ClassVar

from clawblox.engine import shapes
from clawblox.engine.characters.character import CHARACTER, Character, find_root
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.parts.parts import Parts
from clawblox.engine.parts.syncing import LINEAR, POSE
from clawblox.engine.saved_state import SavedState, from_json, to_json
from clawblox.engine.slots import Slots
from clawblox.luau import Vector


class Characters(SavedState):
    """The Humanoids below Workspace and their motion.

    The characters of players move first, in the order in which the players joined. All others
    follow in the order in which they entered Workspace. A Humanoid moves its sibling
    ``HumanoidRootPart``, unless the part is anchored.

    A tick calls `find_roots`, applies the changes of scripts to the bodies, calls `move` and then
    steps the bodies.

    Args:
        model: The data model.
        parts: The bodies of parts.
    """

    shape: ClassVar[shapes.Shape] = {
        "characters": [CHARACTER.shape],
        "roots": [(shapes.whole, shapes.whole)],
    }

    def __init__(self, model: DataModel, parts: Parts) -> None:
        self._model = model
        self._parts = parts
        self._by_humanoid: dict[int, Character] = {}
        self._by_root: dict[int, Character] = {}
        model.moved.append(self._follow)

    def _follow(self, instance: Instance) -> None:
        """Add a Humanoid or root that has entered Workspace, or remove it after it has left."""
        number = instance.number
        if instance.spec.name == "Humanoid":
            self._by_humanoid.pop(number, None)
            instance.extra = None
            if instance.in_workspace:
                character = instance.extra = self._by_humanoid[number] = Character(instance)
                root = self._find_root(character, self._joined())
                if root is not None and root.number not in self._by_root:
                    self._by_root[root.number] = character
                    self._parts.make_character(root)
        elif number in self._by_root and not instance.in_workspace:
            del self._by_root[number]
            self._parts.forget_character(instance)

    # Phases of a tick

    def find_roots(self) -> None:
        """Mark the parts that are roots of characters for physics, before bodies move."""
        found: dict[int, Character] = {}
        joined = self._joined()
        last = len(joined)
        characters = list(self._by_humanoid.values())
        if joined and len(characters) > 1:
            characters.sort(key=lambda each: joined.get(each.humanoid.parent, last))
        for character in characters:
            root = self._find_root(character, joined)
            if root is not None:
                found.setdefault(root.number, character)
        before, self._by_root = self._by_root, found
        if before.keys() != found.keys():
            for number in before:
                if number not in found:
                    self._parts.forget_character(self._part(number))
            for number in found:
                if number not in before:
                    self._parts.make_character(self._part(number))

    def _joined(self) -> dict[Instance | None, int]:
        """Return the position of each player's character in the order of joining."""
        players = self._model.services["Players"].children
        return {player.props.get("Character"): at for at, player in enumerate(players)}

    @staticmethod
    def _find_root(character: Character, joined: dict[Instance | None, int]) -> Instance | None:
        """Return the part that a character moves, or None.

        An anchored root is an ordinary part unless its model belongs to a player.
        """
        root = find_root(character.humanoid)
        if root is None or not root.in_workspace:
            return None
        is_free = not root.read("Anchored") or character.humanoid.parent in joined
        return root if is_free else None

    def _part(self, number: int) -> Instance:
        part = self._model.find(number)
        assert part is not None  # `_follow` drops a root that leaves Workspace
        return part

    def move(self) -> None:
        """Read the requests to Humanoids, end finished walks, and move the bodies.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        scheduler, space = self._model.scheduler, self._parts.space
        space.prepare()
        self._take_written()
        active = list(self._by_root.items())
        with scheduler.phase("MoveToFinished event"):
            for _, character in active:
                if character.read_requests(scheduler.tick):
                    character.humanoid.fire("MoveToFinished", False)
            for number, character in active:
                if number in self._by_root and number in space:
                    ended = character.walker.steer(space.position(number), scheduler.tick)
                    if ended is not None:
                        character.humanoid.fire("MoveToFinished", ended)
        with scheduler.phase("Humanoid Running event"):
            for number, character in active:
                if number in self._by_root and number in space:
                    self._move_root(self._part(number), character)

    def _take_written(self) -> None:
        """Apply the positions and velocities that scripts have given to roots."""
        written = self._parts.written
        for number, marks in written.items():
            character = self._by_root.get(number)
            if character is None:
                continue
            if marks & POSE:
                character.walker.halt()
            velocity: Vector | None = self._part(number).props.pop(LINEAR, None)
            if velocity is not None:
                character.walker.throw((velocity.x, velocity.y, velocity.z))
        written.clear()

    def _move_root(self, root: Instance, character: Character) -> None:
        if root.read("Anchored"):
            return
        gait = character.gait(self._model.workspace.read("Gravity"))
        tick = self._model.scheduler.tick
        moved = character.walker.move(self._parts.space, root.number, gait, tick)
        character.show_motion(None if self._parts.is_placed(root) else root, moved)

    # Snapshots

    def document(self, slots: Slots) -> Any:
        """Return the state of all characters for a snapshot."""
        return {
            "characters": to_json([CHARACTER], self._by_humanoid.values(), slots),
            "roots": [
                [root, character.humanoid.number] for root, character in self._by_root.items()
            ],
        }

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore the characters from a snapshot, after the tree.

        Raises:
            ValueError: The snapshot is damaged.
        """
        for character in from_json([CHARACTER], document["characters"], slots):
            number = character.humanoid
            humanoid = self._model.find(number)
            if humanoid is None or not humanoid.is_a("Humanoid"):
                raise ValueError(f"the snapshot has no Humanoid {number}")
            character.humanoid = humanoid
            humanoid.extra = self._by_humanoid[number] = character
        for root, number in document["roots"]:
            part, moved = self._model.find(root), self._by_humanoid.get(number)
            if part is None or moved is None or "BasePart" not in part.spec.lineage:
                raise ValueError(f"the snapshot has no character {number} with the root {root}")
            self._by_root[root] = moved
