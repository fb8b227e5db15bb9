"""Deadlines that count only the time in which this process ran."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time

import anyio
import pytest

from clawblox.concurrency.deadlines import running_deadline
from tests.support.processes import read_process
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_block_that_is_done_in_time_is_not_left_early() -> None:
    async with running_deadline(HANG_S) as scope:
        await anyio.sleep(0)
    assert not scope.cancelled_caught


@pytest.mark.parametrize(
    "seconds", [-1.0, 0.0, 0.01, pytest.param(0.6, marks=pytest.mark.thorough)]
)
async def test_a_block_is_left_when_its_time_is_over(seconds: float) -> None:
    begun_at = anyio.current_time()
    with anyio.fail_after(HANG_S):
        async with running_deadline(seconds) as scope:
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() - begun_at >= seconds


async def test_an_infinite_deadline_never_ends_the_block() -> None:
    async with running_deadline(math.inf) as scope:
        await anyio.sleep(0.01)
    assert not scope.cancelled_caught


async def test_an_exception_of_the_block_passes_unchanged() -> None:
    with pytest.raises(KeyError, match="this very one"):
        async with running_deadline(HANG_S):
            raise KeyError("this very one")


async def test_a_cancellation_from_outside_passes_through() -> None:
    with anyio.CancelScope() as outside:
        async with running_deadline(HANG_S) as scope:
            outside.cancel()
            await anyio.sleep_forever()
    assert outside.cancelled_caught
    assert not scope.cancelled_caught


@pytest.mark.parametrize("is_outer_shorter", [True, False])
async def test_only_the_nested_block_with_the_passed_deadline_is_left(
    is_outer_shorter: bool,
) -> None:
    outer_s, inner_s = (0.05, HANG_S) if is_outer_shorter else (HANG_S, 0.05)
    async with running_deadline(outer_s) as outer, running_deadline(inner_s) as inner:
        await anyio.sleep_forever()
    assert (outer.cancelled_caught, inner.cancelled_caught) == (
        is_outer_shorter,
        not is_outer_shorter,
    )


async def test_time_in_which_the_loop_was_blocked_does_not_count() -> None:
    async with running_deadline(0.2) as scope:
        for _ in range(4):  # as many ticks as there are
            await anyio.sleep(0.001)
            time.sleep(0.15)
            await anyio.sleep(0.001)
    assert not scope.cancelled_caught


@pytest.mark.thorough
async def test_a_loop_that_is_always_late_at_most_doubles_the_deadline() -> None:
    blocks = 0
    with anyio.fail_after(HANG_S):
        async with running_deadline(0.04) as scope:
            while True:
                blocks += 1
                time.sleep(0.05)
                await anyio.sleep(0)
    assert scope.cancelled_caught
    assert blocks > 4


WAIT = """
import os
import anyio
from clawblox.concurrency.deadlines import running_deadline

async def main():
    async with running_deadline(0.5) as scope:
        os.write(1, b"waiting\\n")
        for _ in range(3):
            await anyio.wait_readable(0)
            os.read(0, 1)
    os.write(1, b"late" if scope.cancelled_caught else b"in time")

anyio.run(main, backend={backend!r})
"""


@pytest.mark.thorough
def test_suspended_time_does_not_count(anyio_backend_name: str) -> None:
    program = WAIT.replace("{backend!r}", repr(anyio_backend_name))
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"waiting\n"
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: (found := read_process(child.pid)) and found.state == "T")
        time.sleep(0.7)  # the whole budget and more
        os.kill(child.pid, signal.SIGCONT)
        child.stdin.write(b"abc")
        child.stdin.flush()
        assert child.stdout.read() == b"in time"
