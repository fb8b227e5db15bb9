"""The standard input of a program, written without ever waiting for the program.

What the program does not read yet is kept here. A program that never reads, and is written to
without end, is a broken one: that shows as an error, not as a full memory.
"""

from __future__ import annotations

import os
from typing import Final

import anyio

MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
"""Most that is kept for a program that does not read."""


class StdinFull(Exception):  # noqa: N818 - says the condition
    """A program has not read what was written to it."""


class StdinWriter:
    """The two ends of the pipe.

    Raises:
        OSError: There is no descriptor left.

    Attributes:
        read_end: What the program inherits as its standard input.
    """

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._unread = bytearray()
        self._news = anyio.Event()
        self._is_broken = False
        self._is_ended = False

    def put(self, data: bytes) -> None:
        """Queue ``data`` for the program.

        Raises:
            StdinFull: Too much is queued already.
        """
        if not data or self._is_broken or self._is_ended:
            return
        if len(self._unread) + len(data) > MAX_UNREAD_BYTES:
            raise StdinFull
        self._unread += data
        self._news.set()

    def end(self) -> None:
        """Have the program read the end of its input, after what is queued."""
        self._is_ended = True
        self._news.set()

    async def write_on(self) -> None:
        """Write what is queued, whenever the program reads; ends when nothing reads any more.

        Cancellation: keeps what was not written.
        """
        while not self._is_broken:
            await self._news.wait()
            self._news = anyio.Event()
            while self._unread and not self._is_broken:
                await self._write_some()
            if self._is_ended:
                self.close()
                return

    async def _write_some(self) -> None:
        try:
            written = os.write(self._write_end, self._unread)
        except BlockingIOError:
            await anyio.wait_writable(self._write_end)
        except BrokenPipeError:  # its exit tells the rest
            self._is_broken = True
            self._unread.clear()
        else:
            del self._unread[:written]

    def close_read_end(self) -> None:
        """Close the program's end, which the program has by now; a second call does nothing."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    def close(self) -> None:
        """Close both ends; :meth:`write_on` must have ended. A second call does nothing."""
        self.close_read_end()
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
