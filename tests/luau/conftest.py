"""Fixtures of the tests of Luau."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _quick_collections() -> Iterator[None]:
    """Exclude the objects of the test process from collections requested by scripts."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
