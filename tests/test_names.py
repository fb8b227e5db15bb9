"""A class name stands in one room, so that it can be found and means one thing."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "clawblox"
CLASS = re.compile(r"^ *class (\w+)[(:]", re.MULTILINE)
OWN_WORLDS = {"engine", "luau"}
"""Rooms whose names are those of the engine's classes and of the language."""

EXCEPTIONS = {
    "Limits": "public of clawblox.checkpoint and of plans; each limits its own thing",
}


def rooms_by_class() -> dict[str, set[str]]:
    """Return the rooms in which each class name stands."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in OWN_WORLDS:
            continue
        for name in CLASS.findall(path.read_text()):
            rooms[name].add(room)
    return rooms


def test_every_class_name_is_unique_to_one_package() -> None:
    several = {name: found for name, found in rooms_by_class().items() if len(found) > 1}
    assert several.keys() == EXCEPTIONS.keys(), several
    assert len(EXCEPTIONS) <= 12
