"""Every display of a command shows slow saves and loads of archives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import load_checkpoint, save_checkpoint
from clawblox.checkpoint.load.load import extract_snapshot
from clawblox.checkpoint.progress import archive_work, listed
from clawblox.cli.running import slow_work
from clawblox.cli.running.slow_work import SLOW_S, describe_archives, note_slow_archives
from clawblox.cli.terminal.screen import work_with_bar
from clawblox.concurrency.tasks import Tasks
from tests.support.waiting import HANG_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    snapshot = tmp_path / "w.snapshot"
    snapshot.write_text('{"time": 1.0}')
    notes = tmp_path / "Eko" / "workspace" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("north, then east")
    agents = {"Eko": tmp_path / "Eko"}
    return save_checkpoint(tmp_path / "a.ckpt", world_snapshot=snapshot, agents=agents)


@contextmanager
def halted(work: Callable[[Callable[[int, int], None]], Any]) -> Iterator[None]:
    """Do work in a thread that stops at its first report while the block runs."""
    has_begun, may_end = threading.Event(), threading.Event()

    def report(_done: int, _total: int) -> None:
        has_begun.set()
        may_end.wait(HANG_S)

    thread = threading.Thread(target=work, args=(report,))
    thread.start()
    try:
        assert has_begun.wait(HANG_S)
        yield
    finally:
        may_end.set()
        thread.join()


def test_saves_and_loads_are_listed_while_they_run(archive: Path) -> None:
    agents = {"Eko": archive.parent / "Eko"}
    new, run_dir = archive.with_name("b.ckpt"), archive.parent / "run"
    work: dict[str, Callable[[Callable[[int, int], None]], Any]] = {
        "Saving b.ckpt": lambda report: save_checkpoint(new, agents=agents, progress=report),
        "Loading a.ckpt": lambda report: load_checkpoint(archive, run_dir, progress=report),
        "Loading a.ckpt: ": lambda report: extract_snapshot(archive, archive.parent, report),
    }
    for line, function in work.items():
        with halted(function):
            assert len(archive_work()) == 1
            assert describe_archives().startswith(line)
            assert not describe_archives(SLOW_S)
        assert not archive_work()


def test_a_failed_save_is_no_longer_listed(archive: Path) -> None:
    def refuse(_done: int, _total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        load_checkpoint(archive, archive.parent / "run", progress=refuse)
    assert not archive_work()


def test_oldest_archive_work_is_described_after_two_seconds(
    tmp_path: Path,
) -> None:
    with listed("Saving", tmp_path / "a.ckpt", None) as count, listed("Loading", tmp_path, None):
        count(1_000_000, 3_000_000)
        assert not describe_archives(SLOW_S)
        for work in archive_work():
            work.begun_at -= 600
        line = describe_archives(SLOW_S)
    assert line.startswith("Saving a.ckpt: 1.0 MB of 3.0 MB, 10m")
    assert line.endswith(" (and 1 more)")


def test_an_archive_name_cannot_control_the_terminal(tmp_path: Path) -> None:
    with listed("Saving", tmp_path / "a\x1b[2J.ckpt", None):
        assert describe_archives().startswith("Saving a\\x1b[2J.ckpt")


async def test_a_run_with_an_agent_notes_a_slow_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    has_noted = anyio.Event()

    def show(text: str) -> None:
        lines.append(text)
        has_noted.set()

    monkeypatch.setattr(slow_work, "note", show)
    monkeypatch.setattr(slow_work, "SLOW_S", 0.0)
    with listed("Saving", tmp_path / "a.ckpt", None):
        async with Tasks() as tasks:
            tasks.start_soon(note_slow_archives)
            with anyio.fail_after(HANG_S):
                await has_noted.wait()
    assert lines[0].startswith("Saving a.ckpt, ")


async def test_a_load_with_a_bar_returns_its_result(archive: Path) -> None:
    loaded = await work_with_bar(
        "Loading",
        lambda report: load_checkpoint(archive, archive.parent / "run", progress=report),
    )
    assert [*loaded["agents"]] == ["Eko"]
