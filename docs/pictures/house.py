"""Draws ``house.svg``: the rooms of the package, each above those that it may import.

    python -m docs.pictures.house

Floors come from the import rules in ``pyproject.toml``, words from the table in
``architecture.md``, so that the picture cannot say anything else.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from docs.pictures.svg import Canvas, Colour

__all__ = ["ANNEXES", "PICTURE", "draw", "read_floors", "read_purposes"]

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parent.parent
PICTURE: Final = _HERE / "house.svg"
_ROW: Final = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)

ANNEXES: Final = ("engine", "server", "luau")
_GROUND: Final = (
    "checks",
    "columns",
    "errors",
    "results",
    "protocol",
    "foreign_values",
    "printable",
    "extras",
    "host_gate",
    "lazy_exports",
    "differences",
    "spelling",
    "typed_values",
    "world_keys",
    "zstd",
)
_GROUND_LINES: Final = textwrap.wrap(" · ".join(_GROUND), 80)
_COLOURS: Final[dict[str, Colour]] = {"cli": "third", "world": "first", "checkpoint": "first"}
_HOUSE: Final = (20.0, 520.0)
_ANNEX: Final = (560.0, 160.0)
_TOP: Final = 74.0
_FLOOR: Final = 50.0
_GAP: Final = 6.0
_PADDING: Final = 10.0


def read_purposes() -> dict[str, str]:
    """Return what each room is for, by its name, as ``architecture.md`` says it."""
    text = (_HERE.parent / "architecture.md").read_text()
    house = text.partition("## The house")[2].partition("\n## ")[0]
    return {room: purpose.replace("`", "") for room, purpose, _ in _ROW.findall(house)}


def read_floors() -> list[list[str]]:
    """Return the rooms of each floor, from the top down, without annexes and ground."""
    document = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    contracts = document["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "rooms")
    apart = {*ANNEXES, *_GROUND, "__main__"}
    floors = [[room for room in re.findall(r"\w+", layer) if room not in apart] for layer in layers]
    return [rooms for rooms in floors if rooms]


def draw() -> Canvas:
    """Return the picture."""
    floors, purposes = read_floors(), read_purposes()
    bottom = _TOP + len(floors) * _FLOOR
    height = bottom + 62 + 16 * len(_GROUND_LINES)
    names = ", ".join(room for rooms in floors for room in rooms)
    canvas = Canvas(
        740,
        height,
        f"The rooms of clawblox from the top floor down: {names}; beside them "
        f"{', '.join(ANNEXES)}; below them {', '.join(_GROUND)}.",
    )
    left, width = _HOUSE
    canvas.path((left - 10, _TOP - 6), (left + width / 2, 16), (left + width + 10, _TOP - 6),
                colour="muted", width=2)  # fmt: skip
    canvas.text(left + width / 2, _TOP - 20, "clawblox", anchor="middle", bold=True, size=17)
    for number, rooms in enumerate(floors):
        _draw_floor(canvas, _TOP + number * _FLOOR, rooms, purposes)
    for number, room in enumerate(ANNEXES):
        _draw_annex(canvas, bottom - (len(ANNEXES) - number) * 2 * _FLOOR, room, purposes[room])
    _draw_ground(canvas, bottom + 4)
    x = left - 10
    canvas.path((x, _TOP), (x, bottom), colour="muted", arrow=True)
    canvas.text(left - 12, height - 8, "A room imports only from the floors below it.",
                colour="muted", size=12)  # fmt: skip
    return canvas


def _draw_floor(canvas: Canvas, top: float, rooms: Sequence[str], purposes: dict[str, str]) -> None:
    left, whole = _HOUSE
    width = (whole - _GAP * (len(rooms) - 1)) / len(rooms)
    for number, room in enumerate(rooms):
        _draw_room(canvas, left + number * (width + _GAP), top, width, room, purposes[room])


def _draw_room(canvas: Canvas, x: float, y: float, width: float, room: str, purpose: str) -> None:
    colour = _COLOURS.get(room, "muted")
    canvas.rectangle(x, y, width, _FLOOR - _GAP, fill="box", edge="line", radius=4)
    canvas.rectangle(x, y, 4, _FLOOR - _GAP, fill=colour, radius=2)
    canvas.text(x + _PADDING + 4, y + 18, room, bold=True, mono=True)
    canvas.text(x + _PADDING + 4, y + 35, purpose, colour="muted", size=12)


def _draw_annex(canvas: Canvas, y: float, room: str, purpose: str) -> None:
    x, width = _ANNEX
    canvas.rectangle(x, y, width, 2 * _FLOOR - _GAP, fill="box", edge="line", radius=4)
    canvas.rectangle(x, y, 4, 2 * _FLOOR - _GAP, fill="fourth", radius=2)
    canvas.text(x + _PADDING + 4, y + 18, room, bold=True, mono=True)
    for number, line in enumerate(textwrap.wrap(purpose, 22)):
        canvas.text(x + _PADDING + 4, y + 36 + 16 * number, line, colour="muted", size=12)


def _draw_ground(canvas: Canvas, y: float) -> None:
    left, _ = _HOUSE
    width = sum(_ANNEX) - left
    height = 26 + 16 * len(_GROUND_LINES)
    canvas.rectangle(left, y, width, height, fill="box", edge="line", radius=4)
    for number, line in enumerate(_GROUND_LINES):
        canvas.text(left + _PADDING + 4, y + 18 + 16 * number, line, bold=True, mono=True)
    what = "the ground: every exception, every frozen result, the wire contract"
    canvas.text(left + _PADDING + 4, y + height - 8, what, colour="muted", size=12)


if __name__ == "__main__":
    draw().write(PICTURE)
