"""Reading directories that another process changes in the meantime."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from clawblox.checkpoint.collect import tree
from clawblox.errors import CheckpointError
from clawblox.results import Excluded
from clawblox.system import regular_files


def look(root, path="", judge=lambda _path, _is_directory: None, is_name=lambda _path: True):
    return tree.walk(root, path, judge, is_name)


def content(fd):
    with os.fdopen(fd, "rb") as file:
        return file.read()


def test_entries_are_listed_in_the_order_of_their_names(tmp_path):
    for name in ("b/x", "a/deep/down/y", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "link").symlink_to("b/x")
    (tmp_path / "away").symlink_to("/etc")
    found = look(tmp_path)
    assert found.files == ["a/deep/down/y", "b/x", "c"]
    assert found.links == [("away", "/etc"), ("link", "b/x")]
    assert (found.directories, found.excluded, found.unarchivable) == ([], [], [])


def test_directories_without_files_are_listed(tmp_path):
    for name in ("empty", "nested/empty", "only-a-link", "only-cache/cache", "full"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "only-a-link" / "link").symlink_to("x")
    (tmp_path / "full" / "file").write_bytes(b"")
    found = look(tmp_path, judge=lambda path, _: "a cache" if path.endswith("/cache") else None)
    assert found.directories == ["empty", "nested/empty", "only-a-link", "only-cache"]


def test_an_excluded_directory_is_listed_once_and_never_entered(tmp_path, monkeypatch):
    (tmp_path / "cache" / "deep").mkdir(parents=True)
    for number in range(20):
        (tmp_path / "cache" / "deep" / str(number)).write_bytes(b"")
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda *a, **k: (opened.append(a[0]), real(*a, **k))[1])
    found = look(tmp_path, judge=lambda path, _: "a cache" if path == "cache" else None)
    assert found.excluded == [("cache", "a cache")]
    assert found.files == []
    assert opened == [tmp_path]


@pytest.mark.parametrize("make", ["pipe", "socket", "device"])
def test_special_files_are_listed_without_blocking(tmp_path, make, request):
    path = tmp_path / "thing"
    if make == "pipe":
        os.mkfifo(path)
    elif make == "socket":
        listener = socket.socket(socket.AF_UNIX)
        request.addfinalizer(listener.close)
        listener.bind(str(path))
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    assert look(tmp_path).excluded == [("thing", f"a {make}")]
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is looked at
        regular_files.open_file(tmp_path, "thing")
    assert caught.value.errno in (errno.EINVAL, errno.ENXIO)
    assert not tree.is_file(tmp_path, "thing")


def test_a_link_in_any_part_of_a_path_is_not_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("file")
    assert content(regular_files.open_file(tmp_path, "real/file")) == b"x"
    for path in ("link/file", "real/link"):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is looked at
            regular_files.open_file(tmp_path, path)
        assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    with pytest.raises(NotADirectoryError):
        look(tmp_path, "link")


def test_the_root_itself_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    assert content(regular_files.open_file(tmp_path / "link", "file")) == b"x"


def test_a_file_replaced_by_a_link_after_the_listing_is_not_followed(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "secret").write_bytes(b"not yours")
    opener = tree.file_opener(tmp_path, "file")
    assert content(opener()) == b"mine"
    (tmp_path / "file").unlink()
    (tmp_path / "file").symlink_to("secret")
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is looked at
        opener()
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("becomes", ["gone", "a link", "a file"])
def test_a_directory_that_vanishes_during_the_listing_is_ignored(tmp_path, monkeypatch, becomes):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"")
    real = os.open

    def vanishing(path, flags, *args, **options):
        if path == "b":
            (tmp_path / "b" / "file").unlink()
            (tmp_path / "b").rmdir()
            if becomes == "a link":
                (tmp_path / "b").symlink_to("a")
            elif becomes == "a file":
                (tmp_path / "b").write_bytes(b"")
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", vanishing)
    found = look(tmp_path)
    assert found.files == ["a/file", "c/file"]
    assert found.directories == []


def test_a_link_that_vanishes_during_the_listing_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("x")
    (tmp_path / "file").write_bytes(b"")

    def vanished(*_args, **_options):
        raise FileNotFoundError

    monkeypatch.setattr(os, "readlink", vanished)
    assert look(tmp_path).files == ["file"]


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """Create an unreadable directory ``a/locked``; return a function that sets the error."""
    (tmp_path / "a" / "locked").mkdir(parents=True)
    (tmp_path / "a" / "open").write_bytes(b"")
    real = os.open
    reasons = []

    def refusing(path, flags, *args, **options):
        if path == "locked":
            raise OSError(reasons[-1], os.strerror(reasons[-1]))
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    return reasons.append


def test_a_directory_with_a_disk_error_is_an_error_that_names_it(tmp_path, locked):
    locked(errno.EIO)
    with pytest.raises(CheckpointError, match="Input/output error") as caught:
        look(tmp_path)
    assert caught.value.path == tmp_path / "a" / "locked"


def test_an_unreadable_directory_is_reported_and_the_rest_is_listed(tmp_path, locked):
    locked(errno.EACCES)
    found = look(tmp_path)
    assert found.unreadable == ["a/locked"]
    assert found.files == ["a/open"]


def test_an_unreadable_link_is_reported_and_the_rest_is_listed(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("file")

    def refused(*_args, **_options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "readlink", refused)
    found = look(tmp_path)
    assert (found.files, found.unreadable) == (["file"], ["link"])


def test_files_of_an_unreadable_directory_are_not_omitted_silently(tmp_path, locked):
    locked(errno.EACCES)
    with pytest.raises(CheckpointError, match="Permission denied") as caught:
        tree.list_files(tmp_path.parent, tmp_path.name)
    assert caught.value.path == tmp_path / "a" / "locked"


def test_a_directory_whose_name_is_not_utf8_is_reported_and_not_entered(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/bad\xff")
    os.mkdir(os.fsencode(tmp_path) + b"/bad\xff/deeper")
    Path(tmp_path, "line\nfeed").write_bytes(b"")
    found = look(tmp_path, is_name=lambda path: path.isprintable())
    assert found.unarchivable == ["bad\udcff", "line\nfeed"]
    assert found.directories == []


def test_an_excluded_name_of_any_bytes_can_be_encoded_in_a_document(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[2J.json")).write_bytes(b"")
    ((path, reason),) = look(tmp_path, judge=lambda _path, _is_directory: "no").excluded
    assert Excluded(path=path, reason=reason).fields()["path"] == "\\udcff\\x1b[2J.json"


def test_a_link_to_a_target_of_any_bytes_cannot_be_recorded(tmp_path):
    os.symlink(b"caf\xe9", os.fsencode(tmp_path) + b"/bad")
    os.symlink("café".encode(), os.fsencode(tmp_path) + b"/good")
    found = look(tmp_path)
    assert found.links == [("good", "café")]
    assert found.unarchivable == ["bad"]


SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"


def test_a_directory_with_a_cache_tag_is_left_out(tmp_path):
    for name, tag in (("target", SIGNATURE + b"\n# by cargo\n"), ("mine", b"Signature: none")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "CACHEDIR.TAG").write_bytes(tag)
        (tmp_path / name / "file").write_bytes(b"")
    found = look(tmp_path)
    assert found.excluded == [("target", "is marked as a cache")]
    assert found.files == ["mine/CACHEDIR.TAG", "mine/file"]


def test_a_workspace_with_a_cache_tag_is_not_left_out(tmp_path):
    (tmp_path / "CACHEDIR.TAG").write_bytes(SIGNATURE)
    assert look(tmp_path).files == ["CACHEDIR.TAG"]


def test_a_missing_directory_has_no_files(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(b"")
    assert tree.list_files(tmp_path, "there") == ("file",)
    assert tree.list_files(tmp_path, "nowhere") == ()


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x")
    (tmp_path / "a" / "link").symlink_to("b")
    before = set(os.listdir("/proc/self/fd"))
    look(tmp_path)
    assert tree.list_files(tmp_path, "a") == ("b/file",)
    with pytest.raises(CheckpointError, match="Not a directory"):
        tree.list_files(tmp_path, "a/link/b")
    tree.read_head(tmp_path, "a/b/file", 10)
    assert not tree.is_file(tmp_path, "a/b")
    assert not tree.is_file(tmp_path, "a/b/file/c")
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_very_deep_directory_does_not_fail_the_listing(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=fd)
        deeper = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    found = look(tmp_path, is_name=lambda path: path.count("/") < 60)
    assert len(found.unarchivable) == 1
    assert tree.list_files(tmp_path.parent, tmp_path.name) == ()
