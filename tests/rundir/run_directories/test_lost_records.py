"""Records that are emptied, removed or replaced while their instances run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld
from clawblox.instance import bookkeeping
from clawblox.rundir.claims import claimed_names
from clawblox.rundir.paths import records_journal
from clawblox.rundir.records import InstanceRecord, restore_records
from clawblox.rundir.status import read_run
from tests.rundir.support import records_on_disk
from tests.support.waiting import wait_until, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


def _empty(journal: Path) -> None:
    journal.write_bytes(b"")


def _remove_all(journal: Path) -> None:
    shutil.rmtree(journal.parents[1])


def _pipe(journal: Path) -> None:
    journal.unlink()
    os.mkfifo(journal)


def _link(journal: Path) -> None:
    journal.unlink()
    journal.symlink_to("precious")
    (journal.parent / "precious").write_text("a user's")


def _second_name(journal: Path) -> None:
    (journal.parent / "precious").write_text("a user's")
    journal.unlink()
    journal.hardlink_to(journal.parent / "precious")


def _sparse(journal: Path) -> None:
    os.truncate(journal, 8 << 40)


def _other(journal: Path) -> None:
    journal.write_text('{"name": "w000", "state": "exited"}\n')


@pytest.mark.parametrize(
    "lose",
    [
        Path.unlink,
        _pipe,
        *(
            pytest.param(way, marks=pytest.mark.thorough)
            for way in (_empty, _remove_all, _link, _second_name, _sparse, _other)
        ),
    ],
)
async def test_lost_records_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(bookkeeping, "_LOOK_INTERVAL_S", 0.02)
    run = tmp_path / "run"
    journal = records_journal(run)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start_many(2, run_dir=run)
        before = records_on_disk(run)
        lose(journal)
        await wait_until_async(lambda: _read(run) == before, what="the records are there again")
        await run_sync(wait_until, lambda: claimed_names(run) == {"w000", "w001"})
        (first, second) = (await run_sync(read_run, run)).instances
        assert {first.state, second.state} == {"ready"}
        for precious in journal.parent.glob("precious"):
            assert precious.read_text() == "a user's"
    assert {one["state"] for one in records_on_disk(run).values()} == {"exited"}


async def test_records_lost_right_after_a_check_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "_LOOK_INTERVAL_S", 0.02)
    run = tmp_path / "run"
    losses = []

    def restore_and_lose(run_dir: Path, records: Sequence[InstanceRecord]) -> list[str]:
        restored = restore_records(run_dir, records)
        if not losses:
            losses.append(records_on_disk(run))
            _empty(records_journal(run))
        return restored

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
        monkeypatch.setattr(bookkeeping, "restore_records", restore_and_lose)
        os.utime(records_journal(run))  # a change triggers a check
        await wait_until_async(lambda: losses and _read(run) == losses[0], what="they are back")


def _read(run: Path) -> object:
    """Return the records; None if there is no such file."""
    found = records_journal(run)
    if not found.is_file() or found.is_symlink() or found.stat().st_size > 1 << 20:
        return None
    try:
        return records_on_disk(run)
    except ValueError:
        return None


async def test_a_directory_in_place_of_the_records_stays_and_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "_LOOK_INTERVAL_S", 0.02)
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
        before = records_on_disk(run)
        records_journal(run).unlink()
        records_journal(run).mkdir()
        await world.save()
        records_journal(run).rmdir()
        await wait_until_async(lambda: _read(run) == before)


async def test_an_intact_record_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "_LOOK_INTERVAL_S", 0.02)
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start_many(2, run_dir=run)
        size = records_journal(run).stat().st_size
        with records_journal(run).open("ab") as journal:
            journal.write(b'{"name": "other"}\n')  # the journal has changed, so it is checked
        looks: list[object] = []
        look = bookkeeping._RecordKeeper._restore
        monkeypatch.setattr(
            bookkeeping._RecordKeeper,
            "_restore",
            lambda *arguments: (look(*arguments), looks.append(1)),
        )
        with records_journal(run).open("ab") as journal:
            journal.write(b'{"name": "other"}\n')
        await wait_until_async(lambda: looks)
        assert records_journal(run).stat().st_size == size + 2 * len(b'{"name": "other"}\n')
