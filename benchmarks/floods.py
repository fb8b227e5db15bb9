"""Tick rate of a world while clients send requests at the maximum rate.

    python -m benchmarks.floods [--rounds 3] [--json FILE] [--quick]

The world is the scene of the engine's benchmark, on its own core; the clients have the others. Each
flood is compared with the same world before the flood, without clients.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks.engine_processes import SCENE_PROGRAM, Served, serve_on_first_core
from benchmarks.measure import Row, median, report

_PLAYERS: Final = 8
_SETTLE_S: Final = 0.5
_GOAL: Final = 1.11


@attrs.frozen
class Flood:
    """A kind of clients.

    Attributes:
        what: Its title.
        kind: The behaviour of the clients, from `benchmarks.flooder.KINDS`.
        connections: Number of connections.
    """

    what: str
    kind: str
    connections: int


FLOODS: Final = (
    Flood("0.1 MB/s of empty pings", "ping", 1),
    Flood("pipelined GET /spectate, 1 connection", "pipeline", 1),
    Flood("pipelined GET /spectate, 8 connections", "pipeline", 8),
    Flood("GET /observe, 8 connections", "observe", 8),
    Flood("GET /observe, 64 connections", "observe", 64),
)


def measure(rounds: int, seconds: float) -> list[Row]:
    """Measure each flood.

    Args:
        rounds: Number of rounds.
        seconds: Duration of counting ticks with and without the flood.
    """
    taken = {flood: [_measure_flood(flood, seconds) for _ in range(rounds)] for flood in FLOODS}
    rows = []
    for flood, rates in taken.items():
        quiet, flooded = (median(column) for column in zip(*rates, strict=True))
        title = f"{flood.what}: {flooded:.1f} of {quiet:.1f} ticks a second"
        rows.append(Row(title, 1e3 / flooded, "ms", 1e3 / quiet, goal=_GOAL))
    return rows


def _measure_flood(flood: Flood, seconds: float) -> tuple[float, float]:
    """Return the ticks per second of the world without and with a flood."""
    with ExitStack() as stack:
        (world,) = stack.enter_context(serve_on_first_core([SCENE_PROGRAM]))
        sessions = [world.join(f"Player{number}") for number in range(1, _PLAYERS)]
        quiet = _count_ticks(world, seconds)
        stack.enter_context(_run(flood, world.port, sessions))
        time.sleep(_SETTLE_S)
        return quiet, _count_ticks(world, seconds)


def _count_ticks(world: Served, seconds: float) -> float:
    first, begun = world.ask("GET", "/observe")["tick"], time.monotonic()
    world.close()  # the world would close it while it is idle
    time.sleep(seconds)
    last, ended = world.ask("GET", "/observe")["tick"], time.monotonic()
    return float(last - first) / (ended - begun)


@contextmanager
def _run(flood: Flood, port: int, sessions: list[str]) -> Iterator[None]:
    words = [flood.kind, str(port), str(flood.connections), *sessions]
    with subprocess.Popen([sys.executable, "-m", "benchmarks.flooder", *words]) as process:
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the clients of {flood.what!r} have ended")
        finally:
            process.send_signal(signal.SIGKILL)


def main() -> None:
    """Parse the arguments, measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    rows = measure(1, 0.5) if options.quick else measure(options.rounds, 5.0)
    report("Floods", rows, options.json)


if __name__ == "__main__":
    main()
