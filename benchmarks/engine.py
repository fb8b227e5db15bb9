"""Cost of worlds of Luau scripts: ticks, snapshots, memory, answers, and many worlds on one core.

    python -m benchmarks.engine [--rounds 5] [--json FILE] [--quick]

Times of ticks are CPU time, each measured in a fresh process. Floors: the same bodies in rapier
alone; a world in bare asyncio with the same routes. A MuJoCo world is shown for comparison.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

from benchmarks.engine_members import MEMBERS, measure_members
from benchmarks.engine_processes import measure_crowd, measure_idle, measure_trips
from benchmarks.engine_ticks import SCENE, measure_physics, measure_snapshot, measure_ticks
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, report

_EXAMPLES = Path(__file__).parent.parent / "examples"
_FRAME_MS = 16.7
_TITLES = {"engine": "engine", "mujoco": "MuJoCo", "asyncio": "asyncio"}


@attrs.frozen
class Scale:
    """The extent of the measurements.

    Attributes:
        rounds: Number of rounds.
        ticks: Ticks per measurement.
        members: Number of rounds of a thousand operations for each property or event.
        snapshots: Snapshots per measurement.
        seconds: Duration of the measurement of an idle world, in seconds.
        trips: Requests per measurement.
        worlds: Number of worlds on one core.
        crowd_s: Run time of the worlds on one core, in seconds.
    """

    rounds: int = 5
    ticks: int = 1200
    members: int = 60
    snapshots: int = 10
    seconds: float = 10.0
    trips: int = 300
    worlds: int = 10
    crowd_s: float = 10.0


QUICK = Scale(1, 40, 1, 1, 0.5, 5, 2, 1.0)


def measure(scale: Scale) -> list[Row]:
    """Measure everything."""
    return [
        *_bench_ticks(scale),
        *_bench_physics(scale),
        *_bench_members(scale),
        *_bench_snapshots(scale),
        *_bench_idle(scale),
        *_bench_trips(scale),
        *_bench_crowd(scale),
    ]


def _shuffled(kinds: Iterable[str]) -> list[str]:
    mixed = list(kinds)
    random.shuffle(mixed)
    return mixed


def _rounds(
    scale: Scale, kinds: Iterable[str], function: Callable[..., Any], *args: object
) -> dict[str, list[Any]]:
    """Return the results of a function for each kind and round, each in a fresh process."""
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for _ in range(scale.rounds):
        for kind in _shuffled(found):
            found[kind].append(call_in_fresh_process(function, kind, *args))
    return found


def _bench_ticks(scale: Scale) -> list[Row]:
    goals = {
        "the scene": (SCENE, 1.25),
        "platform_race": (_EXAMPLES / "platform_race", 3.33),
        "workshop": (_EXAMPLES / "workshop", 3.33),
    }
    paths = [str(path) for path, _ in goals.values()]
    taken = _rounds(scale, paths, measure_ticks, scale.ticks)
    return [
        Row(f"a tick of {what}, 8 players", median(taken[str(path)]), "ms", goal=goal)
        for what, (path, goal) in goals.items()
    ]


def _bench_physics(scale: Scale) -> list[Row]:
    taken = [call_in_fresh_process(measure_physics, scale.ticks) for _ in range(scale.rounds)]
    engine, rapier = (median(each[key] for each in taken) for key in ("engine", "rapier"))
    return [Row("physics of that tick, against bare rapier", engine, "ms", rapier)]


def _bench_members(scale: Scale) -> list[Row]:
    taken = [call_in_fresh_process(measure_members, scale.members) for _ in range(scale.rounds)]
    return [Row(name, median(each[name] for each in taken), "ns") for name in MEMBERS]


def _bench_snapshots(scale: Scale) -> list[Row]:
    taken = [call_in_fresh_process(measure_snapshot, scale.snapshots) for _ in range(scale.rounds)]
    size = median(each["kilobytes"] for each in taken)
    return [
        Row(
            f"{what} of the scene, {size:.0f} kB",
            median(each[key] for each in taken),
            "ms",
            goal=_FRAME_MS,
        )
        for what, key in (("snapshot", "save"), ("restore", "restore"))
    ]


def _bench_idle(scale: Scale) -> list[Row]:
    taken = _rounds(scale, _TITLES, measure_idle, scale.seconds)
    return [
        *(
            Row(
                f"idle: CPU of a world, {title}",
                median(each["percent"] for each in taken[kind]),
                "%",
                goal=3 if kind == "engine" else None,
            )
            for kind, title in _TITLES.items()
        ),
        *(
            Row(
                f"idle: RSS of a world, {title}",
                median(each["mib"] for each in taken[kind]),
                "MiB",
                goal=60 if kind == "engine" else None,
            )
            for kind, title in _TITLES.items()
        ),
    ]


def _bench_trips(scale: Scale) -> list[Row]:
    taken = _rounds(scale, _TITLES, measure_trips, scale.trips)
    rows = []
    for path in ("observe", "input"):
        took = {kind: median(each[path] for each in taken[kind]) for kind in _TITLES}
        rows += [
            Row(f"/{path}, {_TITLES[kind]}", took[kind], "ms", took["asyncio"])
            for kind in ("engine", "mujoco")
        ]
    return rows


def _bench_crowd(scale: Scale) -> list[Row]:
    taken = [
        call_in_fresh_process(measure_crowd, scale.worlds, scale.crowd_s)
        for _ in range(math.ceil(scale.rounds / 2))
    ]
    what = f"{scale.worlds} scenes on one core, one player each"
    return [
        Row(f"{what}: ticks missed", median(each["missed"] for each in taken), "%", goal=1),
        Row(f"{what}: CPU", median(each["percent"] for each in taken), "%"),
    ]


def main() -> None:
    """Parse the arguments, measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=Scale().rounds)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    scale = QUICK if options.quick else Scale(rounds=options.rounds)
    report("Engine", measure(scale), options.json)


if __name__ == "__main__":
    main()
