"""Cost of a checkpoint of a large workspace, compared to a copy and ``zip -1``.

``python -m benchmarks.checkpoints`` creates an agent's workspace of 2,000 files and 200 MB and a
world's snapshot of 50 MB, and measures in rounds, with a separate process for each contender:

* the floors: a plain copy of the same files, and ``zip -1`` if it is installed;
* the first save of a process, a save without changes, and a save with a twentieth changed;
* the secret scan of the archive alone, ``verify`` and ``load``;
* peak growth of resident memory, and the lag of an event loop during ``async_save_checkpoint``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import (
    Row,
    median,
    peak_resident_bytes,
    report,
    reset_peak,
    resident_bytes,
    watch,
)
from clawblox import async_save_checkpoint, load_checkpoint, save_checkpoint
from clawblox.checkpoint.audit.verify import scan_checkpoint, verify_checkpoint

_SEED = 20261120
_FILES = 2_000
_WORKSPACE_BYTES = 200_000_000
_SNAPSHOT_BYTES = 50_000_000
_TEXT_SHARE = 0.4
_GOALS = {("first save", "copy"): 8.0, ("save, nothing changed", "copy"): 2.5}
_MEMORY_GOAL_MB = 16.0
_WORDS = (
    "def", "return", "self", "import", "value", "world", "agent", "position", "0.125", "while",
    "observe", "input", "memory", "plan", "turn", "=", "(", ")", ":", "#", "goal", "north", "41",
)  # fmt: skip


def make_material(root: Path, files: int, workspace_bytes: int, snapshot_bytes: int) -> None:
    """Write a workspace of text and of binary data, and a snapshot."""
    rng = random.Random(_SEED)
    text = _text(rng, 4 << 20)
    agent = root / "agent"
    size = workspace_bytes // files
    for number in range(files):
        path = agent / "workspace" / f"part{number % 20:02}" / f"file{number:04}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        if rng.random() < _TEXT_SHARE:
            start = rng.randrange(len(text) - size)
            path.write_bytes(text[start : start + size])
        else:
            path.with_suffix(".bin").write_bytes(rng.randbytes(size))
    bodies = [[rng.random(), rng.random(), rng.random()] for _ in range(snapshot_bytes // 62)]
    document = {"format": "bench-state-v1", "time": 12.5, "bodies": bodies}
    (root / "world.snapshot").write_text(json.dumps(document))


def _text(rng: random.Random, size: int) -> bytes:
    lines: list[str] = []
    length = 0
    while length < size:
        line = " ".join(rng.choices(_WORDS, k=rng.randint(3, 14)))
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines).encode()


def change_some(root: Path, every: int = 20) -> None:
    """Append a line to one in ``every`` files of the workspace."""
    files = sorted((root / "agent" / "workspace").rglob("*.*"))
    for path in files[::every]:
        with path.open("ab") as file:
            file.write(b"\n# one more line\n")


# -- the measured functions, each called in a fresh process --------------------------------------


def copy(root: str, target: str) -> dict[str, float]:
    """Copy everything."""

    def work() -> None:
        shutil.copytree(Path(root) / "agent", Path(target) / "agent")
        shutil.copy(Path(root) / "world.snapshot", target)

    return {"copy": _seconds(work)}


def compress(root: str, target: str) -> dict[str, float]:
    """Pack everything with ``zip -1``."""
    command = ["zip", "-1", "-q", "-r", str(Path(target) / "all.zip"), "agent", "world.snapshot"]
    return {"zip": _seconds(lambda: subprocess.run(command, cwd=root, check=True))}


def save(root: str, target: str) -> dict[str, float]:
    """Save three times: first, unchanged, with a twentieth changed."""
    before = resident_bytes()
    reset_peak()
    found = {"first save": _seconds(lambda: _save(root, Path(target) / "first.ckpt"))}
    found["peak of a save"] = peak_resident_bytes() - before
    found["save, nothing changed"] = _seconds(lambda: _save(root, Path(target) / "second.ckpt"))
    change_some(Path(root))
    found["save, a twentieth changed"] = _seconds(lambda: _save(root, Path(target) / "third.ckpt"))
    return found


def load(archive: str, target: str) -> dict[str, float]:
    """Scan, verify and load an archive."""
    found = {"scan": _seconds(lambda: scan_checkpoint(archive))}
    found["verify"] = _seconds(lambda: verify_checkpoint(archive))
    before = resident_bytes()
    reset_peak()
    found["load"] = _seconds(lambda: load_checkpoint(archive, Path(target) / "run"))
    found["peak of a load"] = peak_resident_bytes() - before
    return found


async def save_in_a_loop(root: str, target: str) -> dict[str, float]:
    """Save while an event loop is ticking."""
    await anyio.sleep(0.1)
    async with watch() as seen:
        await async_save_checkpoint(
            Path(target) / "loop.ckpt", Path(root) / "world.snapshot", {"a": Path(root) / "agent"}
        )
    return {"lag": seen.lag_s}


def _save(root: str, path: Path) -> None:
    save_checkpoint(path, Path(root) / "world.snapshot", {"a": Path(root) / "agent"})


def _seconds(work: Callable[[], object]) -> float:
    begun_at = time.perf_counter()
    work()
    return time.perf_counter() - begun_at


# -- rounds and rows -----------------------------------------------------------------------------


def measure_round(root: Path, scratch: Path) -> dict[str, float]:
    """Measure everything once, on a copy of the material."""
    found: dict[str, float] = {}
    material = scratch / "material"
    shutil.copytree(root, material)
    found |= _call(copy, material, scratch / "copy")
    if shutil.which("zip"):
        found |= _call(compress, material, scratch / "zip")
    found |= _call(save_in_a_loop, material, scratch / "loop")
    found |= _call(save, material, scratch / "saves")
    found |= _call(load, scratch / "saves" / "first.ckpt", scratch / "loads")
    return found


def _call(function: Callable[..., Any], source: Path, target: Path) -> dict[str, float]:
    target.mkdir()
    found: dict[str, float] = call_in_fresh_process(function, str(source), str(target))
    return found


def make_rows(rounds: list[dict[str, float]]) -> list[Row]:
    """Return the medians over the rounds, against both floors."""
    middle = {key: median(values[key] for values in rounds) for key in rounds[0]}
    timed = ("first save", "save, nothing changed", "save, a twentieth changed", "scan", "verify")
    rows = [
        Row(f"{what}, against {floor}", middle[what], "s", middle[floor], _GOALS.get((what, floor)))
        for what in (*timed, "load")
        for floor in ("copy", "zip")
        if floor in middle
    ]
    rows += [
        Row(f"growth of memory, {what}", middle[what] / 1e6, "MB", goal=_MEMORY_GOAL_MB)
        for what in ("peak of a save", "peak of a load")
    ]
    return [*rows, Row("lag of the loop, async save", middle["lag"] * 1e3, "ms")]


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
        make_material(root, _FILES // scale, _WORKSPACE_BYTES // scale, _SNAPSHOT_BYTES // scale)
        found = []
        for number in range(rounds):
            scratch = Path(directory) / f"round{number}"
            scratch.mkdir()
            found.append(measure_round(root, scratch))
            shutil.rmtree(scratch)
    report("checkpoints", make_rows(found), options.json)


if __name__ == "__main__":
    main()
