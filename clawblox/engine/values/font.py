"""``Font``: a family of fonts with a weight and a style."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs

from clawblox.engine.values.enums import EnumItem, enum_check, enum_item
from clawblox.engine.values.value import (
    Getters,
    Value,
    attributes,
    checked,
    expect_contents,
    number,
    optional,
    string,
)
from clawblox.luau.core.numbers import format_number

_SEMI_BOLD: Final = 600  # fonts of at least this weight are bold


@attrs.define(eq=False, repr=False)
class Font(Value):
    """A font.

    Args:
        family: The address of the family.
        weight: An item of ``Enum.FontWeight``.
        style: An item of ``Enum.FontStyle``.
    """

    family: str
    weight: EnumItem
    style: EnumItem

    type_name = "Font"
    getters: ClassVar[Getters] = {
        **attributes(Family="family", Weight="weight", Style="style"),
        "Bold": lambda font: font.weight.number >= _SEMI_BOLD,
    }

    def fill(self, *values: Any) -> None:
        """Restore contents."""
        expect_contents(values, str, EnumItem, EnumItem)
        self.family, self.weight, self.style = values
        if (self.weight.enum.name, self.style.enum.name) != ("FontWeight", "FontStyle"):
            raise ValueError("a Font has items of other enums")

    def text(self) -> str:
        """Return its three parts in braces."""
        parts = (self.family, self.weight.name, self.style.name)
        return f"Font {{ Family = {parts[0]}, Weight = {parts[1]}, Style = {parts[2]} }}"


_weight = optional(enum_check("FontWeight"), enum_item("FontWeight", "Regular"))
_style = optional(enum_check("FontStyle"), enum_item("FontStyle", "Normal"))


@checked(Font.constructors, "new", string, _weight, _style)
def _new(family: str, weight: EnumItem, style: EnumItem) -> Font:
    return Font(family, weight, style)


@checked(Font.constructors, "fromName", string, _weight, _style)
def _from_name(name: str, weight: EnumItem, style: EnumItem) -> Font:
    return Font(f"rbxasset://fonts/families/{name}.json", weight, style)


@checked(Font.constructors, "fromId", number, _weight, _style)
def _from_id(asset: float, weight: EnumItem, style: EnumItem) -> Font:
    return Font(f"rbxassetid://{format_number(asset)}", weight, style)


_WEIGHTS: Final = {
    "ExtraBold": "ExtraBold", "Semibold": "SemiBold", "Bold": "Bold", "Medium": "Medium",
    "Light": "Light", "Black": "Heavy",
}  # fmt: skip
"""The weights of the items of ``Enum.Font``, by the end of their names."""
_FAMILIES: Final = {
    "Antique": "RomanAntique", "Arcade": "PressStart2P", "Bodoni": "AccanthisADFStd",
    "Cartoon": "ComicNeueAngular", "Code": "Inconsolata", "Fantasy": "Balthazar",
    "Garamond": "Guru", "Gotham": "GothamSSm", "Highway": "HighwayGothic", "Legacy": "LegacyArial",
    "SciFi": "Zekton", "SourceSans": "SourceSansPro",
}  # fmt: skip
"""The families whose name is not the rest of the item's name."""


@checked(Font.constructors, "fromEnum", enum_check("Font"))
def _from_enum(item: EnumItem) -> Font:
    style = "Italic" if item.name.endswith("Italic") else "Normal"
    name = item.name.removesuffix("Italic")
    end = next((end for end in _WEIGHTS if name.endswith(end)), "")
    name = name.removesuffix(end)
    weight = enum_item("FontWeight", _WEIGHTS.get(end, "Regular"))
    return _from_name(_FAMILIES.get(name, name), weight, enum_item("FontStyle", style))


def default_font() -> Font:
    """Return the font of new labels."""
    return _from_enum(enum_item("Font", "SourceSans"))
