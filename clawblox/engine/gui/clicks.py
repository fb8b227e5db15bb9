"""The input ``GuiClick``: a player clicks an element of the own GUI."""

from __future__ import annotations

import re
from typing import Any, Final

from clawblox.engine.instances.instance import Instance

_DIGITS: Final = re.compile(r"[0-9]{1,19}")

CLICK: Final = "MouseButton1Click"
"""The event that a click fires."""


def find_clicked(player_gui: Instance, element_id: Any) -> Instance | None:
    """Return the element that a click fires its event on.

    Args:
        player_gui: The GUI of the player who clicks.
        element_id: What the input has as ``element_id``, as JSON: a number, or its digits.

    Returns:
        The element; None if the id is not one, or that of an element elsewhere or of a class
        without the event, so that nothing happens.
    """
    number = _read_number(element_id)
    element = None if number is None else player_gui.model.find(number)
    if element is None or CLICK not in element.spec.event_names:
        return None
    return element if element.is_below(player_gui) else None


def _read_number(element_id: Any) -> int | None:
    if element_id.__class__ is str and _DIGITS.fullmatch(element_id):
        return int(element_id)
    return element_id if element_id.__class__ is int else None
