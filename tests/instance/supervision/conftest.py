"""Every test of supervision names its run directory the same way."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"
