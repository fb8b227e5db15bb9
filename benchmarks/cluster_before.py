"""Cost of the cluster code for users without clusters: imports, and the first start of a world.

This state of the package is compared with the last commit without clusters, from adjacent copies
whose interpreters have the same requirements.
"""

from __future__ import annotations

import itertools
import json
import shutil
import site
import subprocess
import venv
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measure import Row, median, take_rounds
from benchmarks.paired import ENV, measure_imports
from benchmarks.worlds import write_world

__all__ = ["measure_before"]

BEFORE: Final = "d6ac0aa5"
"""The last commit without clusters."""

_ROOT: Final = Path(__file__).parents[1]
_FIRST_START: Final = """
import json, sys, time
import anyio
from clawblox import AsyncWorld

async def main():
    async with AsyncWorld(dir=sys.argv[1]) as world:
        wall, cpu = time.perf_counter(), time.process_time()
        await world.start(run_dir=sys.argv[2])
        taken = {"wall_ms": time.perf_counter() - wall, "cpu_ms": time.process_time() - cpu}
        print(json.dumps({name: 1e3 * value for name, value in taken.items()}))

anyio.run(main)
"""


def measure_before(scratch: Path, rounds: int) -> list[Row]:
    """Compare imports and first starts with the last commit without clusters."""
    try:
        pythons = install_both(scratch)
    except subprocess.CalledProcessError as error:
        return [Row("against the commit before", None, "", note=f"no commit {BEFORE}: {error}")]
    rows = [
        Row(f"{pair.what}, against {BEFORE}", pair.after, pair.unit, pair.before, 1.03)
        for pair in measure_imports(pythons, rounds)
    ]
    world = write_world(scratch / "light", "light")
    runs = itertools.count()

    def start(name: str) -> dict[str, float]:
        arguments = [str(world), str(scratch / f"run{next(runs)}")]
        words = [pythons[name], "-P", "-c", _FIRST_START, *arguments]
        done = subprocess.run(words, env=ENV, stdout=subprocess.PIPE, check=True)
        taken: dict[str, float] = json.loads(done.stdout)
        return taken

    for name in pythons:
        start(name)  # compiles
    taken = take_rounds(rounds, {name: partial(start, name) for name in pythons})
    for what, member in (("first start of a world", "wall_ms"), ("CPU of the start", "cpu_ms")):
        after, before = (median(taken[name][member]) for name in ("after", "before"))
        rows.append(Row(f"{what}, against {BEFORE}", after, "ms", before, 1.03))
    return rows


def install_both(scratch: Path) -> dict[str, str]:
    """Return interpreters with copies of both states of the package and the same requirements."""
    pythons = {}
    for name in ("before", "after"):
        state = scratch / name
        state.mkdir()
        if name == "before":
            words = ["git", "archive", BEFORE, "clawblox"]
            packed = subprocess.run(words, cwd=_ROOT, stdout=subprocess.PIPE, check=True).stdout
            subprocess.run(["tar", "x"], cwd=state, input=packed, check=True)
        else:
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_ROOT / "clawblox", state / "clawblox", ignore=leave)
        home = scratch / f"python-{name}"
        venv.create(home, symlinks=True)
        (packages,) = home.glob("lib/python*/site-packages")
        lines = [str(state), *site.getsitepackages()]
        (packages / "bench.pth").write_text("\n".join(lines) + "\n")
        pythons[name] = str(home / "bin" / "python")
    return pythons
