"""``Font``."""

from __future__ import annotations

import pytest

from clawblox.engine.values.enums import ENUM, enum_item
from clawblox.engine.values.font import Font
from tests.engine.values.support import error, run, text

FAMILIES = "rbxasset://fonts/families"


@pytest.mark.parametrize(
    ("expression", "family", "weight", "style"),
    [
        ("Font.new('a.json')", "a.json", "Regular", "Normal"),
        (
            "Font.new('a.json', Enum.FontWeight.Thin, Enum.FontStyle.Italic)",
            "a.json",
            "Thin",
            "Italic",
        ),
        ("Font.fromName('Arial')", f"{FAMILIES}/Arial.json", "Regular", "Normal"),
        ("Font.fromId(12187365364)", "rbxassetid://12187365364", "Regular", "Normal"),
        ("Font.fromEnum(Enum.Font.Arial)", f"{FAMILIES}/Arial.json", "Regular", "Normal"),
        ("Font.fromEnum(Enum.Font.GothamBlack)", f"{FAMILIES}/GothamSSm.json", "Heavy", "Normal"),
        (
            "Font.fromEnum(Enum.Font.SourceSansItalic)",
            f"{FAMILIES}/SourceSansPro.json",
            "Regular",
            "Italic",
        ),
        (
            "Font.fromEnum(Enum.Font.BuilderSansExtraBold)",
            f"{FAMILIES}/BuilderSans.json",
            "ExtraBold",
            "Normal",
        ),
    ],
)
def test_a_font_has_a_family_a_weight_and_a_style(
    expression: str, family: str, weight: str, style: str
) -> None:
    assert text(expression) == f"Font {{ Family = {family}, Weight = {weight}, Style = {style} }}"
    assert run(f"local f = {expression} return f.Family") == family
    assert run(f"return {expression}.Weight == Enum.FontWeight.{weight}")
    assert run(f"return {expression}.Style == Enum.FontStyle.{style}")
    assert run(f"return {expression} == {expression}")


def test_font_of_weight_600_or_more_is_bold() -> None:
    assert run("return Font.new('a', Enum.FontWeight.SemiBold).Bold") is True
    assert run("return Font.new('a', Enum.FontWeight.Medium).Bold") is False


def test_every_font_enum_item_has_a_font_with_a_valid_weight() -> None:
    for name in ENUM.enum("Font").numbers:
        weight = run(f"return Font.fromEnum(Enum.Font.{name}).Weight")
        assert weight.name in ENUM.enum("FontWeight").numbers


def test_invalid_font_is_refused() -> None:
    assert error("Font.new()") == "missing argument #1 to 'new' (string expected)"
    assert "Enum.FontWeight expected" in error("Font.new('a', Enum.Font.Arial)")
    with pytest.raises(ValueError, match="other enums"):
        Font.empty().fill("a", enum_item("Font", "Arial"), enum_item("FontStyle", "Normal"))
    with pytest.raises(TypeError):
        Font.empty().fill("a", 1.0, enum_item("FontStyle", "Normal"))
