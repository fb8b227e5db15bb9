"""Starts and stops of N worlds: floor, clawblox (two ways) and a plain script, in one run.

Every sample of clawblox is taken in a fresh process that has already started and stopped one world,
to exclude first imports and the guard. The cost of the very first start has its own row.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs

from benchmarks.floors import start_floor
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, resident_bytes
from benchmarks.peers import use_tool
from benchmarks.worlds import Readiness, make_specs, write_world
from clawblox import AsyncWorld

__all__ = ["Series", "bench_starts"]

Series = dict[str, list[tuple[int, float]]]
"""Seconds until all were ready against the number of worlds, by contender."""

_LATENCY_GOALS_MS = {"clawblox": 25, "inherited": 2}
_RSS_COUNT = 32
"""Minimum number of worlds for the memory per world, since fixed costs dominate below."""


@attrs.frozen
class Sample:
    """The measurements of one round of a contender.

    Attributes:
        ready_s: From the call to its return with all worlds ready.
        stop_s: Time for stopping all worlds.
        latency_s: From the last world's own report that it listens to the return.
        cpu_s: Processor time of the orchestrator for the start.
        rss_bytes: Growth of its memory.
    """

    ready_s: float
    stop_s: float
    latency_s: float = 0.0
    cpu_s: float = 0.0
    rss_bytes: int = 0


@attrs.frozen
class Case:
    """A number of worlds of one kind, and the contenders that start them."""

    kind: str
    count: int
    contenders: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in the rows."""
        return f"{self.count} {self.kind}"


class Bench:
    """Takes samples.

    Args:
        scratch: Directory for all files.
        readiness: Receives the readiness of the worlds.
    """

    def __init__(self, scratch: Path, readiness: Readiness) -> None:
        self._scratch = scratch
        self._readiness = readiness
        self._dirs = {
            "light": write_world(scratch / "light", "light"),
            "heavy": write_world(scratch / "heavy", "heavy"),
            "inherited": write_world(scratch / "inherited", "light", run='listen = "inherit"'),
        }
        self._runs = 0

    def sample(self, case: Case, contender: str) -> Sample:
        """Let one contender start and stop the worlds of a case."""
        take: dict[str, Callable[[Case], Sample]] = {
            "floor": self._floor,
            "script": self._script,
            "clawblox": partial(self._clawblox, world_dir=self._dirs[case.kind]),
            "inherited": partial(self._clawblox, world_dir=self._dirs["inherited"]),
        }
        try:
            return take[contender](case)
        finally:
            self._readiness.end_carriers()

    def first_batch(self, kind: str, count: int) -> Sample:
        """Start a batch in a process without earlier starts."""
        return self._clawblox(Case(kind, count, ()), world_dir=self._dirs[kind], warm=False)

    def _floor(self, case: Case) -> Sample:
        specs = make_specs(case.kind, case.count, self._readiness)
        return Sample(*start_floor(specs, self._readiness))

    def _script(self, case: Case) -> Sample:
        specs = make_specs(case.kind, case.count, self._readiness)
        use = use_tool("script", specs, self._readiness, self._scratch)
        return Sample(use.known_s, use.stop_s)

    def _clawblox(self, case: Case, *, world_dir: Path, warm: bool = True) -> Sample:
        self._runs += 1
        run_dir = self._scratch / f"run-{self._runs}"
        taken = call_in_fresh_process(
            start_and_stop,
            str(world_dir),
            str(run_dir),
            self._readiness.env,
            case.count,
            warm,
        )
        left = self._readiness.carriers()
        if left:
            raise RuntimeError(f"left running after stop_all: {left}")
        returned = taken.pop("returned")
        stamps = self._readiness.wait(case.count + warm)
        return Sample(latency_s=returned - max(stamps), **taken)


async def start_and_stop(
    world_dir: str, run_dir: str, env: dict[str, str], count: int, warm: bool
) -> dict[str, float]:
    """Start and stop a batch; return the fields of a sample, and the time of the start's return."""
    async with AsyncWorld(dir=world_dir) as world:
        if warm:
            await world.start(run_dir=f"{run_dir}-first", env=env)
            await world.stop()
        rss_before = resident_bytes()
        cpu_before = time.process_time()
        begun = time.monotonic()
        batch = await world.start_many(count, run_dir=run_dir, env=env)
        returned = time.monotonic()
        cpu = time.process_time() - cpu_before
        rss = resident_bytes() - rss_before
        batch.raise_if_failed()
        stopping = time.monotonic()
        stopped = await world.stop_all()
        stop = time.monotonic() - stopping
        stopped.raise_if_failed()
    return {
        "ready_s": returned - begun,
        "returned": returned,
        "stop_s": stop,
        "cpu_s": cpu,
        "rss_bytes": rss,
    }


@attrs.frozen
class ResumeSample:
    """The measurements of a resume, compared to a start of the same number in a new directory.

    Attributes:
        start_s: Time for the start.
        resume_s: Time for the resume, each world from its last save.
        start_cpu_s: Processor time of the orchestrator for the start.
        resume_cpu_s: The same for the resume.
    """

    start_s: float
    resume_s: float
    start_cpu_s: float
    resume_cpu_s: float


