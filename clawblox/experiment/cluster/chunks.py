"""Transfers files between the driver and a node in chunks; each arrives complete or not at all.

Few chunks are in flight at a time, whatever the number of files. Received data are untrusted: the
chunks must add up to the announced file, with its digest.
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
"""Size of every chunk of a file except the last."""

_UNDER_WAY: Final = 2
"""Maximum chunks of one file in flight."""
CHUNKS_AT_ONCE: Final = 8
"""Maximum chunks of all files in flight; each is held in this process's memory."""


class TransferError(Exception):
    """Received or outgoing files are damaged, too large or not allowed."""


class FileChunk(bytes):
    """Bytes of a file. An engine that pickles with protocol 5 need not copy them.

    The receiver gets them as a read-only memoryview.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Return the pickled form, with the bytes out of band if possible."""
        if protocol < 5:  # type: ignore[operator] # pickle gives an int
            return bytes, (bytes(self),)
        return memoryview, (PickleBuffer(self),)


class IncomingFile:
    """A file received in chunks in any order, hidden next to its target. All methods block.

    Args:
        target: Path of the complete file; an existing file or link is replaced.
        size: Its size in bytes.
        sha256: Its digest, in hexadecimal.

    Raises:
        TransferError: It is too large.
        OSError: It cannot be written.
    """

    def __init__(self, target: Path, size: int, sha256: str) -> None:
        if not 0 <= size <= MAX_DIGEST_BYTES:
            raise TransferError(
                f"{target.name} must have 0 to {MAX_DIGEST_BYTES} bytes, not {size}"
            )
        self._target = target
        self._size = size
        self._sha256 = sha256
        self._missing = {*range(0, size, CHUNK_BYTES)}
        self._partial = PartialFile(target.parent, "pull")

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write a chunk.

        Args:
            offset: Its place in the file, a multiple of :data:`CHUNK_BYTES`.
            data: All of its bytes.

        Raises:
            TransferError: It is not a chunk of this file, or is a repetition.
            OSError: It cannot be written.
        """
        if offset not in self._missing or len(data) != min(CHUNK_BYTES, self._size - offset):
            chunk = f"{len(data)} bytes at {offset}"
            raise TransferError(f"{self._target.name} does not expect a chunk of {chunk}")
        write_all_at(self._partial.fd, data, offset)
        self._missing.remove(offset)

    def publish(self, check: Callable[[], object] = lambda: None) -> None:
        """Check the digest, then rename the file to its target.

        Args:
            check: Called often.

        Raises:
            TransferError: A chunk is missing, or the digest differs.
            OSError: It cannot be read or published.
        """
        if self._missing:
            raise TransferError(f"{self._target.name} is missing its chunk at {min(self._missing)}")
        if not has_digest(Path(self._partial.path), self._sha256, check=check):
            raise TransferError(f"{self._target.name} does not match its digest {self._sha256}")
        self._partial.publish(self._target, overwrite=True)

    def close(self) -> None:
        """Remove the received file unless it was published; always call this at the end."""
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
        path: The file; it must not change during the transfer.
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
    """Receive a file in chunks, two at a time. The file is complete and durable, or absent.

    Args:
        size: Its size in bytes.
        sha256: Its digest, in hexadecimal.
        read: Asks for a chunk, given its offset and size in bytes.
        target: Path of the file; an existing file or link is replaced at the end.

    Raises:
        TransferError: A chunk has the wrong size, the digest differs, or the file is too large.
        OSError: It cannot be written.
        Exception: What ``read`` raises, unchanged.

    Cancellation: ends ``read`` and removes the partial file.
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
