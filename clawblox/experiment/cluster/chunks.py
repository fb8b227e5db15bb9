"""Files that travel between the driver and a node in chunks, each complete or absent.

However many files travel at the same time, few of their chunks do.
What arrives is foreign: the chunks have to be those of the announced file, with its digest.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, Final, SupportsIndex

import anyio

from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.tasks import in_own_task
from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.system.files import MAX_DIGEST_BYTES, PartialFile, has_digest, write_all_at
from clawblox.system.regular_files import closing_fd, open_regular

CHUNK_BYTES: Final = 8 << 20
"""Size of every chunk of a file but the last."""

_UNDER_WAY: Final = 2
"""Chunks of a file that travel at the same time."""
CHUNKS_AT_ONCE: Final = 8
"""Chunks of all files that travel at the same time; each is in this process's memory."""


class TransferError(Exception):
    """Files that arrived, or that should be sent, are damaged, too large or not allowed."""


class FileChunk(bytes):
    """Bytes of a file. An engine that pickles by protocol 5 need not copy them.

    They arrive there as a read-only memoryview.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Return how the bytes travel: outside of the pickle where that is possible."""
        if protocol < 5:  # type: ignore[operator] # pickle gives an int
            return bytes, (bytes(self),)
        return memoryview, (PickleBuffer(self),)


class IncomingFile:
    """A file that arrives in chunks, in any order, hidden beside its target. Everything blocks.

    Args:
        target: Where the complete file will be; a file or link there is replaced.
        size: Its size in bytes.
        sha256: Its digest, in hexadecimal.

    Raises:
        TransferError: It is too large.
        OSError: It cannot be written.
    """

    def __init__(self, target: Path, size: int, sha256: str) -> None:
        if not 0 <= size <= MAX_DIGEST_BYTES:
            raise TransferError(f"{target.name} cannot have {size} bytes")
        self._target = target
        self._size = size
        self._sha256 = sha256
        self._missing = {*range(0, size, CHUNK_BYTES)}
        self._partial = PartialFile(target.parent, "pull")

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Take a chunk.

        Args:
            offset: Its place in the file, a multiple of :data:`CHUNK_BYTES`.
            data: All of its bytes.

        Raises:
            TransferError: It is not a chunk of this file, or came before.
            OSError: It cannot be written.
        """
        if offset not in self._missing or len(data) != min(CHUNK_BYTES, self._size - offset):
            chunk = f"{len(data)} bytes at {offset}"
            raise TransferError(f"{self._target.name} has no further chunk of {chunk}")
        write_all_at(self._partial.fd, data, offset)
        self._missing.remove(offset)

    def publish(self, check: Callable[[], object] = lambda: None) -> None:
        """Check the digest, and give the file its name.

        Args:
            check: Called often.

        Raises:
            TransferError: A chunk is missing, or the digest is another one.
            OSError: It cannot be read or published.
        """
        if self._missing:
            raise TransferError(f"{self._target.name} lacks its chunk at {min(self._missing)}")
        if not has_digest(Path(self._partial.path), self._sha256, check=check):
            raise TransferError(f"{self._target.name} arrived without its digest {self._sha256}")
        self._partial.publish(self._target, overwrite=True)

    def close(self) -> None:
        """Remove received files unless they were published; call this at the end."""
        self._partial.close()


def read_chunk(path: Path, offset: int, size: int) -> FileChunk:
    """Return a part of a regular file; blocks.

    Raises:
        TransferError: The file is shorter.
        OSError: It cannot be read.
    """
    with closing_fd(open_regular(path)) as fd:
        data = FileChunk(os.pread(fd, size, offset))
    if len(data) != size:
        raise TransferError(f"{path} has become shorter than {offset + size} bytes")
    return data


async def send_file(path: Path, send: Callable[[int, bytes], Awaitable[None]]) -> None:
    """Send a file in chunks, two at a time.

    Args:
        path: The file; nobody writes to it.
        send: Sends a chunk, given its offset and bytes.

    Raises:
        TransferError: The file has become shorter.
        OSError: It cannot be read.
        Exception: What ``send`` raises, unchanged.

    Cancellation: ends ``send``.
    """

    async def give(offset: int, size: int) -> None:
        await send(offset, await run_blocking(read_chunk, path, offset, size))

    await _for_each_chunk((await run_blocking(path.stat)).st_size, give)


async def receive_file(
    size: int, sha256: str, read: Callable[[int, int], Awaitable[bytes | memoryview]], target: Path
) -> None:
    """Receive a file in chunks, two at a time; it is complete and durable, or absent.

    Args:
        size: Its size in bytes.
        sha256: Its digest, in hexadecimal.
        read: Asks for a chunk, given its offset and size in bytes.
        target: Where the file will be; a file or link there is replaced in the end.

    Raises:
        TransferError: A chunk has another size, the digest is another one, or it is too large.
        OSError: It cannot be written.
        Exception: What ``read`` raises, unchanged.

    Cancellation: ends ``read``, and leaves nothing.
    """
    await in_own_task(partial(_receive, size, sha256, read, target))


async def _receive(
    size: int, sha256: str, read: Callable[[int, int], Awaitable[bytes | memoryview]], target: Path
) -> None:
    async def take(offset: int, length: int) -> None:
        await run_blocking(incoming.write, offset, await read(offset, length))

    with anyio.CancelScope(shield=True):  # otherwise the hidden file could be left behind
        incoming = await run_blocking(IncomingFile, target, size, sha256)
    try:
        await _for_each_chunk(size, take)
        await run_checked(incoming.publish)
    finally:
        with anyio.CancelScope(shield=True):
            await run_blocking(incoming.close)


async def _for_each_chunk(size: int, move: Callable[[int, int], Awaitable[None]]) -> None:
    offsets = iter(range(0, size, CHUNK_BYTES))
    errors: list[Exception] = []

    async def work() -> None:
        try:
            for offset in offsets:
                async with _current_places():
                    await move(offset, min(CHUNK_BYTES, size - offset))
        except Exception as error:  # noqa: BLE001 - raised below, without a group around it
            errors.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for _ in range(_UNDER_WAY):
            group.start_soon(work)
    if errors:
        raise errors[0]


@per_loop
def _current_places() -> anyio.Semaphore:
    return anyio.Semaphore(CHUNKS_AT_ONCE, fast_acquire=True)
