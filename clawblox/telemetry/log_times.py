"""The index of a log: the arrival times of its lines, and the events of its instance.

A world writes its log directly, so the log does not contain times. They are in ``<log>.index``, one
JSON object per line: ``{"size": 1832, "at": "2026-06-22T18:59:25.104Z"}`` means that the first
``size`` bytes of the log had arrived by ``at``, which is null if unknown. An entry with an
``event`` records an event of the instance at that length of the log; ``text`` describes it. Readers
take no lock and ignore a last line without its newline. ``log_index`` writes the index.

The log is locked (flock(2)) while it is cut and its index replaced.
"""

from __future__ import annotations

import fcntl
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from clawblox.system.clock import format_utc_ms
from clawblox.system.locks import lock_descriptor, locking
from clawblox.system.regular_files import closing_fd, open_own, open_regular, read_rest
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

STARTED = "started"
"""Event at the start of a run; restarts have other events."""
LEFT = "left"
"""Event after which no orchestrator watches the log."""
MAX_INDEX_BYTES = 64 << 20
"""Maximum size of an index that is read; writers thin it out far below this size."""
INDEX_VERSION = 1
"""Version of the format; the entry of each start contains it."""
_SILENT = (STARTED, LEFT)
_LOCK_WAIT_S: Final = 1.0
"""Maximum wait for the lock, in seconds; the world could hold the lock forever."""


class IndexEntry(msgspec.Struct, omit_defaults=True):
    """An entry of an index.

    Attributes:
        size: Length of the log in bytes.
        at: UTC time by which these bytes had arrived; None if unknown.
        event: Event of the instance at that time; empty without an event.
        text: Description of the event.
        moved: Number of bytes by which all cuts so far have moved the log towards its start; 0
            except in the entry of the latest cut, whose ``size`` is the size of the mark in the
            log.
        schema_version: Version of the format, in the entry of a start; 0 in other entries.
    """

    size: int
    at: str | None
    event: str = ""
    text: str = ""
    moved: int = 0
    schema_version: int = 0


_decoder = msgspec.json.Decoder(IndexEntry)


def index_path(log: Path) -> Path:
    """Return the path of the index of a log."""
    return log.with_name(f"{log.name}.index")


def read_entries(data: bytes) -> list[IndexEntry]:
    """Return the entries in the complete lines of ``data``, and skip lines that are not entries."""
    found = []
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        try:
            found.append(_decoder.decode(line))
        except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
            continue
    return found


