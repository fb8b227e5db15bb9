"""Draws ``engine_tick.svg``: the phases of one tick of the engine, and what happens between ticks.

python -m docs.pictures.engine_tick
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.pictures.svg import Canvas, Colour

__all__ = ["PICTURE", "draw"]

PICTURE: Final = Path(__file__).with_name("engine_tick.svg")
_PHASES: Final[tuple[tuple[Colour, str, tuple[str, ...]], ...]] = (
    ("first", "threads", ("kicked players leave", "new scripts start", "waits end", "Stepped")),
    ("third", "inputs", ("InputReceived", "in order of joining", "GuiClick")),
    ("fourth", "movement", ("characters walk", "physics steps", "Touched", "welds hold")),
    ("second", "heartbeat", ("Heartbeat", "remote events", "answers to agents")),
)
_WIDTH: Final = 164.0
_STEP: Final = 192.0
_TOP: Final = 40.0
_HEIGHT: Final = 116.0


def draw() -> Canvas:
    """Return the picture."""
    names = ", ".join(name for _, name, _ in _PHASES)
    canvas = Canvas(
        760,
        224,
        f"A tick has four phases: {names}. Agents join and snapshots are taken between ticks.",
    )
    canvas.text(8, 22, "one tick: 1/60 s of simulation time", colour="muted", size=12)
    for number, (colour, name, lines) in enumerate(_PHASES):
        x = 8 + number * _STEP
        canvas.rectangle(x, _TOP, _WIDTH, _HEIGHT, fill="box", edge="line", radius=4)
        canvas.rectangle(x, _TOP, 4, _HEIGHT, fill=colour, radius=2)
        canvas.text(x + 14, _TOP + 22, name, bold=True)
        for row, line in enumerate(lines):
            canvas.text(x + 14, _TOP + 44 + 19 * row, line, colour="muted", size=12)
        if number:
            middle = _TOP + _HEIGHT / 2
            canvas.path(
                (x - _STEP + _WIDTH + 4, middle), (x - 4, middle), colour=colour, arrow=True
            )
    right, bottom = 8 + 3 * _STEP + _WIDTH / 2, _TOP + _HEIGHT
    back = ((right, bottom + 4), (right, bottom + 36), (90, bottom + 36), (90, bottom + 4))
    canvas.path(*back, colour="muted", arrow=True)
    canvas.text(
        380,
        bottom + 56,
        "between two ticks: join, leave, observe, snapshot, spectators",
        anchor="middle",
        colour="muted",
        size=12,
    )
    return canvas


if __name__ == "__main__":
    draw().write(PICTURE)
