"""Windows cover whole files, and files outside the directory are not opened."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.web.files import (
    MAX_WINDOW_BYTES,
    FileWindow,
    decode,
    opened_below,
    read_around,
    read_before,
    read_from,
)

LINES = st.lists(
    st.one_of(
        st.sampled_from([b"", b"\n", b"a\n", b"\xff\xfe", "ä€😀".encode()]),
        st.binary(max_size=30),
        st.text(max_size=30).map(lambda text: text.encode(errors="surrogatepass")),
    ),
    max_size=20,
).map(b"".join)
SIZES = st.integers(8, 64)


@contextmanager
def holding(content: bytes) -> Iterator[int]:
    fd = os.memfd_create("content")
    try:
        os.write(fd, content)
        yield fd
    finally:
        os.close(fd)


def check_borders(content: bytes, window: FileWindow) -> None:
    assert content[window.start : window.end] == window.data
    is_border = window.start == 0 or content[window.start - 1 : window.start] == b"\n"
    assert window.starts_line == is_border


@settings(max_examples=30)
@given(LINES, SIZES)
def test_consecutive_forward_windows_cover_the_file(content: bytes, size: int) -> None:
    with holding(content) as fd:
        windows = [read_from(fd, 0, size)]
        while windows[-1].end < len(content):
            windows.append(read_from(fd, windows[-1].end, size))
    assert b"".join(window.data for window in windows) == content
    for window in windows:
        check_borders(content, window)
        assert len(window.data) <= size


@settings(max_examples=30)
@given(LINES, SIZES)
def test_consecutive_backward_windows_cover_the_file(content: bytes, size: int) -> None:
    with holding(content) as fd:
        windows = [read_before(fd, len(content), size)]
        while windows[0].start > 0:
            windows.insert(0, read_before(fd, windows[0].start, size))
    assert b"".join(window.data for window in windows) == content
    for window in windows:
        check_borders(content, window)
        assert len(window.data) <= size


@given(LINES, SIZES, st.integers(0, 1000))
def test_window_around_a_byte_contains_it(content: bytes, size: int, at: int) -> None:
    with holding(content) as fd:
        window = read_around(fd, at, size)
    check_borders(content, window)
    if at < len(content):
        assert window.start <= at < window.end


def test_window_around_a_byte_of_a_long_line_contains_it() -> None:
    with holding(b"a\n" * 10 + b"x" * 100) as fd:
        window = read_around(fd, 25, 16)
    assert window.start <= 25 < window.end


@given(st.text(st.characters(exclude_categories=["Cs"])), SIZES)
def test_no_window_cuts_a_character(text: str, size: int) -> None:
    content, place = text.encode(), 0
    with holding(content) as fd:
        while place < len(content):
            window = read_from(fd, place, size)
            window.data.decode()
            place = window.end
        while place > 0:
            window = read_before(fd, place, size)
            window.data.decode()
            place = window.start


@given(LINES, SIZES)
def test_the_lines_of_a_window_are_at_their_offsets(content: bytes, size: int) -> None:
    with holding(content) as fd:
        window = read_from(fd, 0, size)
    lines = list(window.lines())
    borders = [offset for offset, _ in lines[1:]] + [window.end]
    for (offset, text), border in zip(lines, borders, strict=False):
        assert decode(content[offset:border].removesuffix(b"\n")) == text
        assert offset == 0 or content[offset - 1 : offset] == b"\n"
    assert len(lines) == window.data.count(b"\n") + (
        not window.data.endswith(b"\n") and bool(window.data)
    )


def test_a_window_has_a_maximum_size_and_a_line_of_8_mb_has_several() -> None:
    content = b"a\n" + b"x" * (8 << 20) + b"\nz\n"
    with holding(content) as fd:
        first = read_from(fd, 0, MAX_WINDOW_BYTES)
        second = read_from(fd, 2, MAX_WINDOW_BYTES)
        last = read_before(fd)
        middle = read_around(fd, 4 << 20)
    assert first.data == b"a\n"
    assert second.end == 2 + MAX_WINDOW_BYTES
    assert last.data == b"z\n"
    assert not middle.starts_line
    assert middle.start <= 4 << 20 < middle.end


def test_bytes_that_are_not_utf_8_are_shown_as_escapes() -> None:
    with holding(b"\xffa\xc3\nb") as fd:
        assert list(read_from(fd, 0).lines()) == [(0, "\\xffa\\xc3"), (4, "b")]


def test_window_beyond_the_end_of_a_cut_file_is_empty() -> None:
    with holding(b"abc\n") as fd:
        assert read_from(fd, 1000) == FileWindow(4, b"", 4, starts_line=True)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_outward_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def make_directory_link(path: Path) -> None:
    (path.parent / "way").symlink_to("/etc")
    path.symlink_to("way/passwd")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (make_fifo, errno.EINVAL),
        (make_outward_link, errno.EACCES),
        (make_directory_link, errno.EACCES),
        (make_loop, errno.ELOOP),
        (make_directory, errno.EINVAL),
    ],
)
def test_only_regular_files_below_the_directory_are_opened(
    tmp_path: Path, make: Callable[[Path], None], code: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make(root / "odd")
    with pytest.raises(OSError, match=r"odd|passwd") as caught, opened_below(root, root / "odd"):
        pass
    assert caught.value.errno == code


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../other", "a/../../other", "../rootbeer/file", "a\0b", ""]
)
def test_recorded_path_cannot_leave_the_directory(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "rootbeer").mkdir()
    for name in ("other", "rootbeer/file"):
        (tmp_path / name).write_text("secret")
    with pytest.raises(OSError, match="is "), opened_below(root, Path(path)):
        pass


def test_links_within_the_directory_are_followed_at_any_location(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "logs").mkdir(parents=True)
    (root / "logs" / "w.log").write_text("here")
    (root / "latest").symlink_to("logs")
    (tmp_path / "way").symlink_to(root)
    for path in (Path("latest/w.log"), root / "logs/w.log", tmp_path / "way/latest/w.log"):
        with opened_below(tmp_path / "way", path) as fd:
            assert read_from(fd, 0).data == b"here"


def test_a_directory_that_becomes_a_link_after_it_was_resolved_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    resolved = os.path.realpath(tmp_path / "logs" / "passwd")
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").symlink_to("/etc")
    known = {tmp_path: str(tmp_path), tmp_path / "logs" / "passwd": resolved}
    monkeypatch.setattr("clawblox.web.files.os.path.realpath", known.__getitem__)
    with pytest.raises(OSError, match="logs"), opened_below(tmp_path, Path("logs/passwd")):
        pass
