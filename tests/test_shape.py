"""The package has the shape that ``docs/architecture.md`` and the rooms' docstrings describe."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.pictures import house

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "clawblox"
ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`+(\w+)`+")
BULLET = re.compile(r"^- `+(\w+)`+:", re.MULTILINE)

MOST_LINES = 500
LONGER = {
    "world/instance_calls.py": "the calls for one instance, most of it docstrings",
    "agents/async_agent.py": "the same for agents",
}
"""Modules that may be longer, with the reason."""

GROUND = {"errors"}
"""Packages that do not count as rooms; see the page."""


def contents(package: Path) -> set[str]:
    """Return the names of a package's modules and packages, except those with underscores."""
    found = {path.stem if path.suffix == ".py" else path.name for path in package.iterdir()}
    return {name for name in found if not name.startswith((".", "_"))}


ROOMS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - GROUND


def modules_by_room() -> dict[str, list[str]]:
    """Return the modules that the table of the house names, by room."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("## The house")[2].partition("\n## ")[0]
    rows = ROW.findall(table)
    assert len(rows) == len(dict(rows)), "a room has two rows"
    return {room: NAME.findall(modules) for room, modules in rows}


def docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


def test_the_table_of_the_house_has_a_row_for_each_room() -> None:
    assert modules_by_room().keys() == ROOMS


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_the_modules_in_the_table_are_in_their_room(room: str) -> None:
    named = modules_by_room()[room]
    assert named
    assert set(named) <= contents(PACKAGE / room)


@pytest.mark.parametrize("room", sorted(ROOMS | GROUND))
def test_the_docstring_of_a_room_lists_its_modules(room: str) -> None:
    package = PACKAGE / room
    text = docstring(package)
    assert contents(package) - set(NAME.findall(text)) == set()
    assert set(BULLET.findall(text)) <= contents(package)


def test_the_picture_of_the_house_shows_every_room() -> None:
    floors = {room for rooms in house.read_floors() for room in rooms}
    assert floors | {*house.ANNEXES} == ROOMS
    assert house.PICTURE.read_text() == house.draw().render(), "python -m docs.pictures.house"


def test_modules_are_short_unless_there_is_a_reason() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    long = {str(path.relative_to(PACKAGE)) for path in lengths if lengths[path] > MOST_LINES}
    assert long == LONGER.keys()


OWN_TREES = {"server/recording.py": "one file of its own, without imports from the rooms above"}
"""Modules that may use the standard library's tree functions, with the reason."""

RECURSIVE = re.compile(
    r"(shutil\.(rmtree|copytree|move)|tempfile\.TemporaryDirectory|os\.(walk|fwalk|removedirs)"
    r"|.+\.(rglob|copytree|removedirs)|TemporaryDirectory|rmtree|copytree)"
)
"""Functions that recurse, or take paths of any depth."""

RECURSIVE_WORD = re.compile(
    r"rmtree|copytree|shutil\.move|TemporaryDirectory|os\.f?walk|removedirs|rglob"
)
"""Parts of these functions' names; only modules that contain such a part are parsed."""


def test_trees_are_walked_and_removed_in_one_module() -> None:
    users = set()
    for path in PACKAGE.rglob("*.py"):
        if not RECURSIVE_WORD.search(path.read_text()):
            continue
        names = {
            ast.unparse(node)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute | ast.Name)
        }
        if any(map(RECURSIVE.fullmatch, names)):
            users.add(str(path.relative_to(PACKAGE)))
    assert users == OWN_TREES.keys(), "use clawblox/system/trees.py"
