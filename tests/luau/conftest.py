"""Fixtures of the tests of Luau."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _quick_collections() -> Iterator[None]:
    """Exempt the objects of the test process from collections, which scripts ask for."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
