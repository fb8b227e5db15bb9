"""Data stores in a SQLite file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from clawblox.engine.datastore.store import Answer, Request, Statements, StoreError

_SCORE: Final = (
    "CASE WHEN json_type(value) IN ('integer', 'real') THEN json_extract(value, '$')"
    " WHEN json_type(value, '$.score') IN ('integer', 'real')"
    " THEN json_extract(value, '$.score') END"
)
_CAUTION: Final = ("cell_size_check = ON", "mmap_size = 0")
"""Settings that https://sqlite.org/security.html advises for untrusted files, except
``trusted_schema``, since the index needs JSON functions."""
_ACTIVE: Final = "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')"
_SCHEMA: Final = (
    "PRAGMA journal_mode = WAL",
    # In WAL mode the operating system has the data when a commit returns, so killing the world
    # loses no commits. A power failure can lose the last commits, but does not damage the file.
    "PRAGMA synchronous = NORMAL",
    (
        "CREATE TABLE IF NOT EXISTS data_stores ("
        "game_id TEXT NOT NULL, store_name TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
        " updated_at TEXT NOT NULL, PRIMARY KEY (game_id, store_name, key))"
    ),
    "DROP INDEX IF EXISTS data_stores_score",  # from engines without plain number scores
    (
        "CREATE INDEX IF NOT EXISTS data_stores_order"
        f" ON data_stores (game_id, store_name, ({_SCORE}), key)"
    ),
)
_ROWS: Final = "SELECT key, value FROM data_stores WHERE game_id = ? AND store_name = ?"
_STATEMENTS: Final = Statements(
    read="SELECT value, info FROM data_stores WHERE game_id = ? AND store_name = ? AND key = ?",
    write=(
        "INSERT INTO data_stores (game_id, store_name, key, value, info, updated_at)"
        " VALUES (?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
        " ON CONFLICT (game_id, store_name, key) DO UPDATE"
        " SET value = excluded.value, info = excluded.info, updated_at = excluded.updated_at"
    ),
    scored=f"{_ROWS} AND ({_SCORE}) IS NOT NULL",
    unscored=f"{_ROWS} AND ({_SCORE}) IS NULL AND json_type(value, '$.score') IS NOT NULL",
    score=f"({_SCORE})",
    key="key",
    parameter="?",
)


class SqliteStore:
    """Data stores in a SQLite file that several worlds may share.

    Args:
        path: The file. It and its directory are created on first use.
    """

    is_shared = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def execute(self, game_id: str, requests: Sequence[Request]) -> list[Answer | StoreError]:
        """Answer requests; see `Store.execute`."""
        try:
            connection = self._connect()
            # A transaction that reads first could fail at its first write, because another world
            # may have written in between.
            connection.execute("BEGIN IMMEDIATE")
            answers = [_answer(connection, game_id, request) for request in requests]
            connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise StoreError(str(error)) from error
        return answers

    def copier(self) -> Callable[[Path], None] | None:
        """Return a function that copies the current rows; see `Store.copier`."""
        if not self._path.exists():
            return None
        try:
            connection = _open(self._path)
            connection.execute("BEGIN")
            # A read transaction sees the state at its first read, kept in the log.
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error
        return partial(_copy, connection)

    def close(self) -> None:
        """Close the file and roll back uncommitted changes."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = connection = _open(self._path)
            for statement in _SCHEMA:
                connection.execute(statement)
            _add_info(connection)
        return self._connection


def _open(path: Path) -> sqlite3.Connection:
    """Open an untrusted file: it may contain more than rows.

    Raises:
        sqlite3.Error: The file is not a database, or has triggers or views.
    """
    connection = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        for setting in _CAUTION:
            connection.execute(f"PRAGMA {setting}")
        if row := connection.execute(_ACTIVE).fetchone():
            raise sqlite3.DatabaseError(f"the file has the {row[0]} {str(row[1])[:80]!r}")
    except BaseException:
        connection.close()
        raise
    return connection


def _add_info(connection: sqlite3.Connection) -> None:
    """Add the column for a value's info to a table of an older engine."""
    connection.execute("BEGIN IMMEDIATE")  # another world may do the same at this moment
    columns = connection.execute("PRAGMA table_info(data_stores)").fetchall()
    if "info" not in {name for _, name, *_ in columns}:
        connection.execute("ALTER TABLE data_stores ADD COLUMN info TEXT")
    connection.execute("COMMIT")


def _copy(source: sqlite3.Connection, path: Path) -> None:
    """Copy a database, as its open transaction sees it, to a new private file without a log."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with contextlib.closing(source):
            os.close(os.open(path, flags, 0o600))
            target = sqlite3.connect(path, isolation_level=None)
            with contextlib.closing(target):
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the rows cannot be copied: {error}") from error


def _answer(connection: sqlite3.Connection, game_id: str, request: Request) -> Answer | StoreError:
    try:
        return _STATEMENTS.carry_out(connection, game_id, request)
    except (sqlite3.Error, OverflowError) as error:
        if not connection.in_transaction:
            raise
        return StoreError(str(error))
