"""A test file has the path of its module, or is listed in ``tests/README.md``."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "clawblox"
NAMED = re.compile(r"`([\w/]+(?:\.py)?)`")


def find_modules() -> set[str]:
    """Return modules and packages of ``clawblox``, as paths without a suffix."""
    paths = {path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py")}
    return {str(path.parent if path.name == "__init__" else path) for path in paths} - {"."}


def mirrors(test: Path, modules: set[str]) -> bool:
    """Return whether a test file has the path of a module, or starts with it."""
    subject = str(test.parent / test.stem.removeprefix("test_"))
    starts = [subject, *(subject[: match.start()] for match in re.finditer("_", subject))]
    is_package = (PACKAGE / test.parent).is_dir()
    in_folder_of_module = str(test.parent) in modules and not is_package
    of_package = is_package and test.stem == f"test_{test.parent.name}"
    return in_folder_of_module or of_package or not modules.isdisjoint(starts)


def read_table() -> set[str]:
    """Return the files and folders of the tables in ``tests/README.md``."""
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \|$", (TESTS / "README.md").read_text(), re.MULTILINE)
    return {path for row in rows for path in NAMED.findall(row)}


def test_a_test_file_mirrors_a_module_or_is_in_the_table() -> None:
    modules, table = find_modules(), read_table()
    files = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    others = {path for path in files if not mirrors(path, modules)}
    lost = {str(path) for path in others if not {str(path), str(path.parent)} & table}
    assert not lost, "name the module in the file's path, or the file in tests/README.md"


def test_the_table_names_files_and_folders_that_exist_and_no_whole_room() -> None:
    table = read_table()
    assert {path for path in table if not (TESTS / path).exists()} == set()
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert table.isdisjoint(rooms)
