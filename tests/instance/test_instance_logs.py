"""The log of an instance: reading, following, truncation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

import clawblox.telemetry.log_watch
from clawblox import AsyncWorld, LogLine
from tests.support.running import next_event, running
from tests.support.waiting import wait_until_async
from tests.support.worlds import ask

pytestmark = pytest.mark.anyio


async def collect(world: AsyncWorld, **options: Any) -> list[LogLine]:
    """Return the lines of the log."""
    async with world.logs(**options) as lines:
        return [line async for line in lines]


async def follow_log(world: AsyncWorld, seen: list[str], tail: int | None = None) -> None:
    """Add the text of each line to ``seen`` as it arrives."""
    async with world.logs(follow=True, tail=tail) as lines:
        async for line in lines:
            seen.append(line.text)  # noqa: PERF401 - it is looked at meanwhile


def texts(lines: Sequence[LogLine]) -> list[str]:
    return [line.text for line in lines]


async def test_the_log_is_read_from_the_first_line_with_true_offsets(tmp_path: Path) -> None:
    async with running(tmp_path, "--flood-lines", "5000") as (world, started):
        lines = await collect(world)
        whole = started.log_file.read_bytes()
    assert len(lines) == 5002
    assert {line.instance for line in lines} == {started.name}
    assert [line.text.encode() for line in lines] == whole.splitlines()
    assert all(whole[line.offset :].startswith(line.text.encode()) for line in lines)
    assert sum(len(line.text) + 1 for line in lines) == len(whole)


@pytest.mark.thorough
async def test_tail_returns_the_last_lines(tmp_path: Path) -> None:
    async with running(tmp_path, "--flood-lines", "5000") as (world, _):
        whole = await collect(world)
        for tail in (0, 1, 2, 100, 5002, 9999):
            last = whole[len(whole) - min(tail, len(whole)) :]
            # The times of the latest lines become known within a second.
            assert untimed(await collect(world, tail=tail)) == untimed(last), tail


def untimed(lines: list[LogLine]) -> list[LogLine]:
    return [attrs.evolve(line, at=None) for line in lines]


async def test_tail_counts_an_unfinished_line(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        with started.log_file.open("a") as log:
            log.write("one\ntwo\nthr")
        assert texts(await collect(world, tail=2)) == ["two", "thr"]


async def test_progress_bar_counts_as_one_line_in_the_tail(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        with started.log_file.open("a") as log:
            log.write("10%\r50%\r100%\ndone\r\n")
        assert texts(await collect(world, tail=2)) == ["10%\r50%\r100%", "done"]


async def test_a_log_is_followed_to_the_last_line_of_the_world(tmp_path: Path) -> None:
    followed: list[str] = []
    async with running(tmp_path) as (world, started), anyio.create_task_group() as tasks:
        tasks.start_soon(follow_log, world, followed, 1)
        await wait_until_async(lambda: followed, what="the last line so far")
        with started.log_file.open("a") as log:
            log.write("in two ")
            log.flush()
            await anyio.wait_all_tasks_blocked()
            assert len(followed) == 1
            log.write("pieces\n")
        await wait_until_async(lambda: len(followed) == 2, what="the line that came")
        await world.stop()
    assert followed == [f"Spectator frontend: {started.url}/", "in two pieces", "stopped"]


async def test_the_log_of_a_dead_world_can_be_read(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        assert texts(await collect(world, follow=True))[0].startswith("counter world, process ")


async def test_endless_log_line_is_returned_in_pieces(tmp_path: Path) -> None:
    async with running(tmp_path, "--long-line", "200000") as (world, _):
        lines = await collect(world)
    pieces = [line for line in lines if line.text.startswith("y")]
    assert len(pieces) == 4
    assert all(len(piece.text) == 65536 for piece in pieces[:-1])
    assert "".join(texts(pieces)).count("y") == 200000
    assert [piece.offset for piece in pieces] == [
        pieces[0].offset + 65536 * number for number in range(4)
    ]


async def test_invalid_bytes_in_a_log_are_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, "--raw-bytes") as (world, started):
        lines = await collect(world)
        assert "caf\ufffd \ufffd\ufffd \x00 end" in texts(lines)
        assert lines[-1].text == f"Spectator frontend: {started.url}/"


async def test_removed_log_has_no_lines(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        started.log_file.unlink()
        assert await collect(world) == []
        assert await collect(world, tail=3) == []
        await world.connect("Rocky")


@pytest.fixture
def _cut_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clawblox.telemetry.log_watch, "_LOOK_INTERVAL_S", 0.01)


def first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


@pytest.mark.usefixtures("_cut_often")
async def test_log_over_its_limit_keeps_its_newer_half(tmp_path: Path) -> None:
    flags = ("--flood-lines", "1000", "--flood-rate", "200")
    async with running(tmp_path, *flags, max_log_bytes=50_000) as (world, started):
        log_file = started.log_file
        mark = b"[clawblox] log over 50000 bytes, older half removed\n"
        await wait_until_async(lambda: first_line(log_file) == mark, what="the log is cut")
        after = log_file.read_bytes()
        assert len(after) < 50_000
        assert b"steady zzz" in after
        await wait_until_async(
            lambda: len(log_file.read_bytes()) != len(after), what="the world goes on writing"
        )
        assert texts(await collect(world))[0] == mark.decode().strip()
        await world.connect("Rocky")


@pytest.mark.usefixtures("_cut_often")
async def test_reader_follows_a_truncated_log(tmp_path: Path) -> None:
    followed: list[str] = []

    def has_gone_on() -> bool:
        with started.log_file.open("a") as log:
            log.write("on\n")
        return "on" in followed

    options = {"max_log_bytes": 50_000}
    async with (
        running(tmp_path, "--flood-lines", "1000", **options) as (world, started),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(follow_log, world, followed)
        await wait_until_async(lambda: first_line(started.log_file).startswith(b"[clawblox]"))
        await wait_until_async(lambda: followed, what="the reader follows")
        await wait_until_async(has_gone_on, what="the reader goes on")
        await world.stop()
    assert followed[-1] == "stopped"


@pytest.mark.usefixtures("_cut_often")
async def test_log_without_a_limit_is_never_truncated(tmp_path: Path) -> None:
    async with running(tmp_path, "--flood-lines", "1000", max_log_bytes=None) as (world, _):
        second = await world.start(run_dir=tmp_path / "run")  # several intervals long
        assert len(await collect(world, instance=second.name)) == 1002
