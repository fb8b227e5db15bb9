"""The process that is forked for each look at restored worlds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine import torture
from tests.support.template import running_template


@pytest.fixture(scope="package", autouse=True)
def _engine_template() -> Iterator[None]:
    with running_template("engine", "luau") as torture.template:
        yield
    torture.template = None
