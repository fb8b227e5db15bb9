"""The nearest name is a plausible intended name, or None."""

from __future__ import annotations

import pytest

from clawblox.spelling import nearest_name


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("rnu", ["run", "resume"], "run"),
        ("sp", ["ps", "up"], "ps"),
        ("nru", ["run"], None),
        ("on", ["no", "nor"], "no"),
        ("helth_timeout", ["health_timeout", "timeout"], "health_timeout"),
        ("min_players", ["max_players"], None),
        ("", ["run"], None),
        ("run", [], None),
        ("anew", ["new"], "new"),
    ],
)
def test_only_misspellings_have_a_nearest_name(
    written: str, known: list[str], meant: str | None
) -> None:
    assert nearest_name(written, known) == meant
