"""The only task of a process that writes a run manifest, and the set of these tasks.

This module owns the queue: updates of all callers are written together, in a worker thread that is
not affected by the cancellation of a caller. All manifests of a process are repaired together.
``manifest_file`` shares the file with other programs, and ``manifest`` merges documents.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self

import anyio
import msgspec

from clawblox.concurrency.tasks import Residence, Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ManifestError
from clawblox.rundir.manifest import Update, find_checkpoint, manifest_path
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.system.files import sync_file_system
from clawblox.telemetry.own_log import OwnLog

_SYNC_TOGETHER: Final = 4
"""Minimum number of manifests that are synced by syncing the file system (syncfs(2)). For 32, this
took 2 to 20 ms instead of 10 to 400, and a tenth of the processor time."""
_MUCH_DIRTY_BYTES: Final = 64 << 20
"""If the machine has more dirty data than this, each manifest is synced separately, because a sync
of the file system would wait for the data of worlds and other programs."""
_MEMINFO: Final = Path("/proc/meminfo")

_log = OwnLog(__name__)


class ManifestWriter:
    """Writes the updates of one process to one manifest in batches.

    Other processes may also write the file, with their own writer or without any lock.

    Args:
        file: The manifest.
        tasks: Runs the writing task while updates are queued, and completes it when left.

    Attributes:
        file: The manifest.
        is_writing: Whether updates are queued.
    """

    def __init__(self, file: ManifestFile, tasks: Tasks) -> None:
        self.file = file
        self._tasks = tasks
        self._queue: list[_WriteRequest] = []
        self.is_writing = False

    async def apply(self, update: Update) -> None:
        """Merge an update into the manifest, durably on disk when this returns.

        Raises:
            ManifestError: The manifest cannot be read or written, or its lock could not be acquired
                in time. It is unchanged; or, if only the last step failed, updated.
            UsageError: The writer is closed.

        Cancellation: the update is still written.
        """
        if not self.is_writing:
            self._tasks.start_soon(self._write_all)
            self.is_writing = True
        request = _WriteRequest(update)
        self._queue.append(request)
        await request.is_done.wait()
        if request.error is not None:
            raise request.error

    async def _write_all(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                while self._queue:
                    await self._write_queued()
        finally:
            self.is_writing = False
            for request in self._queue:  # only after a bug
                request.finish(ManifestError("the manifest writer ended before it wrote"))
            self._queue.clear()

    async def _write_queued(self) -> None:
        batch = tuple(self._queue)
        errors = [await self._write(batch)] * len(batch)
        if errors[0] is not None and len(batch) > 1:  # one of the updates may be the cause
            errors = [await self._write([request]) for request in batch]
        # Only now, because an interrupted batch is written again, which is harmless.
        for request, error in zip(batch, errors, strict=True):
            self._queue.pop(0)
            request.finish(error)

    async def _write(self, batch: Sequence[_WriteRequest]) -> ManifestError | None:
        updates = [request.update for request in batch]
        try:
            # Uses its own limiter, because many manifests may wait for their locks.
            limiter = anyio.CapacityLimiter(1)
            await run_blocking(self.file.apply, updates, limiter=limiter)
        except ManifestError as error:
            return error
        except Exception as error:  # noqa: BLE001 - every waiting caller gets it
            _log.defect("manifest not written", error)
            failure = ManifestError(f"an update cannot be written: {error!r}")
            failure.__cause__ = error
            return failure
        return None


class ManifestWriters:
    """The writers of one process; an async context manager.

    Leaving the block writes the queue even after a cancellation. During the block and at its end,
    own entries that other programs overwrote are restored in all manifests together.

    Args:
        lock_wait: Seconds to wait for the lock of other processes.
        check_interval: Seconds between two checks for own entries that were overwritten.
    """

    def __init__(self, *, lock_wait: float = 10.0, check_interval: float = 1.0) -> None:
        self._lock_wait = lock_wait
        self._check_interval = check_interval
        self._tasks = Tasks(on_error=partial(_log.defect, "task of a manifest failed"))
        self._writers: dict[Path, ManifestWriter] = {}
        self._left: set[Path] = set()
        self._flushing = anyio.Lock()
        self._residence: Residence[Self]

    async def __aenter__(self) -> Self:
        self._residence = Residence(self._opened())
        return await self._residence.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._residence.__aexit__(None, None, None)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Self]:
        try:
            async with self._tasks:
                self._tasks.start_soon(self._look_after)
                yield self
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish(self._files())

    def _files(self) -> tuple[ManifestFile, ...]:
        return tuple(writer.file for writer in tuple(self._writers.values()))

    async def _finish(self, files: Iterable[ManifestFile]) -> None:
        await run_blocking(_repair, files, True)
        if error := await run_blocking(_sync, files):
            _log.warning("manifest not synced", error=str(error))

    def of(self, run_dir: Path) -> ManifestWriter:
        """Return the only writer of the manifest of a run."""
        self._left.discard(run_dir)
        if (writer := self._writers.get(run_dir)) is not None:
            return writer
        file = ManifestFile(manifest_path(run_dir), lock_wait=self._lock_wait)
        # Another thread may have been faster.
        return self._writers.setdefault(run_dir, ManifestWriter(file, self._tasks))

    def leave(self, run_dir: Path) -> None:
        """Forget a manifest that this process has stopped writing for now.

        Within about a second, overwritten own entries are restored for the last time.
        """
        if run_dir in self._writers:
            self._left.add(run_dir)

    def apply(self, run_dir: Path, update: Update, *, durable: bool = True) -> None:
        """Merge an update into the manifest of a run, for code in a worker thread. Blocks.

        Args:
            run_dir: The directory of the manifest.
            update: The update, visible to all readers when this returns.
            durable: Whether it must survive a loss of power when this returns; otherwise it does
                after the next durable update of this manifest, or after :meth:`flush`.

        Raises:
            ManifestError: As :meth:`ManifestWriter.apply`.
        """
        self.of(run_dir).file.apply([update], durable=durable)

    def note_forks(self, snapshots: Iterable[Path]) -> None:
        """Note that runs start from snapshots in the manifests that list these as autosaves.

        The entries then stay when the files are removed. A failure is reported. Blocks.
        """
        for snapshot in snapshots:
            listed = find_checkpoint(snapshot)
            if listed is None or listed[1].get("autosave") is not True or "forked" in listed[1]:
                continue
            manifest, entry = listed
            writer = self._writers.get(manifest.state_root)
            unowned = ManifestFile(manifest.path, lock_wait=self._lock_wait)
            file = unowned if writer is None else writer.file
            with _log.contain("fork not noted", expected=(ManifestError,), path=str(snapshot)):
                file.apply([Update(forked=(str(manifest.resolve(entry["path"])),))])

    async def flush(self) -> None:
        """Make all earlier updates of all manifests durable.

        The end of the block does the same.

        Raises:
            ManifestError: A manifest cannot be synced; the others are synced.

        Cancellation: waits for a sync in progress.
        """
        async with self._flushing:  # a caller waits for another caller's sync
            error = await run_blocking(_sync, self._files())
        if error is not None:
            raise error

    async def _look_after(self) -> None:
        while True:
            await anyio.sleep(self._check_interval)
            with _log.contain("manifests not looked after"):
                if self._left:
                    await self._end_left()
                await run_blocking(_repair, self._files(), False)

    async def _end_left(self) -> None:
        left = [(run_dir, self._writers[run_dir]) for run_dir in self._left]
        idle = {run_dir: writer.file for run_dir, writer in left if not writer.is_writing}
        await self._finish(idle.values())
        for run_dir in self._left & idle.keys():  # others are written again
            self._left.discard(run_dir)
            self._writers.pop(run_dir, None)


def _sync(files: Iterable[ManifestFile]) -> ManifestError | None:
    """Make manifests durable, and return the first error, if any."""
    unsynced = [file for file in files if not file.is_synced]
    if len(unsynced) >= _SYNC_TOGETHER and _read_dirty_bytes() <= _MUCH_DIRTY_BYTES:
        # If that fails, syncing each manifest separately finds the cause.
        with contextlib.suppress(ManifestError):
            _sync_together(unsynced)
    first: ManifestError | None = None
    for file in unsynced:
        try:
            file.sync()
        except ManifestError as error:
            first = first or error
    return first


def _sync_together(files: Iterable[ManifestFile]) -> None:
    """Make manifests durable with one sync for each file system."""
    with contextlib.ExitStack() as stack:
        directories = [stack.enter_context(file.synced_by_caller()) for file in files]
        for directory in {path.stat().st_dev: path for path in directories}.values():
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            sync_file_system(fd)


def _read_dirty_bytes() -> int:
    """Return the number of bytes that this machine has not yet written to its disks."""
    found = re.search(r"^Dirty: +(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    return sys.maxsize if found is None else 1024 * int(found[1])


def _repair(files: Iterable[ManifestFile], is_thorough: bool) -> None:  # noqa: FBT001, RUF100
    """Restore own entries that were overwritten."""
    for file in files:
        with _log.contain("manifest_repair_failed", expected=(ManifestError,)):
            file.repair(is_thorough=is_thorough)


class _WriteRequest(msgspec.Struct, eq=False):
    """An update, and its outcome."""

    update: Update
    is_done: anyio.Event = msgspec.field(default_factory=anyio.Event)
    error: ManifestError | None = None

    def finish(self, error: ManifestError | None) -> None:
        if error is not None:
            # Each caller gets its own exception, because sharing one would mix the tracebacks.
            self.error = ManifestError(error.message, path=error.path, hint=error.hint)
            self.error.__cause__ = error.__cause__
        self.is_done.set()
