"""Runs that the tests of several pages read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.families import make_family


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(tmp_path_factory.mktemp("family"))
