"""Concurrent snapshots of many worlds, compared to plain sockets into fsynced files.

Both use the same worlds: the orchestrator's process starts and saves them, and between two saves a
fresh process measures the floor with the same number of threads.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from benchmarks.floors import save_floor
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import (
    Row,
    median,
    peak_resident_bytes,
    reset_peak,
    resident_bytes,
    watch,
)
from benchmarks.one_world import write_snapshot
from benchmarks.worlds import Readiness, write_world
from clawblox import AsyncWorld

__all__ = ["bench_snapshots"]

_THREADS = 4
"""Number of concurrent transfers, the same as in clawblox."""


def bench_snapshots(
    scratch: Path, readiness: Readiness, *, sizes: Sequence[tuple[int, int]], rounds: int
) -> list[Row]:
    """Measure every (worlds, megabytes) pair for which the disk has room.

    Args:
        scratch: Directory for all files.
        readiness: Receives the readiness of the worlds.
        sizes: Pairs of the number of worlds and the snapshot size in megabytes.
        rounds: Number of rounds of floor and clawblox.
    """
    world_dir = write_world(scratch / "saved", "light")
    rows: list[Row] = []
    for count, megabytes in sizes:
        name = f"{count} x {megabytes} MB"
        needed = (count + 2) * megabytes * 1_000_000
        if shutil.disk_usage(scratch).free < 2 * needed:
            note = f"needs {2 * needed / 1e9:.1f} GB of free disk"
            rows.append(Row(f"{name}: all saved", None, "s", note=note))
            continue
        source = scratch / "source.json"
        write_snapshot(source, megabytes, keys_first=False)
        run_dir = scratch / f"saves-{count}-{megabytes}"
        env = {**readiness.env, "BENCH_SNAPSHOT": str(source)}
        taken = call_in_fresh_process(
            take_saves, str(world_dir), str(run_dir), env, count, rounds, timeout=600.0
        )
        readiness.end_carriers()
        shutil.rmtree(run_dir)
        rows += _rows(name, taken)
    return rows


async def take_saves(
    world_dir: str, run_dir: str, env: dict[str, str], count: int, rounds: int
) -> dict[str, list[float]]:
    """Save all worlds and measure the floor, in turns; return the samples by name."""
    samples: dict[str, list[float]] = {}
    async with AsyncWorld(dir=world_dir) as world:
        batch = await world.start_many(count, run_dir=run_dir, env=env)
        batch.raise_if_failed()
        ports = [started.port for started in batch]
        for turn in _turns(rounds):
            if turn == "floor":
                seconds = await anyio.to_thread.run_sync(
                    call_in_fresh_process, save_floor, ports, run_dir, _THREADS
                )
                taken = {"floor_s": seconds}
            else:
                taken = await _save_all(world)
            for name, value in taken.items():
                samples.setdefault(name, []).append(value)
    return samples


def _turns(rounds: int) -> list[str]:
    shuffle = random.Random(rounds).shuffle
    turns: list[str] = []
    for _ in range(rounds):
        pair = ["floor", "clawblox"]
        shuffle(pair)
        turns += pair
    return turns


async def _save_all(world: AsyncWorld) -> dict[str, float]:
    reset_peak()
    before = resident_bytes()
    async with watch() as seen:
        begun = time.monotonic()
        batch = await world.save_all()
        elapsed = time.monotonic() - begun
    growth = peak_resident_bytes() - before
    batch.raise_if_failed()
    for saved in batch:
        saved.path.unlink()
    return {
        "wall_s": elapsed,
        "growth_bytes": growth,
        "private_bytes": seen.private_bytes,
        "lag_s": seen.lag_s,
    }


def _rows(name: str, taken: dict[str, Any]) -> list[Row]:
    floor = median(taken["floor_s"])
    growth, private = max(taken["growth_bytes"]) / 1e6, max(taken["private_bytes"]) / 1e6
    return [
        Row(f"{name}: all saved", median(taken["wall_s"]), "s", floor, goal=3.5),
        Row(f"{name}: peak memory growth", growth, "MB", goal=32),
        Row(f"{name}: of it private, not the page cache's", private, "MB"),
        Row(f"{name}: loop lag", 1e3 * median(taken["lag_s"]), "ms", goal=50),
    ]
