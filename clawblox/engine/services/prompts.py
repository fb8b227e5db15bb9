"""``ClickDetector`` and ``ProximityPrompt``: actions of agents on nearby parts.

An agent identifies a part by its entity id. The detector or prompt is a child of the part, of one
of its attachments, or of a model that contains the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from clawblox.engine import shapes
from clawblox.engine.errors import to_text
from clawblox.engine.instances.attributes import shortest
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.parts.reach import is_within_reach
from clawblox.engine.saved_state import Layouts, SavedState, entries, object_slot
from clawblox.engine.scheduler import ticks_in
from clawblox.foreign_values import whole_number
from clawblox.server import Json

_CLICK: Final = "ClickDetector"
_PROMPT: Final = "ProximityPrompt"


def _find_part(model: DataModel, data: Json) -> Instance | None:
    """Return the part whose ``id`` is in an input, or None."""
    number = whole_number(data.get("id")) if isinstance(data, dict) else None
    part = None if number is None else model.find(number)
    return part if part is not None and part.is_a("BasePart") else None


def _find_use(part: Instance, class_name: str) -> Instance | None:
    """Return the closest detector or prompt of a part in the tree, or None."""
    for holder in _holders(part):
        for child in holder.children:
            if child.spec.name == class_name:
                return child
    return None


def _holders(part: Instance) -> Iterator[Instance]:
    yield part
    yield from (child for child in part.children if child.spec.name == "Attachment")
    for ancestor in part.ancestors():
        if ancestor is part.model.workspace:
            return
        yield ancestor


def click_part(player: Instance, data: Json) -> None:
    """Carry out an input ``Click``: fire ``MouseClick`` if the part is near enough.

    Args:
        player: The sender.
        data: ``id`` of the entity. Other data is ignored.

    Raises:
        WorldHalted: The error of a handler halts the world.
    """
    part = _find_part(player.model, data)
    detector = None if part is None else _find_use(part, _CLICK)
    if part is None or detector is None:
        return
    if is_within_reach(player, part, detector.read("MaxActivationDistance")):
        detector.fire("MouseClick", player)


class Prompts(SavedState):
    """The prompts that players hold.

    Args:
        model: The data model.
    """

    layouts: ClassVar[Layouts] = {
        "_holds": entries(object_slot(Instance), object_slot(Instance), shapes.whole)
    }

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._holds: dict[Instance, tuple[Instance, int]] = {}  # with the tick in which they end

    def hold(self, player: Instance, data: Json) -> None:
        """Carry out an input ``Prompt``: hold a prompt until it triggers.

        A prompt that the player already holds ends.

        Args:
            player: The sender.
            data: ``id`` of the entity. Other data only ends the prompt that the player holds.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        self._end(player)
        part = _find_part(self._model, data)
        prompt = None if part is None else _find_use(part, _PROMPT)
        if prompt is None or not _is_usable(prompt, player):
            return
        seconds = prompt.read("HoldDuration")
        if seconds <= 0.0:
            self._trigger(prompt, player)
        else:
            self._holds[player] = (prompt, self._model.scheduler.tick + ticks_in(seconds))
            self._fire(prompt, "PromptButtonHoldBegan", player)

    def advance(self) -> None:
        """Trigger prompts that were held long enough, and end prompts out of reach.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        if not self._holds:
            return
        tick = self._model.scheduler.tick
        for player, (prompt, due) in tuple(self._holds.items()):
            if self._holds.get(player) != (prompt, due):
                continue  # ended by a handler
            is_usable = _is_usable(prompt, player)
            if not is_usable or due <= tick:
                self._end(player)
                if is_usable:
                    self._trigger(prompt, player)

    def _end(self, player: Instance) -> None:
        held = self._holds.pop(player, None)
        if held is not None:
            self._fire(held[0], "PromptButtonHoldEnded", player)

    def _trigger(self, prompt: Instance, player: Instance) -> None:
        self._fire(prompt, "Triggered", player)
        self._fire(prompt, "TriggerEnded", player)

    def _fire(self, prompt: Instance, event: str, player: Instance) -> None:
        """Fire an event of a prompt, and the event of the service."""
        prompt.fire(event, player)
        service = self._model.services.get("ProximityPromptService")
        if service is not None:
            name = event if event.startswith("Prompt") else f"Prompt{event}"
            service.fire(name, prompt, player)


def _is_usable(prompt: Instance, player: Instance) -> bool:
    part = _prompted_part(prompt)
    if part is None or player.parent is None or not prompt.read("Enabled"):
        return False
    return is_within_reach(player, part, prompt.read("MaxActivationDistance"))


def _prompted_part(prompt: Instance) -> Instance | None:
    """Return the part that must be near: the prompt's part, or the first part of its model."""
    holder = prompt.parent
    if holder is not None and holder.spec.name == "Attachment":
        holder = holder.parent
    if holder is None or holder.is_a("BasePart"):
        return holder
    primary: Instance | None = holder.read("PrimaryPart")
    if primary is not None:
        return primary
    return next((each for each in holder.descendants() if each.is_a("BasePart")), None)


def describe_uses(part: Instance) -> Iterator[tuple[str, Json]]:
    """Iterate over the entity keys for the detector and the prompt that are children of a part."""
    for child in part.children:
        if child.spec.name == _CLICK:
            yield "click", {"distance": shortest(child.read("MaxActivationDistance"))}
        elif child.spec.name == _PROMPT and child.read("Enabled"):
            shown = {
                "action": to_text(child.read("ActionText")),
                "object": to_text(child.read("ObjectText")),
                "hold_s": shortest(child.read("HoldDuration")),
                "distance": shortest(child.read("MaxActivationDistance")),
            }
            yield "prompt", shown
