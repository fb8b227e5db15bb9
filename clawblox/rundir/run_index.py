"""The index of a user's run directories, so that ``clawblox ps`` finds them.

A world that opens a run directory adds its path to ``runs.jsonl`` in ``CLAWBLOX_HOME``, once. The
index is a hint and nothing more: what runs is told by records and processes, and a world starts
just as well where the index cannot be written. Everything here blocks.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from clawblox.config.home import home_dir
from clawblox.rundir.journal import append_line, drop_lines, read_lines
from clawblox.system.files import make_private_dir

_FILE_NAME: Final = "runs.jsonl"
_MAX_RUNS: Final = 1000
"""How many run directories the index keeps; the oldest are dropped."""
_LOCK_WAIT_S: Final = 0.2


def add_run(run_dir: Path) -> None:
    """Add a run directory to the index, unless it is there.

    Args:
        run_dir: The run directory, resolved.
    """
    with contextlib.suppress(OSError, RuntimeError):
        path = make_private_dir(home_dir()) / _FILE_NAME
        name = str(run_dir)
        known = list(read_lines(path))
        if name in known:
            return
        append_line(path, msgspec.json.encode({"name": name}), lock_wait=_LOCK_WAIT_S)
        if len(known) >= _MAX_RUNS:
            drop_lines(path, frozenset(known[: -_MAX_RUNS // 2]), lock_wait=_LOCK_WAIT_S)


def read_index() -> list[Path]:
    """Return the run directories of the index that still exist, and drop the others from it."""
    try:
        path = home_dir() / _FILE_NAME
    except RuntimeError:
        return []
    known = {name: Path(name) for name in read_lines(path)}
    gone = {name for name, run_dir in known.items() if not _exists(run_dir)}
    if gone:
        with contextlib.suppress(OSError):
            drop_lines(path, gone, lock_wait=_LOCK_WAIT_S)
    return [run_dir for name, run_dir in known.items() if name not in gone]


def _exists(run_dir: Path) -> bool:
    try:
        return run_dir.is_absolute() and run_dir.is_dir()
    except OSError:  # a file system that does not answer, or a directory above that is closed to us
        return True
