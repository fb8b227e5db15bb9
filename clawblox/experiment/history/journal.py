"""The journal of an experiment: a file of lines with one writer, and the only record of its state.

Every line is on disk before the next step starts. An incomplete last line of a killed writer
is cut off when the journal is opened. When the disk is full, a small reserve file is removed to
make room for the last lines.

A lock file, a lock on the journal and a lease exclude a second process; the lease works even where
a file system ignores locks. Before each line, the process checks that it still owns all three and
that the length of the journal has not changed. If the check fails, nothing more is appended: the
lines go into a separate file beside the journal, and a person decides which history continues.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from clawblox.errors import ClawbloxError, JournalLostError, UsageError
from clawblox.experiment import layout
from clawblox.experiment.history.facts import check_members
from clawblox.experiment.history.lines import (
    EXPERIMENT,
    About,
    JournalLine,
    LineType,
    collector_paused,
    decode,
    encode,
)
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.links import require_no_link
from clawblox.experiment.plan.naming import numbered
from clawblox.rundir.driver_lease import DriverLease, driven_error
from clawblox.rundir.experiments import JOURNAL_NAME, LOST_PREFIX, experiment_lock
from clawblox.rundir.paths import state_dir
from clawblox.system.append_log import LogChangedError, OwnedLog, complete_lines
from clawblox.system.clock import SystemClock, TimeSource, format_utc_ms
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.locks import is_file_at, lock_file, lock_owner, renew_lock, unlock_file
from clawblox.system.record_file import UPDATE_HINT
from clawblox.system.regular_files import find_files, read_regular

MAX_JOURNAL_BYTES: Final = 1 << 30
JOURNAL_FORMAT: Final = 1
"""Version of the journal's format, recorded in the first line, ``experiment.begun``."""
_RESERVE_NAME: Final = "reserve"
_RESERVE_BYTES: Final = 1 << 20


class Journal:
    """The journal of one experiment, open for writing. Every method blocks.

    Use it as a context manager: only one process can have the journal of an experiment open.

    Args:
        directory: The existing directory of the experiment.
        clock: Source of the times in the lines.

    Attributes:
        directory: The directory of the experiment.
        lease: The right of this process to drive the experiment.
        lines: All lines so far.
    """

    def __init__(self, directory: Path, clock: TimeSource | None = None) -> None:
        self.directory = directory
        self.lease = DriverLease(directory)
        self._clock = clock or SystemClock()
        self._path = directory / JOURNAL_NAME
        self._log = OwnedLog(self._path, max_bytes=MAX_JOURNAL_BYTES)
        self._lock_path = experiment_lock(directory)
        self._lock = -1
        self._lost: JournalLostError | None = None
        self._reserve = state_dir(directory) / _RESERVE_NAME
        self.lines: list[JournalLine] = []

    def __enter__(self) -> Self:
        """Take the locks, and read the lines.

        Raises:
            RunLockedError: Another process runs the experiment.
            UsageError: A run has lost the journal, and nobody has chosen the history to continue.
            ClawbloxError: The journal cannot be read, or a line is not valid.
        """
        try:
            require_none_lost(self.directory)
            self.lines = _decode_all(self._path, self._take())
            self._make_reserve()
        except OSError as error:
            self.__exit__()
            raise _unusable(self._path, error) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def _take(self) -> bytes:
        """Take the lease and both locks, and return the complete lines.

        The lease is taken before anything is read, since locks may be ineffective. The lock file
        comes last, so that it stays with the owner of the journal.
        """
        require_no_link(self._lock_path.parent)
        self.lease.take()
        data = self._log.open()
        lock = None if data is None else lock_file(self._lock_path)
        if data is None or lock is None:
            raise driven_error(self._lock_path, lock_owner(self._lock_path))
        self._lock = lock
        return data

    @property
    def facts(self) -> dict[str, Any]:
        """Machine and lease of this process, for the line ``session.begun``."""
        driver = self.lease.driver
        return {"host": driver.host, "boot_id": driver.boot_id, "lease_s": driver.lease_s}

    @property
    def is_lost(self) -> bool:
        """True if another program has changed the journal; then nothing more is appended."""
        return self._lost is not None

    def __exit__(self, *_: object) -> None:
        self._log.close()
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                unlock_file(self._lock_path, self._lock)
            self._lock = -1
        self.lease.release()

    def append(
        self,
        type: LineType,  # noqa: A002 - the name of the member
        data: Mapping[str, Any] | None = None,
        about: About = EXPERIMENT,
    ) -> JournalLine:
        """Write a line; it is durable when this returns.

        Args:
            type: Its type.
            data: Further facts, JSON values by name; None for none.
            about: The part of the experiment concerned.

        Raises:
            UsageError: The journal is closed.
            JournalLostError: Another program has changed the journal; nothing more is appended.
            OSError: The line could not be written.
        """
        if not self._log.is_open:
            raise UsageError("the experiment is closed")
        if self._lost is not None:
            raise self._lost
        line = JournalLine(
            seq=len(self.lines) + 1,
            at=format_utc_ms(int(self._clock.utc().timestamp() * 1000) * 1_000_000),
            type=type,
            chain=about.chain,
            generation=about.generation,
            attempt=about.attempt,
            data=dict(data or {}),
        )
        text = encode(line)
        check_members(text, type)
        try:
            self._keep_locks()
            self._write(text)
        except LogChangedError as error:
            self._lost = self._keep_lines([*self.lines, line], str(error))
            raise self._lost from error
        self.lines.append(line)
        return line

    def _keep_locks(self) -> None:
        """Check the lease, and take the lock file again if it was removed or replaced."""
        self.lease.require_held()
        with contextlib.suppress(OSError):
            self._lock = renew_lock(self._lock_path, self._lock)
        if not is_file_at(self._lock_path, self._lock):
            raise LogChangedError(f"{self._lock_path} was removed or replaced")

    def _write(self, text: bytes) -> None:
        try:
            self._log.append(text)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._reserve.unlink(missing_ok=True)
            self._log.append(text)

    def _keep_lines(self, lines: Sequence[JournalLine], reason: str) -> JournalLostError:
        """Write all lines to a file next to the journal; return the error that names it."""
        stamp = layout.format_stamp(self._clock.utc())
        names = (f"{LOST_PREFIX}{number}.jsonl" for number in numbered(stamp))
        kept = next(path for name in names if not os.path.lexists(path := self.directory / name))
        message = f"the journal was changed by another program: {reason}"
        try:
            make_private_dir(self.directory)
            publish_bytes(kept, b"".join(map(encode, lines)))
        except OSError as error:
            hint = f"the history of this run could not be kept in {kept}: {error}"
            return JournalLostError(message, journal=self._path, hint=hint)
        hint = _explain_lost(self._path, kept)
        return JournalLostError(message, journal=self._path, kept=kept, hint=hint)

    def _make_reserve(self) -> None:
        """Reserve space for the last lines on a full disk, if possible."""
        with contextlib.suppress(OSError):
            if not self._reserve.exists():
                publish_bytes(self._reserve, bytes(_RESERVE_BYTES), durable=False)


