"""Many cycles: what one start and stop leaves behind, two hundred of them would show."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from clawblox import AsyncWorld
from tests.support import WORKER_THREADS, descendants, make_world, open_fds

pytestmark = pytest.mark.anyio

CYCLES = 200
WARM_UP = 5


def counted() -> tuple[int, int, int]:
    """Return the numbers of open descriptors, lasting threads and child processes."""
    lasting = [one for one in threading.enumerate() if one.name not in WORKER_THREADS]
    return len(open_fds()), len(lasting), len(descendants(os.getpid()))


async def test_two_hundred_starts_and_stops_leave_descriptors_threads_and_children_stable(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for cycle in range(CYCLES):
            await world.start(run_dir=tmp_path / "run")
            if cycle % 20 == 0:
                await world.connect("Rocky")
                await world.save()
            await world.stop(grace_seconds=1)
            if cycle == WARM_UP:
                before = counted()
        assert counted() <= before
