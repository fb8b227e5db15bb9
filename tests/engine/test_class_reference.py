"""The reference of classes says what the engine has."""

from __future__ import annotations

from docs.engine_classes import PAGE, render_page


def test_the_reference_of_classes_is_what_the_engine_has() -> None:
    assert PAGE.read_text() == render_page(), "run: python -m docs.engine_classes"
