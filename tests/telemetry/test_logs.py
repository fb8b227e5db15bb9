"""Logs that a world writes directly: following, tails, masks and cuts."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from clawblox.telemetry import log_reader, logs
from clawblox.telemetry.log_reader import LogReader
from clawblox.telemetry.logs import last_lines, open_log, trim_log
from tests.support.waiting import HANG_S, POLL_INTERVAL_S, wait_until

pytestmark = pytest.mark.anyio

PIECE_BYTES = 64 * 1024
MARK = "[clawblox] log over 20000 bytes, older half removed"

FLOOD = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
number = 0
while True:
    number += 1
    os.write(fd, b"line %d of the flood\\n" % number)
"""


def log_of(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "world.log"
    path.write_bytes(content)
    return path


def reader(path: Path, *, tail: int | None = None, start: int = 0) -> LogReader:
    return LogReader(instance="w000", path=path, follow=False, tail=tail, start=start)


async def texts(lines: LogReader) -> list[str]:
    async with lines:
        return [line.text async for line in lines]


def numbers(count: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(count))


class Followed:
    """A log that a test appends to, and the reader that follows it."""

    def __init__(self, path: Path, **options: int | None) -> None:
        self.is_over = False
        self.path = path
        self.lines = LogReader(
            instance="w000",
            path=path,
            follow=True,
            tail=options.get("tail"),
            start=options.get("start") or 0,
            is_over=lambda: self.is_over,
        )

    def append(self, data: bytes) -> None:
        with open(self.path, "ab", buffering=0) as file:
            file.write(data)

    async def next(self) -> str:
        with anyio.fail_after(HANG_S):
            return (await anext(self.lines)).text

    async def rest(self) -> list[str]:
        self.is_over = True
        with anyio.fail_after(HANG_S):
            return [line.text async for line in self.lines]


# --------------------------------------------------------------------------------- opening


def test_a_log_is_created_private_and_appended_to(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for expected in (0, 4):
            fd, start = open_log(tmp_path / "log")
            assert start == expected
            os.lseek(fd, 0, os.SEEK_SET)
            os.write(fd, b"one\n")
            os.close(fd)
    finally:
        os.umask(before)
    assert (tmp_path / "log").read_bytes() == b"one\none\n"
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


# --------------------------------------------------------------------------------- reading


async def test_every_line_has_its_instance_and_its_offset(tmp_path: Path) -> None:
    path = log_of(tmp_path, "one\n\nzwölf\nlast".encode())
    async with reader(path) as lines:
        found = [line async for line in lines]
    assert [(line.text, line.offset) for line in found] == [
        ("one", 0),
        ("", 4),
        ("zwölf", 5),
        ("last", 12),
    ]
    assert {line.instance for line in found} == {"w000"}


@pytest.mark.parametrize("content", [None, b""])
async def test_a_log_that_is_missing_or_empty_has_no_lines(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "world.log"
    if content is not None:
        path.write_bytes(content)
    for tail in (None, 0, 5):
        assert await texts(reader(path, tail=tail)) == []
    assert await anyio.to_thread.run_sync(last_lines, path) == ()


async def test_windows_line_ends_and_invalid_utf8_are_read(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"one\r\nt\xffo\xc3\n50 %\r100 %\n\xe2\x82")
    assert await texts(reader(path)) == ["one", "t\ufffdo\ufffd", "50 %\r100 %", "\ufffd"]


@pytest.mark.parametrize("end", [b"\n", b""], ids=["terminated", "unterminated"])
@pytest.mark.parametrize("count", [0, 1, 3, 9, 10, 11, 10**9])
async def test_a_tail_has_the_given_number_of_lines_or_all_lines(
    tmp_path: Path, count: int, end: bytes
) -> None:
    path = log_of(tmp_path, numbers(10).rstrip(b"\n") + end)
    expected = [str(number) for number in range(10)][10 - min(count, 10) :]
    assert await texts(reader(path, tail=count)) == expected


async def test_a_tail_counts_lines_like_the_reader(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"first\n50 %\r100 %\x0b\n\n")
    assert await texts(reader(path, tail=2)) == ["50 %\r100 %\x0b", ""]


@pytest.mark.thorough
async def test_a_tail_reaches_over_many_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_CHUNK_BYTES", 7)
    path = log_of(tmp_path, numbers(1000))
    for count in (1, 2, 3, 500, 999, 1000, 1001):
        expected = [str(number) for number in range(max(0, 1000 - count), 1000)]
        assert await texts(reader(path, tail=count)) == expected


async def test_lines_before_the_start_are_not_read(tmp_path: Path) -> None:
    old, new = b"old 1\nold 2\n", b"new 1\nnew 2\n"
    path = log_of(tmp_path, old + new)
    assert await texts(reader(path, start=len(old))) == ["new 1", "new 2"]
    for tail, expected in ((5, ["new 1", "new 2"]), (1, ["new 2"]), (0, [])):
        assert await texts(reader(path, tail=tail, start=len(old))) == expected
    read_last = partial(last_lines, path, start=len(old))
    assert await anyio.to_thread.run_sync(read_last) == ("new 1", "new 2")


async def test_a_log_shorter_than_the_start_is_read_completely(
    tmp_path: Path,
) -> None:
    path = log_of(tmp_path, b"one\ntwo\n")
    assert await texts(reader(path, start=1000)) == ["one", "two"]
    assert await texts(reader(path, start=1000, tail=1)) == ["two"]
    read_last = partial(last_lines, path, start=1000)
    assert await anyio.to_thread.run_sync(read_last) == ("one", "two")


@pytest.mark.parametrize("extra", [-1, 0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1])
async def test_an_endless_line_is_split_into_pieces_without_loss(
    tmp_path: Path, extra: int
) -> None:
    length = 4 * PIECE_BYTES + extra
    whole = "".join(str(number % 10) for number in range(length))
    path = log_of(tmp_path, b"before\n" + whole.encode() + b"\nafter\n")
    before, *pieces, after = await texts(reader(path))
    assert (before, after) == ("before", "after")
    assert "".join(pieces) == whole
    assert [len(piece) for piece in pieces[:-1]] == [PIECE_BYTES] * (len(pieces) - 1)
    assert pieces[-1]


# ------------------------------------------------------------------------------- following


async def test_a_followed_log_yields_each_line_once_complete(tmp_path: Path) -> None:
    log = Followed(log_of(tmp_path, b"one\ntw"))
    assert await log.next() == "one"
    with anyio.move_on_after(0.06) as scope:
        await anext(log.lines)
    assert scope.cancelled_caught
    log.append(b"o\r")
    with anyio.move_on_after(0.06) as scope:
        await anext(log.lines)
    assert scope.cancelled_caught
    log.append(b"\nthree\nfour")
    assert [await log.next(), await log.next()] == ["two", "three"]
    assert await log.rest() == ["four"]


async def test_a_log_that_appears_later_is_followed(tmp_path: Path) -> None:
    log = Followed(tmp_path / "later.log")
    with anyio.move_on_after(0.02):
        await anext(log.lines)
    log.append(b"one\n")
    assert await log.next() == "one"
    assert await log.rest() == []


async def test_a_tail_of_zero_shows_only_new_lines(tmp_path: Path) -> None:
    log = Followed(log_of(tmp_path, b"old\n"), tail=0)
    with anyio.move_on_after(0.02):
        await anext(log.lines)
    log.append(b"new\n")
    assert await log.next() == "new"
    assert await log.rest() == []


async def test_the_last_output_of_the_writer_is_read_before_the_end(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"")

    def end() -> bool:
        path.write_bytes(b"last words")
        return True

    lines = LogReader(instance="w000", path=path, follow=True, tail=None, is_over=end)
    assert await texts(lines) == ["last words"]


async def test_a_piece_of_a_growing_line_waits_for_its_end(tmp_path: Path) -> None:
    log = Followed(log_of(tmp_path, b"x" * PIECE_BYTES))
    with anyio.move_on_after(0.06) as scope:
        await anext(log.lines)
    assert scope.cancelled_caught
    log.append(b"\n")
    assert await log.next() == "x" * PIECE_BYTES
    log.append(b"y" * (PIECE_BYTES + 1))
    assert await log.next() == "y" * PIECE_BYTES
    assert await log.rest() == ["y"]


async def test_a_reader_ends_when_its_block_is_left(tmp_path: Path) -> None:
    log = Followed(log_of(tmp_path, b"one\n"))
    async with log.lines as lines:
        assert (await anext(lines)).text == "one"
    with pytest.raises(StopAsyncIteration):
        await anext(log.lines)


async def test_a_followed_log_continues_after_a_cut(tmp_path: Path) -> None:
    log = Followed(log_of(tmp_path, numbers(10_000)))
    for number in range(10_000):
        assert await log.next() == str(number)
    assert await anyio.to_thread.run_sync(trim_log, log.path, 20_000)
    found: list[str] = []

    async def read_one() -> None:
        found.append(await log.next())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_one)
        while not found:  # lines written before the reader sees the cut are lost
            log.append(b"after the cut\n")
            await anyio.sleep(POLL_INTERVAL_S)
    assert {*found, *await log.rest()} == {"after the cut"}


# ------------------------------------------------------------------------------ last lines


def test_the_last_lines_are_limited_in_number_and_length(tmp_path: Path) -> None:
    path = log_of(tmp_path, numbers(1000) + b"x" * 5000)
    assert last_lines(path, count=3) == ("998", "999", "x" * 1000)
    assert len(last_lines(path)) == 50


def test_secrets_are_masked(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"token=hunter2 and hunter2\nother=s3cret\n")
    assert last_lines(path, secrets=["hunter2", "s3cret"]) == ("token=*** and ***", "other=***")


@pytest.mark.parametrize("seen", range(1, 9))
def test_a_secret_at_the_cut_edge_is_not_shown(tmp_path: Path, seen: int) -> None:
    secret = "AbCdEfGh"
    rest = b"x" * (PIECE_BYTES - seen)
    path = log_of(tmp_path, b"y" * 100 + secret.encode() + rest)
    (line,) = last_lines(path, secrets=[secret, "A"])
    assert set(line) <= {"x", "*"}
    short = log_of(tmp_path, secret.encode() + b"\n" + rest[seen:])
    assert last_lines(short, secrets=[secret])[0] == "***"


# --------------------------------------------------------------------------------- the cut


def test_a_small_log_is_not_cut(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"x" * 100)
    assert not trim_log(path, 100)
    assert path.read_bytes() == b"x" * 100
    assert not trim_log(tmp_path / "missing", 100)


def test_the_newer_half_is_kept_completely_after_a_mark(tmp_path: Path) -> None:
    path = log_of(tmp_path, numbers(10_000) + b"end")
    assert trim_log(path, 20_000)
    mark, *kept, end = path.read_text().splitlines()
    assert (mark, end) == (MARK, "end")
    assert kept == [str(number) for number in range(10_000 - len(kept), 10_000)]
    assert 9_990 <= len("\n".join(kept)) <= 10_000
    assert not trim_log(path, 20_000)


def test_the_half_is_copied_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_CHUNK_BYTES", 11)
    path = log_of(tmp_path, numbers(10_000))
    assert trim_log(path, 20_000)
    assert path.read_text().splitlines()[-3:] == ["9997", "9998", "9999"]


@contextlib.contextmanager
def flood(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", "-c", FLOOD, str(path)]
    with subprocess.Popen(command) as process:
        yield process
        process.kill()


def test_a_writer_loses_only_output_during_the_cut(tmp_path: Path) -> None:
    path = log_of(tmp_path, b"")
    with flood(path):
        for _ in range(10):
            wait_until(lambda: path.stat().st_size > 200_000)
            assert trim_log(path, 20_000)
        size = path.stat().st_size
        wait_until(lambda: path.stat().st_size > size)
    mark, *lines, _unfinished = path.read_text().split("\n")  # killed while it wrote a line
    assert mark == MARK
    found = [int(line.removeprefix("line ").removesuffix(" of the flood")) for line in lines]
    assert all(first < second for first, second in pairwise(found))
    assert sum(first + 1 != second for first, second in pairwise(found)) <= 10
