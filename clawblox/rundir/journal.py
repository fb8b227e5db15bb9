"""A journal: a file of JSON objects, one a line, that grows at its end. Everything here blocks.

Each object has a ``name``, and the last line of a name says what holds for it; earlier ones are
history. Any number of processes append to one journal: they take turns through a lock on the file
(flock(2)), so the order of the lines is the order of the writes, whatever their clocks say. A line
without its newline, or one that is not such an object, is what a killed writer left, and is
ignored.

At each further MiB the writer drops the history if that at least halves the file. It publishes a
new file in place of the old one, so a reader sees the one or the other. Readers take no lock. They
remember what they have read and go on from there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from clawblox.rundir.locks import lock_descriptor
from clawblox.system.files import publish_bytes, write_all
from clawblox.system.regular_files import open_own, open_regular, read_regular, read_rest

_COMPACT_STEP_BYTES: Final = 1 << 20
"""Size at which, and at whose multiples, a writer looks whether history can be dropped."""
_MAX_BYTES: Final = 64 << 20
"""Size above which a journal is neither read nor written; history goes long before."""
_NO_JOURNAL: Final = (errno.EINVAL, errno.ELOOP, errno.EMLINK, errno.EFBIG)
"""How a file is refused that is a pipe, a device, a link, or too large."""
_LOCK_WAIT_S: Final = 10.0
_JOURNALS_REMEMBERED: Final = 64


def append_line(path: Path, line: bytes, *, lock_wait: float | None = None) -> None:
    """Append an object, or several lines of them, to a journal; create it if it is missing.

    It is there for every reader when this returns, but not durable against a loss of power.

    Args:
        path: The journal; its directory must exist.
        line: The object, without a newline at the end.
        lock_wait: How long to wait for the lock, in seconds; None waits for 10 s.

    Raises:
        OSError: The journal is as it was. A TimeoutError when another process, one that is
            suspended for example, keeps the lock for longer.
    """
    with _locked(path, lock_wait) as fd:
        size = os.fstat(fd).st_size
        if size + len(line) > _MAX_BYTES:
            raise OSError(errno.EFBIG, f"is larger than {_MAX_BYTES} bytes", str(path))
        is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        text = b"%s%s\n" % (b"\n" if is_torn else b"", line)
        try:
            write_all(fd, text)
        except OSError:
            os.ftruncate(fd, size)
            raise
        if size // _COMPACT_STEP_BYTES < (size + len(text)) // _COMPACT_STEP_BYTES:
            # The line is written, so a failure to shorten the file does not matter.
            with contextlib.suppress(OSError):
                _compact(path)


def restore_lines(path: Path, lines: bytes) -> None:
    """Append objects to a journal; what is no journal of ours is replaced by a new one.

    Args:
        path: The journal; its directory must exist.
        lines: The objects, without a newline at the end.

    Raises:
        OSError: It cannot be written, or the journal cannot be replaced: a directory for example.
    """
    try:
        append_line(path, lines)
    except OSError as error:
        if error.errno not in _NO_JOURNAL:
            raise
        publish_bytes(path, lines + b"\n", durable=False)


def drop_lines(path: Path, names: Collection[str], *, lock_wait: float | None = None) -> None:
    """Drop the objects of some names, and the history of all others.

    Args:
        path: The journal.
        names: The names.
        lock_wait: How long to wait for the lock, in seconds; None waits for 10 s.

    Raises:
        OSError: The journal is as it was. A TimeoutError when another process keeps the lock.
    """
    with _locked(path, lock_wait):
        latest = _latest_lines(path)
        publish_bytes(path, b"".join(latest[name] for name in latest if name not in names))


def check_journal(path: Path) -> None:
    """Check that a journal can be read, if there is anything in its place.

    Raises:
        OSError: It cannot be read, is not a regular file, or is too large; names the path.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.close(open_regular(path, max_bytes=_MAX_BYTES))


def read_lines(path: Path) -> dict[str, bytes]:
    """Return the last line of each name; empty without a journal that can be read."""
    return _remembered(path).read()


def read_line(path: Path, name: str) -> bytes | None:
    """Return the last line of a name, or None."""
    return _remembered(path).read_one(name)


@contextlib.contextmanager
def _locked(path: Path, lock_wait: float | None = None) -> Iterator[int]:
    """Open a journal and lock it; yield a descriptor that appends."""
    while True:
        fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if not lock_descriptor(fd, _LOCK_WAIT_S if lock_wait is None else lock_wait):
                raise TimeoutError(f"another process keeps the lock of {path}")
            if os.fstat(fd).st_nlink == 0:
                continue  # it was compacted meanwhile, and this is the old file
            yield fd
            return
        finally:
            # Closing alone would not do: a fork that happened meanwhile has the lock too.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _compact(path: Path) -> None:
    """Drop the history if that halves the file; the caller holds its lock."""
    kept = b"".join(_latest_lines(path).values())
    if 2 * len(kept) <= path.stat().st_size:
        publish_bytes(path, kept)


def _latest_lines(path: Path) -> dict[str, bytes]:
    latest: dict[str, bytes] = {}
    data = read_regular(path, max_bytes=_MAX_BYTES)
    _note_lines(latest, data[: data.rfind(b"\n") + 1].splitlines(keepends=True))
    return latest


class _Named(msgspec.Struct):
    name: str


_named = msgspec.json.Decoder(_Named)


def _note_lines(latest: dict[str, bytes], lines: Iterable[bytes]) -> None:
    """Note the last line of each name, in the order of these lines."""
    for line in lines:
        try:
            name = _named.decode(line).name
        except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
            continue
        latest.pop(name, None)
        latest[name] = line


class _Reader:
    """What this process has read of a journal."""

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
        self._stamp = (0, 0, 0)
        self._end = 0
        self._last_line = b""
        self._latest: dict[str, bytes] = {}

    def _read_on(self) -> None:
        try:
            if _stamp(self._path.stat()) != self._stamp:
                self._read_new()
        except OSError:
            self._forget()

    def _read_new(self) -> None:
        fd = open_regular(self._path, max_bytes=_MAX_BYTES)
        try:
            stamp = _stamp(os.fstat(fd))
            os.lseek(fd, self._end - len(self._last_line), os.SEEK_SET)
            data = read_rest(fd, max_bytes=_MAX_BYTES)
            if not data.startswith(self._last_line):
                # It is another file, or was written anew.
                self._forget()
                os.lseek(fd, 0, os.SEEK_SET)
                data = read_rest(fd, max_bytes=_MAX_BYTES)
        finally:
            os.close(fd)
        new = data[len(self._last_line) : data.rfind(b"\n") + 1]
        lines = new.splitlines(keepends=True)
        _note_lines(self._latest, lines)
        self._stamp = stamp
        self._end += len(new)
        self._last_line = lines[-1] if lines else self._last_line


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


_remembered = functools.lru_cache(_JOURNALS_REMEMBERED)(_Reader)
# A lock that another thread of the parent held at the fork would never be free in the child.
os.register_at_fork(after_in_child=_remembered.cache_clear)
