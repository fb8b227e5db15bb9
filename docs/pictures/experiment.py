"""Draws ``experiment.svg`` and ``experiment_lineage.svg``: the tutorial's worlds, from a real run.

    python -m docs.pictures.experiment

It runs ``examples/fork_worlds.py``, kills it in the middle and runs it again.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from docs.pictures.svg import Canvas

__all__ = ["LINEAGE", "PICTURE", "Line", "draw", "read_lines"]

PICTURE: Final = Path(__file__).with_name("experiment.svg")
LINEAGE: Final = Path(__file__).with_name("experiment_lineage.svg")
_ROOT: Final = Path(__file__).parent.parent.parent
_KILL_AT: Final = 110.0
_WIDTH, _HEIGHT = 760.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 640.0, 34.0, 330.0


@attrs.frozen
class Line:
    """The points of a world over time.

    Attributes:
        origin: The world that it was forked from; its own name if it began fresh.
        points: Points by simulated time, in seconds.
    """

    origin: str
    points: Mapping[float, int] = attrs.field(factory=dict)


def read_lines(table: Path) -> dict[str, Line]:
    """Return the lines of the worlds by name; rows that a resumed world wrote again count once."""
    rows: defaultdict[tuple[str, str], dict[float, int]] = defaultdict(dict)
    with table.open() as file:
        for name, origin, at, points in csv.reader(file):
            rows[name, origin][float(at)] = int(points)
    return {
        name: Line(origin, dict(sorted(found.items()))) for (name, origin), found in rows.items()
    }


def draw(lines: Mapping[str, Line]) -> Canvas:
    """Return the picture: fresh worlds in grey, the one that was forked and its forks in colour."""
    best = {line.origin for name, line in lines.items() if line.origin != name}
    canvas = Canvas(_WIDTH, _HEIGHT, "Points of eight worlds, and of eight forks of the best one")
    end = max(max(line.points) for line in lines.values())
    most = max(max(line.points.values()) for line in lines.values())

    def place(at: float, points: float) -> tuple[float, float]:
        across = _LEFT + (_RIGHT - _LEFT) * at / end
        return across, _BOTTOM - (_BOTTOM - _TOP) * points / most

    for points in range(0, most + 1, 5):
        x, y = place(0, points)
        canvas.path((x, y), (_RIGHT, y), colour="line")
        canvas.text(x - 8, y + 4, str(points), anchor="end", colour="muted", size=11)
    for at in range(0, int(end) + 1, 25):
        canvas.text(place(at, 0)[0], _BOTTOM + 18, str(at), anchor="middle", colour="muted",
                    size=11)  # fmt: skip
    middle = (_LEFT + _RIGHT) / 2
    canvas.text(middle, _BOTTOM + 38, "simulated seconds", anchor="middle", colour="muted")
    canvas.text(8, 16, "points of both agents", colour="muted")
    for name, line in sorted(lines.items(), key=lambda item: (item[0] in best, item[0])):
        colour = "third" if line.origin != name else "first" if name in best else "muted"
        places = [place(at, points) for at, points in line.points.items()]
        canvas.path(*places, colour=colour, width=2.5 if name in best else 1.3)
    for name in best:
        x, y = place(max(lines[name].points), lines[name].points[max(lines[name].points)])
        canvas.dot(x, y, colour="first", radius=5)
        canvas.text(x - 10, y - 10, f"{name}, the best", anchor="end", colour="first", bold=True)
    lasts = [line.points[max(line.points)] for name, line in lines.items() if line.origin != name]
    if lasts:
        _, y = place(end, (min(lasts) + max(lasts)) / 2)
        canvas.text(_RIGHT + 10, y - 4, f"its {len(lasts)} forks:", colour="third", bold=True)
        canvas.text(_RIGHT + 10, y + 13, f"{min(lasts)} to {max(lasts)} points", colour="third")
    others = [line.points for name, line in lines.items() if line.origin == name not in best]
    lasts = [points[max(points)] for points in others]
    x, y = place(max(map(max, others)), min(lasts))
    text = f"the other {len(others)}: {min(lasts)} to {max(lasts)} points"
    canvas.text(x + 10, y + 4, text, colour="muted")
    return canvas


def run(directory: Path) -> Path:
    """Run the example, kill it in the middle, run it again; return its run directory."""
    command = [sys.executable, _ROOT / "examples" / "fork_worlds.py"]
    run_dir = directory / "runs" / "experiment"
    with subprocess.Popen(command, cwd=directory) as killed:
        while not _has_reached(run_dir / "points.csv", _KILL_AT):
            time.sleep(0.1)
            assert killed.poll() is None
        killed.kill()
    subprocess.run(command, cwd=directory, check=True)
    return run_dir


def _has_reached(table: Path, seconds: float) -> bool:
    if not table.exists():
        return False
    return any(seconds in line.points for line in read_lines(table).values())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        found = run(Path(name))
        draw(read_lines(found / "points.csv")).write(PICTURE)
        draw_it = ["lineage", "runs/experiment", "--svg", str(LINEAGE)]
        subprocess.run([sys.executable, "-m", "clawblox", *draw_it], cwd=name, check=True)
