"""Cost of idle instances for their orchestrator, with and without liveness probes."""

from __future__ import annotations

import time
from pathlib import Path

import anyio

from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, resident_bytes
from benchmarks.worlds import Readiness, write_world
from clawblox import AsyncWorld

__all__ = ["bench_idle"]

_SETTLE_S = 1.0


def bench_idle(scratch: Path, readiness: Readiness, *, count: int, seconds: float) -> list[Row]:
    """Measure ``count`` idle light worlds, for ``seconds`` with and without probes."""
    rows: list[Row] = []
    for name, more in (("idle", ""), ("probed", "[run.liveness]\nperiod = 10.0")):
        world_dir = write_world(scratch / name, "light", more=more)
        taken = call_in_fresh_process(
            take_idle, str(world_dir), str(scratch / f"{name}-run"), readiness.env, count, seconds
        )
        readiness.end_carriers()
        what = f"{count} {name} instances"
        rows.append(Row(f"{what}: CPU per minute", 60 * taken["cpu_share"], "s"))
        rows.append(Row(f"{what}: RSS each", taken["rss_bytes"] / count / 1024, "KiB", goal=64))
    return rows


async def take_idle(
    world_dir: str, run_dir: str, env: dict[str, str], count: int, seconds: float
) -> dict[str, float]:
    """Run idle instances."""
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=f"{run_dir}-first", env=env)
        await world.stop()
        rss_before = resident_bytes()
        batch = await world.start_many(count, run_dir=run_dir, env=env)
        batch.raise_if_failed()
        await anyio.sleep(_SETTLE_S)
        cpu, begun = time.process_time(), time.monotonic()
        await anyio.sleep(seconds)
        share = (time.process_time() - cpu) / (time.monotonic() - begun)
        return {"cpu_share": share, "rss_bytes": resident_bytes() - rss_before}
