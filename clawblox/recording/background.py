"""A recording in the making: records are added without waiting, and written by other threads.

Worlds and orchestrators record with this writer: a slow disk does not delay the program, and a full
disk ends the recording, not the program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import anyio

from clawblox.recording.blocks import Block, Moment, Track
from clawblox.recording.writer import BlockCollector, FileDigest, RecordingFile

MAX_WAITING_BYTES: Final = 64 << 20
"""Maximum bytes that wait to be written; more end the recording."""


class BackgroundWriter:
    """Collects the records of a recording, and writes its blocks as they end.

    One thread at a time may add records and take blocks; another may write the taken blocks.

    Args:
        file: The file of the recording; it is closed by :meth:`close`.
        on_end: Called with the reason when the recording ends early.

    Attributes:
        path: Path of the file.
        is_over: Whether the recording has ended early; later records are dropped.
    """

    def __init__(self, file: RecordingFile, on_end: Callable[[str], object]) -> None:
        self.path: Path = file.path
        self.is_over = False
        self._file = file
        self._on_end = on_end
        self._collector = BlockCollector()
        self._news = anyio.Event()

    @property
    def counts(self) -> Mapping[Track, int]:
        """Number of records added to each track so far."""
        return self._collector.counts

    @property
    def due_at(self) -> float | None:
        """Time at which :meth:`take` next returns a block, in seconds of ``time.monotonic``."""
        return self._collector.due_at

    def start(self, moment: Moment, fields: bytes) -> None:
        """Write the first record. Blocks.

        Args:
            moment: When the recording starts.
            fields: The other fields of the record ``start``, encoded as a JSON object in one line.

        Raises:
            ValueError: The record is too long, or has too many values for readers; it is not
                written.
            OSError: It cannot be written.
        """
        self._collector.start(moment, fields)
        self._file.write(self.take())

    def add(self, track: Track, moment: Moment, fields: bytes, now: float | None = None) -> bool:
        """Add a record; end the recording if readers would refuse it or memory is exhausted.

        Args:
            track: Its track.
            moment: When it was made.
            fields: Its other fields: a JSON object with at least one, encoded in one line.
            now: The same in seconds of ``time.monotonic``; None means now.

        Returns:
            Whether a block is due earlier than before; call :meth:`wake` then.
        """
        if self.is_over:
            return False
        try:
            is_news = self._collector.add(
                track, moment, fields, monotonic() if now is None else now
            )
        except ValueError as error:
            self.end(str(error))
            return False
        self.limit(self._collector.waiting_bytes)
        return is_news

    def limit(self, waiting_bytes: int) -> None:
        """End the recording if too much waits to be written.

        Args:
            waiting_bytes: Total length of the waiting records.
        """
        if waiting_bytes > MAX_WAITING_BYTES:
            self.end(f"more than {MAX_WAITING_BYTES} bytes wait to be written")

    def take(self) -> list[Block]:
        """Remove and return the blocks that have ended, for :meth:`write`."""
        return self._collector.take(monotonic())

    def write(self, blocks: Sequence[Block]) -> None:
        """Append blocks; a failure ends the recording. Blocks."""
        if self.is_over:
            return
        try:
            self._file.write(blocks)
        except OSError as error:
            self.end(error.strerror or str(error))  # half a block must be the last
        except Exception as error:  # noqa: BLE001 - no memory, or a defect: the program runs on
            self.end(f"{type(error).__name__}: {error}")

    def end(self, reason: str) -> None:
        """End the recording early, and report the reason. Idempotent."""
        if not self.is_over:
            self.is_over = True
            self._on_end(reason)

    def close(self) -> FileDigest | None:
        """Write the rest and close the file. Blocks.

        Returns:
            The digest of the file; None after an error, when the content of the file is uncertain.
        """
        self.write(self._collector.take(float("inf")))
        with contextlib.suppress(OSError):  # already reported; the file is closed anyway
            self._file.close()
        return self._file.digest

    def wake(self) -> None:
        """Make :meth:`run` check now; call this only in the thread of its event loop."""
        self._news.set()

    async def run(
        self,
        write: Callable[[], Awaitable[object]],
        *,
        due_at: Callable[[], float | None] | None = None,
        look_every_s: float = float("inf"),
    ) -> None:
        """Call a function whenever blocks are due to be written, until cancelled.

        Args:
            write: Takes the ended blocks, and writes them in another thread.
            due_at: Returns the time of the next call, in seconds of ``time.monotonic``, or None; by
                default :attr:`due_at`.
            look_every_s: Seconds between two checks of ``due_at`` without :meth:`wake`.

        Cancellation: waits for a running call. No record is lost; :meth:`close` writes the rest.
        """
        while True:
            due = self.due_at if due_at is None else due_at()
            delay = float("inf") if due is None else max(0.0, due - monotonic())
            with anyio.move_on_after(min(delay, look_every_s)):
                await self._news.wait()
            self._news = anyio.Event()
            due = self.due_at if due_at is None else due_at()
            if due is not None and due <= monotonic():
                with anyio.CancelScope(shield=True):
                    await write()
