"""The journal of an experiment, the only truth about it: a file of lines with one writer.

Every line is on disk before the next step begins. A last line that a killed writer left incomplete
is cut off when the journal is opened. A small reserve file is given up when the disk is full, so
that the last lines fit.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from clawblox.errors import ClawbloxError, RunLockedError, UsageError
from clawblox.experiment.history.lines import (
    EXPERIMENT,
    About,
    Line,
    LineType,
    collector_paused,
    decode,
    encode,
)
from clawblox.printable import quote_words
from clawblox.rundir.claims import describe_holder
from clawblox.rundir.experiments import JOURNAL_NAME, experiment_lock
from clawblox.rundir.paths import UPDATE_HINT, state_dir
from clawblox.system.append_log import append, complete_lines
from clawblox.system.clock import Clock, SystemClock, format_utc_ms
from clawblox.system.files import fsync_directory, make_private_dir, publish_bytes
from clawblox.system.locks import lock_file, lock_owner, unlock_file
from clawblox.system.regular_files import open_own, read_regular

MAX_JOURNAL_BYTES: Final = 1 << 30
JOURNAL_FORMAT: Final = 1
"""Version of the journal's format, in the line ``experiment.begun``, which is its first."""
_RESERVE_NAME: Final = "reserve"
_RESERVE_BYTES: Final = 1 << 20


class Journal:
    """The journal of one experiment, open for writing. Every method blocks.

    Use it as a context manager: only one process has the journal of an experiment open.

    Args:
        directory: The directory of the experiment, which exists.
        clock: Source of the times in the lines.

    Attributes:
        directory: The directory of the experiment.
        lines: All lines so far.
    """

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self.directory = directory
        self._clock = clock or SystemClock()
        self._path = directory / JOURNAL_NAME
        self._lock_path = experiment_lock(directory)
        self._reserve = state_dir(directory) / _RESERVE_NAME
        self._lock = -1
        self._fd = -1
        self.lines: list[Line] = []

    def __enter__(self) -> Self:
        """Take the lock, and read the lines.

        Raises:
            RunLockedError: Another process runs the experiment.
            ClawbloxError: The journal cannot be read, or a line is not valid.
        """
        try:
            make_private_dir(self._lock_path.parent)
            lock = lock_file(self._lock_path)
            if lock is None:
                raise _locked_error(self.directory, self._lock_path)
            self._lock = lock
            self._fd = open_own(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self.lines = self._read()
            self._make_reserve()
        except OSError as error:
            self.__exit__()
            raise _unusable(self._path, error) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                unlock_file(self._lock_path, self._lock)
            self._lock = -1

    def _read(self) -> list[Line]:
        data = read_regular(self._path, max_bytes=MAX_JOURNAL_BYTES)
        complete = data.rfind(b"\n") + 1
        if complete < len(data):
            os.ftruncate(self._fd, complete)
        if not data:
            fsync_directory(self.directory)
        return _decode_all(self._path, data)

    def append(
        self,
        type: LineType,  # noqa: A002 - the name of the member
        data: Mapping[str, Any] | None = None,
        about: About = EXPERIMENT,
    ) -> Line:
        """Write a line; it is durable when this returns.

        Args:
            type: Its type.
            data: Further facts, JSON values by name; None for none.
            about: The part of the experiment that it is about.

        Raises:
            UsageError: The journal is closed.
            OSError: The line is not in the journal.
        """
        if self._fd < 0:
            raise UsageError("the experiment is closed")
        line = Line(
            seq=len(self.lines) + 1,
            at=format_utc_ms(int(self._clock.utc().timestamp() * 1000) * 1_000_000),
            type=type,
            chain=about.chain,
            generation=about.generation,
            attempt=about.attempt,
            data=dict(data or {}),
        )
        self._write(encode(line))
        self.lines.append(line)
        return line

    def _write(self, text: bytes) -> None:
        try:
            size = append(self._fd, text, max_bytes=MAX_JOURNAL_BYTES)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._reserve.unlink(missing_ok=True)
            size = append(self._fd, text, max_bytes=MAX_JOURNAL_BYTES)
        try:
            os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, size)
            raise

    def _make_reserve(self) -> None:
        """Reserve space for the last lines of a full disk, if there is any."""
        with contextlib.suppress(OSError):
            if not self._reserve.exists():
                publish_bytes(self._reserve, bytes(_RESERVE_BYTES), durable=False)


def read_lines(directory: Path) -> list[Line]:
    """Return the complete lines of an experiment's journal, whoever writes it. Blocks.

    Args:
        directory: The directory of the experiment.

    Raises:
        UsageError: There is no experiment.
        ClawbloxError: The journal cannot be read, or a line is not valid.
    """
    path = directory / JOURNAL_NAME
    try:
        return _decode_all(path, read_regular(path, max_bytes=MAX_JOURNAL_BYTES))
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "give the directory of an experiment, by default experiments/<name>"
        raise UsageError(f"there is no experiment in {directory}", hint=hint) from error
    except OSError as error:
        raise _unusable(path, error) from error


def _decode_all(path: Path, data: bytes) -> list[Line]:
    with collector_paused():
        return list(_decode(path, data))


def _decode(path: Path, data: bytes) -> Iterator[Line]:
    for number, text in enumerate(complete_lines(data), start=1):
        try:
            line = decode(text, number)
        except ValueError as error:
            raise ClawbloxError(
                f"{path}: {error}",
                hint="restore the file from a copy: no line of it can be left out",
            ) from error
        if line.type == "experiment.begun":
            _require_known_format(path, line.data.get("format"))
        yield line


def _require_known_format(path: Path, version: object) -> None:
    if not isinstance(version, int) or version > JOURNAL_FORMAT:
        raise ClawbloxError(
            f"{path} has the format {version}, and this clawblox reads up to {JOURNAL_FORMAT}",
            hint=UPDATE_HINT,
        )


def _locked_error(directory: Path, lock: Path) -> RunLockedError:
    owner = lock_owner(lock)
    holder = describe_holder(None if owner is None else owner.pid)
    stop = quote_words(("clawblox", "experiment", "stop", str(directory)))
    return RunLockedError(
        f"{holder} runs the experiment in {directory}",
        path=lock,
        pid=owner.pid if owner else None,
        hint=f"{stop} stops it; status and results work meanwhile",
    )


def _unusable(path: Path, error: OSError) -> ClawbloxError:
    return ClawbloxError(f"{path} cannot be used: {error.strerror or error}")
