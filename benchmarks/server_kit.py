"""Cost of the kit of `clawblox.server`: round trips, recordings and verified replays.

    python -m benchmarks.server_kit [--rounds 5] [--json FILE] [--quick]

Agents observe or act in a closed loop, each on its own persistent connection. The servers share the
first core and are measured one at a time; the process of the agents has the other cores. Each round
uses new servers and a shuffled order of cases. The floors of round trips are Starlette and bare
asyncio; the floor of a recording is the same world without recording.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.engine_processes import Served, serve_on_first_core
from benchmarks.fresh import call_in_fresh_process
from benchmarks.kit_clients import VERBS, connect_while_busy, drive
from benchmarks.kit_recordings import WORLDS, measure_recording
from benchmarks.kit_servers import PROGRAMS, Table
from benchmarks.measure import Row, median, print_rows, write_json
from benchmarks.plots import case_title
from clawblox.recording.blocks import Track

_KIT: Final = "kit"
_REALTIME: Final = "kit, real time"
_FLOORS: Final = {"starlette": "Starlette", "asyncio": "asyncio"}
_GOAL_RECORDING: Final = 1.15
_GOAL_MB: Final = 10.0
_TICK_MS: Final = 1e3 / Table.tick_rate

Trips = Mapping[str, Mapping[str, float]]
"""Figures of round trips, by server and case, such as ``kit: 8 observe``."""


@attrs.frozen
class Scale:
    """The extent of the measurements.

    Attributes:
        rounds: Number of rounds.
        counts: Numbers of agents.
        trips_s: Duration of sending requests, in seconds.
        record_s: Duration of playing a recorded world, in seconds.
    """

    rounds: int = 5
    counts: Sequence[int] = (1, 8, 32, 128)
    trips_s: float = 1.0
    record_s: float = 30.0


QUICK: Final = Scale(1, (1, 8), 0.2, 1.0)


def measure_trips(scale: Scale) -> dict[str, dict[str, float]]:
    """Return the medians of all figures of round trips, by server and case.

    The time to connect while other agents are busy has the case ``connect``.
    """
    samples: dict[str, list[dict[str, float]]] = {}
    for _ in range(scale.rounds):
        for name, figures in _take_trips(scale).items():
            samples.setdefault(name, []).append(figures)
    return {name: _medians(taken) for name, taken in samples.items()}


def _medians(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: median(figures[key] for figures in samples) for key in samples[0]}


def _take_trips(scale: Scale) -> dict[str, dict[str, float]]:
    taken = {}
    with serve_on_first_core(list(PROGRAMS.values())) as worlds:
        servers = dict(zip(PROGRAMS, worlds, strict=True))
        sessions = {
            title: [world.join(f"Agent{number}") for number in range(max(scale.counts))]
            for title, world in servers.items()
        }
        for world in worlds:
            world.close()  # otherwise closed while idle
        cases = list(itertools.product(servers, VERBS, scale.counts))
        for title, verb, count in random.sample(cases, len(cases)):
            joined = sessions[title][:count]
            taken[_name(title, count, verb)] = _ask(servers[title], verb, joined, scale.trips_s)
        for title in random.sample(list(servers), len(servers)):
            port = servers[title].port
            connect_ms = call_in_fresh_process(connect_while_busy, port, sessions[title])
            taken[_connect_name(title)] = {"connect_ms": connect_ms}
    return taken


def _ask(world: Served, verb: str, sessions: Sequence[str], seconds: float) -> dict[str, float]:
    before = world.cpu_s()
    figures = call_in_fresh_process(drive, world.port, verb, sessions, seconds)
    return {**figures, "cpu_us": 1e6 * (world.cpu_s() - before) / figures["answers"]}


def _name(server: str, count: int, verb: str) -> str:
    return f"{server}: {count} {verb}"


def _connect_name(server: str) -> str:
    return f"{server}: connect"


def make_rows(trips: Trips, counts: Sequence[int]) -> list[Row]:
    """Return the rows of the round trips."""
    return [
        *_cost_rows(trips, counts),
        *_connect_rows(trips, counts),
        *_speed_rows(trips, counts),
        *_realtime_rows(trips, counts),
        *_client_rows(trips),
    ]


def _cost_rows(trips: Trips, counts: Sequence[int]) -> list[Row]:
    return [
        Row(
            f"{case_title(f'{count} {verb}')}, against {title}",
            trips[_name(_KIT, count, verb)]["cpu_us"],
            "µs",
            floor=trips[_name(floor, count, verb)]["cpu_us"],
        )
        for floor, title in _FLOORS.items()
        for verb in VERBS
        for count in counts
    ]


def _connect_rows(trips: Trips, counts: Sequence[int]) -> list[Row]:
    half = max(counts) // 2
    kit, floor = (trips[_connect_name(title)]["connect_ms"] for title in (_KIT, "starlette"))
    what = f"{half} agents connect while {half} observe, against Starlette"
    return [Row(what, kit, "ms", floor=floor)]


def _speed_rows(trips: Trips, counts: Sequence[int]) -> list[Row]:
    units = {"rate": "answers/s", "p50_ms": "ms", "p99_ms": "ms"}
    titles = {"rate": "answers", "p50_ms": "latency, median", "p99_ms": "latency, p99"}
    return [
        Row(
            f"{case_title(f'{count} {verb}')}: {titles[key]}",
            trips[_name(_KIT, count, verb)][key],
            unit,
        )
        for key, unit in units.items()
        for verb in VERBS
        for count in counts
    ]


def _realtime_rows(trips: Trips, counts: Sequence[int]) -> list[Row]:
    """Return latencies in real time; inputs wait for the next tick, so their floor is a tick."""
    titles = {"p50_ms": "latency, median", "p99_ms": "latency, p99"}
    return [
        Row(
            f"real time, {case_title(f'{count} {verb}')}: {title}",
            trips[_name(_REALTIME, count, verb)][key],
            "ms",
            floor=_TICK_MS if verb == "input" else None,
        )
        for verb in VERBS
        for key, title in titles.items()
        for count in counts
    ]


def _client_rows(trips: Trips) -> list[Row]:
    """Return the maximum share of a core used by the agents, which must be below 100 %."""
    rows = []
    for title in PROGRAMS:
        shares = [
            figures["client_share"]
            for name, figures in trips.items()
            if name.startswith(f"{title}: ") and "client_share" in figures
        ]
        rows.append(Row(f"agents of {title}: share of a core, at most", 100 * max(shares), "%"))
    return rows


def measure_recordings(scale: Scale) -> dict[str, dict[str, float]]:
    """Return the medians of all figures of recordings, by world."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in WORLDS}
    for _ in range(math.ceil(scale.rounds / 2)):
        for name in random.sample(list(WORLDS), len(WORLDS)):
            taken[name].append(call_in_fresh_process(measure_recording, name, scale.record_s))
    return {name: _medians(samples) for name, samples in taken.items()}


