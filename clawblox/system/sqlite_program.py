"""The program that opens a copy of another program's SQLite database, for a single request.

``foreign_database`` starts the program in the private directory of the copy. The only argument is
the request, and the output is the answer, both JSON. Memory, time and output are limited, so a
hostile database can only make the program fail. Standard library only: the program runs as
``python -I -S`` and imports no other clawblox module.
"""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import sys
from collections.abc import Sequence
from typing import Any, Final

MAX_ROWS: Final = 100_000
"""Maximum number of rows in an answer."""

MAX_ANSWER_BYTES: Final = 16 << 20
"""Maximum size of an answer, in bytes."""

_MAX_VALUE_BYTES: Final = 64 << 20
_MAX_HEAP_BYTES: Final = 128 << 20
"""Maximum memory of SQLite, in bytes."""

_STEPS: Final = 100_000
_MAX_CALLS: Final = 200
"""Maximum number of calls of the progress handler during a statement; about a second."""

_LIMITS: Final = {
    resource.RLIMIT_AS: 1 << 30,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_CPU: 20,
    resource.RLIMIT_FSIZE: 8 << 30,
}

_SETTINGS: Final = (
    f"hard_heap_limit = {_MAX_HEAP_BYTES}",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",
    "temp_store = MEMORY",
    "locking_mode = EXCLUSIVE",  # keeps the index of the log in memory rather than in a file
    "synchronous = OFF",  # the copy is made durable when it is published
)
_READING: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)


class _TooMuch(Exception):  # noqa: N818 - names the condition
    """The answer would be too large."""


def main() -> None:
    """Answer the request in the first argument, and exit."""
    for kind, limit in _LIMITS.items():
        resource.setrlimit(kind, (limit, limit))
    request = json.loads(sys.argv[1])
    try:
        answer = _change(request) if request["is_change"] else _read(request)
    except (sqlite3.Error, MemoryError, _TooMuch) as error:
        answer = {"error": str(error) or type(error).__name__}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # skips the checkpoint, which is unnecessary for a copy that was only read


def _open(name: str) -> sqlite3.Connection:
    """Open the copy with all of SQLite's limits."""
    database = sqlite3.connect(f"file:{name}?mode=rw", uri=True, isolation_level=None)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    # Text that is not UTF-8 is still text.
    database.text_factory = lambda data: data.decode(errors="replace")
    for setting in _SETTINGS:
        database.execute(f"PRAGMA {setting}")
    calls = iter(range(_MAX_CALLS))
    database.set_progress_handler(lambda: next(calls, None) is None, _STEPS)
    return database


def _read(request: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of a query; empty if the database lacks the table or the column."""
    database = _open(request["name"])
    database.execute("PRAGMA query_only = ON")
    database.set_authorizer(_allow_reading)
    [(query, values)] = request["statements"]
    try:
        return {"rows": _take_rows(database.execute(query, values))}
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such "):
            return {"rows": []}
        raise


def _allow_reading(action: int, *names: str | None) -> int:
    """Allow reading tables, but not views, whose computation may be endless."""
    is_by_view = names[-1] is not None
    return sqlite3.SQLITE_OK if action in _READING and not is_by_view else sqlite3.SQLITE_DENY


def _take_rows(rows: sqlite3.Cursor) -> list[Sequence[object]]:
    taken: list[Sequence[object]] = []
    size = 0
    for row in rows:
        values = [value if isinstance(value, str | int) else None for value in row]
        size += sum(len(value) for value in values if isinstance(value, str))
        if len(taken) >= MAX_ROWS or size > MAX_ANSWER_BYTES // 8:  # a character may take 6 bytes
            raise _TooMuch(f"the answer has more than {MAX_ROWS} rows, or is too large")
        taken.append(values)
    return taken


def _change(request: dict[str, Any]) -> dict[str, Any]:
    """Execute statements in a transaction, and merge the log into the main file."""
    database = _open(request["name"])
    [(mode,)] = database.execute("PRAGMA journal_mode")
    if mode != "wal":
        database.execute("PRAGMA journal_mode = MEMORY")
    database.execute("BEGIN IMMEDIATE")
    for statement, values in request["statements"]:
        database.execute(statement, values)
    database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return {"rows": []}


if __name__ == "__main__":
    main()
