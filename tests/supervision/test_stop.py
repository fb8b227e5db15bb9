"""All requests to stop a task share one stop."""

from __future__ import annotations

import anyio
import pytest

from clawblox.supervision.tree import SharedStop
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


async def test_all_requests_share_one_stop_and_the_shortest_grace() -> None:
    stop = SharedStop()
    graces: list[float] = []

    async def work() -> None:
        try:
            with stop.scope:
                await anyio.sleep_forever()
        finally:
            await released.wait()
            assert stop.grace is not None
            graces.append(stop.grace.scope.deadline - anyio.current_time())
            stop.is_over.set()

    released = anyio.Event()
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            for task in (work, lambda: stop.request(600), lambda: stop.request(60)):
                tasks.start_soon(task)
            await anyio.wait_all_tasks_blocked()
            assert not stop.is_over.is_set()
            released.set()
    assert 0 < graces[0] <= 60


async def test_an_unrequested_stop_has_its_initial_grace() -> None:
    stop = SharedStop()
    stop.kill_now()
    assert stop.grace is None
    assert stop.begin(60) is stop.begin(600)
    stop.kill_now()
    assert stop.begin(600).scope.deadline <= anyio.current_time()
