"""Log capture: the cost of many logging worlds for their orchestrator, and blocked writes."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row
from benchmarks.worlds import HOST, Readiness, write_world
from clawblox import AsyncWorld

__all__ = ["bench_logs"]

_STALL_S = 2.0
_SETTLE_S = 0.5
_REQUEST = b"GET /longest-write HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def bench_logs(
    scratch: Path, readiness: Readiness, *, count: int, lines_per_s: int, seconds: float
) -> list[Row]:
    """Measure worlds that write to their logs continuously.

    Args:
        scratch: Directory for all files.
        readiness: Receives the readiness of the worlds.
        count: Number of light worlds.
        lines_per_s: Lines per second and world.
        seconds: Duration of each phase.
    """
    world_dir = write_world(scratch / "talkative", "light")
    env = {**readiness.env, "BENCH_LINES": str(lines_per_s)}
    taken = call_in_fresh_process(
        take_logs, str(world_dir), str(scratch / "logs"), env, count, seconds
    )
    readiness.end_carriers()
    name = f"{count} x {lines_per_s} lines/s"
    delivered = 100 * taken["lines_per_s"] / (count * lines_per_s)
    return [
        Row(f"{name}: CPU, no subscriber", 100 * taken["cpu_alone"], "%", goal=2),
        Row(f"{name}: CPU, all subscribed", 100 * taken["cpu_subscribed"], "%"),
        Row(f"{name}: delivered to the subscribers", delivered, "%"),
        Row(f"{name}: longest write", 1e3 * taken["longest_s"], "ms"),
        Row(
            f"{name}: longest write, loop stalled {_STALL_S:g} s",
            1e3 * taken["longest_stalled_s"],
            "ms",
            goal=1e3 * _STALL_S / 10,
        ),
    ]


async def take_logs(
    world_dir: str, run_dir: str, env: dict[str, str], count: int, seconds: float
) -> dict[str, float]:
    """Measure writing worlds without and with subscribers, and with a blocked loop."""
    async with AsyncWorld(dir=world_dir) as world:
        batch = await world.start_many(count, run_dir=run_dir, env=env)
        batch.raise_if_failed()
        ask = functools.partial(longest_write_s, [started.port for started in batch])
        await anyio.sleep(_SETTLE_S)
        cpu_alone = await _cpu_share(seconds)
        counter = _Counter()
        async with anyio.create_task_group() as tasks:
            for started in batch:
                tasks.start_soon(counter.follow, world, started.name)
            await anyio.sleep(_SETTLE_S)
            await anyio.to_thread.run_sync(ask)  # forgets what the starts did to it
            lines_before = counter.lines
            cpu_subscribed = await _cpu_share(seconds)
            lines = counter.lines - lines_before
            longest = await anyio.to_thread.run_sync(ask)
            time.sleep(_STALL_S)
            longest_stalled = await anyio.to_thread.run_sync(ask)
            tasks.cancel_scope.cancel()
    return {
        "cpu_alone": cpu_alone,
        "cpu_subscribed": cpu_subscribed,
        "lines_per_s": lines / seconds,
        "longest_s": longest,
        "longest_stalled_s": longest_stalled,
    }


class _Counter:
    """Counts the lines that subscribers receive."""

    def __init__(self) -> None:
        self.lines = 0

    async def follow(self, world: AsyncWorld, name: str) -> None:
        """Subscribe to the log of an instance."""
        async with world.logs(instance=name, follow=True, tail=0) as lines:
            async for _ in lines:
                self.lines += 1


async def _cpu_share(seconds: float) -> float:
    """Return the processor time of this process as a share of the time."""
    cpu, begun = time.process_time(), time.monotonic()
    await anyio.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - begun)


def longest_write_s(ports: Sequence[int]) -> float:
    """Return the longest write of the worlds since the last call."""
    longest = 0.0
    for port in ports:
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(_REQUEST)
            with connection.makefile("rb") as answer:
                longest = max(longest, float(answer.read().rpartition(b"\r\n")[2]))
    return longest
