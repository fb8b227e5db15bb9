"""Reads the untrusted recording of a new process while it grows.

The directory is ours, but its files belong to a world that may be hostile: links are not followed,
only regular files are opened, and their size is limited.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from clawblox.errors import RecordingError
from clawblox.recording.blocks import SUFFIX
from clawblox.recording.reader import BlockEntry, RecordingReader
from clawblox.replay.comparison import RecordingComparison
from clawblox.system.regular_files import open_file

SPARE_BYTES: Final = 16 << 20
"""Bytes by which the files of a new recording may exceed :data:`MAX_GROWTH` recordings."""
MAX_GROWTH: Final = 4
"""Maximum ratio of the sizes of the new and the old recording, since compression may differ."""
_MAX_FILES: Final = 100
_SLICE_S: Final = 0.25
"""Maximum seconds of a call, plus one block."""
_FILE: Final = f"recording-0001{SUFFIX}"


class NewRecording:
    """The new recording in a directory, compared up to its present end.

    Args:
        directory: The directory that the new process records into.
        recorded_bytes: Size of the recording that it repeats.

    Attributes:
        problem: Why reading has stopped; may be empty.
    """

    def __init__(self, directory: Path, recorded_bytes: int) -> None:
        self.problem = ""
        self._directory = directory
        self._max_bytes = SPARE_BYTES + MAX_GROWTH * recorded_bytes
        self._stack = ExitStack()
        self._reader: RecordingReader | None = None
        self._blocks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def compare(self, comparison: RecordingComparison) -> bool:
        """Compare the newly written blocks, for a moment; return whether there is more. Blocks.

        Args:
            comparison: Gets the records.
        """
        deadline = time.monotonic() + _SLICE_S
        while not self.problem and not comparison.is_decided:
            if time.monotonic() > deadline:
                return True
            try:
                if not self._compare_block(comparison):
                    return False
            except (OSError, RecordingError) as error:
                reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
                self.problem = f"its new recording cannot be read: {reason}"
        return False

    def _compare_block(self, comparison: RecordingComparison) -> bool:
        """Compare the next block; return whether there is one.

        Raises:
            OSError: The file cannot be read, or there is too much.
            RecordingError: It is damaged, or not a recording.
        """
        block = self._next_block()
        if block is None or self._reader is None:
            return False
        track = block.header.track
        lines = self._reader.read_lines(block) if comparison.is_open(track) else []
        for number, line in enumerate(lines, block.number):
            if not comparison.is_open(track):
                break
            if not comparison.take_equal(track, line):
                comparison.add(self._reader.parse_line(block, number, line))
        return True

    def _next_block(self) -> BlockEntry | None:
        """Return the next complete block, of those that are written by now.

        Raises:
            OSError: The file cannot be read, or there is too much.
            RecordingError: It is damaged, or not a recording.
        """
        if self._reader is None:
            self._reader = self._open()
            if self._reader is None:
                return None
        if self._blocks == len(self._reader.index):
            self._limit()
            self._reader.extend()
        if self._blocks == len(self._reader.index):
            return None
        self._blocks += 1
        return self._reader.index[self._blocks - 1]

    def _open(self) -> RecordingReader | None:
        self._limit()
        try:
            fd = open_file(self._directory, _FILE)
        except FileNotFoundError:
            return None
        self._stack.callback(os.close, fd)
        reader = RecordingReader(fd, Path(_FILE), is_growing=True)
        if reader.is_old:
            raise RecordingError("it has the older format", path=reader.path)
        return reader

    def _limit(self) -> None:
        """Raise an error for more or longer files than the recording of a replay can have."""
        size = 0
        with os.scandir(self._directory) as entries:
            for number, entry in enumerate(entries, 1):
                size += entry.stat(follow_symlinks=False).st_size
                if number > _MAX_FILES or size > self._max_bytes:
                    raise OSError(errno.EFBIG, f"it is larger than {self._max_bytes} bytes")
