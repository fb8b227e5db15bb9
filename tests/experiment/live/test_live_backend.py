"""The worlds of an experiment are open once, and opened again after a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError
from clawblox.experiment.live.live_backend import SharedWorlds
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


async def test_a_world_is_open_once_and_opened_again_after_a_failure(tmp_path: Path) -> None:
    worlds = SharedWorlds()
    async with Tasks() as tasks:
        tasks.start_soon(worlds.serve)
        for _ in range(2):
            with pytest.raises(ClawbloxError, match="counter"):
                await worlds.open(tmp_path / "counter")
        await run_blocking(make_world, tmp_path)
        world = await worlds.open(tmp_path / "counter")
        assert await worlds.open(tmp_path / "counter") is world
