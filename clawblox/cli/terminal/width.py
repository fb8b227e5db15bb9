"""The width of tables in a terminal."""

from __future__ import annotations

import shutil
import sys


def table_width() -> int | None:
    """Return the width of the terminal that shows standard output.

    Returns:
        Columns; None for a pipe or a file, where lines are not cut.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