def make_recording_rows(recordings: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Return the rows of recordings: times per simulated minute, and sizes per hour."""
    rows = []
    for name, figures in recordings.items():
        recorded, plain = figures["recorded_s"], figures["plain_s"]
        goal = None if name == "marbles" else _GOAL_RECORDING
        rows.append(Row(f"{name}, a minute with recording", recorded, "s", floor=plain, goal=goal))
    for name, figures in recordings.items():
        what = f"{name}, verifying a minute, against real time"
        rows.append(Row(what, figures["verify_s"], "s", floor=60.0))
    for name, figures in recordings.items():
        in_all = _megabytes_per_hour(figures["bytes"])
        rows.append(Row(f"{name}, an hour of recording", in_all, "MB", goal=_GOAL_MB))
        for track in Track:
            part = _megabytes_per_hour(figures[f"{track}_bytes"])
            rows.append(Row(f"{name}, of these {track}", part, "MB"))
    return rows


def _megabytes_per_hour(bytes_per_minute: float) -> float:
    return 60 * bytes_per_minute / 1e6


def measure(scale: Scale) -> tuple[list[Row], dict[str, Any]]:
    """Measure everything; return the rows, and all underlying figures."""
    trips, recordings = measure_trips(scale), measure_recordings(scale)
    rows = [*make_rows(trips, scale.counts), *make_recording_rows(recordings)]
    return rows, {"trips": trips, "recordings": recordings}


def main() -> None:
    """Parse the arguments, measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=Scale().rounds)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    rows, figures = measure(QUICK if options.quick else Scale(rounds=options.rounds))
    name = "the kit of Python worlds"
    print_rows(name, rows)
    if options.json is not None:
        write_json(options.json, name, rows, **figures)


if __name__ == "__main__":
    main()
