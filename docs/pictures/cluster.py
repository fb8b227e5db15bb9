"""Draws ``cluster.svg``: a driver, hosts on nodes, and what travels between them.

python -m docs.pictures.cluster
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.pictures.concept import draw_box
from docs.pictures.svg import Canvas

__all__ = ["PICTURE", "draw"]

PICTURE: Final = Path(__file__).with_name("cluster.svg")


def draw() -> Canvas:
    """Return the picture."""
    canvas = Canvas(
        760,
        332,
        "The driver has the journal, the scheduler and every archive; each node has hosts, each"
        " with one attempt: a world, its agents, and a guard that keeps the lease.",
    )
    canvas.text(8, 20, "the driver's machine", colour="muted", size=12)
    draw_box(
        canvas,
        8,
        32,
        196,
        92,
        "first",
        "driver",
        ["scheduler, hooks, tables", "a lease for each host"],
    )
    draw_box(
        canvas,
        8,
        230,
        196,
        92,
        "second",
        "experiment directory",
        ["journal: the only truth", "archives, workspaces", "logs, a second late"],
    )
    canvas.path((106, 124), (106, 228), colour="second", width=1.5, arrow=True)
    canvas.text(116, 180, "lines", colour="muted", size=12)
    for number, name in enumerate(("node a", "node b")):
        y = 32 + 158 * number
        canvas.rectangle(430, y, 322, 132, fill="box", edge="line", radius=6)
        canvas.text(444, y + 22, name, bold=True, size=14)
        draw_box(canvas, 442, y + 36, 98, 82, "first", "host", ["one attempt,", "in scratch"])
        draw_box(canvas, 546, y + 36, 94, 82, "fourth", "world", ["and its", "agents"])
        draw_box(canvas, 646, y + 36, 98, 82, "muted", "guard", ["ends them", "at the lease"])
    for y in (78, 236):
        canvas.path((204, 62), (330, 62), (330, y), (428, y), colour="first", arrow=True)
    canvas.path((428, 110), (206, 110), colour="first", arrow=True)
    canvas.text(214, 54, "run directory, calls", colour="muted", size=11)
    canvas.text(340, 102, "answers", colour="muted", size=11)
    canvas.path((428, 290), (206, 290), colour="second", width=1.5, arrow=True)
    canvas.text(317, 282, "archives, workspaces, logs", anchor="middle", colour="muted", size=11)
    return canvas


if __name__ == "__main__":
    draw().write(PICTURE)
