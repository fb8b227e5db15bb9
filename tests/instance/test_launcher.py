"""The launcher: ends of starts in its thread, reported to every caller."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import anyio
import pytest

from clawblox.instance.health import Steps, Wait
from clawblox.instance.instance import Instance
from clawblox.instance.launcher import Ending, Launcher
from clawblox.instance.ramp import Ramp
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Start:
    """A fake instance: a real process, and a probe controlled by the test."""

    def __init__(self, looks: list[bool], timeout: float = HANG_S) -> None:
        self.timeout = timeout
        self.running = self
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=-1)
        self.pidfd = os.pidfd_open(self.process.pid)
        self.looks = looks
        self.error: Exception | None = None
        self.is_settled = False
        self.has_begun = anyio.Event()

    def bring_up(self) -> int:
        if self.error is not None:
            raise self.error
        return self.pidfd

    def look_until_ready(self, expected_s: float) -> Steps:
        for is_ready in self.looks:
            yield Wait(0.001)
            if is_ready:
                return True
        yield Wait(self.timeout)
        return False

    def settle(self) -> None:
        self.is_settled = True

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self.pidfd)

    async def run(self, launcher: Launcher) -> Ending:
        return await launcher.run(
            cast(Instance, self), on_spawned=self.has_begun.set, on_pace=lambda _: None
        )


@pytest.fixture
def starts() -> Iterator[list[Start]]:
    made: list[Start] = []
    yield made
    for start in made:
        start.close()


def make_launcher() -> Launcher:
    return Launcher(Ramp(lambda: None, 1))


@pytest.mark.thorough
async def test_start_ends_with_its_probe_its_process_or_its_deadline(
    starts: list[Start],
) -> None:
    ready, ended, late = Start([False, True]), Start([]), Start([], timeout=0.01)
    starts += [ready, ended, late]
    ended.process.kill()
    with anyio.fail_after(HANG_S):
        launcher = make_launcher()
        async with launcher.opened():
            assert await ready.run(launcher) is Ending.READY
            assert ready.is_settled
            assert await ended.run(launcher) is Ending.EXITED
            assert await late.run(launcher) is Ending.LATE


async def test_error_is_raised_only_to_the_caller_of_its_start(
    starts: list[Start],
) -> None:
    broken, fine = Start([]), Start([True])
    starts += [broken, fine]
    broken.error = OSError(28, "No space left on device")
    endings: list[Any] = []

    async def run(start: Start, launcher: Launcher) -> None:
        try:
            endings.append(await start.run(launcher))
        except OSError as error:
            endings.append(error)

    with anyio.fail_after(HANG_S):
        launcher = make_launcher()
        async with launcher.opened(), anyio.create_task_group() as group:
            group.start_soon(run, broken, launcher)
            group.start_soon(run, fine, launcher)
    assert set(endings) == {broken.error, Ending.READY}


async def test_thread_ends_when_all_starts_are_abandoned(starts: list[Start]) -> None:
    starts += [Start([]) for _ in range(12)]  # more than the ramp allows at once
    with anyio.fail_after(HANG_S):
        launcher = make_launcher()
        async with launcher.opened():
            async with anyio.create_task_group() as group:
                for start in starts:
                    group.start_soon(start.run, launcher)
                await wait_until_async(lambda: sum(one.has_begun.is_set() for one in starts) >= 8)
                group.cancel_scope.cancel()
            again = Start([True])
            starts.append(again)
            assert await again.run(launcher) is Ending.READY


async def test_caller_cancelled_with_the_block_is_notified_of_the_end(
    starts: list[Start],
) -> None:
    start = Start([])
    starts.append(start)
    with anyio.fail_after(HANG_S):
        with anyio.CancelScope() as scope:
            launcher = make_launcher()
            async with launcher.opened(), anyio.create_task_group() as group:
                group.start_soon(start.run, launcher)
                await start.has_begun.wait()
                scope.cancel()
    assert scope.cancelled_caught


async def test_defect_in_the_thread_fails_every_start(
    starts: list[Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts += [Start([]) for _ in range(3)]
    errors: list[Exception] = []

    def fail(work: object) -> None:
        raise ZeroDivisionError

    async def run(start: Start, launcher: Launcher) -> None:
        try:
            await start.run(launcher)
        except ZeroDivisionError as error:
            errors.append(error)

    with anyio.fail_after(HANG_S):
        launcher = make_launcher()
        async with launcher.opened(), anyio.create_task_group() as group:
            for start in starts:
                group.start_soon(run, start, launcher)
            await wait_until_async(lambda: all(one.has_begun.is_set() for one in starts))
            monkeypatch.setattr("clawblox.instance.launcher._Work.on_time", fail)
            os.eventfd_write(launcher._to_thread, 1)
    assert len(errors) == 3
