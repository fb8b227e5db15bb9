"""Takes one sample with the clawblox installation of this interpreter.

    PYTHON -P benchmarks/installed.py FUNCTION JSON

:mod:`benchmarks.paired` runs it with two installations. It uses only the public API and the
standard library, to compare any two states of the package regardless of their module names. The
arguments and the result are JSON objects.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import anyio

from clawblox import AsyncWorld


async def start_and_stop(
    world_dir: str, run_dir: str, env: dict[str, str], count: int
) -> dict[str, float]:
    """Start and stop a batch, after one world to exclude one-time costs."""
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=f"{run_dir}-first", env=env)
        await world.stop()
        rss_before = resident_bytes()
        before = Clocks()
        batch = await world.start_many(count, run_dir=run_dir, env=env)
        started = Clocks()
        batch.raise_if_failed()
        rss = resident_bytes() - rss_before
        stopping = Clocks()
        stopped = await world.stop_all()
        after = Clocks()
        stopped.raise_if_failed()
    return {
        "start_s": started.wall - before.wall,
        "start_cpu_s": started.process - before.process,
        "start_loop_cpu_s": started.thread - before.thread,
        "rss_bytes": rss,
        "stop_s": after.wall - stopping.wall,
        "stop_cpu_s": after.process - stopping.process,
    }


async def save(world_dir: str, run_dir: str, env: dict[str, str], count: int) -> dict[str, float]:
    """Save a batch of worlds, after one save of each to exclude one-time costs."""
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start_many(count, run_dir=run_dir, env=env)
        started.raise_if_failed()
        for snapshot in await world.save_all():
            snapshot.path.unlink()
        before = Clocks()
        saved = await world.save_all()
        after = Clocks()
        saved.raise_if_failed()
        for snapshot in saved:
            snapshot.path.unlink()
    return {
        "save_s": after.wall - before.wall,
        "save_cpu_s": after.process - before.process,
        "save_loop_cpu_s": after.thread - before.thread,
    }


class Clocks:
    """The current wall time, and the CPU times of this process and of the loop's thread."""

    def __init__(self) -> None:
        self.wall = time.monotonic()
        self.process = time.process_time()
        self.thread = time.thread_time()


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Take the sample; other output goes to standard error."""
    result_fd = os.dup(1)
    os.dup2(2, 1)
    function = {"start_and_stop": start_and_stop, "save": save}[sys.argv[1]]
    arguments = json.loads(sys.argv[2]).values()
    result = anyio.run(function, *arguments)
    with os.fdopen(result_fd, "w") as answer:
        json.dump(result, answer)


if __name__ == "__main__":
    main()
