"""A world on the kit, and a recorded run of it that the tests repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.lives import BETS, dice_world, recorded_lives


@pytest.fixture(scope="session")
def dice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dice_world(tmp_path_factory.mktemp("worlds"))


@pytest.fixture(scope="session")
def lives(dice: Path) -> Path:
    """The run of a world with two lives, below a base path; the world is beside it."""
    return recorded_lives(dice, dice.parent / "lives", BETS, rounds=12, base_path="/dice")
