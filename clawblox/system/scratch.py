"""Temporary directories, which are removed with all their content at any depth."""

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
    """Create a private directory, and remove it with its content after the block. Blocks.

    Args:
        prefix: First part of the name.
        parent: The parent directory; None means the system's directory for temporary files.

    Raises:
        OSError: The directory cannot be created.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield directory
    finally:
        discard_tree(directory)


@contextlib.asynccontextmanager
async def scratch_directory(prefix: str) -> AsyncIterator[Path]:
    """Create a private directory for a block like :func:`temporary_directory`, without blocking.

    Args:
        prefix: First part of the name.

    Raises:
        OSError: The directory cannot be created.

    Cancellation: the directory is removed.
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
        directory.rmdir()  # most are empty, so that no walk is needed
    except OSError:
        discard_tree(directory)
