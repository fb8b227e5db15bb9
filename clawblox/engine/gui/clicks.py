"""The input ``GuiClick``: a player clicks an element of the own GUI."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.instances.instance import Instance

__all__ = ["CLICK", "find_clicked"]

CLICK: Final = "MouseButton1Click"
"""The event that a click fires."""


def find_clicked(player_gui: Instance, element_id: Any) -> Instance | None:
    """Return the element that a click fires its event on.

    Args:
        player_gui: The GUI of the player who clicks.
        element_id: What the input has as ``element_id``, as JSON.

    Returns:
        The element; None if the id is not one, or that of an element elsewhere or of a class
        without the event, so that nothing happens.
    """
    if element_id.__class__ is not int or element_id < 0:
        return None
    element = player_gui.model.find(element_id)
    if element is None or CLICK not in element.spec.event_names:
        return None
    return element if element.is_below(player_gui) else None
