"""A program that cancels an orchestrator at random moments, in random ways; see its test.

The program runs in a separate process, because the faults that it looks for can stop an event loop
forever. ``python -m tests.support.cancelling BACKEND WORLD RUN_DIR ROUNDS SEED`` prints the round
that failed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from clawblox import AsyncWorld, ClawbloxError
from tests.support.processes import descendants, find_guards, marked_processes, name_session
from tests.support.resources import open_fds
from tests.support.waiting import HANG_S

WAYS = {
    "asyncio": ("scope", "timeout", "cancel", "cancel twice", "cancel three times"),
    "trio": ("scope",),
}
GAPS_S = (0.0, 0.0005, 0.001, 0.003, 0.01, 0.05)


class Orchestration:
    """Starts, saves, forks, stops and drains a world in random order."""

    def __init__(self, world_dir: Path, run_dir: Path, rng: random.Random) -> None:
        self.world_dir = world_dir
        self.run_dir = run_dir
        self.steps = rng.sample(["save", "fork", "stop", "many", "drain"], k=rng.randint(0, 3))
        self.is_inside = False
        self.is_complete = False

    async def run(self) -> None:
        self.is_inside = True
        try:
            async with AsyncWorld(self.world_dir) as world:
                started = await world.start(run_dir=self.run_dir)
                for step in self.steps:
                    await self._take(step, world, started.name)
            self.is_complete = True
        finally:
            self.is_inside = False

    async def _take(self, step: str, world: AsyncWorld, name: str) -> None:
        if name not in world.instances:
            await world.start(run_dir=self.run_dir, name=name)
        if step == "save":
            await world.save(instance=name)
        elif step == "fork":
            saved = await world.save(instance=name)
            await world.fork(saved, 2, run_dir=self.run_dir / "forks")
        elif step == "many":
            await world.start_many(2, run_dir=self.run_dir / "many")
        elif step == "stop":
            await world.stop(instance=name, grace_seconds=2)
        else:
            await world.drain(grace_seconds=2)


class Round:
    """One orchestration, and one way of cancelling it."""

    def __init__(self, backend: str, world_dir: Path, run_dir: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.way = self.rng.choice(WAYS[backend])
        self.after_s = self.rng.choice((0.002, 0.05, 0.3, 0.8)) * self.rng.random()
        self.orchestration = Orchestration(world_dir, run_dir, self.rng)

    def __str__(self) -> str:
        return f"{self.way} after {self.after_s:.4f} s of {self.orchestration.steps}"

    async def run(self) -> None:
        """Run, be cancelled, and prove that this task can continue normally."""
        begun_at = time.monotonic()
        await {"scope": self.scope, "timeout": self.timeout}.get(self.way, self.cancel)()
        for _ in range(3):
            await anyio.sleep(0)
        await anyio.sleep(0.001)
        assert time.monotonic() - begun_at < HANG_S, "it took too long"
        assert not marked_processes(), "processes are left"
        leavings = [
            path
            for path in self.orchestration.run_dir.rglob("*")
            if path.suffix in (".lock", ".partial", ".sock") and path.name != "manifest.json.lock"
        ]
        assert not leavings, f"files are left: {leavings}"

    async def scope(self) -> None:
        with anyio.move_on_after(self.after_s) as scope:
            await self.orchestration.run()
        assert scope.cancelled_caught or self.orchestration.is_complete

    async def timeout(self) -> None:
        try:
            async with asyncio.timeout(self.after_s):
                await self.orchestration.run()
        except TimeoutError:
            pass
        else:
            assert self.orchestration.is_complete, "the timeout was lost"
        assert_uncancelled()

    async def cancel(self) -> None:
        times = {"cancel": 1, "cancel twice": 2, "cancel three times": 3}[self.way]
        task = asyncio.current_task()
        assert task is not None
        strikes = asyncio.ensure_future(self._strike(task, times))
        try:
            await self.orchestration.run()
        except asyncio.CancelledError:
            while task.cancelling():
                task.uncancel()
        else:
            assert self.orchestration.is_complete, "the cancellation was lost"
            assert not task.cancelling(), "the cancellation was lost"
        finally:
            strikes.cancel()
        assert_uncancelled()

    async def _strike(self, task: asyncio.Task[object], times: int) -> None:
        await asyncio.sleep(self.after_s)
        for _ in range(times):
            if self.orchestration.is_inside:
                task.cancel()
            await asyncio.sleep(self.rng.choice(GAPS_S))


def assert_uncancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling(), "a cancellation is left over"


async def main(backend: str, world_dir: str, run_dir: str, rounds: str, seed: str) -> None:
    name_session(Path(run_dir))
    await one_round(lambda: warm_up(Path(world_dir), Path(run_dir)), "warming up")
    descriptors = len(open_fds())
    for number in range(int(rounds)):
        each = Round(backend, Path(world_dir), Path(run_dir) / str(number), int(seed) + number)
        await one_round(each.run, f"round {number} with seed {int(seed) + number}: {each}")
    assert not descendants(os.getpid()), "processes are left"
    assert len(find_guards(os.getpid())) <= 1, "guards are left"
    assert len(open_fds()) <= descriptors + 4, "descriptors are left"
    if backend == "asyncio":
        assert len(asyncio.all_tasks()) == 1, f"tasks are left: {asyncio.all_tasks()}"
    print("all ended", rounds, flush=True)


async def warm_up(world_dir: Path, run_dir: Path) -> None:
    async with AsyncWorld(world_dir) as world:
        await world.start(run_dir=run_dir / "first")
        await world.save()


async def one_round(run: Callable[[], Awaitable[None]], name: str) -> None:
    print(name, flush=True)
    try:
        await run()
    except ClawbloxError as error:
        raise AssertionError("only a cancellation was expected") from error


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:], backend=sys.argv[1])
