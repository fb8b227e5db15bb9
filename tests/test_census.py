"""The census counts as its docstring describes."""

from __future__ import annotations

from pathlib import Path

from tests.census import count_modules

USER = """
from package.helper import PUBLIC


def call(value):
    \"\"\"Not counted.\"\"\"
    if value:  # a branch
        return PUBLIC
    return None
"""


def test_a_package_is_counted(tmp_path: Path) -> None:
    room = tmp_path / "package" / "room"
    room.mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "helper.py").write_text("PUBLIC = 1\n_private = 2\n")
    (room / "__init__.py").touch()
    (room / "user.py").write_text(USER)

    census = count_modules(tmp_path / "package")

    counted = {"modules": 1, "lines": 4, "import_lines": 1, "branches": 1, "public_names": 1}
    assert census["rooms"]["room"] == counted
    assert census["rooms"]["total"]["lines"] == 6
    assert census["cupboard_names"] == ["package.helper"]
