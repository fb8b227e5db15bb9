"""A world whose recordings the tests repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.lives import dice_world


@pytest.fixture(scope="module")
def dice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dice_world(tmp_path_factory.mktemp("worlds"))
