"""The rows of data stores in run directories."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from clawblox.results import SavedSnapshot
from clawblox.rundir.saves import is_good_save, prepare_rows, unlink_saves
from clawblox.snapshot.rows import rows_beside
from clawblox.system.files import digest_file
from tests.support.databases import leave_database


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "w000-20260622T185925Z-abcdef.json"
    path.write_text("{}")
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "datastore" / "w000.db"


def read(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [value for (value,) in database.execute("SELECT x FROM t")]


def fill(path: Path, value: int, *, mode: str = "WAL") -> Path:
    path.parent.mkdir(exist_ok=True)
    statements = ["CREATE TABLE t (x)", f"INSERT INTO t VALUES ({value})"]
    return leave_database(path, *statements, mode=mode)


def test_the_log_of_the_old_rows_does_not_leak_into_the_new_rows(own, snapshot):
    fill(own, 1)
    assert own.with_name("w000.db-wal").stat().st_size
    fill(rows_beside(snapshot), 2, mode="DELETE")
    prepare_rows(own, snapshot)
    assert [one.name for one in own.parent.iterdir()] == ["w000.db"]
    assert read(own) == [2]
    assert own.stat().st_mode & 0o777 == 0o600


def test_a_snapshot_without_rows_removes_existing_rows(own, snapshot):
    prepare_rows(own, snapshot)
    assert not own.parent.exists()
    fill(own, 1)
    prepare_rows(own, snapshot)
    assert not [*own.parent.iterdir()]


def test_a_fresh_start_keeps_existing_rows(own):
    prepare_rows(own, None)
    assert not own.parent.exists()
    fill(own, 1)
    prepare_rows(own, None)
    assert read(own) == [1]


def test_a_failed_copy_of_rows_leaves_no_file(own, snapshot):
    rows_beside(snapshot).mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        prepare_rows(own, snapshot)
    assert not own.exists()


def test_a_save_is_good_while_both_its_files_are_unchanged(snapshot):
    rows = fill(rows_beside(snapshot), 2, mode="DELETE")
    saved = SavedSnapshot(
        path=snapshot,
        format="f",
        time=None,
        size_bytes=2,
        sha256=digest_file(snapshot),
        created_at="2026-06-22T18:59:25Z",
        instance="w000",
        rows_sha256=digest_file(rows),
        rows_size_bytes=rows.stat().st_size,
    )
    assert is_good_save(saved)
    assert {"rows_sha256", "rows_size_bytes"} <= {*saved}
    without = attrs.evolve(saved, rows_sha256=None, rows_size_bytes=None)
    assert is_good_save(without)
    assert not {"rows_sha256", "rows_size_bytes"} & {*without}
    rows.write_bytes(b"other")
    assert not is_good_save(saved)
    os.truncate(snapshot, 8 << 40)  # a world also writes manifests, with any size
    assert not is_good_save(attrs.evolve(without, size_bytes=8 << 40))
    unlink_saves([snapshot])
    assert not snapshot.exists()
    assert not rows.exists()
    unlink_saves([snapshot])
