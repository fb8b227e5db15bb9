"""Installations of clawblox compared to each other and to the floor, in one run.

    python -m benchmarks.paired BEFORE_PYTHON AFTER_PYTHON [--fixed PYTHON] [--json FILE]
                                [--dir DIR]... [--rounds N] [--quick]

Each interpreter belongs to a virtual environment in which one state of clawblox is installed.
A change is compared to the state before it, and with ``--fixed`` to a state that stays the same
over many changes, since small costs add up. Within a round, the floor and all states come in
shuffled order, each in fresh processes; medians over the rounds are compared. The files of the
samples are removed only at the end, since deletions slow down the creation of files on some file
systems.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from benchmarks.floors import end, save_floor, spawn, start_floor
from benchmarks.measure import file_system, machine, median, write_json
from benchmarks.one_world import write_snapshot
from benchmarks.worlds import Readiness, make_specs, write_world

__all__ = ["ENV", "PairedRow", "measure_imports"]

_ROOT = Path(__file__).parent.parent
_SAMPLER = Path(__file__).with_name("installed.py")
_THREADS = 4
"""Number of concurrent transfers, the same as in clawblox."""

_SHARED_MEMORY = Path("/dev/shm")
_IMPORTS = {
    "import clawblox.AsyncWorld": ["-c", "from clawblox import AsyncWorld"],
    "clawblox --help": ["-m", "clawblox", "--help"],
    "clawblox ps": ["-m", "clawblox", "ps", str(_SAMPLER.parent)],
}

ENV = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""The environment without the variable that would disable the bytecode cache."""

Samples = dict[str, list[dict[str, float]]]
"""The samples by contender."""


@attrs.frozen
class PairedRow:
    """A row of the comparison.

    Attributes:
        where: File system, or an empty string if irrelevant.
        what: Name of the measured quantity.
        unit: Unit of the three values.
        before: Median of the first installation.
        after: Median of the second installation.
        floor: Median of the floor in the same rounds, or None.
        fixed: Median of the fixed installation, if there is one.
    """

    where: str
    what: str
    unit: str
    before: float
    after: float
    floor: float | None = None
    fixed: float | None = None

    @property
    def change(self) -> float:
        """The second installation as a multiple of the first."""
        return self.after / self.before if self.before else float("nan")

    @property
    def growth(self) -> float | None:
        """The second installation as a multiple of the fixed installation."""
        return self.after / self.fixed if self.fixed else None

    def times_floor(self, value: float) -> float | None:
        """A value as a multiple of the floor."""
        return value / self.floor if self.floor else None


@attrs.frozen
class Scale:
    """The extent of the measurements."""

    counts: Sequence[int] = (32, 128)
    saved: int = 64
    rounds: int = 7
    import_rounds: int = 15


QUICK = Scale(counts=(8,), saved=8, rounds=2, import_rounds=3)


class Pair:
    """Takes samples of two installations in one directory.

    Args:
        pythons: Interpreters of the installations, by contender.
        scratch: Directory for all files.
        scale: The extent of the measurements.
    """

    def __init__(self, pythons: dict[str, str], scratch: Path, scale: Scale) -> None:
        self._pythons = pythons
        self._scratch = scratch
        self._scale = scale
        self._world_dir = write_world(scratch / "light", "light")
        self._runs = 0

    def measure(self, where: str, readiness: Readiness) -> list[PairedRow]:
        """Measure starts, stops and saves."""
        rows: list[PairedRow] = []
        for count in self._scale.counts:
            samples = self._take_rounds(partial(self._start, count, readiness))
            rows += _start_rows(where, count, samples)
        source = self._scratch / "source.json"
        write_snapshot(source, 1, keys_first=False)
        readiness.env["BENCH_SNAPSHOT"] = str(source)
        samples = self._take_rounds(partial(self._save, readiness))
        return rows + _save_rows(where, self._scale.saved, samples)

    def _take_rounds(self, take: Callable[[str], dict[str, float]]) -> Samples:
        shuffle = random.Random(self._runs).shuffle
        samples: Samples = {name: [] for name in ("floor", *self._pythons)}
        for _ in range(self._scale.rounds):
            order = list(samples)
            shuffle(order)
            for name in order:
                samples[name].append(take(name))
        return samples

    def _start(self, count: int, readiness: Readiness, name: str) -> dict[str, float]:
        if name == "floor":
            ready, stop = start_floor(make_specs("light", count, readiness), readiness)
            return {"start_s": ready, "stop_s": stop}
        return self._sample(name, "start_and_stop", count, readiness)

    def _save(self, readiness: Readiness, name: str) -> dict[str, float]:
        count = self._scale.saved
        if name != "floor":
            return self._sample(name, "save", count, readiness)
        specs = make_specs("light", count, readiness)
        pids = spawn(specs)
        try:
            readiness.wait(count)
            ports = [spec.port for spec in specs]
            save_floor(ports, str(self._scratch), _THREADS)
            return {"save_s": save_floor(ports, str(self._scratch), _THREADS)}
        finally:
            end(pids)

    def _sample(
        self, name: str, function: str, count: int, readiness: Readiness
    ) -> dict[str, float]:
        self._runs += 1
        arguments = {
            "world_dir": str(self._world_dir),
            "run_dir": str(self._scratch / f"run{self._runs}"),
            "env": readiness.env,
            "count": count,
        }
        command = [self._pythons[name], "-P", str(_SAMPLER), function, json.dumps(arguments)]
        try:
            finished = subprocess.run(
                command, env=ENV, stdout=subprocess.PIPE, timeout=300, check=True
            )
        finally:
            readiness.end_carriers()
        taken: dict[str, float] = json.loads(finished.stdout)
        return taken


