"""The classes of the GUI, as data; see `instances.classes` for what a row says."""

from __future__ import annotations

import math
from typing import Final

from clawblox.engine.instances.kinds import ENUM_NAME
from clawblox.engine.instances.spec import NEVER, ClassSpec, Event, Property

_BLACK: Final = (0.0, 0.0, 0.0)
_WHITE: Final = (1.0, 1.0, 1.0)
_BORDER: Final = (0.1, 0.1, 0.1)
_SHARE: Final = (0.0, 1.0)
_WHOLE: Final = (-(2.0**31), 2.0**31 - 1.0)
_PIXELS: Final = (0.0, 2.0**31 - 1.0)
_NO_SIZE: Final = (0.0, 0.0, 0.0, 0.0)


def _share(default: float) -> Property:
    return Property("number", default, limits=_SHARE)


def _text_properties() -> dict[str, Property]:
    return {
        "Text": Property("string", ""),
        "TextColor3": Property("Color3", _BLACK),
        "TextSize": Property("number", 14.0, limits=(1.0, 2.0**31 - 1.0)),
        "TextTransparency": _share(0.0),
        "TextStrokeColor3": Property("Color3", _BLACK),
        "TextStrokeTransparency": _share(1.0),
        "TextScaled": Property("boolean", False),
        "TextWrapped": Property("boolean", False),
        "RichText": Property("boolean", False),
        "TextXAlignment": Property(f"{ENUM_NAME}Enum.TextXAlignment", "Center"),
        "TextYAlignment": Property(f"{ENUM_NAME}Enum.TextYAlignment", "Center"),
        "Font": Property(f"{ENUM_NAME}Enum.Font", "SourceSans"),
    }


def _image_properties() -> dict[str, Property]:
    return {
        "Image": Property("string", ""),
        "ImageColor3": Property("Color3", _WHITE),
        "ImageTransparency": _share(0.0),
    }


ROWS: Final = (
    ClassSpec("PlayerGui", creatable=False),
    ClassSpec("GuiBase2d", creatable=False),
    ClassSpec(
        "LayerCollector",
        "GuiBase2d",
        {
            "Enabled": Property("boolean", True),
            "ResetOnSpawn": Property("boolean", True),
        },
        creatable=False,
    ),
    ClassSpec(
        "ScreenGui",
        "LayerCollector",
        {
            "DisplayOrder": Property("number", 0.0, limits=_WHOLE),
            "IgnoreGuiInset": Property("boolean", False),
        },
    ),
    ClassSpec(
        "BillboardGui",
        "LayerCollector",
        {
            "Size": Property("UDim2", (0.0, 100.0, 0.0, 50.0)),
            "StudsOffset": Property("Vector3", (0.0, 0.0, 0.0)),
            "AlwaysOnTop": Property("boolean", False),
            "MaxDistance": Property("number", math.inf),
            "Adornee": Property("Instance"),
        },
    ),
    ClassSpec(
        "GuiObject",
        "GuiBase2d",
        {
            "Size": Property("UDim2", (0.0, 100.0, 0.0, 100.0)),
            "Position": Property("UDim2", _NO_SIZE),
            "AnchorPoint": Property("Vector2", (0.0, 0.0)),
            "Rotation": Property("number", 0.0),
            "ZIndex": Property("number", 1.0, limits=_WHOLE),
            "LayoutOrder": Property("number", 0.0, limits=_WHOLE),
            "Visible": Property("boolean", True),
            "Active": Property("boolean", False),
            "ClipsDescendants": Property("boolean", False),
            "BackgroundColor3": Property("Color3", _WHITE),
            "BackgroundTransparency": _share(0.0),
            "BorderColor3": Property("Color3", _BORDER),
            "BorderSizePixel": Property("number", 1.0, limits=_PIXELS),
        },
        {"MouseEnter": Event(when=NEVER), "MouseLeave": Event(when=NEVER)},
        creatable=False,
    ),
    ClassSpec("Frame", "GuiObject"),
    ClassSpec(
        "TextLabel",
        "GuiObject",
        {**_text_properties(), "BackgroundTransparency": _share(1.0)},
    ),
    ClassSpec(
        "ImageLabel",
        "GuiObject",
        {**_image_properties(), "BackgroundTransparency": _share(1.0)},
    ),
    ClassSpec(
        "GuiButton",
        "GuiObject",
        {"AutoButtonColor": Property("boolean", True)},
        {
            "MouseButton1Click": Event(when="with an input GuiClick of the player who sees it"),
            "MouseButton1Down": Event(when=NEVER),
            "MouseButton1Up": Event(when=NEVER),
            "Activated": Event(when=NEVER),
        },
        creatable=False,
    ),
    ClassSpec("TextButton", "GuiButton", _text_properties()),
    ClassSpec("ImageButton", "GuiButton", _image_properties()),
    ClassSpec("UIComponent", creatable=False),
    ClassSpec("UICorner", "UIComponent", {"CornerRadius": Property("UDim", (0.0, 8.0))}),
)
"""The classes, a base before the classes that extend it."""
