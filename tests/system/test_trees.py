"""Trees of any depth are walked, merged and removed without touching outside files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.system.trees import (
    TreeWalk,
    discard_tree,
    merge_directory,
    remove_tree,
    tree_size,
)
from tests.support.deep import LEVELS, NAME, constrained, make_deep

AS_OWNER = """
import ctypes, os, sys
from clawblox.system.trees import remove_tree
directory = int(sys.argv[1])
if os.geteuid() == 0:  # root may do anything
    os.fchown(directory, 65534, 65534)
    for place, names, files in os.walk(".", topdown=False):
        for name in (*names, *files):
            os.chown(os.path.join(place, name), 65534, 65534, follow_symlinks=False)
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # else /proc/self belongs to root
os.chmod("tree/closed/inner", 0, dir_fd=directory)
os.chmod("tree/closed", 0, dir_fd=directory)
os.chmod("tree/read-only", 0o500, dir_fd=directory)
os.chmod("tree", 0o400, dir_fd=directory)
remove_tree("tree", dir_fd=directory)
"""


@pytest.mark.thorough
def test_a_tree_of_three_thousand_levels_is_removed(tmp_path: Path) -> None:
    make_deep(tmp_path / "tree", levels=3000)
    remove_tree(tmp_path / "tree")
    assert os.listdir(tmp_path) == []


def test_a_deep_tree_is_removed_without_recursion_and_with_few_descriptors(tmp_path: Path) -> None:
    first = make_deep(tmp_path / "tree")
    with constrained():
        remove_tree(tmp_path / "tree")
    assert not first.exists()
    assert os.listdir(tmp_path) == []


def test_a_walk_goes_to_any_depth_and_back(tmp_path: Path) -> None:
    make_deep(tmp_path / "tree")
    (tmp_path / "tree" / "last").touch()
    left: list[str] = []
    with constrained(), TreeWalk(os.open(tmp_path / "tree", os.O_RDONLY), left.append) as walk:
        names = []
        for entry in walk:
            names.append(entry.name)
            if entry.kind == "directory":
                walk.enter(entry.name)
    assert names == [NAME] * LEVELS + ["file", "last"]
    assert len(left) == LEVELS
    discard_tree(tmp_path / "tree")


def test_entries_come_in_order_with_their_kinds_and_paths(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "file").touch()
    (tmp_path / "a").symlink_to("b")
    os.mkfifo(tmp_path / "d")
    seen = []
    with TreeWalk(os.open(tmp_path, os.O_RDONLY)) as walk:
        for entry in walk:
            seen.append((walk.path_to(entry.name), entry.kind))
            if entry.kind == "directory":
                walk.enter(entry.name)
    assert seen == [
        ("a", "link"),
        ("b", "directory"),
        ("b/c", "directory"),
        ("b/c/file", "file"),
        ("d", "other"),
    ]


def test_a_removal_does_not_follow_a_directory_that_was_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_deep(tmp_path / "tree", "d", 60)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()

    rmdir = os.rmdir

    def move_and_remove(name: str, *, dir_fd: int | None = None) -> None:
        if not (tmp_path / "outside" / "d").exists():
            (tmp_path / "tree/d/d").rename(tmp_path / "outside" / "d")
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", move_and_remove)
    with pytest.raises(OSError, match="was moved"):
        remove_tree(tmp_path / "tree")
    assert sorted(os.listdir(tmp_path / "outside")) == ["d", "kept"]


def test_a_removal_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "link").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        remove_tree(tmp_path / "link")
    with pytest.raises(NotADirectoryError):
        remove_tree(outside / "kept")
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "missing")
    discard_tree(tmp_path / "missing")
    remove_tree(tmp_path / "tree")
    assert sorted(os.listdir(tmp_path)) == ["link", "outside"]
    assert os.listdir(outside) == ["kept"]


def test_the_owner_removes_directories_without_permissions(tmp_path: Path) -> None:
    for name in ("closed/inner/deepest", "read-only"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "file").touch()
    fd = os.open(tmp_path, os.O_RDONLY)
    subprocess.run(
        [sys.executable, "-c", AS_OWNER, str(fd)], check=True, pass_fds=[fd], cwd=tmp_path
    )
    os.close(fd)
    assert os.listdir(tmp_path) == []


def test_only_entries_that_cannot_be_removed_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/file", "b/kept", "c/file"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True)
        (tmp_path / "tree" / name).touch()
    unlink = os.unlink

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == "kept":
            raise PermissionError(1, "not permitted", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError):
        remove_tree(tmp_path / "tree")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "tree",
        "tree/b",
        "tree/b/kept",
    ]


def test_the_size_of_a_tree_is_that_of_its_files_at_any_depth(tmp_path: Path) -> None:
    make_deep(tmp_path / "tree")
    (tmp_path / "tree" / "large").touch()
    os.truncate(tmp_path / "tree" / "large", 1 << 40)
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    with constrained():
        assert tree_size(tmp_path / "tree") == 1 << 40
    assert tree_size(tmp_path / "link") == len(str(tmp_path / "tree"))
    assert tree_size(tmp_path / "missing") == 0
    discard_tree(tmp_path / "tree")


def test_directories_are_merged_at_any_depth(tmp_path: Path) -> None:
    for name in ("old", "new"):
        make_deep(tmp_path / name)
        (tmp_path / name / NAME / "both").write_text(name)
    (tmp_path / "old" / NAME / "moved").write_text("old")
    with constrained():
        merge_directory(tmp_path, "old", "new")
    merged = tmp_path / "new" / NAME
    assert (merged / "both").read_text() == "new"
    assert (merged / "moved").read_text() == "old"
    assert sorted(os.listdir(tmp_path / "old" / NAME)) == ["both", NAME]
    for name in ("old", "new"):
        discard_tree(tmp_path / name)