def read_lines(directory: Path) -> list[JournalLine]:
    """Return the complete lines of a journal, even while another process writes. Blocks.

    Args:
        directory: The directory of the experiment.

    Raises:
        UsageError: There is no experiment.
        ClawbloxError: The journal cannot be read, or a line is invalid.
    """
    path = directory / JOURNAL_NAME
    try:
        return _decode_all(path, read_regular(path, max_bytes=MAX_JOURNAL_BYTES))
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "give the directory of an experiment, by default experiments/<name>"
        raise UsageError(f"there is no experiment in {directory}", hint=hint) from error
    except OSError as error:
        raise _unusable(path, error) from error


def fold_lines(directory: Path, lines: Sequence[JournalLine]) -> ExperimentState:
    """Return the state of an experiment.

    Args:
        directory: Its directory.
        lines: The lines of its journal.

    Raises:
        ClawbloxError: A line contradicts the lines before it.
    """
    try:
        return ExperimentState(lines)
    except ValueError as error:
        raise invalid_line(directory, str(error)) from error


def invalid_line(directory: Path, message: str) -> ClawbloxError:
    """Return the error for a line of an experiment's journal.

    Args:
        directory: The directory of the experiment.
        message: The line, and its fault.
    """
    hint = "restore the file from a copy: no line can be left out"
    return ClawbloxError(f"{directory / JOURNAL_NAME}: {message}", hint=hint)


def _decode_all(path: Path, data: bytes) -> list[JournalLine]:
    with collector_paused():
        return list(_decode(path, data))


def _decode(path: Path, data: bytes) -> Iterator[JournalLine]:
    for number, text in enumerate(complete_lines(data), start=1):
        try:
            line = decode(text, number)
            if line.type == "experiment.begun":
                _require_known_format(path, line.data.get("format"))
            check_members(text, line.type)
        except ValueError as error:
            raise invalid_line(path.parent, f"line {number} is not valid: {error}") from error
        yield line


def _require_known_format(path: Path, version: object) -> None:
    if type(version) is not int or version < 1:
        raise ValueError("format: must be a number from 1")
    if version > JOURNAL_FORMAT:
        raise ClawbloxError(
            f"{path} has the format {version}, and this clawblox reads up to {JOURNAL_FORMAT}",
            hint=UPDATE_HINT,
        )


def require_none_lost(directory: Path) -> None:
    """Refuse an experiment with two histories until a person has chosen one. Blocks.

    Args:
        directory: The directory of the experiment.

    Raises:
        UsageError: A run has lost its journal; the hint explains how to continue.
    """
    lost = sorted(file.path for file in find_files(directory, f"{LOST_PREFIX}*.jsonl"))
    if lost:
        journal = directory / JOURNAL_NAME
        raise UsageError(
            f"a run of the experiment in {directory} has lost its journal, and kept its history"
            f" in {lost[-1].name}",
            hint=_explain_lost(journal, lost[-1]),
        )


def _explain_lost(journal: Path, kept: Path) -> str:
    """Return instructions for continuing after another program has changed a journal."""
    path, copy, aside = (shlex.quote(str(file)) for file in (journal, kept, f"{kept}.old"))
    return (
        f"stop the other program, and compare both files. To continue from the kept history: mv"
        f" {copy} {path} ; to continue from the journal as it is: mv {copy} {aside} ; then:"
        f" clawblox experiment resume {shlex.quote(str(journal.parent))}"
    )


def _unusable(path: Path, error: OSError) -> ClawbloxError:
    return ClawbloxError(f"{path} cannot be used: {error.strerror or error}")
