"""Shared code of the benchmarks: medians, memory, loop lag, a table and JSON."""

from __future__ import annotations

import json
import os
import platform
import random
import re
import resource
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import attrs

__all__ = [
    "Row",
    "Watch",
    "commit",
    "file_system",
    "machine",
    "measure_loops",
    "median",
    "peak_resident_bytes",
    "print_rows",
    "report",
    "reset_peak",
    "resident_bytes",
    "take_rounds",
    "watch",
    "write_json",
]

_TICK_S = 0.001


@attrs.frozen
class Row:
    """A row of a benchmark's table.

    Attributes:
        what: Name of the measured quantity.
        value: Its median.
        unit: Unit of the value.
        floor: Median of the floor in the same rounds, or None.
        goal: Maximum ratio (without a floor, maximum value) to achieve, or None.
        note: Reason for a missing value, or other remarks.
    """

    what: str
    value: float | None
    unit: str
    floor: float | None = None
    goal: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The value as a multiple of its floor."""
        return None if self.floor is None or self.value is None else self.value / self.floor

    @property
    def is_reached(self) -> bool | None:
        """True if the goal is reached; None without a goal."""
        measured = self.value if self.ratio is None else self.ratio
        return None if self.goal is None or measured is None else measured <= self.goal


def median(samples: Iterable[float]) -> float:
    """Return the median of some samples."""
    return statistics.median(samples)


def measure_loops(
    loops: Mapping[str, Callable[[], object]], turns: int, rounds: int
) -> dict[str, float]:
    """Return the CPU time of an iteration of each loop, in ns, minus that of the empty loop.

    The loops alternate, to share quiet moments equally; the minimum over the rounds counts.

    Args:
        loops: The loops by name; the name of the empty loop is empty.
        turns: Iterations of each loop per round.
        rounds: Number of rounds.
    """
    taken: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            begun = time.process_time()
            loop()
            taken[name].append((time.process_time() - begun) / turns * 1e9)
    empty = min(taken.pop(""))
    return {name: max(0.0, min(times) - empty) for name, times in taken.items()}


def take_rounds(
    rounds: int, takers: Mapping[str, Callable[[], dict[str, float]]]
) -> dict[str, dict[str, list[float]]]:
    """Take samples of all contenders in each round, in shuffled order.

    Returns:
        The values of each member of the samples, by contender.
    """
    taken: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in takers}
    for number in range(rounds):
        for name in random.Random(number).sample(list(takers), len(takers)):
            for member, value in takers[name]().items():
                taken[name][member].append(value)
    return taken


@attrs.define
class Watch:
    """The state of a running measurement.

    Attributes:
        lag_s: Maximum delay of a tick of the event loop, in seconds.
        private_bytes: Maximum growth of this process's private memory, without pages of mapped
            files, which belong to the page cache.
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


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def reset_peak() -> None:
    """Reset the peak of this process's resident memory; see proc(5)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process since :func:`reset_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024


def machine() -> str:
    """Return a short description of the machine."""
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = f" ({model[1]})" if model else ""
    release = ".".join(platform.release().split(".")[:2])
    system = f"Python {platform.python_version()}, {platform.system()} {release}"
    return f"{os.cpu_count()} cores{processor}, {system}"


def commit() -> str:
    """Return the commit of this checkout, with a plus sign if the code differs."""
    root = Path(__file__).parents[1]
    head = _git(root, "rev-parse", "--short=7", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", "*.py", "pyproject.toml")
    return (head + ("+" if changes else "")) or "unknown"


def _git(root: Path, *words: str) -> str:
    result = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def file_system(directory: Path) -> str:
    """Return the file system type of a directory, for example ``ext4``."""
    place = directory.resolve()
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    types = {Path(fields[4]): fields[fields.index("-") + 1] for fields in mounts}
    return next(types[parent] for parent in (place, *place.parents) if parent in types)


def report(name: str, rows: Sequence[Row], json_path: Path | None) -> None:
    """Print a table of the rows, and write them to ``json_path`` if given."""
    print_rows(name, rows)
    if json_path is not None:
        write_json(json_path, name, rows)


def print_rows(name: str, rows: Sequence[Row]) -> None:
    """Print a table of the rows; a missed goal is marked with ``!``."""
    print(f"\n{name} ({machine()})")
    print(f"{'what':<48} {'median':>12} {'floor':>12} {'x floor':>8} {'goal':>8}")
    for row in rows:
        floor = "" if row.floor is None else f"{row.floor:.3f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        goal = "" if row.goal is None else f"{row.goal:g}{' !' if row.is_reached is False else ''}"
        value = "n/a" if row.value is None else f"{row.value:.3f} {row.unit}"
        cells = f"{row.what:<48} {value:>12} {floor:>12} {ratio:>8} {goal:>8}  {row.note}"
        print(cells.rstrip(), flush=True)


def write_json(path: Path, name: str, rows: Sequence[Row], **more: Any) -> None:
    """Write the rows, and further results, to a file."""
    document = {
        "benchmark": name,
        "machine": machine(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "rows": [{**attrs.asdict(row), "ratio": row.ratio} for row in rows],
        **more,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