class LogTimes:
    """The entries of a log's index so far; :meth:`read_on` reads new entries.

    Args:
        log: The log.
        is_watched: Whether an orchestrator watches the log. If not, the arrival times of bytes
            after the last entry are unknown.

    Attributes:
        cut: The latest cut of the log; None if it was never cut.
    """

    def __init__(self, log: Path, *, is_watched: bool = True) -> None:
        self._log = log
        self._path = index_path(log)
        self._is_watched = is_watched
        self._unseen_end: int | None = None
        self._modified_at: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._inode = 0
        self._end = 0
        self._entries: list[IndexEntry] = []
        self._sizes: list[int] = []
        self._events: list[IndexEntry] = []
        self.cut: IndexEntry | None = None

    @property
    def is_empty(self) -> bool:
        """True if the index is missing or does not describe the current log."""
        return not self._entries

    def read_on(self) -> None:
        """Read new entries. Blocks.

        Raises:
            OSError: The index exists and cannot be read.
        """
        try:
            self._read_index()
        except FileNotFoundError:
            self._forget()
        try:
            status = self._log.stat()
        except FileNotFoundError:
            self._forget()
            return
        # Checked last: a log that is shorter than its index was cut in the meantime.
        if self.end > status.st_size:
            self._forget()
        self._modified_at = format_utc_ms(status.st_mtime_ns)
        if self._unseen_end is None:
            was_left = bool(self._entries) and self._entries[-1].event == LEFT
            is_watched = self._is_watched and not was_left
            self._unseen_end = 0 if is_watched else status.st_size

    def _read_index(self) -> None:
        status = self._path.stat()
        if (status.st_ino, status.st_size) == (self._inode, self._end):
            return
        with closing_fd(open_regular(self._path, max_bytes=MAX_INDEX_BYTES)) as fd:
            status = os.fstat(fd)
            if status.st_ino != self._inode or status.st_size < self._end:
                self._forget()
            self._inode = status.st_ino
            os.lseek(fd, self._end, os.SEEK_SET)
            data = read_rest(fd, max_bytes=MAX_INDEX_BYTES)
        self._end += data.rfind(b"\n") + 1
        entries = read_entries(data)
        if any(entry.schema_version > INDEX_VERSION for entry in entries):
            hint = "a later clawblox wrote it: run pip install --upgrade clawblox, or delete it"
            _log.warning("log index ignored", path=str(self._path), error=hint)
            entries = []
        for entry in entries:
            self._entries.append(entry)
            self._sizes.append(max(entry.size, self._sizes[-1] if self._sizes else 0))
            if entry.event:
                self._events.append(entry)
            if entry.moved:
                self.cut = entry

    def arrival(self, offset: int) -> str | None:
        """Return the UTC time by which the byte at ``offset`` had arrived; None if unknown."""
        found = bisect_right(self._sizes, offset)
        if found < len(self._entries):
            return self._entries[found].at
        is_unseen = self._unseen_end is None or offset < self._unseen_end
        # No byte can have arrived after the last write to the log.
        return None if is_unseen or self.is_empty else self._modified_at

    @property
    def run_start(self) -> IndexEntry | None:
        """Entry at the start of the last run, or None."""
        return next((entry for entry in reversed(self._events) if entry.event == STARTED), None)

    @property
    def end(self) -> int:
        """Length of the log at the last entry, in bytes."""
        return self._sizes[-1] if self._sizes else 0

    def find_since(
        self, since: str, mark: IndexEntry | None
    ) -> tuple[int | None, IndexEntry | None]:
        """Find the first byte that arrived at or after a time.

        Args:
            since: UTC time with milliseconds.
            mark: The event after which to search.

        Returns:
            The offset of that byte, or None; and the last event before it, or ``mark`` if that is
            later.
        """
        times = (entry.at for entry in self._entries)
        place = next((at for at, time in enumerate(times) if time and time >= since), None)
        if place is not None:
            offset = self._sizes[place - 1] if place else 0
        elif self._modified_at is not None and self._modified_at >= since:
            offset = self.end
        else:
            offset = None
        earlier = [entry for entry in self._entries[:place] if entry.event]
        is_later = mark is not None and mark not in earlier
        return offset, mark if is_later or not earlier else earlier[-1]

    def last_event(self, offset: int) -> IndexEntry | None:
        """Return the last event before the log was longer than ``offset``."""
        return next((entry for entry in reversed(self._events) if entry.size <= offset), None)

    def notes_after(self, mark: IndexEntry | None) -> list[IndexEntry]:
        """Return the events to show after ``mark``, an event shown earlier; None returns all."""
        found = []
        for entry in reversed(self._events):
            # After a cut, all events are at other offsets.
            same = mark and (mark.at, mark.event, mark.text)
            if (entry.at, entry.event, entry.text) == same:
                break
            if entry.event not in _SILENT:
                found.append(entry)
        return found[::-1]


# -- the lock of a log --------------------------------------------------------------------------


@contextmanager
def cutting(path: Path) -> Iterator[BinaryIO]:
    """Open a log to cut it while its readers wait. Blocks.

    Raises:
        OSError: The log cannot be opened.
    """
    with (
        os.fdopen(open_own(path, os.O_RDWR), "r+b") as file,
        locking(file.fileno(), _LOCK_WAIT_S),
    ):
        yield file


def may_read(file: BinaryIO, *, waits: bool) -> bool:
    """Return whether an open log is protected from cuts until it is closed. Blocks.

    Args:
        file: The log.
        waits: Whether to wait for the end of a current cut.
    """
    seconds = _LOCK_WAIT_S if waits else 0.0
    return lock_descriptor(file.fileno(), seconds, kind=fcntl.LOCK_SH)
