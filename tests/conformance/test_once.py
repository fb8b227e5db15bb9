"""A fact is determined once, for the first caller."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from clawblox.conformance.once import Once

pytestmark = pytest.mark.anyio


async def test_concurrent_callers_share_one_fact() -> None:
    calls: list[int] = []

    async def learn() -> int:
        calls.append(len(calls))
        await anyio.lowlevel.checkpoint()
        return 7

    fact, facts = Once(learn), list[int]()

    async def ask() -> None:
        facts.append(await fact())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert (calls, facts) == ([0], [7, 7, 7])


async def test_an_error_is_raised_again_for_every_caller() -> None:
    errors = iter([OSError("first"), OSError("second")])

    async def learn() -> int:
        await anyio.lowlevel.checkpoint()
        raise next(errors)

    fact = Once(learn)
    for _ in range(2):
        with pytest.raises(OSError, match="first"):
            await fact()


async def test_fact_of_a_cancelled_caller_is_determined_by_the_next() -> None:
    is_learning = anyio.Event()

    async def learn() -> int:
        if not is_learning.is_set():
            is_learning.set()
            await anyio.sleep_forever()
        return 7

    fact = Once(learn)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fact)
        await is_learning.wait()
        tasks.cancel_scope.cancel()
    assert await fact() == 7
