"""The GUI of players: its classes, its elements as JSON for spectators, and clicks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from clawblox.engine.errors import to_text
from clawblox.engine.instances.attributes import attribute_json, shortest
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.kinds import ENUM_NAME
from clawblox.engine.instances.looks import with_looks
from clawblox.engine.instances.spec import EventSpec, Property, class_row
from clawblox.engine.values.color3 import Color3
from clawblox.engine.values.udim import UDim2
from clawblox.engine.values.vector2 import Vector2
from clawblox.engine.values.vector3 import triple

_WHITE: Final = (1.0, 1.0, 1.0)
_SHARE: Final = (0.0, 1.0)
_WHOLE: Final = (-(2.0**31), 2.0**31 - 1.0)
_PIXELS: Final = (0.0, 2.0**31 - 1.0)


def _share(default: float) -> Property:
    return Property("number", default, limits=_SHARE)


_TEXT: Final[dict[str, Any]] = {
    "Text": Property("string", ""),
    "TextColor3": Property("Color3", (0.0, 0.0, 0.0)),
    "TextSize": Property("number", 14.0, limits=(1.0, 2.0**31 - 1.0)),
    "TextTransparency": _share(0.0),
    "TextXAlignment": Property(f"{ENUM_NAME}Enum.TextXAlignment", "Center"),
    "TextYAlignment": Property(f"{ENUM_NAME}Enum.TextYAlignment", "Center"),
}
_IMAGE: Final[dict[str, Any]] = {
    "Image": Property("string", ""),
    "ImageColor3": Property("Color3", _WHITE),
    "ImageTransparency": _share(0.0),
}
_ROWS: Final = (
    class_row("PlayerGui", creatable=False),
    class_row("GuiBase2d", creatable=False),
    class_row(
        "LayerCollector",
        "GuiBase2d",
        creatable=False,
        Enabled=Property("boolean", True),
    ),
    class_row(
        "ScreenGui",
        "LayerCollector",
        DisplayOrder=Property("number", 0.0, limits=_WHOLE),
    ),
    class_row(
        "BillboardGui",
        "LayerCollector",
        Size=Property("UDim2", (0.0, 100.0, 0.0, 50.0)),
        StudsOffset=Property("Vector3", (0.0, 0.0, 0.0)),
        AlwaysOnTop=Property("boolean", False),
    ),
    class_row(
        "GuiObject",
        "GuiBase2d",
        creatable=False,
        Size=Property("UDim2", (0.0, 100.0, 0.0, 100.0)),
        Position=Property("UDim2", (0.0, 0.0, 0.0, 0.0)),
        AnchorPoint=Property("Vector2", (0.0, 0.0)),
        Rotation=Property("number", 0.0),
        ZIndex=Property("number", 1.0, limits=_WHOLE),
        Visible=Property("boolean", True),
        BackgroundColor3=Property("Color3", _WHITE),
        BackgroundTransparency=_share(0.0),
        BorderColor3=Property("Color3", (0.1, 0.1, 0.1)),
        BorderSizePixel=Property("number", 1.0, limits=_PIXELS),
    ),
    class_row("Frame", "GuiObject"),
    class_row("TextLabel", "GuiObject", **_TEXT, BackgroundTransparency=_share(1.0)),
    class_row("ImageLabel", "GuiObject", **_IMAGE, BackgroundTransparency=_share(1.0)),
    class_row(
        "GuiButton",
        "GuiObject",
        {
            "MouseButton1Click": EventSpec(when="with an input GuiClick of its player"),
        },
        creatable=False,
    ),
    class_row("TextButton", "GuiButton", **_TEXT),
    class_row("TextBox", "GuiObject", **_TEXT),
    class_row("ImageButton", "GuiButton", **_IMAGE),
    class_row("UIComponent", creatable=False),
    class_row("UICorner", "UIComponent", is_data=True),
)

GUI_ROWS: Final = with_looks(_ROWS)
"""The classes, each after its base."""


Json = Any


def numbers_json(value: Color3 | Vector2) -> list[float]:
    """Return the numbers of a colour, each from 0 to 1, or of a point."""
    return [shortest(part) for part in value.contents()]


def _size_json(size: UDim2) -> dict[str, Json]:
    return {
        "x_scale": attribute_json(shortest(size.x.scale)),
        "x_offset": int(size.x.offset),
        "y_scale": attribute_json(shortest(size.y.scale)),
        "y_offset": int(size.y.offset),
    }


_KEYS: Final[tuple[tuple[str, str, Callable[[Any], Json]], ...]] = (
    ("position", "Position", _size_json),
    ("size", "Size", _size_json),
    ("anchor_point", "AnchorPoint", numbers_json),
    ("rotation", "Rotation", attribute_json),
    ("z_index", "ZIndex", int),
    ("visible", "Visible", bool),
    ("background_color", "BackgroundColor3", numbers_json),
    ("background_transparency", "BackgroundTransparency", attribute_json),
    ("border_color", "BorderColor3", numbers_json),
    ("border_size_pixel", "BorderSizePixel", int),
    ("text", "Text", to_text),
    ("text_color", "TextColor3", numbers_json),
    ("text_size", "TextSize", attribute_json),
    ("text_transparency", "TextTransparency", attribute_json),
    ("text_x_alignment", "TextXAlignment", to_text),
    ("text_y_alignment", "TextYAlignment", to_text),
    ("image", "Image", to_text),
    ("image_color", "ImageColor3", numbers_json),
    ("image_transparency", "ImageTransparency", attribute_json),
    ("display_order", "DisplayOrder", int),
    ("enabled", "Enabled", bool),
)
"""The keys of an element, with property and conversion function."""


def gui_json(player_gui: Instance) -> list[Json]:
    """Return one tree for each child of a PlayerGui.

    Elements that are neither a ScreenGui nor drawn on a ScreenGui are omitted with their
    descendants.
    """
    return [
        _element_json(child)
        for child in player_gui.children
        if child.is_a("GuiObject") or child.is_a("ScreenGui")
    ]


def _element_json(element: Instance) -> Json:
    shown: dict[str, Json] = {
        "id": element.number,
        "type": element.spec.name,
        "name": to_text(element.name),
    }
    for key, name, to_json in _KEYS:
        if name in element.spec.properties:
            shown[key] = to_json(element.read(name))
    shown["children"] = gui_json(element)
    return shown


def billboard_json(part: Instance) -> Json:
    """Return the first BillboardGui of a part, with its direct TextLabels, or None."""
    billboard = next((child for child in part.children if child.is_a("BillboardGui")), None)
    if billboard is None or not billboard.read("Enabled"):
        return None
    labels = [child for child in billboard.children if child.is_a("TextLabel")]
    return {
        "studs_offset": [shortest(part) for part in triple(billboard.read("StudsOffset"))],
        "always_on_top": billboard.read("AlwaysOnTop"),
        "labels": [
            {
                "text": to_text(label.read("Text")),
                "color": numbers_json(label.read("TextColor3")),
                "size": attribute_json(label.read("TextSize")),
            }
            for label in labels
        ],
    }


_DIGITS: Final = re.compile(r"[0-9]{1,19}")

CLICK: Final = "MouseButton1Click"
"""The event that a click fires."""


def find_clicked(player_gui: Instance, element_id: Any) -> Instance | None:
    """Return the element whose event a click fires.

    Args:
        player_gui: The GUI of the player who clicks.
        element_id: The ``element_id`` of the input: a number, or its digits as text.

    Returns:
        The element; None if the id is invalid or its element is elsewhere or of a class without
        the event. In that case the click has no effect.
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
