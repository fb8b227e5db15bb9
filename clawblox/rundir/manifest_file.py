"""One manifest on disk, shared by several writers. Everything here blocks.

Two kinds of programs write a manifest. clawblox takes the lock next to the file, reads, merges and
publishes, so entries are never lost between its processes. Worlds do not know the lock: they read,
append and rename.

* A version that a world renamed into place between clawblox's read and publish is returned by the
  exchange of the two files (renameat2(2), ``RENAME_EXCHANGE``), and then merged. Until it is
  merged, it stays on disk next to the manifest, where the next writer finds it if this one dies.
* Entries of clawblox that a world overwrites with an older version are remembered, and ``repair``
  fills them in again.

``manifest`` defines the merge rules; ``manifest_writer`` is the task that uses this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.errors import ManifestError
from clawblox.rundir.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    Update,
    parse_manifest,
    serialise_manifest,
)
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.rundir.paths import make_stamp
from clawblox.system.files import EXCHANGE, rename_with, write_all
from clawblox.system.locks import locking
from clawblox.system.regular_files import (
    closing_fd,
    open_own,
    open_regular,
    read_regular,
    read_rest,
)

_ATTEMPTS: Final = 24
"""Maximum number of merges when a program without the lock keeps changing the file."""
_MOST_RETIRED: Final = 64
"""Number of retired entries to remember, because other programs may write them back."""
_PATIENT_ATTEMPTS: Final = 8
"""Number of attempts that yield to a concurrent change; later attempts exchange the files."""


class ManifestFile:
    """A manifest, and the owed entries, which this process must restore if they are overwritten.

    Owed entries are those that this process wrote, and those of others that it swapped out. The
    methods are thread-safe.

    Args:
        path: The manifest; its directory is created on first use.
        lock_wait: Seconds to wait for the lock that writers of other processes hold.
    """

    def __init__(self, path: Path, *, lock_wait: float) -> None:
        self._path = path
        self._directory = path.parent
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._lock_wait = lock_wait
        self._owed = Manifest(path)
        self._retired: deque[ManifestEntry] = deque(maxlen=_MOST_RETIRED)
        self._known: _SeenFile | None = None
        self._looked_at: tuple[int, ...] | None = None
        self._unsynced: set[Path] = set()
        self._busy = threading.Lock()

    def apply(self, updates: Sequence[Update], *, durable: bool = True) -> None:
        """Merge ``updates`` into the file, visible to all readers when this returns.

        Args:
            updates: The updates.
            durable: Whether these and all earlier updates must survive a loss of power when this
                returns; otherwise they do after :meth:`sync`.

        Raises:
            ManifestError: The file is unchanged; or, if only the last step failed, updated but
                perhaps not durable.
        """
        with self._busy, self._translated():
            if not self._create(updates, durable=durable):
                with self._locked():
                    self._rewrite(updates, durable=durable)
            if durable:
                self._sync()

    @property
    def is_synced(self) -> bool:
        """True if all applied updates are durable."""
        return not self._unsynced

    def sync(self) -> None:
        """Make earlier updates durable.

        Raises:
            ManifestError: The file is perhaps not durable.
        """
        with self._busy, self._translated():
            self._sync()

    @contextlib.contextmanager
    def synced_by_caller(self) -> Iterator[Path]:
        """Keep the file unchanged while the caller makes it durable.

        Yields:
            The file's directory, on the file system that must be synced.

        Raises:
            ManifestError: The block raised an OSError; the file is perhaps not durable.
        """
        with self._busy, self._translated():
            yield self._directory
            self._unsynced.clear()

    def take_in_leftovers(self) -> None:
        """Merge the files of killed writers, and remove them.

        Raises:
            ManifestError: The file cannot be read or written, or is locked.
        """
        with self._busy, self._translated():
            if self._directory.is_dir() and self._find_leftovers():
                self._look_again()

    def repair(self, *, is_thorough: bool) -> None:
        """Fill in missing owed entries, unless the file itself is gone.

        Args:
            is_thorough: Whether to read the file even if it seems unchanged.

        Raises:
            ManifestError: The file cannot be read or written, or is locked.
        """
        if self._owed == Manifest(self._path):
            return
        with self._busy, self._translated():
            stamp = _stamp(self._path)
            if stamp is None or (stamp == self._looked_at and not is_thorough):
                return
            # A file that cannot be repaired is not retried until it changes.
            self._looked_at = stamp
            self._look_again()

    def _look_again(self) -> None:
        """Read the file and the leftovers, and fill in the owed entries."""
        self._known = None
        with self._locked():
            self._rewrite((), durable=True)
        self._sync()

    def _create(self, updates: Sequence[Update], *, durable: bool) -> bool:
        """Publish the first manifest of a run, without a lock; return False if one exists."""
        if self._path.exists():
            return False
        if not self._directory.is_dir():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._unsynced.add(self._directory.parent)
        if self._find_leftovers():
            return False
        nothing = _SeenFile(Manifest(self._path))
        first = nothing.manifest.merged(*updates)
        try:
            self._publish(first, nothing, is_patient=False, durable=durable)
        except _ChangedError:
            return False
        self._owe(updates, nothing.manifest, first)
        return True

    def _rewrite(self, updates: Sequence[Update], *, durable: bool) -> None:
        if self._known is not None and _stamp(self._path) != self._known.stamp:
            self._known = None
        # While other programs leave the file unchanged, they swap no content out.
        spent = self._find_leftovers() if self._known is None else []
        for path in spent:  # left by killed writers, because other writers wait for the lock
            self._adopt(path)
        ours: _SeenFile | None = None
        for attempt in range(_ATTEMPTS):
            seen = self._known or self._read()
            # The swapped-out version is a better base than the own version.
            base = ours.manifest if ours is not None and ours.data == seen.data else seen.manifest
            is_changed = seen is not self._known
            wanted = self._without_retired(base) if is_changed else base
            wanted = wanted.merged(*updates) if updates else wanted
            if is_changed:
                removals = (Update(retired=update.retired, left=update.left) for update in updates)
                wanted = wanted.filled(self._owed.merged(*removals))
            if seen.data is not None and wanted.document == seen.manifest.document:
                self._know(seen)
                break
            try:
                is_patient = attempt < _PATIENT_ATTEMPTS
                swapped = self._publish(wanted, seen, is_patient=is_patient, durable=durable)
            except _ChangedError:
                self._known = None
                continue
            if swapped is None:
                break
            spent.append(swapped)
            assert self._known is not None, "a version was published"
            ours, self._known = self._known, None
            ours = attrs.evolve(ours, manifest=self._adopt(swapped) or wanted)
        else:
            if ours is None:
                message = "another program keeps changing the manifest"
                raise ManifestError(message, path=self._path)
            # The updates are published. Changes made in between are owed: the next check finds them
            # missing, and the files that contain them are kept until then.
            spent, self._looked_at = [], None
        self._owe(updates, base, wanted)
        for path in spent:
            path.unlink(missing_ok=True)

    def _owe(self, updates: Sequence[Update], base: Manifest, wanted: Manifest) -> None:
        """Owe ``updates``, which turned ``base`` into ``wanted``."""
        # If everything in the file is owed, another merge would give the same result.
        self._owed = wanted if base == self._owed else self._owed.merged(*updates)
        self._retired.extend(entry for update in updates for entry in update.retired)

    def _without_retired(self, manifest: Manifest) -> Manifest:
        """Remove retired entries again that another program has written back."""
        return manifest.merged(Update(retired=tuple(self._retired))) if self._retired else manifest

    def _know(self, seen: _SeenFile) -> None:
        """Remember the version of the file that contains all owed entries."""
        self._known = seen
        self._looked_at = seen.stamp

    def _read(self) -> _SeenFile:
        try:
            fd = open_regular(self._path, max_bytes=MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            return _SeenFile(Manifest(self._path))
        with closing_fd(fd):
            status = os.fstat(fd)
            data = read_rest(fd, max_bytes=MAX_MANIFEST_BYTES)
        mode = stat.S_IMODE(status.st_mode)
        return _SeenFile(parse_manifest(data, self._path), data, make_stamp(status), mode)

    def _publish(
        self, manifest: Manifest, seen: _SeenFile, *, is_patient: bool, durable: bool
    ) -> Path | None:
        """Replace the version that was read with ``manifest``.

        Returns:
            The file with the swapped-out version if it has not been read; else None.

        Raises:
            _ChangedError: The file has changed since it was read, and was left unchanged.
        """
        data = serialise_manifest(manifest)
        if len(data) > MAX_MANIFEST_BYTES:
            message = f"the manifest would be larger than {MAX_MANIFEST_BYTES} bytes"
            raise ManifestError(message, path=self._path)
        # The exchange leaves the old version in this file. If the writer is killed before it
        # removes the file, the digest in the name identifies an old version that was merged.
        # Merging it again would bring back retired entries.
        prefix = _partial_prefix(self._path.name, seen.data)
        new = self._directory / f"{prefix}{secrets.token_hex(8)}.partial"
        try:
            stamp = _write_private(new, data, seen.mode, durable=durable)
            is_swapped = self._swap_in(new, seen, is_patient=is_patient)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self._unsynced.add(self._directory)
        if not durable:
            self._unsynced.add(self._path)
        self._know(_SeenFile(manifest, data, stamp, seen.mode))
        is_outdated = is_swapped and not _is_same(new, seen)
        if not is_outdated:
            new.unlink(missing_ok=True)
        return new if is_outdated else None

    def _swap_in(self, new: Path, seen: _SeenFile, *, is_patient: bool) -> bool:
        """Make ``new`` the manifest; return whether ``new`` is now the old version."""
        try:
            if seen.data is None:
                os.link(new, self._path)
                return False
            if is_patient and _stamp(self._path) != seen.stamp:
                raise _ChangedError
            if rename_with(EXCHANGE, new, self._path):
                return True
            if _stamp(self._path) != seen.stamp:
                raise _ChangedError
            new.replace(self._path)
            return False
        except (FileExistsError, FileNotFoundError) as error:
            raise _ChangedError from error

    def _sync(self) -> None:
        for path in self._unsynced:
            with contextlib.suppress(FileNotFoundError):  # no data can be lost
                _fsync(path)
        self._unsynced.clear()

    def _find_leftovers(self) -> list[Path]:
        # glob would cost more than writing a small manifest.
        prefix = f".{self._path.name}."
        names = os.listdir(self._directory)  # noqa: PTH208
        return [
            self._directory / name
            for name in names
            if name.startswith(prefix) and name.endswith(".partial")
        ]

    def _adopt(self, path: Path) -> Manifest | None:
        """Owe the entries of a file; return None if it is incomplete or already merged."""
        try:
            data = read_regular(path, max_bytes=MAX_MANIFEST_BYTES)
            if path.name.startswith(_partial_prefix(self._path.name, data)):
                return None
            manifest = parse_manifest(data, self._path)
        except (OSError, ManifestError):
            return None
        self._owed = self._without_retired(self._owed.filled(manifest))
        return manifest

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        wait = self._lock_wait
        with (
            closing_fd(open_own(self._lock_path, os.O_RDWR | os.O_CREAT)) as fd,
            locking(fd, wait) as is_locked,
        ):
            if not is_locked:
                message = f"the lock of the manifest was not free for {wait:g} s"
                raise ManifestError(message, path=self._lock_path)
            yield

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"the manifest cannot be written: {error.strerror}"
            raise ManifestError(message, path=self._path) from error


class _ChangedError(Exception):
    """Another program changed the file after it was read, so it was left unchanged."""


@attrs.frozen
class _SeenFile:
    """A manifest that was read; ``data`` and ``stamp`` are None if it was missing."""

    manifest: Manifest
    data: bytes | None = attrs.field(default=None, repr=False)
    stamp: tuple[int, ...] | None = None
    mode: int = 0o600


def _partial_prefix(name: str, seen: bytes | None) -> str:
    digest = "" if seen is None else hashlib.sha256(seen).hexdigest()[:16]
    return f".{name}.{digest}-"


def _is_same(path: Path, seen: _SeenFile) -> bool:
    """Return whether a swapped-out file is the version that was read."""
    try:
        return read_regular(path, max_bytes=MAX_MANIFEST_BYTES) == seen.data
    except OSError:  # another program put another kind of file there, such as a pipe
        return False


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        return make_stamp(path.stat())
    except FileNotFoundError:
        return None


def _write_private(path: Path, data: bytes, mode: int, *, durable: bool) -> tuple[int, ...]:
    """Write a new file, and return its stamp, which survives a rename."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing_fd(os.open(path, flags, 0o600)) as fd:
        write_all(fd, data)
        os.fchmod(fd, mode)
        if durable:
            os.fsync(fd)
        else:
            # Start writing to disk without waiting. A journalling file system then writes the data
            # before the name, so a loss of power never costs a complete version.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return make_stamp(os.fstat(fd))


def _fsync(path: Path) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with closing_fd(os.open(path, flags)) as fd:
        os.fsync(fd)
