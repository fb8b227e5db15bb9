"""A copy contains every file, does not follow links, and reports left-out entries."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.system import copy_tree as module
from clawblox.system.copy_tree import LeftOut, copy_tree
from clawblox.system.trees import MAX_DEPTH
from tests.support.deep import constrained

CONTENT = bytes(range(256)) * 5


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def refuse(*_: object) -> NoReturn:
    raise OSError(errno.EXDEV, "another file system")


def test_files_and_directories_keep_content_permissions_and_times(
    source: Path, target: Path
) -> None:
    (source / "deep").mkdir()
    (source / "deep" / "run.sh").write_bytes(CONTENT)
    (source / "deep" / "run.sh").chmod(0o4755)
    (source / "empty").touch()
    (source / "deep").chmod(0o500)
    for path in (source / "deep" / "run.sh", source / "deep"):
        os.utime(path, ns=(7, 1_000_000_007))
    assert copy_tree(source, target) == []
    assert (target / "deep" / "run.sh").read_bytes() == CONTENT
    assert (target / "empty").read_bytes() == b""
    assert stat.S_IMODE((target / "deep" / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "deep").stat().st_mode) == 0o500
    for name in ("deep/run.sh", "deep"):
        assert (target / name).stat().st_mtime_ns == 1_000_000_007
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_links_are_copied_by_the_callers_rule_and_never_followed(
    source: Path, target: Path
) -> None:
    (source / "file").write_text("own")
    (source / "inside").symlink_to("file")
    (source / "passwd").symlink_to("/etc/passwd")
    (source / "etc").symlink_to("/etc")

    def lead(link: str, path: PurePath) -> str | None:
        return None if path.name == "etc" else f"moved/{link}" if link == "file" else link

    left_out = copy_tree(source, target, lead=lead)
    assert left_out == [LeftOut(PurePath("etc"), "is a link to '/etc'")]
    assert (target / "inside").readlink() == Path("moved/file")
    assert (target / "passwd").readlink() == Path("/etc/passwd")
    assert sorted(os.listdir(target)) == ["file", "inside", "passwd"]


def test_pipes_are_left_out_without_waiting(source: Path, target: Path) -> None:
    os.mkfifo(source / "pipe")
    assert copy_tree(source, target) == [
        LeftOut(PurePath("pipe"), "is a pipe, a socket or a device")
    ]
    assert os.listdir(target) == []


def test_the_caller_selects_entries_by_their_path(source: Path, target: Path) -> None:
    for name in ("a/.venv/x", "a/b/.venv", "c"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    seen: list[str] = []

    def is_kept(path: PurePath, is_dir: bool) -> bool:
        seen.append(f"{path}/" if is_dir else str(path))
        return not (is_dir and path.name == ".venv")

    assert copy_tree(source, target, is_kept=is_kept) == []
    assert sorted(seen) == ["a/", "a/.venv/", "a/b/", "a/b/.venv", "c"]
    assert not (target / "a" / ".venv").exists()
    assert (target / "a" / "b" / ".venv").is_file()


@pytest.mark.parametrize("name", ["file", "dir"])
@pytest.mark.parametrize("swap", ["link", "gone", "other"])
def test_an_entry_swapped_during_the_copy_does_not_redirect_it(
    source: Path, target: Path, tmp_path: Path, name: str, swap: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (source / "file").write_text("own")
    (source / "dir").mkdir()

    def is_kept(path: PurePath, is_dir: bool) -> bool:
        if path.name == name:
            (source / name).rename(tmp_path / "moved")
            if swap == "link":
                (source / name).symlink_to(outside if is_dir else outside / "secret")
            elif swap == "other":
                os.mkfifo(source / name)
        return path.name == name

    left_out = copy_tree(source, target, is_kept=is_kept)
    assert left_out == [LeftOut(PurePath(name), "changed while it was copied")]
    assert os.listdir(target) == []


def test_a_tree_is_copied_to_a_limited_depth(source: Path, target: Path) -> None:
    fd = os.open(source, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 20):  # deeper than the maximum length of a path
        os.mkdir("d" * 50, dir_fd=fd)
        inner = os.open("d" * 50, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    with constrained():
        (left_out,) = copy_tree(source, target)
    assert len(left_out.path.parts) == MAX_DEPTH + 1
    assert left_out.reason == f"is more than {MAX_DEPTH} directories deep"


def test_files_that_are_too_large_are_left_out(source: Path, target: Path) -> None:
    for name, size in {"a": 1 << 40, "b": 600, "c": 600, "d": 400}.items():
        (source / name).touch()
        os.truncate(source / name, size)
    left_out = copy_tree(source, target, max_bytes=1 << 30, max_total_bytes=1000)
    assert left_out == [
        LeftOut(PurePath("a"), f"is larger than {1 << 30} bytes"),
        LeftOut(PurePath("c"), "makes the directory larger than 1000 bytes"),
    ]
    assert sorted(os.listdir(target)) == ["b", "d"]


@pytest.mark.parametrize("way", ["clone", "range", "read"])
@given(
    parts=st.lists(st.tuples(st.integers(0, 40_000), st.binary(max_size=300)), max_size=4),
    tail=st.integers(0, 40_000),
)
def test_content_and_holes_are_kept_on_every_file_system(
    tmp_path_factory: pytest.TempPathFactory,
    way: str,
    parts: list[tuple[int, bytes]],
    tail: int,
) -> None:
    directory = tmp_path_factory.mktemp("trees")
    (directory / "source").mkdir()
    with (directory / "source" / "file").open("wb") as file:
        for hole, data in parts:
            file.seek(hole, os.SEEK_CUR)
            file.write(data)
        file.truncate(file.tell() + tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE_BYTES", 100)
        if way != "clone":
            patch.setattr(module.fcntl, "ioctl", refuse)
        if way == "read":
            patch.setattr(module.os, "copy_file_range", refuse)
        copy_tree(directory / "source", directory / "target")
    original = (directory / "source" / "file").read_bytes()
    assert (directory / "target" / "file").read_bytes() == original


def test_a_sparse_file_of_terabytes_stays_sparse(source: Path, target: Path) -> None:
    with (source / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    copy_tree(source, target)
    status = (target / "sparse").stat()
    assert (status.st_size, status.st_blocks) == (1 << 42, 0)


def test_an_interrupt_in_the_check_of_a_copy_is_raised(source: Path, target: Path) -> None:
    (source / "file").touch()

    def interrupt() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        copy_tree(source, target, check=interrupt)


def test_a_missing_source_is_an_error_unless_it_may_be_missing(source: Path, target: Path) -> None:
    with pytest.raises(FileNotFoundError):
        copy_tree(source / "missing", target)
    assert copy_tree(source / "missing", target, missing_ok=True) == []
    assert os.listdir(target) == []


def test_a_link_in_place_of_the_source_is_not_followed(source: Path, target: Path) -> None:
    (source / "link").symlink_to("/etc")
    with pytest.raises(NotADirectoryError):
        copy_tree(source / "link", target)


def test_merging_a_second_tree_keeps_existing_files_and_follows_no_link(
    source: Path, target: Path, tmp_path: Path
) -> None:
    (source / "dir").mkdir()
    (source / "dir" / "new").write_text("new")
    (target / "dir").mkdir(parents=True)
    (target / "dir" / "old").write_text("old")
    copy_tree(source, target)
    assert sorted(os.listdir(target / "dir")) == ["new", "old"]
    with pytest.raises(FileExistsError, match=re.escape(str(source / "dir" / "new"))):
        copy_tree(source, target)
    other = tmp_path / "other"
    other.mkdir()
    (other / "dir").symlink_to("/etc")
    with pytest.raises(NotADirectoryError):
        copy_tree(source, other)


@pytest.mark.parametrize("name", ["file", "dir"])
def test_an_entry_that_cannot_be_read_is_an_error_with_its_path(
    source: Path, target: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "file").write_text("own") if name == "file" else (source / "dir").mkdir()
    opened: Callable[..., int] = os.open

    def open_some(path: str, *args: int, **options: int) -> int:
        if path == name:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *args, **options)

    if os.geteuid():
        (source / name).chmod(0)
    else:  # root reads every file
        monkeypatch.setattr(os, "open", open_some)
    with pytest.raises(PermissionError, match=re.escape(str(source / name))):
        copy_tree(source, target)


def test_the_list_of_left_out_entries_is_limited(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LEFT_OUT", 2)
    for number in range(3):
        os.mkfifo(source / str(number))
    assert len(copy_tree(source, target)) == 2
