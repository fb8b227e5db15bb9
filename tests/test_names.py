"""A class name occurs in only one package, so that it is unambiguous and easy to find."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "clawblox"
CLASS = re.compile(r"^ *class (\w+)[(:]", re.MULTILINE)
OWN_WORLDS = {"engine", "luau"}
"""Packages with the class names of the engine and of the language."""

EXCEPTIONS = {
    "Limits": "public of clawblox.checkpoint and of plans; each limits its own thing",
}


def rooms_by_class() -> dict[str, set[str]]:
    """Return the packages in which each class name occurs."""
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
