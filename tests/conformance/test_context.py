"""The instances of a world under test are not confused with each other."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clawblox import AsyncWorld
from clawblox.conformance.checks.hygiene import check_token_on_disk
from clawblox.conformance.context import CheckContext
from clawblox.conformance.disk import DiskSearch
from clawblox.conformance.instances import Instances
from clawblox.conformance.registry import NotMet
from clawblox.world.private_copies import TrialOptions
from tests.support.provable import make_provable_world
from tests.support.waiting import wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


def make_context(world: AsyncWorld, scratch: Path, **options: Any) -> CheckContext:
    return CheckContext(
        Instances(world=world, options=TrialOptions(), scratch=scratch, seed=1, **options)
    )


async def test_end_of_a_dead_instance_stops_no_other_instance(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path), run_dir=tmp_path / "run") as world:
        ctx = make_context(world, tmp_path)
        async with ctx.probe.use() as probe:
            assert probe.started is not None
            os.kill(probe.started.pid, signal.SIGKILL)
        await wait_until_async(lambda: probe.name not in world.instances)
        async with ctx.instances.start() as live:
            async with ctx.probe.use() as another:
                assert another is not probe
            assert (await live.call("GET", "/api.md")).is_accepted
        await ctx.close()


@pytest.mark.thorough
async def test_token_in_a_file_is_found_before_a_later_run_overwrites_it(
    tmp_path: Path,
) -> None:
    directory = make_provable_world(tmp_path, clock="lockstep", defect="file-had-token")
    async with AsyncWorld(dir=directory, run_dir=tmp_path / "run") as world:
        disk = DiskSearch(directory, lambda _path: False, tmp_path / "run")
        ctx = make_context(world, tmp_path, disk=disk)
        for _ in range(2):
            async with ctx.instances.start() as live:
                assert live.started is not None
        assert (directory / "orchard.cache").read_text() == "not for long"
        with pytest.raises(NotMet, match=r"orchard\.cache has the value of WORLD_OPERATOR_TOKEN"):
            await check_token_on_disk(ctx)
        await ctx.close()
