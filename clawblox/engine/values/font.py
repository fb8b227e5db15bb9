"""``Font``: a family of fonts with a weight and a style."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from clawblox.engine.values.enums import EnumItem, enum_check, enum_item
from clawblox.engine.values.value import (
    Getters,
    Record,
    checked,
    members,
    number,
    optional,
    string,
)
from clawblox.luau.core.numbers import format_number

_SEMI_BOLD: Final = 600  # fonts of at least this weight are bold


class Font(Record):
    """The address of a family, an ``Enum.FontWeight`` and an ``Enum.FontStyle``."""

    __slots__ = ()

    type_name = "Font"
    kinds = (str, EnumItem, EnumItem)
    getters: ClassVar[Getters] = {
        **members("Family", "Weight", "Style"),
        "Bold": lambda font: font["Weight"].number >= _SEMI_BOLD,
    }

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        super().fill(*values)
        if [item.enum.name for item in values[1:]] != ["FontWeight", "FontStyle"]:
            raise ValueError("a Font has items of other enums")

    def text(self) -> str:
        """Return the three parts in braces."""
        family, weight, style = self.contents()
        return f"Font {{ Family = {family}, Weight = {weight.name}, Style = {style.name} }}"


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
"""The families whose name differs from the rest of the item's name."""


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
