"""Benefit of google-re2 and isal: the cost of checkpoints with and without each package.

clawblox uses google-re2 if it is installed. It does not use isal, which this script substitutes for
zlib to measure the potential gain.

``python -m benchmarks.optional_packages`` saves an agent with the standard library of this Python,
10 MB of other text and 30 MB of binary data, and a snapshot of 12 MB: first, without changes, and
with a twentieth of the files changed. Each contender runs in its own process on one core, without
helper processes, and the contenders alternate. CPU time is measured, because other work on the
machine affects it less than wall time; the minimum over the rounds counts.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.checkpoints import change_some, make_material
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, report

_WITH_ISAL = ("isal alone", "both") if importlib.util.find_spec("isal") else ()
_CONTENDERS = ("none", "re2 alone", *_WITH_ISAL)


def save_three_times(root: str, target: str, contender: str) -> dict[str, float]:
    """Save three times, and return the CPU seconds of each save and the size of the first."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    if contender not in ("re2 alone", "both"):
        sys.modules["re2"] = None  # type: ignore[assignment] # cannot be imported
    from clawblox import save_checkpoint
    from clawblox.checkpoint.archive import packing

    if contender in ("isal alone", "both"):
        isal = importlib.import_module("isal.isal_zlib")
        packing.new_deflater = lambda: isal.compressobj(1, isal.DEFLATED, -15)

    def save(name: str) -> Callable[[], object]:
        source = Path(root)
        agents = {"a": source / "agent"}
        return lambda: save_checkpoint(Path(target) / name, source / "world.snapshot", agents)

    found = {"first save": _cpu_seconds(save("first.ckpt"))}
    found["size"] = float((Path(target) / "first.ckpt").stat().st_size)
    found["save, nothing changed"] = _cpu_seconds(save("second.ckpt"))
    change_some(Path(root))
    found["save, a twentieth changed"] = _cpu_seconds(save("third.ckpt"))
    return found


def _cpu_seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measure_round(root: Path, scratch: Path) -> dict[str, dict[str, float]]:
    """Measure each contender once, on a copy of the material."""
    found: dict[str, dict[str, float]] = {}
    for name in _CONTENDERS:
        material, target = scratch / "material", scratch / "archives"
        shutil.copytree(root, material)
        target.mkdir(parents=True)
        found[name] = call_in_fresh_process(save_three_times, str(material), str(target), name)
        shutil.rmtree(scratch)
    return found


def make_rows(rounds: list[dict[str, dict[str, float]]]) -> list[Row]:
    """Return the minimum over the rounds, compared to the contender without both packages."""
    rows: list[Row] = []
    for what in ("first save", "save, nothing changed", "save, a twentieth changed"):
        least = {name: min(found[name][what] for found in rounds) for name in _CONTENDERS}
        rows += [
            Row(f"{what}, {name}: CPU", cpu, "s", least["none"] if name != "none" else None)
            for name, cpu in least.items()
        ]
    sizes = {name: rounds[0][name]["size"] / 1e6 for name in _CONTENDERS}
    return [
        *rows,
        *(Row(f"archive, {name}", sizes[name], "MB", sizes["none"]) for name in _WITH_ISAL[:1]),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--quick", action="store_true", help="a hundredth of it, one round")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    scale, rounds = (100, 1) if options.quick else (1, options.rounds)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        root.mkdir()
        make_material(root, 400 // scale, 50_000_000 // scale, 12_000_000 // scale)
        library = Path(sysconfig.get_path("stdlib"))
        sources = sorted(library.glob("*.py" if options.quick else "**/*.py"))
        for path in sources:
            name = path.relative_to(library)
            if "site-packages" not in name.parts and "test" not in name.parts:
                (root / "agent" / "workspace" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, root / "agent" / "workspace" / name)
        found = [measure_round(root, Path(directory) / "scratch") for _ in range(rounds)]
    report("optional packages", make_rows(found), options.json)


if __name__ == "__main__":
    main()
