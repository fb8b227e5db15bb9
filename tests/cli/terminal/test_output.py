"""Output that never blocks, and results that are shown while the work continues."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from clawblox.cli.terminal.output import OutputGone
from clawblox.cli.terminal.screen import relay
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio

FULL_TERMINAL = """
import os, select, anyio
from clawblox.cli.terminal.output import Output

master, slave = os.openpty()
filler = os.open(os.ttyname(slave), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
try:
    while True:
        os.write(filler, b"x" * 1000)
except BlockingIOError:
    room = select.poll()
    room.register(slave, select.POLLOUT)
    while not room.poll(20):
        os.read(master, 200)  # until there is room, but not for much

async def main():
    with open(slave, "w") as stream, Output(stream) as output:
        with anyio.move_on_after(0.3) as scope:
            await output.write("y" * 5000)
        os._exit(7 if scope.cancelled_caught else 1)

anyio.run(main)
"""


@pytest.mark.thorough
async def test_a_terminal_with_little_room_does_not_block_the_loop() -> None:
    # The timeout ends a blocked test.
    process = subprocess.run([sys.executable, "-c", FULL_TERMINAL], timeout=HANG_S)
    assert process.returncode == 7


async def test_results_are_shown_in_order_and_before_the_work_returns() -> None:
    shown: list[int] = []

    async def work(show_soon: Callable[[int], None]) -> str:
        for number in range(100):
            show_soon(number)
        return "done"

    async def show(number: int) -> None:
        shown.append(number)

    assert await relay(work, show) == "done"
    assert shown == list(range(100))


async def test_results_are_shown_even_if_the_rest_fails() -> None:
    shown: list[int] = []

    async def work(show_soon: Callable[[int], None]) -> None:
        show_soon(1)
        raise ValueError("the rest")

    async def show(number: int) -> None:
        shown.append(number)

    with pytest.raises(ValueError, match="the rest"):
        await relay(work, show)
    assert shown == [1]


async def test_work_continues_when_the_output_is_gone() -> None:
    async def work(show_soon: Callable[[int], None]) -> str:
        for number in range(10):
            show_soon(number)
        return "done"

    async def show(_: int) -> None:
        raise OutputGone

    assert await relay(work, show) == "done"
