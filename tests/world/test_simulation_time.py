"""The simulation time of an instance, which is read from a temporary snapshot."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, World
from clawblox.errors import UsageError, WorldExitedError
from tests.support.running import manifest_of, next_event
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


async def test_simulation_time_is_read_from_a_temporary_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path), run_dir=tmp_path / "run") as world:
            started = await world.start()
            earlier = await world.simulation_time()
            saved = (await world.save()).time
            later = await world.simulation_time(started.name)
            assert earlier is not None
            assert later is not None
            assert saved is not None
            assert earlier <= saved <= later
            assert len(manifest_of(tmp_path / "run")["checkpoints"]) == 1
            assert list(scratch.iterdir()) == []
            async with world.events() as events:
                ask(started.port, "POST", "/__die?status=9")
                await next_event(events, "exited")
            with pytest.raises(WorldExitedError):
                await world.simulation_time()
            assert list(scratch.iterdir()) == []
            with pytest.raises(UsageError):
                await world.simulation_time("w001")


def test_a_sync_world_returns_the_simulation_time(tmp_path: Path) -> None:
    with World(dir=make_world(tmp_path), run_dir=tmp_path / "run") as world:
        world.start()
        assert world.simulation_time() is not None
