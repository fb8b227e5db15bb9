"""SQLite databases as a killed program leaves them, and their side files."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
from pathlib import Path

PAGE_BYTES = 4096
SECTOR_BYTES = 512
MAGIC = bytes.fromhex("d9d505f920a163d7")
LOCK_PAGE = (1 << 30) // PAGE_BYTES + 1


def leave_database(place: Path, *statements: str, mode: str = "WAL") -> Path:
    """Make a database whose write-ahead log, if it has one, is not flushed."""
    work = place.with_name("work.db")
    with contextlib.closing(sqlite3.connect(work, isolation_level=None)) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        for statement in statements:
            database.execute(statement)
        for side in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(f"{work}{side}", f"{place}{side}")
    work.unlink()
    return place


def hot_journal(victim: Path, database: Path) -> bytes:
    """Return a journal that makes SQLite delete a file, by naming it as the master of a change."""
    pages = database.stat().st_size // PAGE_BYTES
    header = MAGIC + struct.pack(">IIIII", 0, 0, pages, SECTOR_BYTES, PAGE_BYTES)
    name = os.fsencode(victim)
    tail = struct.pack(">I", LOCK_PAGE) + name + struct.pack(">II", len(name), sum(name)) + MAGIC
    return header.ljust(SECTOR_BYTES, b"\0") + tail
