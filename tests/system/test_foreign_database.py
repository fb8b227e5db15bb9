"""Databases of other programs are copied, never opened in place, and limited."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox.system import foreign_database, sqlite_program
from clawblox.system.foreign_database import DatabaseCopy, copy_database, remove_database
from tests.support.databases import hot_journal, leave_database

NAME = "data/agent.db"
ROWS = [[f"s{number}", "/old"] for number in range(3)]
TABLE = "CREATE TABLE session (id TEXT PRIMARY KEY, place TEXT)"
QUERY = "SELECT id, place FROM session"
MOVE = ("UPDATE session SET place = ?", ["/new"])
MOVED = [[name, "/new"] for name, _ in ROWS]
MAX_MEMORY_KB = 300 << 10


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "agent" / "state"
    (root / "data").mkdir(parents=True)
    return root


def fill(root: Path, *statements: str, mode: str = "WAL") -> Path:
    return leave_database(root / NAME, *statements, mode=mode)


def fill_rows(root: Path, *statements: str, mode: str = "WAL") -> Path:
    inserts = [f"INSERT INTO session VALUES ('{name}', '{place}')" for name, place in ROWS]
    return fill(root, TABLE, *inserts, *statements, mode=mode)


@contextlib.contextmanager
def copied(root: Path) -> Iterator[DatabaseCopy]:
    before = set(root.parent.iterdir())
    with copy_database(root, NAME, scratch=root.parent) as database:
        assert database is not None
        yield database
    assert set(root.parent.iterdir()) == before


def read(root: Path, query: str = QUERY) -> list[list[str | int | None]]:
    with copied(root) as database:
        return database.read(query)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


# Reading


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_database_is_read_with_its_log_and_stays_unchanged(root: Path, mode: str) -> None:
    fill_rows(root, mode=mode)
    before = contents(root / "data")
    assert read(root) == ROWS
    assert contents(root / "data") == before


def test_a_database_without_its_log_may_have_no_tables(root: Path) -> None:
    Path(f"{fill_rows(root)}-wal").unlink()
    assert read(root) == []


def test_a_column_that_does_not_exist_yet_has_no_rows(root: Path) -> None:
    fill_rows(root)
    assert read(root, "SELECT parent FROM session") == []


def test_values_of_any_kind_become_text_numbers_or_none(root: Path) -> None:
    values = "CAST(x'ff' AS TEXT), 7, 1.5, x'00', NULL, 9e999"
    fill(root, "CREATE TABLE t (a, b, c, d, e, f)", f"INSERT INTO t VALUES ({values})")
    assert read(root, "SELECT * FROM t") == [["�", 7, None, None, None, None]]


def test_rows_are_consistent_while_a_program_writes(root: Path) -> None:
    database = root / NAME
    is_over = threading.Event()

    def write() -> None:
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as writer:
            number = 0
            while not is_over.is_set():
                number += 1
                writer.execute("UPDATE session SET place = ?", (str(number) * 3000,))

    with contextlib.closing(sqlite3.connect(database)) as first, first:
        first.execute("PRAGMA journal_mode = WAL")
        first.execute(TABLE)
        first.executemany("INSERT INTO session VALUES (?, ?)", ROWS)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(5):
            with contextlib.suppress(BlockingIOError), copied(root) as copy:
                rows = copy.read(QUERY)
                assert [name for name, _ in rows] == [name for name, _ in ROWS]
                assert len({place for _, place in rows}) == 1
    finally:
        is_over.set()
        thread.join()


# Side files


def test_a_journal_that_names_a_file_of_the_user_does_not_delete_it(
    root: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "thesis.tex"
    victim.write_text("years of work")
    database = fill_rows(root, mode="DELETE")
    Path(f"{database}-journal").write_bytes(hot_journal(victim, database))
    assert read(root) == ROWS
    with copied(root) as copy:
        copy.replace([MOVE])
    assert victim.read_text() == "years of work"
    assert not Path(f"{database}-journal").exists()
    assert read(root) == MOVED
    Path(f"{database}-journal").write_bytes(hot_journal(victim, database))
    with contextlib.closing(sqlite3.connect(database)) as opened:
        opened.execute(QUERY).fetchall()
    assert not victim.exists()  # so the journal is one that SQLite obeys


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_pipe_next_to_a_database_does_not_block_a_read(root: Path, suffix: str) -> None:
    database = fill_rows(root, mode="DELETE")
    os.mkfifo(f"{database}{suffix}")
    assert read(root) == ROWS
    with copied(root) as copy:
        copy.replace([MOVE])
    assert read(root) == MOVED
    assert not Path(f"{database}{suffix}").exists()


def test_a_log_that_is_a_link_is_not_read(root: Path, tmp_path: Path) -> None:
    log = Path(f"{fill_rows(root)}-wal")
    log.rename(tmp_path / "log")
    log.symlink_to(tmp_path / "log")
    assert read(root) == []


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_sparse_file_of_terabytes_is_refused_by_name(root: Path, suffix: str) -> None:
    database = fill_rows(root)
    os.truncate(f"{database}{suffix}", 8 << 40)
    with (
        pytest.raises(OSError, match="is larger than") as caught,
        copy_database(root, NAME, scratch=root.parent),
    ):
        pass
    assert str(caught.value.filename).endswith(f"agent.db{suffix}")


@pytest.mark.parametrize("what", ["nothing", "pipe", "link", "directory", "far link"])
def test_a_path_that_is_not_a_regular_file_has_no_database(
    root: Path, tmp_path: Path, what: str
) -> None:
    database = root / NAME
    if what == "pipe":
        os.mkfifo(database)
    elif what == "link":
        database.symlink_to(fill_rows(root).rename(tmp_path / "elsewhere"))
    elif what == "directory":
        database.mkdir()
    elif what == "far link":
        fill_rows(root)
        (root / "data").rename(tmp_path / "data")
        (root / "data").symlink_to(tmp_path / "data")
    with copy_database(root, NAME, scratch=root.parent) as copy:
        assert copy is None


def test_the_error_names_a_file_that_is_not_a_database(root: Path) -> None:
    (root / NAME).write_bytes(b"no database" * 1000)
    with pytest.raises(OSError, match="file is not a database") as caught:
        read(root)
    assert caught.value.filename == str(root / NAME)


# Content

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
HOSTILE = {
    "endless view": [f"CREATE VIEW session AS {ENDLESS} SELECT i AS id, i AS place FROM n"],
    "constant view": ["CREATE VIEW session AS SELECT 'ses_1' AS id, '/old' AS place"],
    "view that fills memory": [
        (
            f"CREATE VIEW session AS {ENDLESS} SELECT group_concat(hex(zeroblob(1 << 20))) AS id,"
            " 1 AS place FROM n"
        )
    ],
    "view that calls itself a table": [
        TABLE,
        "PRAGMA writable_schema = ON",
        (
            f"UPDATE sqlite_schema SET sql = 'CREATE VIEW session AS {ENDLESS}"
            " SELECT i AS id, i AS place FROM n' WHERE name = 'session'"
        ),
    ],
    "computed column": [
        "CREATE TABLE session (id TEXT)",
        "INSERT INTO session VALUES ('ses_1')",
        "ALTER TABLE session ADD COLUMN place TEXT AS (hex(zeroblob(900000000))) VIRTUAL",
    ],
    "huge value": [TABLE, "INSERT INTO session VALUES ('ses_1', hex(zeroblob(33 << 20)))"],
    "large values": [
        TABLE,
        f"INSERT INTO session {ENDLESS} SELECT i, hex(zeroblob(1 << 19)) FROM n LIMIT 4",
    ],
    "many rows": [TABLE, f"INSERT INTO session {ENDLESS} SELECT i, '' FROM n LIMIT 100001"],
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_database_is_an_error_within_memory_limits(root: Path, name: str) -> None:
    fill(root, *HOSTILE[name], mode="DELETE")
    with pytest.raises(OSError, match=r"agent\.db"):
        read(root)
    request = {"name": NAME, "statements": [(QUERY, [])], "is_change": False}
    answer, memory_kb = run_program(root, request)
    assert "error" in answer
    assert memory_kb < MAX_MEMORY_KB


MEASURING = """
import os, sys
sys.path.append(sys.argv.pop(1))
import sqlite_program
exit = os._exit
os._exit = lambda status: (sys.stderr.write(open("/proc/self/status").read()), exit(status))
sqlite_program.main()
"""


def run_program(root: Path, request: dict) -> tuple[dict, int]:
    """Run the program that opens the copy; return its answer and its memory in KiB."""
    place = str(Path(sqlite_program.__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", MEASURING, place, json.dumps(request)]
    done = subprocess.run(command, cwd=root, env={}, capture_output=True, text=True, check=True)
    peak = next(line for line in done.stderr.splitlines() if line.startswith("VmHWM:"))
    return json.loads(done.stdout), int(peak.split()[1])


def test_an_endless_query_is_stopped(root: Path) -> None:
    fill(root, TABLE, f"INSERT INTO session {ENDLESS} SELECT i, '' FROM n LIMIT 5000")
    with pytest.raises(OSError, match="interrupted"):
        read(root, "SELECT count(*) FROM session a, session b, session c WHERE a.place <> b.place")


@pytest.mark.parametrize(
    "trigger",
    [
        pytest.param(
            f"INSERT INTO session SELECT hex(randomblob(9)), '' FROM ({ENDLESS} SELECT i FROM n)",
            marks=pytest.mark.thorough,
        ),
        "UPDATE session SET place = hex(zeroblob(900000000)) WHERE id = new.id",
    ],
)
def test_triggers_are_limited_and_leave_the_database_unchanged(root: Path, trigger: str) -> None:
    fill_rows(root, f"CREATE TRIGGER t AFTER UPDATE ON session BEGIN {trigger}; END")
    with pytest.raises(OSError, match=r"agent\.db"), copied(root) as copy:
        copy.replace([MOVE])
    assert read(root) == ROWS


# Changes


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_change_is_atomic_and_keeps_the_file_mode(root: Path, mode: str) -> None:
    database = fill_rows(root, mode=mode)
    database.chmod(0o640)
    Path(f"{database}-shm").write_bytes(b"stale")
    with copied(root) as copy:
        copy.replace([MOVE])
    assert list((root / "data").iterdir()) == [database]
    assert database.stat().st_mode & 0o777 == 0o640
    assert read(root) == MOVED
    with contextlib.closing(sqlite3.connect(database)) as opened:
        assert opened.execute("PRAGMA journal_mode").fetchone() == (mode.lower(),)
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.thorough
@pytest.mark.parametrize("call", range(20))
def test_at_every_moment_of_a_change_the_database_is_complete(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    fill_rows(root)
    calls = iter(range(call))

    class Killed(BaseException):
        pass

    def stop(name: str) -> None:
        original = getattr(os, name)

        def act(*args: object, **more: object) -> object:
            if next(calls, None) is None:
                raise Killed
            return original(*args, **more)

        monkeypatch.setattr(os, name, act)

    for name in ("replace", "unlink", "fsync"):
        stop(name)
    with contextlib.suppress(Killed), copy_database(root, NAME, scratch=root.parent) as copy:
        assert copy is not None
        copy.replace([MOVE])
    monkeypatch.undo()
    with contextlib.closing(sqlite3.connect(root / NAME)) as opened:  # like its program
        rows = [list(row) for row in opened.execute(QUERY)]
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert rows in (ROWS, MOVED)


def test_a_database_is_removed_with_the_files_beside_it(root: Path) -> None:
    database = fill_rows(root)
    os.mkfifo(f"{database}-journal")
    Path(f"{database}-shm").mkdir()
    other = root / "data" / "agent.db2"
    other.write_text("")
    remove_database(root, NAME)
    assert sorted((root / "data").iterdir()) == [Path(f"{database}-shm"), other]


def test_copies_of_a_killed_process_are_removed_by_the_next(root: Path) -> None:
    fill_rows(root)
    left = root.parent / f".database.{2**22}-1.abcd.partial"
    left.mkdir()
    with copy_database(root, NAME, scratch=root.parent):
        assert not left.exists()


def test_a_database_that_keeps_changing_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = fill_rows(root)
    original = foreign_database._copy_file

    def rewrite(*args: object) -> None:
        original(*args)
        os.utime(database, ns=(0, os.stat(database).st_mtime_ns + 1))

    monkeypatch.setattr(foreign_database, "_copy_file", rewrite)
    with (
        pytest.raises(OSError, match="keeps changing"),
        copy_database(root, NAME, scratch=root.parent),
    ):
        pass
