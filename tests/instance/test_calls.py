"""Waiting for an instance that is being restarted."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from clawblox.instance.calls import Calls
from clawblox.instance.lifecycle import MOVES, LifecycleState
from clawblox.supervision.lifecycle import Lifecycle

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def serving() -> tuple[Calls, Any, Lifecycle[LifecycleState]]:
    """Return the calls to a serving instance, the instance, and its state."""
    instance: Any = SimpleNamespace(restarts=0, halt=None)
    lifecycle = Lifecycle(MOVES, LifecycleState.LEASING)
    for state in (LifecycleState.SPAWNING, LifecycleState.PROBING, LifecycleState.READY):
        lifecycle.move(state)
    return Calls(instance, lifecycle), instance, lifecycle


async def test_wait_ignores_an_ended_world_that_still_seems_to_serve() -> None:
    calls, instance, lifecycle = serving()
    served: list[bool] = []

    async def wait() -> None:
        served.append(await calls.wait_serving(after=0, until=math.inf))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert served == []
        lifecycle.move(LifecycleState.RESTARTING)
        calls.fail()
        instance.restarts = 1
        await anyio.wait_all_tasks_blocked()
        assert served == []
        lifecycle.move(LifecycleState.READY)
        calls.note_change()
    assert served == [True]


async def test_halted_world_does_not_count_as_serving() -> None:
    calls, instance, _ = serving()
    assert calls.life == 0
    instance.halt = "stuck"
    assert calls.life is None


async def test_wait_ends_when_the_instance_is_being_stopped() -> None:
    calls, _, lifecycle = serving()
    lifecycle.move(LifecycleState.STOPPING)
    assert not await calls.wait_serving(after=0, until=math.inf)
