"""What every benchmark needs: medians, memory, loop lag, a table and JSON."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs

__all__ = ["Row", "Watch", "median", "report", "watch"]

_TICK_S = 0.001


@attrs.frozen
class Row:
    """One line of a benchmark's table.

    Attributes:
        what: What was measured.
        value: Its median.
        unit: Unit of the value.
        floor: Median of the floor in the same rounds, if there is one.
        goal: Largest ratio (or value, where there is no floor) that is meant to be reached.
    """

    what: str
    value: float
    unit: str
    floor: float | None = None
    goal: float | None = None

    @property
    def ratio(self) -> float | None:
        """The value as a multiple of its floor."""
        return None if self.floor is None else self.value / self.floor

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        measured = self.value if self.ratio is None else self.ratio
        return None if self.goal is None else measured <= self.goal


def median(samples: Iterable[float]) -> float:
    """Return the median of some samples."""
    return statistics.median(samples)


@attrs.define
class Watch:
    """What a running measurement has seen so far.

    Attributes:
        lag_s: Longest delay of a tick of the event loop, in seconds.
        private_bytes: Largest growth of the memory that is this process's own; pages of mapped
            files, which belong to the page cache, are not in it.
    """

    lag_s: float = 0.0
    private_bytes: int = 0


@asynccontextmanager
async def watch() -> AsyncIterator[Watch]:
    """Watch event loop and memory every millisecond."""
    seen = Watch()
    before = _private_bytes()

    async def tick() -> None:
        while True:
            due = time.monotonic() + _TICK_S
            await anyio.sleep(_TICK_S)
            seen.lag_s = max(seen.lag_s, time.monotonic() - due)
            seen.private_bytes = max(seen.private_bytes, _private_bytes() - before)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        yield seen
        tasks.cancel_scope.cancel()


def _private_bytes() -> int:
    resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * resource.getpagesize()


def report(name: str, rows: Sequence[Row], json_path: Path | None) -> None:
    """Print a table of the rows, and write them to ``json_path`` when it is given."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    print(f"\n{name} ({machine})")
    print(f"{'what':<48} {'median':>12} {'floor':>12} {'x floor':>8} {'goal':>8}")
    for row in rows:
        floor = "" if row.floor is None else f"{row.floor:.3f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        goal = "" if row.goal is None else f"{row.goal:g}{'' if row.is_reached else ' !'}"
        value = f"{row.value:.3f} {row.unit}"
        print(f"{row.what:<48} {value:>12} {floor:>12} {ratio:>8} {goal:>8}")
    if json_path is not None:
        json_path.write_text(json.dumps(_as_json(name, machine, rows), indent=2) + "\n")


def _as_json(name: str, machine: str, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "benchmark": name,
        "machine": machine,
        "rows": [{**attrs.asdict(row), "ratio": row.ratio} for row in rows],
    }
