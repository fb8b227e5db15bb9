"""The run that most of these tests archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.runs import Run, make_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)
