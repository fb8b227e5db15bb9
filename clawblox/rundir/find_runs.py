"""Finds run directories and experiments: those of this user, or those below a directory.

They are found by the marks that processes of instances carry, by an index, and by a walk. A
directory counts only if it has records, and a process only if a record has its cookie. Everything
here blocks.

A world that opens a run directory adds its path to the index, ``runs.jsonl`` in ``CLAWBLOX_HOME``.
The index is only a hint: a world starts just as well where it cannot be written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from clawblox.config.home import home_dir
from clawblox.errors import ManifestError
from clawblox.protocol import INSTANCE_ENV, MANIFEST_ENV
from clawblox.rundir.experiments import JOURNAL_NAME, LOST_PREFIX
from clawblox.rundir.journal import append_line, drop_lines, read_lines
from clawblox.rundir.paths import STATE_DIR_NAME, resolve_run_dir, run_dir_candidates
from clawblox.rundir.records import has_records, read_records
from clawblox.system.files import make_private_dir
from clawblox.system.process_tree import find_variables
from clawblox.system.regular_files import find_files

MAX_DEPTH: Final = 5
"""How many levels below a directory run directories are looked for."""
_MAX_DIRECTORIES: Final = 20_000
_OF_A_RUN: Final = frozenset(
    ("agents", "checkpoints", "logs", "recordings", "runtime", "sessions", "worlds")
)
"""Directories in a run directory that contain its own files, and no further runs."""
_OF_OTHERS: Final = frozenset(("__pycache__", "node_modules", "site-packages", "venv"))


def find_user_runs() -> list[Path]:
    """Return the run directories of this user on this machine, running or ended."""
    return sorted({*_marked_runs(), *filter(has_records, read_index())})


def _marked_runs() -> Iterator[Path]:
    """Yield the run directories of the processes of this user that belong to an instance."""
    cookies: dict[str, set[str]] = {}
    for variables in find_variables(INSTANCE_ENV):
        manifest = variables.get(MANIFEST_ENV, "")
        cookies.setdefault(manifest, set()).add(variables[INSTANCE_ENV])
    for manifest, known in cookies.items():
        instance_dir = Path(manifest).parent.parent
        candidates = run_dir_candidates(instance_dir) if instance_dir.is_absolute() else ()
        for candidate in filter(has_records, candidates):
            with contextlib.suppress(ManifestError):  # a later version of clawblox wrote it
                if any(record.cookie in known for record in read_records(candidate)):
                    yield resolve_run_dir(candidate)


def find_runs_below(directory: Path) -> list[Path]:
    """Return the run directories in a directory, and that directory itself if it is one.

    The walk goes :data:`MAX_DEPTH` levels down and follows no link. It leaves out hidden
    directories (except ``.clawblox/runs``), the files of runs, and installed packages; it ends
    after 20000 directories.
    """
    found = []

    def visit(place: Path) -> frozenset[str]:
        is_run = has_records(place)
        if is_run:
            found.append(place)
        return _OF_A_RUN if is_run else frozenset()

    _walk(directory, visit)
    return sorted(found)


def find_experiments_below(directory: Path) -> list[Path]:
    """Return the directories of experiments in a directory, and that directory itself if it is one.

    The walk is that of :func:`find_runs_below`, and enters no experiment. A directory counts that
    has a journal, or the history of one that was lost, whatever else is in it.
    """
    found = []

    def visit(place: Path) -> frozenset[str] | None:
        if _has_journal(place):
            found.append(place)
            return None
        return _OF_A_RUN if has_records(place) else frozenset()

    _walk(directory, visit)
    return sorted(found)


def _has_journal(directory: Path) -> bool:
    lost = find_files(directory, f"{LOST_PREFIX}*.jsonl")
    return bool(lost) or os.path.lexists(directory / JOURNAL_NAME)


def _walk(directory: Path, visit: Callable[[Path], frozenset[str] | None]) -> None:
    """Visit a directory and those below it.

    Args:
        directory: The directory.
        visit: Returns the names of directories in a place that are left out; None for all of them.
    """
    pending = [(directory, 0)]
    for place, depth in pending:  # it grows
        left_out = visit(place)
        if depth < MAX_DEPTH and left_out is not None:
            room = _MAX_DIRECTORIES - len(pending)
            pending += [(path, depth + 1) for path in _directories_in(place, left_out)[:room]]


def _directories_in(place: Path, left_out: frozenset[str]) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    shown = [name for name in names if not name.startswith(".") and name not in _OF_OTHERS]
    paths = [place / name for name in sorted(shown) if name not in left_out]
    own_runs = place / STATE_DIR_NAME / "runs"
    return [*paths, own_runs] if STATE_DIR_NAME in names and own_runs.is_dir() else paths


# -- the index -------------------------------------------------------------------------------------


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
