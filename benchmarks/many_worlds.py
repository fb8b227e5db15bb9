"""Cost of clawblox for dozens of worlds: each part compared to its floor, in one run.

    python -m benchmarks.many_worlds [--json FILE] [--only PART,...] [--quick]

Parts: ``starts`` (and stops), ``snapshots``, ``logs``, ``idle``, and ``peers``: the same worlds
run by a plain script and by other tools. Within a round the contenders come in shuffled order,
and medians over the rounds are compared.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.idle import bench_idle
from benchmarks.logs import bench_logs
from benchmarks.measure import Row, print_rows, write_json
from benchmarks.peers import bench_peers, print_tools
from benchmarks.snapshots import bench_snapshots
from benchmarks.starts import bench_starts
from benchmarks.worlds import Readiness

PARTS = ("starts", "snapshots", "logs", "idle", "peers")


@attrs.frozen
class Scale:
    """The extent of the measurements."""

    light: Sequence[int] = (1, 8, 32, 128)
    heavy: int = 32
    start_rounds: int = 5
    snapshots: Sequence[tuple[int, int]] = ((64, 1), (64, 50), (4, 300))
    snapshot_rounds: int = 3
    talkative: int = 64
    lines_per_s: int = 1000
    log_seconds: float = 5.0
    idle: int = 128
    idle_seconds: float = 15.0
    peers: int = 32
    peer_rounds: int = 3
    patience_s: float = 3.0


QUICK = Scale(
    light=(1, 8),
    heavy=4,
    start_rounds=1,
    snapshots=((4, 1),),
    snapshot_rounds=1,
    talkative=8,
    log_seconds=1.0,
    idle=8,
    idle_seconds=2.0,
    peers=4,
    peer_rounds=1,
    patience_s=1.0,
)


class Run:
    """The requested parts, and their results.

    Args:
        scratch: Directory for all files.
        scale: The extent of the measurements.

    Attributes:
        rows: The rows of all parts.
        more: Further members of the JSON.
    """

    def __init__(self, scratch: Path, scale: Scale) -> None:
        self._scratch = scratch
        self._scale = scale
        self.rows: list[Row] = []
        self.more: dict[str, Any] = {}

    def take(self, part: str) -> None:
        """Measure one part and print it."""
        directory = self._scratch / part
        directory.mkdir()
        readiness = Readiness(directory)
        try:
            rows = getattr(self, f"_{part}")(directory, readiness)
        finally:
            readiness.close()
        if rows:
            print_rows(f"many worlds: {part}", rows)
            self.rows += rows

    def _starts(self, directory: Path, readiness: Readiness) -> list[Row]:
        scale = self._scale
        rows, self.more["series"] = bench_starts(
            directory, readiness, counts=scale.light, heavy=scale.heavy, rounds=scale.start_rounds
        )
        return rows

    def _snapshots(self, directory: Path, readiness: Readiness) -> list[Row]:
        scale = self._scale
        return bench_snapshots(
            directory, readiness, sizes=scale.snapshots, rounds=scale.snapshot_rounds
        )

    def _logs(self, directory: Path, readiness: Readiness) -> list[Row]:
        scale = self._scale
        return bench_logs(
            directory,
            readiness,
            count=scale.talkative,
            lines_per_s=scale.lines_per_s,
            seconds=scale.log_seconds,
        )

    def _idle(self, directory: Path, readiness: Readiness) -> list[Row]:
        scale = self._scale
        return bench_idle(directory, readiness, count=scale.idle, seconds=scale.idle_seconds)

    def _peers(self, directory: Path, readiness: Readiness) -> list[Row]:
        scale = self._scale
        tools = bench_peers(
            directory,
            readiness,
            count=scale.peers,
            rounds=scale.peer_rounds,
            patience_s=scale.patience_s,
        )
        print_tools(tools, scale.peers)
        self.more["tools"] = [attrs.asdict(tool) for tool in tools]
        return []


def parts(text: str) -> list[str]:
    """Read the value of ``--only``."""
    chosen = text.split(",")
    unknown = set(chosen) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown part: {', '.join(sorted(unknown))}")
    return chosen


def main() -> None:
    """Parse the arguments, measure, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    parser.add_argument("--only", type=parts, default=PARTS, help=f"of {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clawblox-bench-") as scratch:
        run = Run(Path(scratch), QUICK if options.quick else Scale())
        for part in options.only:
            run.take(part)
    if options.json:
        name = f"many worlds: {', '.join(options.only)}"
        write_json(options.json, name, run.rows, **run.more)


if __name__ == "__main__":
    main()
