"""Elements of the GUI as JSON, for spectators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from clawblox.engine.errors import to_text
from clawblox.engine.instances.attributes import attribute_json
from clawblox.engine.instances.instance import Instance
from clawblox.engine.rounding import shortest
from clawblox.engine.values.color3 import Color3
from clawblox.engine.values.udim import UDim2
from clawblox.engine.values.vector2 import Vector2
from clawblox.luau import Vector

Json = Any


def color_json(color: Color3) -> list[float]:
    """Return a colour as three numbers from 0 to 1."""
    return [shortest(part) for part in color.contents()]


def _size_json(size: UDim2) -> dict[str, Json]:
    return {
        "x_scale": attribute_json(shortest(size.x.scale)),
        "x_offset": int(size.x.offset),
        "y_scale": attribute_json(shortest(size.y.scale)),
        "y_offset": int(size.y.offset),
    }


def _point_json(point: Vector2) -> list[float]:
    return [shortest(part) for part in point.contents()]


def _whole_json(value: float) -> int:
    return int(value)


def _plain(value: Json) -> Json:
    return value


_KEYS: Final[tuple[tuple[str, str, Callable[[Any], Json]], ...]] = (
    ("position", "Position", _size_json),
    ("size", "Size", _size_json),
    ("anchor_point", "AnchorPoint", _point_json),
    ("rotation", "Rotation", attribute_json),
    ("z_index", "ZIndex", _whole_json),
    ("visible", "Visible", _plain),
    ("background_color", "BackgroundColor3", color_json),
    ("background_transparency", "BackgroundTransparency", attribute_json),
    ("border_color", "BorderColor3", color_json),
    ("border_size_pixel", "BorderSizePixel", _whole_json),
    ("text", "Text", to_text),
    ("text_color", "TextColor3", color_json),
    ("text_size", "TextSize", attribute_json),
    ("text_transparency", "TextTransparency", attribute_json),
    ("text_x_alignment", "TextXAlignment", to_text),
    ("text_y_alignment", "TextYAlignment", to_text),
    ("image", "Image", to_text),
    ("image_color", "ImageColor3", color_json),
    ("image_transparency", "ImageTransparency", attribute_json),
    ("display_order", "DisplayOrder", _whole_json),
    ("enabled", "Enabled", _plain),
)
"""The keys of an element, the properties they show, and how."""


def gui_json(player_gui: Instance) -> list[Json]:
    """Return one tree for each child of a PlayerGui.

    Elements of classes that are neither a ScreenGui nor drawn on one are left out, with all that is
    below them.
    """
    return [_element_json(child) for child in player_gui.children if _is_element(child)]


def _is_element(instance: Instance) -> bool:
    return instance.is_a("GuiObject") or instance.is_a("ScreenGui")


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
    """Return the first BillboardGui of a part, with its direct TextLabels; None without one."""
    billboard = next((each for each in part.children if each.is_a("BillboardGui")), None)
    if billboard is None or not billboard.read("Enabled"):
        return None
    labels = [each for each in billboard.children if each.is_a("TextLabel")]
    return {
        "studs_offset": _vector_json(billboard.read("StudsOffset")),
        "always_on_top": billboard.read("AlwaysOnTop"),
        "labels": [
            {
                "text": to_text(label.read("Text")),
                "color": color_json(label.read("TextColor3")),
                "size": attribute_json(label.read("TextSize")),
            }
            for label in labels
        ],
    }


def _vector_json(vector: Vector) -> list[float]:
    return [shortest(part) for part in (vector.x, vector.y, vector.z)]
