"""Digests of the files below a directory."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from clawblox.system import tree_digests
from clawblox.system.trees import remove_tree
from tests.support.deep import constrained, make_deep

LIMITS = {"max_bytes": 1 << 30, "max_total_bytes": 1 << 31}
digest_files = partial(tree_digests.digest_files, **LIMITS)
digest_tree = partial(tree_digests.digest_tree, **LIMITS)


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


def test_entries_can_be_left_out_with_their_content(tree: Path) -> None:
    assert list(digest_files(tree, skip=lambda path: path == "notes")) == ["SOUL.md"]


def test_a_file_that_is_too_large_is_refused_and_named(tree: Path) -> None:
    os.truncate(tree / "notes/a.md", 1 << 40)
    with pytest.raises(OSError, match=re.escape(str(tree / "notes/a.md"))):
        digest_files(tree)


def test_files_that_are_too_large_together_are_refused(tree: Path) -> None:
    for name in "abc":
        (tree / name).touch()
        os.truncate(tree / name, 1 << 20)
    with pytest.raises(OSError, match=f"larger than {2 << 20} bytes"):
        digest_files(tree, max_total_bytes=2 << 20)


def test_sizes_are_checked_before_any_file_is_read(tree: Path) -> None:
    for name in "abc":
        (tree / name).touch()
        os.truncate(tree / name, 1 << 40)
    with pytest.raises(OSError, match=f"larger than {2 << 40} bytes"):
        digest_tree(tree, max_bytes=1 << 40, max_total_bytes=2 << 40, check=ending_after(20))


def test_a_sparse_file_is_read_until_the_caller_ends_it(tree: Path) -> None:
    os.truncate(tree / "notes/a.md", 1 << 42)
    with pytest.raises(InterruptedError):
        digest_tree(tree, max_bytes=1 << 43, max_total_bytes=1 << 43, check=ending_after(20))


def ending_after(calls: int) -> Callable[[], None]:
    """Return a check that ends the reading at the given call."""
    left = iter(range(calls - 1))

    def check() -> None:
        if next(left, None) is None:
            raise InterruptedError

    return check


def test_a_directory_that_is_too_deep_is_refused(tree: Path) -> None:
    make_deep(tree, levels=250)
    with pytest.raises(OSError, match="is more than 200 directories deep"), constrained():
        digest_files(tree)
    remove_tree(tree)


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
