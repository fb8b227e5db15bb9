"""What a program writes to standard error: its length, and its last lines. Blocks.

It is never read for what the program does. Programs repeat there what their tools print, and so an
agent could write lines there that look like the program's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from clawblox.system.regular_files import open_regular
from clawblox.telemetry.logs import last_lines, log_size


class Complaints:
    """The standard error of one process, from the end of what others wrote to the same file.

    Args:
        path: The file.

    Attributes:
        start: Offset of the first byte of this process.
        size: Length of the file when :meth:`have_grown` was last asked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self.start = self.size = log_size(path)

    def open(self) -> None:
        """Open the file, which exists once the process runs.

        Raises:
            OSError: It cannot be opened.
        """
        self._fd = open_regular(self._path)

    def have_grown(self) -> bool:
        """Return whether there are more than at the last call. It is open, so this is cheap."""
        before, self.size = self.size, os.fstat(self._fd).st_size
        return self.size > before

    def last_lines(self, count: int, secrets: Sequence[str]) -> tuple[str, ...]:
        """Return the last lines of this process, masked.

        Args:
            count: Largest number of lines.
            secrets: Values to mask.
        """
        return last_lines(self._path, start=self.start, count=count, secrets=secrets)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
