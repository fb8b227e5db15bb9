"""The single task through which a process writes a run manifest, and the set of all such tasks.

Owns the queue: updates of any number of callers go to disk together, in a worker thread that
no caller's cancellation reaches. All manifests of a process are looked after together. How the
file is shared with other programs is the business of ``manifest_file``, how documents merge that
of ``manifest``.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self

import anyio
import attrs

from clawblox.concurrency.tasks import Residence, Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ManifestError
from clawblox.rundir.manifest import Update, find_checkpoint, manifest_path
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.system.files import sync_file_system
from clawblox.telemetry.own_log import OwnLog

_SYNC_TOGETHER: Final = 4
"""How many manifests at least are synced by a sync of their file system (syncfs(2)). For 32 that
took 2 to 20 ms in place of 10 to 400, and a tenth of the processor time."""
_MUCH_DIRTY_BYTES: Final = 64 << 20
"""When the machine has more than this to write, a sync of the file system would wait for what
worlds and strangers are writing; then each manifest is synced for itself."""
_MEMINFO: Final = Path("/proc/meminfo")

_log = OwnLog(__name__)


@attrs.define(eq=False)
class ManifestWriter:
    """Writes the updates of one process into one manifest, many at a time.

    Other processes may write the file too, with a writer of their own or without any lock.

    Args:
        file: The manifest.
        tasks: Runs the task that writes while updates are queued, and finishes it when left.

    Attributes:
        file: The same.
        is_writing: Whether updates are queued.
    """

    file: ManifestFile
    _tasks: Tasks
    _queue: deque[_WriteRequest] = attrs.field(factory=deque, init=False)
    is_writing: bool = attrs.field(default=False, init=False)

    async def apply(self, update: Update) -> None:
        """Put an update into the manifest; it is on disk, durably, when this returns.

        Raises:
            ManifestError: The manifest cannot be read or written, or its lock could not be
                acquired in time. It is as it was; or, when only the last step failed, as it should
                be.
            UsageError: The writer is closed.

        Cancellation: the update is written nevertheless.
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
            for request in self._queue:  # only after a defect
                request.finish(ManifestError("the manifest writer ended before it wrote"))
            self._queue.clear()

    async def _write_queued(self) -> None:
        batch = tuple(self._queue)
        errors = [await self._write(batch)] * len(batch)
        if errors[0] is not None and len(batch) > 1:  # one of them may be to blame
            errors = [await self._write([request]) for request in batch]
        # Only now: a batch that was interrupted is written again, which changes nothing.
        for request, error in zip(batch, errors, strict=True):
            self._queue.popleft()
            request.finish(error)

    async def _write(self, batch: Sequence[_WriteRequest]) -> ManifestError | None:
        updates = [request.update for request in batch]
        try:
            # Not limited with others: many manifests may wait for their locks.
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

    Leaving its block writes the queue, however it is cancelled. Within it, and at its end, entries
    of ours that another program overwrote are restored, for all manifests together.

    Args:
        lock_wait: Seconds to wait for the lock of other processes.
        check_interval: Seconds between two looks for entries of ours that were overwritten.
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
        """Forget a manifest: nothing here writes it any more, for now.

        Within a second or so, entries of ours are restored for the last time.
        """
        if run_dir in self._writers:
            self._left.add(run_dir)

    def apply(self, run_dir: Path, update: Update, *, durable: bool = True) -> None:
        """Put an update into the manifest of a run, for code in a worker thread. Blocks.

        Args:
            run_dir: The directory of the manifest.
            update: The update; every reader sees it when this returns.
            durable: Whether it must outlive a loss of power when this returns. Without, that is so
                after the next durable update of this manifest, or after :meth:`flush`.

        Raises:
            ManifestError: As :meth:`ManifestWriter.apply`.
        """
        self.of(run_dir).file.apply([update], durable=durable)

    def note_forks(self, snapshots: Iterable[Path]) -> None:
        """Note that runs begin from snapshots, in the manifests that list them as autosaves.

        Their entries then stay when the files are removed. A failure is reported. Blocks.
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

        The end of the block does so too.

        Raises:
            ManifestError: A manifest cannot be synced; the others are.

        Cancellation: waits for a sync that has begun.
        """
        async with self._flushing:  # a caller waits for the sync of another
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
    """Make manifests durable; return the first error."""
    unsynced = [file for file in files if not file.is_synced]
    if len(unsynced) >= _SYNC_TOGETHER and _read_dirty_bytes() <= _MUCH_DIRTY_BYTES:
        # Where that fails, syncing them one by one shows which of them is to blame.
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
    """Make manifests durable by one wait for each file system that they are on."""
    with contextlib.ExitStack() as stack:
        directories = [stack.enter_context(file.synced_by_caller()) for file in files]
        for directory in {path.stat().st_dev: path for path in directories}.values():
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            sync_file_system(fd)


def _read_dirty_bytes() -> int:
    """Return how much this machine has yet to write to its disks."""
    found = re.search(r"^Dirty: +(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    return sys.maxsize if found is None else 1024 * int(found[1])


def _repair(files: Iterable[ManifestFile], is_thorough: bool) -> None:  # noqa: FBT001, RUF100
    """Put back entries of ours that were overwritten."""
    for file in files:
        with _log.contain("manifest_repair_failed", expected=(ManifestError,)):
            file.repair(is_thorough=is_thorough)


@attrs.define(eq=False)
class _WriteRequest:
    """An update, and its outcome."""

    update: Update
    is_done: anyio.Event = attrs.field(factory=anyio.Event)
    error: ManifestError | None = None

    def finish(self, error: ManifestError | None) -> None:
        if error is not None:
            # An exception of its own for each: raising one twice would mix the tracebacks.
            self.error = ManifestError(error.message, path=error.path, hint=error.hint)
            self.error.__cause__ = error.__cause__
        self.is_done.set()
