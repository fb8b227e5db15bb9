"""Snapshots: ``GET /snapshot`` -> a verified file on disk, complete or absent.

Owns the deadline and the cancellation of a transfer, and limits the number of concurrent transfers.
A transfer blocks, so it runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from clawblox.concurrency.deadlines import running_deadline
from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import run_blocking, run_interruptible
from clawblox.errors import SnapshotError
from clawblox.results import SavedSnapshot
from clawblox.snapshot.checker import checkers
from clawblox.snapshot.transfer import SnapshotSource, Transfer

_TRANSFERS_AT_ONCE = 4


async def capture(
    source: SnapshotSource, directory: Path, *, timeout: float, max_bytes: int
) -> SavedSnapshot:
    """Take a snapshot and publish it in ``directory``.

    Args:
        source: The instance.
        directory: Directory for the file, which gets a new name; created when missing.
        timeout: Seconds that the transfer may take. Time in the queue for one of a few concurrent
            transfers does not count, nor time in which this process is stopped.
        max_bytes: Maximum size of the body, in bytes.

    Raises:
        SnapshotError: The response is unusable or late; no file is left.

    Cancellation: closes the connection and leaves no file.
    """
    # This deadline expires first; the transfer's own limit ends a thread that was abandoned.
    transfer = Transfer(source, directory, 3 * timeout, max_bytes)
    try:
        async with _checkers_held(), _current_turns(), running_deadline(timeout):
            # Not anyio's default limiter, which is meant for short work.
            limiter = anyio.CapacityLimiter(1)
            return await run_interruptible(transfer.run, transfer.abort, limiter=limiter)
        raise SnapshotError(
            f"the snapshot took longer than {timeout:g} s",
            phase=transfer.phase,
            bytes=transfer.received,
        )
    except BaseException:
        # A cancellation may arrive even after the file was published.
        with anyio.CancelScope(shield=True):
            await run_blocking(transfer.discard)
        raise


@per_loop
def _current_turns() -> anyio.Semaphore:
    return anyio.Semaphore(_TRANSFERS_AT_ONCE, fast_acquire=True)


@asynccontextmanager
async def _checkers_held() -> AsyncIterator[None]:
    """Keep idle checkers until no transfer is running or waiting."""
    checkers.hold()
    try:
        yield
    finally:
        if spent := checkers.release():
            with anyio.CancelScope(shield=True):
                for checker in spent:
                    await run_blocking(checker.end)
