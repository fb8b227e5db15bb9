"""An instance whose processes use more memory than its world.toml allows is ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox import AsyncWorld, WorldExitedBeforeReadyError, WorldExitedError
from tests.instance.supervision.support import LIFE, now
from tests.support.crowd import join, kinds, leftovers, past, until
from tests.support.processes import marked_processes
from tests.support.running import manifest_of
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio

LIMITED = '[limits]\nmemory = "90 MB"\n'
OVER = r"its processes used \d+ MB of memory, and \[limits\] memory of its world.toml is 90 MB"


def grow(port: int, megabytes: int) -> None:
    """Make a child of the world use memory."""
    assert ask(port, "POST", f"/__grow?mb={megabytes}").status == 200


async def test_instance_over_its_memory_limit_is_ended_unlike_its_sibling(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra=LIMITED)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        batch = await world.start_many(2, run_dir=run)
        await past(events)
        greedy = batch["w001"]
        grow(batch["w000"].port, 1)
        grow(greedy.port, 100)
        seen = await until(events, "exited", ["w001"])
        assert kinds(seen, "w001") == ["halted", "exited"]
        assert kinds(seen, "w000") == []
        with pytest.raises(WorldExitedError, match=OVER):
            await world.save(instance="w001")
        assert world.instances == ("w000",)
        await world.stop_all()
    status = await now(run, "w001")
    assert status.state == "halted"
    assert status.halt is not None
    assert manifest_of(greedy.instance_dir)["run"]["status"] == "failed"
    assert marked_processes() == set()
    assert leftovers(run, [greedy.port]) == []


@pytest.mark.thorough
async def test_instance_over_its_memory_limit_restarts_from_its_last_save(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, toml_extra=LIMITED)
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        (started,) = await world.start_many(1, run_dir=run, restart="checkpoint")
        await join(world, started)
        saved = await world.save()
        await past(events)
        grow(started.port, 100)
        seen = await until(events, "ready", ["w000"])
        assert kinds(seen, "w000") == ["halted", "exited", *LIFE]
        restarting = next(one for one in seen if one.kind == "restarting")
        assert restarting.data["resume_path"] == saved.path
        await world.stop_all()


@pytest.mark.thorough
async def test_instance_over_its_memory_limit_before_readiness_fails_to_start(
    tmp_path: Path, run: Path
) -> None:
    directory = make_world(tmp_path, "--greedy-child", "100", "--mute", toml_extra=LIMITED)
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(WorldExitedBeforeReadyError, match=f"ended before it was ready: {OVER}"):
            await world.start(run_dir=run)
    assert marked_processes() == set()
