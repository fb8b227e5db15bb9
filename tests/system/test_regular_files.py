"""Only regular files are opened, and opening never waits."""

from __future__ import annotations

import os
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.system.files import digest_file
from clawblox.system.locks import lock_file, lock_owner, unlock_file
from clawblox.system.regular_files import open_own, open_regular, read_regular
from tests.support.resources import open_fds


def make_link(path: Path) -> None:
    target = path.with_name("target")
    target.write_text("of the user")
    path.symlink_to(target)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


IRREGULAR: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is not a regular file"),
    "directory": (os.mkdir, "(is not a regular file|Is a directory)"),
    "link": (make_link, "is a symbolic link"),
    "socket": (make_socket, "is not a regular file"),
}


@pytest.mark.parametrize("kind", IRREGULAR)
def test_only_regular_files_are_opened(kind: str, tmp_path: Path) -> None:
    make, message = IRREGULAR[kind]
    path = tmp_path / "file"
    make(path)
    for open_it in (
        open_regular,
        lambda place: read_regular(place, max_bytes=10),
        lambda place: open_own(place, os.O_RDWR | os.O_CREAT),
        digest_file,
        lock_file,
    ):
        with pytest.raises(OSError, match=message) as caught:
            open_it(path)
        assert caught.value.filename == str(path)
    assert lock_owner(path) is None


def test_a_device_is_refused() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        open_regular("/dev/zero")


def test_a_sparse_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 8 << 40)
    with pytest.raises(OSError, match="larger than 100 bytes"):
        open_regular(path, max_bytes=100)
    with pytest.raises(OSError, match="larger than 100 bytes"):
        read_regular(path, max_bytes=100)
    assert lock_owner(path) is None


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, max_bytes=100) == b"x" * 100
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_regular("file", dir_fd=directory, max_bytes=100) == b"x" * 100
    finally:
        os.close(directory)


def test_a_file_with_a_second_hard_link_is_never_written(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("of the user")
    lock = tmp_path / "lock"
    os.link(mine, lock)
    with pytest.raises(OSError, match="second name") as caught:
        lock_file(lock)
    assert caught.value.filename == str(lock)
    assert mine.read_text() == "of the user"


def test_a_lock_is_taken_and_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = lock_file(path)
    assert fd is not None
    owner = lock_owner(path)
    assert owner is not None
    assert owner.pid == os.getpid()
    assert lock_file(path) is None
    unlock_file(path, fd)
    assert not path.exists()


def test_a_read_does_not_reserve_memory_for_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    tracemalloc.start()
    try:
        assert len(read_regular(path, max_bytes=1 << 30)) == 100
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_call_that_fails_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    before = open_fds()

    def fail(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fstat", fail)
    for open_it in (open_regular, lambda place: open_own(place, os.O_RDWR)):
        with pytest.raises(OSError, match="Input/output error"):
            open_it(path)
    monkeypatch.undo()
    assert open_fds() == before