def _start_rows(where: str, count: int, samples: Samples) -> list[PairedRow]:
    row = _RowMaker(where, samples)
    return [
        row(f"start {count} light worlds", "start_s", "ms", 1e3),
        row(f"stop {count} light worlds", "stop_s", "ms", 1e3),
        row(f"CPU of a start, {count} at once", "start_cpu_s", "ms", 1e3 / count),
        row(f"CPU of a start in the loop, {count} at once", "start_loop_cpu_s", "ms", 1e3 / count),
        row(f"CPU of a stop, {count} at once", "stop_cpu_s", "ms", 1e3 / count),
        row(f"memory per instance, {count} started", "rss_bytes", "KiB", 1 / 1024 / count),
    ]


def _save_rows(where: str, count: int, samples: Samples) -> list[PairedRow]:
    row = _RowMaker(where, samples)
    return [
        row(f"save {count} x 1 MB", "save_s", "ms", 1e3),
        row(f"CPU of a save, {count} at once", "save_cpu_s", "ms", 1e3 / count),
        row(f"CPU of a save in the loop, {count} at once", "save_loop_cpu_s", "ms", 1e3 / count),
    ]


class _RowMaker:
    """Creates rows from a set of samples."""

    def __init__(self, where: str, samples: Samples) -> None:
        self._where = where
        self._samples = samples

    def __call__(self, what: str, field: str, unit: str, factor: float) -> PairedRow:
        middle = {
            name: factor * median(sample[field] for sample in taken)
            for name, taken in self._samples.items()
            if field in taken[0]
        }
        return PairedRow(self._where, what, unit, **middle)


def measure_imports(pythons: dict[str, str], rounds: int) -> list[PairedRow]:
    """Measure the processor time of imports; the floor is the interpreter's own start."""
    rows: list[PairedRow] = []
    for what, arguments in _IMPORTS.items():
        samples: Samples = {name: [] for name in ("floor", *pythons)}
        for number in range(rounds + 1):
            for name in random.Random(number).sample(list(samples), len(samples)):
                command = ["-c", "pass"] if name == "floor" else arguments
                cpu = _cpu_s([pythons.get(name, pythons["after"]), "-P", *command])
                if number:  # the first round compiles
                    samples[name].append({"cpu_s": cpu})
        rows.append(_RowMaker("", samples)(f"CPU of `{what}`", "cpu_s", "ms", 1e3))
    return rows


def _cpu_s(command: list[str]) -> float:
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(command[0], command, ENV, file_actions=silent)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with wait status {status}")
    return usage.ru_utime + usage.ru_stime


def print_paired(rows: Sequence[PairedRow]) -> None:
    """Print the comparison."""
    print(f"\nbefore and after ({machine()})")
    heads = ("before", "after", "after/before", "after/fixed", "before/floor", "after/floor")
    print(f"{'':<6}{'what':<40}" + "".join(f"{head:>14}" for head in heads))
    for row in rows:
        floors = [row.times_floor(row.before), row.times_floor(row.after)]
        ratios = [row.change, row.growth, *floors]
        cells = [f"{value:.2f} {row.unit}" for value in (row.before, row.after)]
        cells += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        line = f"{row.where:<6}{row.what:<40}" + "".join(f"{cell:>14}" for cell in cells)
        print(line.rstrip())


def measure(pythons: dict[str, str], directories: Sequence[Path], scale: Scale) -> list[PairedRow]:
    """Measure everything."""
    rows: list[PairedRow] = []
    for directory in directories:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=directory) as scratch:
            pair = Pair(pythons, Path(scratch), scale)
            readiness = Readiness(Path(scratch))
            try:
                rows += pair.measure(file_system(directory), readiness)
            finally:
                readiness.close()
    return rows + measure_imports(pythons, scale.import_rounds)


def main() -> None:
    """Parse the arguments, measure, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("before", help="interpreter with the first installation")
    parser.add_argument("after", help="interpreter with the second installation")
    parser.add_argument(
        "--fixed", metavar="PYTHON", help="interpreter with the state that all changes start from"
    )
    parser.add_argument(
        "--dir", type=Path, action="append", metavar="DIR",
        help="measure in this directory; default: this checkout, and /dev/shm",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--rounds", type=int, help=f"default: {Scale().rounds}")
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    given = {name: getattr(options, name) for name in ("fixed", "before", "after")}
    pythons = {name: str(Path(python).absolute()) for name, python in given.items() if python}
    scale = QUICK if options.quick else Scale()
    if options.rounds:
        scale = attrs.evolve(scale, rounds=options.rounds)
    rows = measure(pythons, options.dir or [_ROOT, _SHARED_MEMORY], scale)
    print_paired(rows)
    if options.json:
        more: dict[str, Any] = {"pairs": [attrs.asdict(row) for row in rows]}
        write_json(options.json, "before and after", [], **more)


if __name__ == "__main__":
    main()
