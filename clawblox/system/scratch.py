"""Temporary directories; they are removed with whatever is in them, however deep."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.system.trees import discard_tree


@contextlib.contextmanager
def temporary_directory(prefix: str, *, parent: Path | None = None) -> Iterator[Path]:
    """Make a private directory, and remove it with everything below it after the block. Blocks.

    Args:
        prefix: The beginning of its name.
        parent: The directory to make it in; None means the system's directory for such files.

    Raises:
        OSError: It cannot be made.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield directory
    finally:
        discard_tree(directory)


@contextlib.asynccontextmanager
async def scratch_directory(prefix: str) -> AsyncIterator[Path]:
    """Make a private directory for a block, as :func:`temporary_directory` does, without blocking.

    Args:
        prefix: The beginning of its name.

    Raises:
        OSError: It cannot be made.

    Cancellation: it is removed.
    """
    with anyio.CancelScope(shield=True):  # otherwise it could be left behind
        directory = Path(await run_blocking(partial(tempfile.mkdtemp, prefix=prefix)))
    try:
        yield directory
    finally:
        with anyio.CancelScope(shield=True):
            await run_blocking(_discard, directory)


def _discard(directory: Path) -> None:
    try:
        directory.rmdir()  # most are empty, and need no walk
    except OSError:
        discard_tree(directory)
