"""Digests of the files below a directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.system.tree_digests import digest_files, digest_tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "notes").mkdir(parents=True)
    (root / "SOUL.md").write_text("soul")
    (root / "notes" / "a.md").write_text("a")
    (root / "notes" / "b.md").symlink_to("a.md")
    return root


def test_files_and_links_have_digests_by_name(tree: Path) -> None:
    digests = digest_files(tree)
    assert list(digests) == ["SOUL.md", "notes/a.md", "notes/b.md"]
    assert digests["SOUL.md"] == hashlib.sha256(b"soul").hexdigest()
    assert digests["notes/b.md"] != digests["notes/a.md"]


def test_entries_can_be_left_out_with_everything_below_them(tree: Path) -> None:
    assert list(digest_files(tree, skip=lambda path: path == "notes")) == ["SOUL.md"]


def test_a_file_that_is_too_large_is_refused(tree: Path) -> None:
    os.truncate(tree / "notes/a.md", 1 << 40)
    with pytest.raises(OSError, match="large"):
        digest_files(tree, max_bytes=1 << 30)


def rename(tree: Path) -> None:
    (tree / "SOUL.md").rename(tree / "MIND.md")


def rewrite(tree: Path) -> None:
    (tree / "notes" / "a.md").write_text("b")


def redirect(tree: Path) -> None:
    (tree / "notes" / "b.md").unlink()
    (tree / "notes" / "b.md").symlink_to("../SOUL.md")


def materialize(tree: Path) -> None:
    (tree / "notes" / "b.md").unlink()
    (tree / "notes" / "b.md").write_text("a.md")


@pytest.mark.parametrize("change", [rename, rewrite, redirect, materialize])
def test_the_digest_of_a_tree_changes_with_it(tree: Path, change: Callable[[Path], None]) -> None:
    before = digest_tree(tree)
    assert digest_tree(tree) == before
    change(tree)
    assert digest_tree(tree) != before


def test_links_and_pipes_are_not_opened(tree: Path, tmp_path: Path) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "out").symlink_to(tmp_path)
    assert "pipe" not in digest_files(tree)
    assert not any(path.startswith("out/") for path in digest_files(tree))


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digest_tree(tmp_path / "missing")
