"""Many cycles and concurrent operations, to find rare failures.

The long soak is for the night: ``pytest -m soak``, with its seconds in ``CLAWBLOX_SOAK_S``.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from anyio.to_thread import run_sync

from clawblox import (
    AsyncWorld,
    SavedSnapshot,
    SnapshotError,
    StartedWorld,
    WorldEvent,
    WorldExitedError,
)
from clawblox.rundir.status import read_run
from tests.rundir.support import records_on_disk
from tests.support.crowd import (
    act,
    join_all,
    leftovers,
    look,
    on_disk,
    registered,
    seeded,
    variables_of,
)
from tests.support.processes import INSTANCE_ENV, descendants, marked_processes
from tests.support.resources import WORKER_THREADS, open_fds
from tests.support.waiting import HANG_S
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio

ROUNDS, TOGETHER = 40, 4
WARM_UP = 5


def counted() -> tuple[int, int, int]:
    """Return the numbers of open descriptors, lasting threads and child processes."""
    lasting = [one for one in threading.enumerate() if one.name not in WORKER_THREADS]
    return len(open_fds()), len(lasting), len(descendants(os.getpid()))


@pytest.mark.thorough
async def test_two_hundred_starts_and_stops_leave_descriptors_threads_and_children_stable(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for number in range(ROUNDS):
            await world.start(run_dir=tmp_path / "alone")
            (await world.start_many(TOGETHER, run_dir=tmp_path / "together")).raise_if_failed()
            if number % 5 == 0:
                await world.connect("Rocky", instance="w000")
                (await world.save_all()).raise_if_failed()
            assert len((await world.stop_all(grace_seconds=1)).done) == 1 + TOGETHER
            if number == WARM_UP:
                before = counted()
        assert counted() <= before


# ------------------------------------------------------------------------------------ the soak

WORKERS = 8
SPARE = 8
"""Maximum number of forks in addition to the original instances."""

OPTIONS: dict[str, Any] = {
    "restart": "checkpoint",
    "max_restarts": 1_000_000,
    "restart_window": 0.5,  # so that they come back without a long delay
}


@attrs.define
class Fate:
    """The expected state of one instance.

    Attributes:
        session: The session of the agent.
        saved: The files of acknowledged saves, oldest first.
        at_death: Number of these saves at the last observed death.
        quiet: Held while a task changes the instance, and from a kill until it has restarted.
    """

    session: str
    saved: list[Path] = attrs.field(factory=list)
    at_death: int = 0
    quiet: anyio.Lock = attrs.field(factory=anyio.Lock)
    is_back: anyio.Event = attrs.field(factory=anyio.Event)


class Soak:
    """Performs random operations on a crowd of worlds, and checks the invariants."""

    def __init__(self, world: AsyncWorld, run: Path, chance: random.Random) -> None:
        self.world = world
        self.run = run
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.saves: list[SavedSnapshot] = []
        self.fates: dict[str, Fate] = {}
        self._spare: list[str] = []

    # -- operations --------------------------------------------------------------------------

    async def start(self, count: int) -> None:
        """Start the crowd; each instance has an agent and a save from the start."""
        batch = await self.world.start_many(count, run_dir=self.run, **OPTIONS)
        batch.raise_if_failed()
        sessions = await join_all(self.world, batch)
        for started in batch:
            self._meet(started, sessions[started.name])
        await self._save_all()
        for saved in self.saves:
            self.fates[saved.instance].saved.append(saved.path)

    def _meet(self, started: StartedWorld, session: str) -> None:
        self.fates.setdefault(started.name, Fate(session))

    def _known(self) -> list[str]:
        """Return the ready instances; a fork is ready a moment before the call returns."""
        return [name for name in self.world.instances if name in self.fates]

    async def work(self, until: float) -> None:
        """Perform operations in sequence until a time of the monotonic clock."""
        deeds = {
            self.add: 40,
            self.save: 20,
            self.save_some: 3,
            self.kill: 15,
            self.fork: 3,
            self.stop_and_resume: 3,
        }
        while time.monotonic() < until:
            (deed,) = self.chance.choices(list(deeds), list(deeds.values()))
            if await deed():
                self.done[deed.__name__] += 1
            await anyio.sleep(self.chance.uniform(0.0, 0.05))

    @asynccontextmanager
    async def _somebody(self) -> AsyncIterator[str]:
        """Choose a ready instance, and reserve it except for saves."""
        while True:
            name = self.chance.choice(self._known())
            async with self.fates[name].quiet:
                if name in self.world.instances:
                    yield name
                    return

    async def add(self) -> bool:
        """Let an agent act."""
        async with self._somebody() as name:
            number = self.chance.randrange(1, 1000)
            await run_sync(act, self._port(name), self.fates[name].session, number)
        return True

    async def save(self) -> bool:
        """Save an instance, which may be killed during the save."""
        name = self.chance.choice(self._known())
        try:
            self.saves.append(await self.world.save(instance=name))
        except (WorldExitedError, SnapshotError):
            return False
        return True

    async def save_some(self) -> bool:
        """Save many instances."""
        names = self._known()
        chosen = self.chance.sample(names, min(16, len(names)))
        async for outcome in self.world.save_all(instances=chosen):
            if outcome.value is not None:
                self.saves.append(outcome.value)
        return True

    async def _save_all(self) -> None:
        batch = await self.world.save_all()
        batch.raise_if_failed()
        self.saves.extend(batch)

    async def kill(self) -> bool:
        """Kill an instance, and check that it is restored from its save."""
        async with self._somebody() as name:
            fate = self.fates[name]
            fate.is_back = anyio.Event()
            os.kill(await run_sync(self._pid, name), signal.SIGKILL)
            with anyio.fail_after(HANG_S):
                await fate.is_back.wait()
            source = await run_sync(self._record, name)
            restored = json.loads(Path(source["resume_path"]).read_bytes())["counter"]
            seen = await run_sync(look, self._port(name), fate.session)
            assert seen["counter"] == restored
        return True

    async def fork(self) -> bool:
        """Fork another instance from any save, and stop one if there are too many."""
        saved = self.chance.choice(self.saves)
        batch = await self.world.fork(saved, run_dir=self.run, **OPTIONS)
        batch.raise_if_failed()
        for started in batch:
            self._meet(started, self.fates[saved.instance].session)
            self._spare.append(started.name)
        if len(self._spare) > SPARE:
            name = self._spare.pop(self.chance.randrange(SPARE))
            async with self.fates[name].quiet:
                await self.world.stop(instance=name)
        return True

    async def stop_and_resume(self) -> bool:
        """Stop an instance, and start it again from its last save."""
        async with self._somebody() as name:
            if not self.fates[name].saved or name in self._spare:
                return False
            await self.world.stop(instance=name)
            spec = {"name": name, "resume": self.fates[name].saved[-1]}
            batch = await self.world.start_many([spec], run_dir=self.run, **OPTIONS)
            batch.raise_if_failed()
            self._meet(batch[name], self.fates[name].session)
        return True

    def _record(self, name: str) -> dict[str, Any]:
        return records_on_disk(self.run)[name]

    def _port(self, name: str) -> int:
        return int(self._record(name)["port"])

    def _pid(self, name: str) -> int:
        record = self._record(name)
        pid = int(record["pid"])
        assert variables_of(pid)[INSTANCE_ENV] == record["cookie"]
        return pid

    # -- invariants --------------------------------------------------------------------------

    async def watch(self) -> None:
        """Check all events against the expected state."""
        async with self.world.events() as events:
            async for event in events:
                self.done[event.kind] += 1
                if event.subject in self.fates:
                    self._judge(event, self.fates[event.subject])

    def _judge(self, event: WorldEvent, fate: Fate) -> None:
        assert event.kind not in ("gave_up", "start_failed", "unresponsive", "halted"), event
        if event.kind == "saved":
            fate.saved.append(event.data["path"])
        elif event.kind == "exited":
            fate.at_death = len(fate.saved)
        elif event.kind == "restarting" and fate.at_death:
            # A save that was acknowledged after the death may be even newer.
            assert event.data["resume_path"] in fate.saved[fate.at_death - 1 :]
        elif event.kind == "ready":
            fate.is_back.set()

    async def end(self) -> None:
        """Check that all instances exist, stop them, and check for losses and leftovers."""
        assert set(self.world.instances) == {*self.fates} - {*self._stopped()}
        await self._save_all()
        found = (await run_sync(read_run, self.run)).instances
        ready = [one for one in found if one.state == "ready"]
        assert len(ready) == len(self.world.instances)
        assert await run_sync(marked_processes) == {one.pid for one in ready}
        (await self.world.stop_all(grace_seconds=10)).raise_if_failed()
        ports = [one.port for one in ready]
        assert await run_sync(leftovers, self.run / "worlds", ports) == []
        await run_sync(self._check_saves)

    def _stopped(self) -> list[str]:
        return [name for name in self.fates if self._record(name)["state"] == "exited"]

    def _check_saves(self) -> None:
        homes = {name: self.run / "worlds" / name for name in self.fates}
        found = {name: on_disk(home) for name, home in homes.items()}
        for name, home in homes.items():
            assert registered(home) == found[name]
        for saved in self.saves:
            assert found[saved.instance][saved.path] == saved.sha256
        assert sum(map(len, found.values())) >= len(self.saves)


async def soak(tmp_path: Path, count: int, seconds: float) -> None:
    """Run a soak, and print its result."""
    chance = seeded()
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        one = Soak(world, run, chance)
        await one.start(count)
        used_before_s, before_mb = used_s(), resident_mb()
        until = time.monotonic() + seconds
        async with anyio.create_task_group() as watch:
            watch.start_soon(one.watch)
            async with anyio.create_task_group() as workers:
                for _ in range(WORKERS):
                    workers.start_soon(one.work, until)
            watch.cancel_scope.cancel()
        print(dict(one.done))
        print(f"{count} worlds, {seconds:g} s: {used_s() - used_before_s:.1f} s of CPU, ", end="")
        print(f"{before_mb} MB resident before, {resident_mb()} MB after")
        await one.end()
    assert leftovers(run) == []


def used_s() -> float:
    """Return the processor time of this process, including its agents."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


@pytest.mark.thorough
async def test_random_failures_of_a_few_worlds_lose_no_state(tmp_path: Path) -> None:
    await soak(tmp_path, 12, 2.0)


@pytest.mark.soak
async def test_random_failures_of_a_crowd_lose_no_state(tmp_path: Path) -> None:
    await soak(tmp_path, 128, float(os.environ.get("CLAWBLOX_SOAK_S", "300")))
