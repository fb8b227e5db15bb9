"""The single task through which one process writes one run manifest.

Owns the queue: updates of any number of callers go to disk together, in a worker thread that
no caller's cancellation reaches. How the file is shared with other programs is the business of
``manifest_file``, how documents merge that of ``manifest``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import attrs
import structlog

from clawblox.errors import ManifestError, UsageError
from clawblox.manifest import Update
from clawblox.manifest_file import ManifestFile
from clawblox.threads import run_blocking

__all__ = ["ManifestWriter"]

_log = structlog.get_logger(__name__)


class ManifestWriter:
    """Writes the updates of one process into one manifest, many at a time.

    Start :meth:`run` as a task. Other processes may write the file too, with a writer of
    their own or with no regard for anybody.

    Args:
        path: The manifest; its directory is made at the first update.
        lock_wait: Seconds to wait for the lock that writers of other processes hold.
        check_interval: Seconds between two looks whether somebody overwrote our entries.
    """

    def __init__(self, path: Path, *, lock_wait: float = 10.0, check_interval: float = 1.0) -> None:
        self._file = ManifestFile(path, lock_wait=lock_wait)
        self._check_interval = check_interval
        self._limiter = anyio.CapacityLimiter(1)
        self._queue: deque[_Request] = deque()
        self._wake = anyio.Event()
        self._is_over = anyio.Event()
        self._is_started = False
        self._is_closed = False

    async def apply(self, update: Update) -> None:
        """Put an update into the manifest; it is on disk, durably, when this returns.

        Raises:
            ManifestError: The manifest cannot be read or written, or its lock was not to be
                had in time. It is as it was; or, when only the last step failed, as it should
                be.
            UsageError: The writer is closed.

        Cancellation: the update is written, or it is not.
        """
        if self._is_closed:
            raise UsageError("the manifest writer is closed")
        request = _Request(update)
        self._queue.append(request)
        self._wake.set()
        await request.is_done.wait()
        if request.error is not None:
            raise request.error

    async def run(self) -> None:
        """Write what is queued until the writer is closed. To be started as a task, once.

        Cancellation: what is queued is written before, and every waiting ``apply`` answered.
        """
        self._is_started = True
        try:
            while not self._is_closed:
                await self._wait()
                if self._queue:
                    await self._write_queued()
                else:
                    await self._repair(is_thorough=False)
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish()

    async def aclose(self) -> None:
        """Write what is queued, look a last time for entries of ours that are gone, and end.

        A later call waits for the same end. It does not fail: who waits in ``apply`` is told
        there, and what became of the last look is logged. A writer whose :meth:`run` never
        began writes nothing more.

        Cancellation: the writer ends all the same.
        """
        self._is_closed = True
        self._wake.set()
        if self._is_started:
            await self._is_over.wait()
        else:
            self._abandon_queued()

    async def _wait(self) -> None:
        # Not a memory object stream: it can lose an item when asyncio cancels the receiver.
        patience = self._check_interval if self._file.is_owed_anything else math.inf
        with anyio.move_on_after(patience):
            await self._wake.wait()
        self._wake = anyio.Event()

    async def _write_queued(self) -> None:
        batch = tuple(self._queue)
        error = None
        try:
            await self._in_thread(partial(self._file.apply, [each.update for each in batch]))
        except ManifestError as failure:
            error = failure
        # Only now: a batch that was interrupted is written again, which changes nothing.
        for request in batch:
            self._queue.popleft()
            request.finish(error)

    async def _repair(self, *, is_thorough: bool) -> None:
        try:
            await self._in_thread(partial(self._file.repair, is_thorough=is_thorough))
        except ManifestError as error:
            _log.warning("manifest_repair_failed", error=str(error))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await run_blocking(work, limiter=self._limiter)

    async def _finish(self) -> None:
        self._is_closed = True
        try:
            if self._queue:
                await self._write_queued()
            if self._file.is_owed_anything:
                await self._repair(is_thorough=True)
        finally:
            self._abandon_queued()
            self._is_over.set()

    def _abandon_queued(self) -> None:
        while self._queue:
            self._queue.popleft().finish(ManifestError("the manifest writer ended before it wrote"))


@attrs.define(eq=False)
class _Request:
    """An update, and what became of it."""

    update: Update
    is_done: anyio.Event = attrs.field(factory=anyio.Event)
    error: ManifestError | None = None

    def finish(self, error: ManifestError | None) -> None:
        if error is not None:
            # An exception of its own for each: raising one twice would mix the tracebacks.
            self.error = ManifestError(error.message, path=error.path, hint=error.hint)
            self.error.__cause__ = error.__cause__
        self.is_done.set()
