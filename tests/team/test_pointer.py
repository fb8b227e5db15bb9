"""The file that names the latest archive."""

from __future__ import annotations

import json
from pathlib import Path

from clawblox.team.pointer import POINTER_NAME, read_pointer, write_pointer

AT = "2026-06-22T18:59:25Z"


def test_archive_below_the_pointer_has_a_relative_path(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write_pointer(home / POINTER_NAME, home / "runs" / "a.ckpt", {"generation": 1})
    moved = home.rename(tmp_path / "moved")
    assert read_pointer(moved) == moved / "runs" / "a.ckpt"


def test_an_absolute_path_is_written_on_request(tmp_path: Path) -> None:
    archive = tmp_path / "a.ckpt"
    write_pointer(tmp_path / POINTER_NAME, archive, {}, is_absolute=True, written_at=AT)
    written = json.loads((tmp_path / POINTER_NAME).read_text())
    assert written == {"checkpoint": str(archive), "written_at": AT}


def test_the_same_pointer_is_not_written_again(tmp_path: Path) -> None:
    pointer = tmp_path / POINTER_NAME
    write_pointer(pointer, tmp_path / "a.ckpt", {}, written_at=AT)
    first = pointer.stat().st_ino
    write_pointer(pointer, tmp_path / "a.ckpt", {}, written_at=AT)
    assert pointer.stat().st_ino == first
    write_pointer(pointer, tmp_path / "b.ckpt", {}, written_at=AT)
    assert pointer.stat().st_ino != first