async def start_and_resume(
    world_dir: str, run_dir: str, env: dict[str, str], count: int
) -> dict[str, float]:
    """Start, save and resume a batch; return the fields of a sample."""
    taken: dict[str, float] = {}

    @asynccontextmanager
    async def measured(name: str) -> AsyncIterator[None]:
        begun, cpu_before = time.monotonic(), time.process_time()
        yield
        taken[f"{name}_s"] = time.monotonic() - begun
        taken[f"{name}_cpu_s"] = time.process_time() - cpu_before

    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=f"{run_dir}-first", env=env)
        await world.stop()
        (await world.start_many(count, run_dir=run_dir, env=env)).raise_if_failed()
        (await world.save_all()).raise_if_failed()
        names = list(world.instances)
        world.interrupt()
        await world.stop_all()
        async with measured("start"):
            started = await world.start_many(count, run_dir=f"{run_dir}-other", env=env)
        started.raise_if_failed()
        await world.stop_all()
        async with measured("resume"):
            resumed = await world.resume_all(run_dir, env=env)
        resumed.raise_if_failed()
        if list(resumed.done) != names or not all(one.resume_path for one in resumed):
            raise RuntimeError("not all instances went on from their saves")
        await world.stop_all()
    return taken


def bench_resume(scratch: Path, readiness: Readiness, *, count: int, rounds: int) -> Iterator[Row]:
    """Measure a resume of light worlds, compared to a start of the same number.

    Args:
        scratch: Directory for all files.
        readiness: Receives the readiness of the worlds.
        count: Number of worlds.
        rounds: Number of samples.
    """
    world_dir = write_world(scratch / "resumed", "light")
    snapshot = scratch / "resumed.json"
    snapshot.write_text('{"format": "light-v1", "time": 1.0}')
    env = {**readiness.env, "BENCH_SNAPSHOT": str(snapshot)}
    samples: list[ResumeSample] = []
    for at in range(rounds):
        run_dir = scratch / f"resumed-{at}"
        taken = call_in_fresh_process(start_and_resume, str(world_dir), str(run_dir), env, count)
        readiness.wait(3 * count + 1)
        samples.append(ResumeSample(**taken))
    start = 1e3 * median(sample.start_s for sample in samples)
    resume = 1e3 * median(sample.resume_s for sample in samples)
    yield Row(f"{count} light, resumed: all ready", resume, "ms", start, 1.25)
    start_cpu = 1e3 * median(sample.start_cpu_s for sample in samples) / count
    resume_cpu = 1e3 * median(sample.resume_cpu_s for sample in samples) / count
    yield Row(f"{count} light, resumed: CPU per start", resume_cpu, "ms", start_cpu, 1.5)


def bench_starts(
    scratch: Path, readiness: Readiness, *, counts: Sequence[int], heavy: int, rounds: int
) -> tuple[list[Row], Series]:
    """Measure every case; return the rows, and the data for a plot.

    Args:
        scratch: Directory for all files.
        readiness: Receives the readiness of the worlds.
        counts: Numbers of light worlds, per case.
        heavy: Number of heavy worlds.
        rounds: Number of samples per contender.
    """
    bench = Bench(scratch, readiness)
    contenders = ("floor", "clawblox", "inherited", "script")
    cases = [Case("light", count, contenders) for count in counts]
    cases.append(Case("heavy", heavy, ("floor", "clawblox")))
    rows: list[Row] = []
    series: Series = {name: [] for name in contenders}
    for case in cases:
        samples = _take_rounds(bench, case, rounds)
        rows += _rows(case, samples)
        if case.kind == "light":
            for name, taken in samples.items():
                series[name].append((case.count, median(sample.ready_s for sample in taken)))
    most = min(_RSS_COUNT, max(counts))
    rows.append(_first_batch_row(bench, most, rounds))
    rows += bench_resume(scratch, readiness, count=most, rounds=rounds)
    return rows, series


def _take_rounds(bench: Bench, case: Case, rounds: int) -> dict[str, list[Sample]]:
    shuffle = random.Random(case.name).shuffle
    samples: dict[str, list[Sample]] = {name: [] for name in case.contenders}
    for _ in range(rounds):
        order = list(case.contenders)
        shuffle(order)
        for name in order:
            samples[name].append(bench.sample(case, name))
    return samples


def _rows(case: Case, samples: dict[str, list[Sample]]) -> Iterable[Row]:
    floor = samples["floor"]
    ready_floor = 1e3 * median(sample.ready_s for sample in floor)
    stop_floor = 1e3 * median(sample.stop_s for sample in floor)
    for name, taken in samples.items():
        if name == "floor":
            continue
        what = f"{case.name}, {name}"
        goals = (1.25, 1.3) if name != "script" else (None, None)
        ready = 1e3 * median(sample.ready_s for sample in taken)
        stop = 1e3 * median(sample.stop_s for sample in taken)
        yield Row(f"{what}: all ready", ready, "ms", ready_floor, goals[0])
        yield Row(f"{what}: all stopped", stop, "ms", stop_floor, goals[1])
        if name != "script":
            yield from _cost_rows(case, name, taken)


def _cost_rows(case: Case, name: str, taken: Sequence[Sample]) -> Iterable[Row]:
    what = f"{case.name}, {name}"
    latency = 1e3 * median(sample.latency_s for sample in taken)
    cpu = 1e3 * median(sample.cpu_s for sample in taken) / case.count
    rss = median(sample.rss_bytes for sample in taken) / 1024 / case.count
    yield Row(f"{what}: return latency", latency, "ms", goal=_LATENCY_GOALS_MS[name])
    yield Row(f"{what}: CPU per start", cpu, "ms", goal=2.5)
    if case.count >= _RSS_COUNT:
        yield Row(f"{what}: RSS per instance", rss, "KiB", goal=64)


def _first_batch_row(bench: Bench, count: int, rounds: int) -> Row:
    """Measure the first batch, which the other rows exclude."""
    samples = [bench.first_batch("light", count) for _ in range(rounds)]
    note = "with the guard's start and the first use of everything"
    ready = 1e3 * median(sample.ready_s for sample in samples)
    return Row(f"{count} light, first batch of a process", ready, "ms", note=note)
