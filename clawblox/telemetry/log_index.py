"""Writes the index of a log: its length over time, and the events of its instance.

The log is inspected once a second. All bytes written between two inspections get the same time, the
modification time of the file, which may be up to one tick of the kernel's clock early.
``log_times`` defines and reads the index.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import Final

import msgspec

from clawblox.system.append_log import append_lines
from clawblox.system.clock import format_utc_ms, utc_now_ns
from clawblox.system.files import publish_bytes, read_size
from clawblox.system.record_file import encode_record
from clawblox.system.regular_files import open_regular, read_regular
from clawblox.telemetry.log_times import (
    INDEX_VERSION,
    MAX_INDEX_BYTES,
    STARTED,
    IndexEntry,
    cutting,
    index_path,
    read_entries,
)
from clawblox.telemetry.logs import Cut, trim_file
from clawblox.telemetry.own_log import OwnLog

_MAX_BYTES: Final = 1 << 20
"""Size in bytes at which an index is thinned out."""
_TAIL_BYTES: Final = 4096

_log = OwnLog(__name__)


class LogIndex:
    """The index of the log of an instance that this process owns. Every method blocks.

    The file is created with the first entry. A failure to write it is reported once and has no
    other effect.

    Args:
        log: The log.
        size: Its length in bytes; None means the current length. Earlier bytes that the index does
            not cover have no known time.

    Attributes:
        log: The log.
    """

    def __init__(self, log: Path, size: int | None = None) -> None:
        self.log = log
        self._log_name = os.fspath(log)  # the log is inspected once a second
        self._path = index_path(log)
        self._size = self._first_size = read_size(log) if size is None else size
        self._looked_at = utc_now_ns()
        self._lock = threading.Lock()
        self._unwritten: list[IndexEntry] = []
        self._is_open = False
        self._is_over = False
        self._has_failed = False
        self._bytes = 0
        self._thin_at = _MAX_BYTES

    def begin_run(self) -> None:
        """Record, with the next entry, that a run starts at the end of the log."""
        with self._lock:
            self._add(STARTED, "")

    def note_length(self, max_bytes: int | None = None) -> None:
        """Record the length of the log if it has grown.

        Args:
            max_bytes: Size at which to cut the log to its newer half; None never cuts.
        """
        with self._lock:
            if self._look():
                self._write()
            if max_bytes is not None and self._size > max_bytes:
                self._cut(max_bytes)

    def note(self, event: str, text: str) -> None:
        """Record an event of the instance, for example a restart.

        Args:
            event: The event in a single word.
            text: Description for people.
        """
        with self._lock:
            self._is_over = False
            self._note(event, text)

    def note_end(self, event: str, text: str) -> None:
        """Record the end of the instance, unless already recorded; see :meth:`note`."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._note(event, text)

    def _note(self, event: str, text: str) -> None:
        self._look()
        self._add(event, text)
        self._write()

    def _add(self, event: str, text: str) -> None:
        version = INDEX_VERSION if event == STARTED else 0
        at = format_utc_ms(utc_now_ns())
        self._unwritten.append(IndexEntry(self._size, at, event, text, schema_version=version))

    def _look(self) -> bool:
        """Return whether the log has grown."""
        now = utc_now_ns()
        try:
            status = os.stat(self._log_name)  # noqa: PTH116 - half as expensive
        except OSError:
            return False
        size_before = self._size
        if status.st_size != size_before and stat.S_ISREG(status.st_mode):
            if status.st_size < self._size:  # cut by another process
                self._rewrite([IndexEntry(status.st_size, None)])
            else:
                # Clocks can be set, and any program can touch a file.
                at = min(max(status.st_mtime_ns, self._looked_at), now)
                self._unwritten.append(IndexEntry(status.st_size, format_utc_ms(at)))
            self._size = status.st_size
        self._looked_at = now
        return self._size > size_before

    def _write(self) -> None:
        if not self._unwritten:
            return
        try:
            if not self._is_open:
                self._open()
            entries, self._unwritten = self._unwritten, []
            data = b"".join(map(encode_record, entries))
            append_lines(self._path, data)
        except OSError as error:
            self._unwritten.clear()
            self._report("log index not written", error)
            return
        self._bytes += len(data)
        if self._bytes > self._thin_at:
            self._rewrite(_thin(self._read()))

    def _open(self) -> None:
        """Continue an existing index; unobserved bytes get no time."""
        tail, self._bytes = _read_tail(self._path)
        last = read_entries(tail)[-1:]
        covered = last[0].size if last else 0
        if covered > self._first_size:  # the index belongs to a longer log
            publish_bytes(self._path, b"", durable=False)
            covered = self._bytes = 0
        if covered < self._first_size:
            self._unwritten.insert(0, IndexEntry(self._first_size, None))
        self._is_open = True

    def _cut(self, max_bytes: int) -> None:
        """Cut the log, then the index; a reader detects an old index by the length of the log."""
        try:
            with cutting(self.log) as file:
                cut = trim_file(file, max_bytes)
                if cut is not None:
                    self._size = max(self._size - cut.start + cut.to, cut.to)
                    self._rewrite(_shift(self._read(), cut))
        except OSError as error:
            self._report("log not cut", error)

    def _read(self) -> list[IndexEntry]:
        try:
            return read_entries(read_regular(self._path, max_bytes=MAX_INDEX_BYTES))
        except OSError:
            return []

    def _rewrite(self, entries: list[IndexEntry]) -> None:
        data = b"".join(map(encode_record, entries))
        self._unwritten.clear()
        self._first_size = entries[-1].size if entries else 0
        try:
            publish_bytes(self._path, data, durable=False)
        except OSError as error:
            self._is_open = False
            self._report("log index not written", error)
            return
        self._is_open = True
        self._bytes = len(data)
        self._thin_at = max(_MAX_BYTES, self._bytes * 9 // 8)

    def _report(self, what: str, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.warning(what, path=str(self._path), error=str(error))


def begin_index(log: Path, back: str | None) -> LogIndex:
    """Return the index of a log to which an instance is about to write. Blocks.

    Args:
        log: The log.
        back: Text about its restart, whose first word is the event; None at the start of a run.
    """
    index = LogIndex(log)
    if back is None:
        index.begin_run()
    else:
        index.note(back.split()[0], back)
    return index


def note_end(log: Path, event: str, text: str, *, was_watched: bool) -> None:
    """Record the end of an instance without an orchestrator. Blocks.

    Args:
        log: Its log; if the log is missing, the call has no effect.
        event: The event in a single word.
        text: Description for people.
        was_watched: Whether the log was watched until the instance ended.
    """
    if log.is_file():
        tail = b""
        with contextlib.suppress(OSError):  # the following write reports the error
            tail, _ = _read_tail(index_path(log))
        last = read_entries(tail)[-1:] if was_watched else []
        LogIndex(log, last[0].size if last else None).note(event, text)


def _read_tail(path: Path) -> tuple[bytes, int]:
    """Return the end of a file and its length; empty and 0 if it is missing."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES), size
    except FileNotFoundError:
        return b"", 0


def _thin(entries: list[IndexEntry]) -> list[IndexEntry]:
    """Drop every second time of the older half; each remaining time then covers more lines."""
    half = len(entries) // 2
    return [
        entry
        for place, entry in enumerate(entries)
        if entry.event or entry.at is None or place >= half or place % 2
    ]


def _shift(entries: list[IndexEntry], cut: Cut) -> list[IndexEntry]:
    """Return the entries for the rest of a log after a cut."""
    moved = cut.to - cut.start
    starts = [entry for entry in entries if entry.size < cut.start and entry.event == STARTED]
    kept = [
        msgspec.structs.replace(entry, size=entry.size + moved, moved=0)
        for entry in entries
        if entry.size >= cut.start
    ]
    before = max((entry.moved for entry in entries), default=0)
    mark = IndexEntry(cut.to, None, moved=before - moved)
    latest = (msgspec.structs.replace(start, size=0) for start in starts[-1:])
    return [*latest, mark, *kept]
