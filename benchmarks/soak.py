"""Ten minutes of saves, crashes, forks, joins and agents, without growth of resources.

    python -m benchmarks.soak [--seconds 600] [--json FILE]

Worlds are saved regularly, with ``keep=3``. Meanwhile worlds are killed and forked from time to
time, and agents join and leave; an agent behind a proxy stays in each world throughout. Every
twenty seconds all activity except the saves pauses, and the orchestrator is measured. The last
fifth of the time is compared with the second fifth, since caches fill during the first fifth.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from benchmarks.measure import Row, median, print_rows, resident_bytes, write_json
from clawblox import AsyncWorld, ClawbloxError
from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.grant import Grant
from clawblox.agents.layout import AgentDir

__all__ = ["FIGURES", "Sample", "compare", "course", "soak"]

_WORLDS: Final = 4
_SAVE_EVERY_S: Final = 0.5
_DISTURB_S: Final = 16.0
_MEASURE_S: Final = 4.0
_LOOKS_AT_DISK: Final = 10
"""Number of checks of the files during a save, which creates temporary files."""
_FLAT: Final = 1.1

FIGURES: Final[dict[str, tuple[str, float]]] = {
    "cpu_per_save_s": ("CPU of a save, ms", 1e3),
    "rss_bytes": ("RSS, MB", 1e-6),
    "tasks": ("tasks", 1.0),
    "descriptors": ("descriptors", 1.0),
    "disk_bytes": ("bytes on disk per living instance, kB", 1e-3),
}
"""The measured quantities: title, and factor to the unit."""


@attrs.frozen
class Sample:
    """A measurement of the orchestrator.

    Attributes:
        at_s: Seconds since the beginning.
        cpu_per_save_s: Processor time of this process per save, without other activity.
        reference_s: Processor time of a constant piece of work, which shows the speed of the
            machine at that time.
        rss_bytes: Its resident memory.
        tasks: Number of its tasks.
        descriptors: Number of its file descriptors.
        disk_bytes: Bytes in the directories of the running instances, per instance.
    """

    at_s: float
    cpu_per_save_s: float
    reference_s: float
    rss_bytes: float
    tasks: float
    descriptors: float
    disk_bytes: float


@attrs.define
class _Agent:
    """An agent behind a proxy, without a program."""

    name: str
    dir: Path
    driver: str = "claude"
    sandbox: str = "none"
    access: AgentAccess = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.access = AgentAccess(self.name, AgentDir(self.dir), is_sandboxed=False)

    def grant_access(self, grant: Grant) -> str:
        """Accept the grant of a world."""
        return self.access.grant(grant)


@asynccontextmanager
async def _served(agent: _Agent) -> AsyncIterator[None]:
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.access.serve)
            yield
            tasks.cancel_scope.cancel()
    finally:
        agent.access.close()


@attrs.define
class _Soak:
    """A soak.

    Attributes:
        world: The world.
        run_dir: Its run directory.
        seconds: Its duration.
        disturb_s: Seconds of disturbance before each measurement.
        measure_s: Seconds of each measurement.
    """

    world: AsyncWorld
    run_dir: Path
    seconds: float
    disturb_s: float
    measure_s: float
    counts: dict[str, int] = attrs.field(factory=dict)
    samples: list[Sample] = attrs.field(factory=list)
    chance: random.Random = attrs.field(factory=lambda: random.Random(22))
    pids: dict[str, int] = attrs.field(factory=dict)
    last_saves: dict[str, Path] = attrs.field(factory=dict)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def run(self, names: list[str]) -> None:
        """Disturb and measure in turns."""
        begun_at = time.monotonic()
        while (now := time.monotonic() - begun_at) < self.seconds:
            with anyio.move_on_after(self.disturb_s):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._crash, names)
                    tasks.start_soon(self._fork, names)
                    tasks.start_soon(self._join, names)
                    await anyio.sleep_forever()
            await self._settle(names)
            self.samples.append(await self._measure(names, begun_at))
            print(f"{now:5.0f} s  {self.samples[-1]}  {self.counts}", file=sys.stderr, flush=True)

    async def _settle(self, names: list[str]) -> None:
        """Wait until the worlds are back, and stop leftover forks."""
        with anyio.fail_after(60.0):
            while not set(names) <= set(self.world.instances):
                await anyio.sleep(0.05)
        for name in set(self.world.instances) - set(names):
            await self.world.stop(instance=name, grace_seconds=1)
        await anyio.sleep(2.5)  # all checks with an interval of a second have run

    async def _measure(self, names: list[str], begun_at: float) -> Sample:
        """Measure, using the minimum for resources that a save takes briefly, such as tasks."""
        saves, cpu = self.world.metrics.saves, time.process_time()
        until = anyio.current_time() + self.measure_s
        tasks, descriptors, references = [], [], []
        while anyio.current_time() < until:
            await anyio.sleep(0.05)
            references.append(_work())
            tasks.append(len(anyio.get_running_tasks()))
            descriptors.append(len(os.listdir("/proc/self/fd")))
        cpu = time.process_time() - cpu - sum(references)
        saves = self.world.metrics.saves - saves
        disk = []
        for _ in range(_LOOKS_AT_DISK):
            await anyio.sleep(_SAVE_EVERY_S / _LOOKS_AT_DISK)
            disk.append(sum(_disk_bytes(self.run_dir / "worlds" / name) for name in names))
        return Sample(
            at_s=time.monotonic() - begun_at,
            cpu_per_save_s=cpu / max(1, saves),
            reference_s=median(references),
            rss_bytes=resident_bytes(),
            tasks=min(tasks),
            descriptors=min(descriptors),
            disk_bytes=min(disk) / len(names),
        )

    async def _crash(self, names: list[str]) -> None:
        while True:
            await anyio.sleep(self.disturb_s / 2.5)
            with suppress(ProcessLookupError):
                os.kill(self.pids[self.chance.choice(names)], signal.SIGKILL)
                self._count("crashes")

    async def _fork(self, names: list[str]) -> None:
        while True:
            await anyio.sleep(self.disturb_s / 4)
            name = self.chance.choice(names)
            with suppress(ClawbloxError, OSError):
                batch = await self.world.fork(self.last_saves[name], 1, run_dir=self.run_dir)
                for fork in batch:
                    self._count("forks")
                    async with await self.world.join("guest", instance=fork.name) as guest:
                        await guest.act("Add", 1)
                    await self.world.stop(instance=fork.name, grace_seconds=1)

    async def _join(self, names: list[str]) -> None:
        while True:
            await anyio.sleep(self.disturb_s / 40)
            name = self.chance.choice(names)
            with suppress(ClawbloxError):
                async with await self.world.join("visitor", instance=name) as visitor:
                    await visitor.act("Add", 1)
                    self._count("joins")

    async def watch(self) -> None:
        """Follow the events, to know the process and the last save of each instance."""
        async with self.world.events() as events:
            async for event in events:
                if event.kind == "saved":
                    self.last_saves[event.subject] = event.data["path"]
                elif event.kind == "ready" and self.world._fleet is not None:
                    started = self.world._fleet.find(event.subject).started
                    self.pids[event.subject] = started.pid if started else 0
                elif event.kind in ("rejoined", "session_lost", "save_failed", "gave_up"):
                    self._count(event.kind)


def _work() -> float:
    """Do a piece of work, and return its processor time in seconds."""
    begun_at = time.thread_time()
    text = json.dumps([{"path": f"checkpoints/{number}", "size": number} for number in range(300)])
    assert hashlib.sha256(text.encode()).digest()
    assert json.loads(text)
    return time.thread_time() - begun_at


def _disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


async def soak(
    scratch: Path, seconds: float, disturb_s: float = _DISTURB_S, measure_s: float = _MEASURE_S
) -> tuple[list[Sample], dict[str, int]]:
    """Return the measurements of a soak, and the number of events by kind.

    Args:
        scratch: An empty directory.
        seconds: Its duration.
        disturb_s: Seconds of disturbance before each measurement.
        measure_s: Seconds of each measurement.
    """
    directory = scratch / "world"
    directory.mkdir()
    (directory / "world.toml").write_text(
        'name = "soak"\n[run]\ncommand = ["{python}", "world.py"]\nlisten = "inherit"\n'
    )
    source = Path(__file__).with_name("soak_world.py")
    (directory / "world.py").write_text(source.read_text())
    run_dir = scratch / "run"
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(AsyncWorld(dir=directory))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        soaking = _Soak(world, run_dir, seconds, disturb_s, measure_s)
        tasks.start_soon(soaking.watch)
        await anyio.sleep(0)
        options: dict[str, Any] = {"restart": "checkpoint", "max_restarts": 100_000}
        batch = await world.start_many(_WORLDS, run_dir=run_dir, **options)
        batch.raise_if_failed()
        soaking.pids.update({started.name: started.pid for started in batch})
        await world.autosave(every=_SAVE_EVERY_S, keep=3)
        for started in batch:
            agent = _Agent(f"agent-of-{started.name}", scratch / "agents" / started.name)
            await stack.enter_async_context(_served(agent))
            await world.connect(agent=agent, instance=started.name)
        await soaking.run(list(batch.done))
        tasks.cancel_scope.cancel()
    return soaking.samples, soaking.counts


def course(samples: Sequence[Mapping[str, float]], field: str) -> list[float]:
    """Return a figure over time, with processor time normalized to constant machine speed."""
    values = [sample[field] for sample in samples]
    if field == "cpu_per_save_s":
        references = [sample.get("reference_s", 1.0) for sample in samples]
        usual = median(references)
        values = [value * usual / one for value, one in zip(values, references, strict=True)]
    return values


def compare(samples: list[Sample]) -> list[Row]:
    """Return a comparison of the last fifth of the samples with the second fifth, by figure."""
    fifth = max(1, len(samples) // 5)
    rows = []
    documents = [attrs.asdict(sample) for sample in samples]
    for field, (title, factor) in FIGURES.items():
        values = [factor * value for value in course(documents, field)]
        early, late = median(values[fifth : 2 * fifth] or values), median(values[-fifth:])
        what, _, unit = title.rpartition(", ")
        rows.append(Row(what or title, late, unit if what else "", floor=early, goal=_FLAT))
    return rows


def main() -> None:
    """Parse the arguments, soak and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.quick:
            samples, counts = anyio.run(soak, Path(scratch), 10.0, 3.0, 1.0)
        else:
            samples, counts = anyio.run(soak, Path(scratch), options.seconds)
    rows = compare(samples)
    print_rows("Soak", rows)
    print(counts)
    if options.json is not None:
        document = [attrs.asdict(sample) for sample in samples]
        write_json(options.json, "Soak", rows, samples=document, counts=counts)


if __name__ == "__main__":
    main()
