"""A journal: an append-only log of JSON objects whose history may be dropped. Everything blocks.

Each object has a ``name``. The last line of a name replaces the earlier lines, which are history.
Other lines are ignored.

At each further MiB the writer drops the history if that at least halves the file. It publishes a
new file in place of the old one, so a reader sees either the old or the new file. Readers take no
lock, and read only the lines added since their last read.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import msgspec

from clawblox.rundir.paths import make_stamp
from clawblox.system.append_log import (
    LOCK_WAIT_S,
    MAX_LOG_BYTES,
    append,
    complete_lines,
    open_log,
    read_complete_lines,
)
from clawblox.system.files import publish_bytes
from clawblox.system.regular_files import closing_fd, open_regular, read_rest

_COMPACT_STEP_BYTES: Final = 1 << 20
"""A writer checks at each multiple of this size whether history can be dropped."""
_NO_JOURNAL: Final = (errno.EINVAL, errno.ELOOP, errno.EMLINK, errno.EFBIG)
"""Errors for a file that is a pipe, a device, a link, or too large."""
_JOURNALS_REMEMBERED: Final = 1024


def append_line(path: Path, line: bytes, *, lock_wait: float = LOCK_WAIT_S) -> None:
    """Append one or more objects to a journal, which is created if it is missing.

    All readers see the objects when this returns, but a loss of power may still lose them.

    Args:
        path: The journal; its directory must exist.
        line: The object, without a newline at the end.
        lock_wait: Longest wait for the lock, in seconds.

    Raises:
        OSError: The journal is unchanged. A TimeoutError if another process, such as a suspended
            one, holds the lock for longer.
    """
    with open_log(path, lock_wait=lock_wait) as fd:
        size = append(fd, line + b"\n")
        if size // _COMPACT_STEP_BYTES < os.fstat(fd).st_size // _COMPACT_STEP_BYTES:
            # The line is written, so a failure to shorten the file is harmless.
            with contextlib.suppress(OSError):
                _compact(path)


def restore_lines(path: Path, lines: bytes) -> None:
    """Append objects to a journal; a file that is not a journal is replaced.

    Args:
        path: The journal; its directory must exist.
        lines: The objects, without a newline at the end.

    Raises:
        OSError: The journal cannot be written or, like a directory, not be replaced.
    """
    try:
        append_line(path, lines)
    except OSError as error:
        if error.errno not in _NO_JOURNAL:
            raise
        publish_bytes(path, lines + b"\n", durable=False)


def drop_lines(path: Path, names: Collection[str], *, lock_wait: float = LOCK_WAIT_S) -> None:
    """Drop the objects of some names, and the history of all others.

    Args:
        path: The journal.
        names: The names.
        lock_wait: Longest wait for the lock, in seconds.

    Raises:
        OSError: The journal is unchanged. A TimeoutError if another process holds the lock.
    """
    with open_log(path, lock_wait=lock_wait):
        latest = _latest_lines(path)
        publish_bytes(path, b"".join(latest[name] for name in latest if name not in names))


def check_journal(path: Path) -> None:
    """Check that a journal can be read if its path exists.

    Raises:
        OSError: The journal cannot be read, is not a regular file, or is too large; the error names
            the path.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.close(open_regular(path, max_bytes=MAX_LOG_BYTES))


def read_lines(path: Path) -> dict[str, bytes]:
    """Return the last line of each name; empty if the journal is missing or unreadable."""
    return _remembered(path).read()


def read_line(path: Path, name: str) -> bytes | None:
    """Return the last line of a name, or None."""
    return _remembered(path).read_one(name)


def _compact(path: Path) -> None:
    """Drop the history if that halves the file; the caller holds the lock."""
    kept = b"".join(_latest_lines(path).values())
    if 2 * len(kept) <= path.stat().st_size:
        publish_bytes(path, kept)


def _latest_lines(path: Path) -> dict[str, bytes]:
    latest: dict[str, bytes] = {}
    _note_lines(latest, read_complete_lines(path))
    return latest


class _Named(msgspec.Struct):
    name: str


_named = msgspec.json.Decoder(_Named)


def _note_lines(latest: dict[str, bytes], lines: Iterable[bytes]) -> None:
    """Store the last line of each name, in the order of these lines."""
    for line in lines:
        try:
            name = _named.decode(line).name
        except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
            continue
        latest.pop(name, None)
        latest[name] = line


class _JournalReader:
    """The part of a journal that this process has read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._busy = threading.Lock()
        self._forget()

    def read(self) -> dict[str, bytes]:
        """Return the last line of each name."""
        with self._busy:
            self._read_on()
            return dict(self._latest)

    def read_one(self, name: str) -> bytes | None:
        """Return the last line of a name, or None."""
        with self._busy:
            self._read_on()
            return self._latest.get(name)

    def _forget(self) -> None:
        self._stamp: tuple[int, ...] = ()
        self._end = 0
        self._last_line = b""
        self._latest: dict[str, bytes] = {}

    def _read_on(self) -> None:
        try:
            if make_stamp(self._path.stat()) != self._stamp:
                self._read_new()
        except OSError:
            self._forget()

    def _read_new(self) -> None:
        with closing_fd(open_regular(self._path, max_bytes=MAX_LOG_BYTES)) as fd:
            stamp = make_stamp(os.fstat(fd))
            os.lseek(fd, self._end - len(self._last_line), os.SEEK_SET)
            data = read_rest(fd, max_bytes=MAX_LOG_BYTES)
            if not data.startswith(self._last_line):
                # The file was replaced or rewritten.
                self._forget()
                os.lseek(fd, 0, os.SEEK_SET)
                data = read_rest(fd, max_bytes=MAX_LOG_BYTES)
        lines = complete_lines(data[len(self._last_line) :])
        _note_lines(self._latest, lines)
        self._stamp = stamp
        self._end += sum(map(len, lines))
        self._last_line = lines[-1] if lines else self._last_line


_remembered = functools.lru_cache(_JOURNALS_REMEMBERED)(_JournalReader)
# In a child, a lock that another thread held at the fork would stay locked forever.
os.register_at_fork(after_in_child=_remembered.cache_clear)
