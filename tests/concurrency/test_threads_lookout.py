"""One regular round of checks for all tasks that wait for a blocking check."""

from __future__ import annotations

import threading

import anyio
import pytest

from clawblox.concurrency.threads import Lookout
from tests.support.waiting import HANG_S

INTERVAL_S = 0.002

pytestmark = pytest.mark.anyio


class Sign:
    """A condition to check; notes the threads that checked it."""

    def __init__(self) -> None:
        self.is_there = False
        self.looks: list[int] = []

    def check(self) -> bool:
        self.looks.append(threading.get_ident())
        return self.is_there

    async def wait_looked_at(self) -> None:
        seen = len(self.looks)
        with anyio.fail_after(HANG_S):
            while len(self.looks) < seen + 2:  # the first may have started earlier
                await anyio.sleep(INTERVAL_S)


async def test_each_wait_ends_by_its_own_check() -> None:
    lookout, signs, over = Lookout(INTERVAL_S), [Sign() for _ in range(3)], list[int]()

    async def wait(number: int) -> None:
        await lookout.wait(signs[number].check)
        over.append(number)

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as waits:
            for number in range(3):
                waits.start_soon(wait, number)
            for number in (1, 0, 2):  # the task that checks for the others is the second to end
                for sign in signs[2:]:
                    await sign.wait_looked_at()
                assert number not in over
                signs[number].is_there = True
                while number not in over:
                    await anyio.sleep(INTERVAL_S)
    assert over == [1, 0, 2]
    assert threading.get_ident() not in {thread for sign in signs for thread in sign.looks}


async def test_other_waits_continue_when_a_wait_is_cancelled() -> None:
    lookout, first, second = Lookout(INTERVAL_S), Sign(), Sign()
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as waits:
            scope = anyio.CancelScope()

            async def wait_cancelled() -> None:
                with scope:
                    await lookout.wait(first.check)

            waits.start_soon(wait_cancelled)
            await first.wait_looked_at()
            waits.start_soon(lookout.wait, second.check)
            await second.wait_looked_at()
            scope.cancel()
            await second.wait_looked_at()
            assert scope.cancelled_caught
            second.is_there = True
    later = Sign()
    later.is_there = True
    with anyio.fail_after(HANG_S):
        await lookout.wait(later.check)


async def test_an_error_of_a_check_ends_its_own_wait_only() -> None:
    lookout, sign = Lookout(INTERVAL_S), Sign()

    def fail() -> bool:
        raise OSError("cannot look")

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as waits:
            waits.start_soon(lookout.wait, sign.check)
            await sign.wait_looked_at()
            with pytest.raises(OSError, match="cannot look"):
                await lookout.wait(fail)
            await sign.wait_looked_at()
            sign.is_there = True
