"""Finds run directories and experiments of this user, or those below a directory.

They are found by the marks of instance processes, in an index, and by walking directories. A
directory counts if it has records, and in a walk also if it has a manifest; a process counts if a
record contains its cookie. Everything here blocks.

A world that opens a run directory adds its path to the index, ``runs.jsonl`` in ``CLAWBLOX_HOME``.
The index is only a hint: a world also starts if the index cannot be written.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from clawblox.config.home import home_dir
from clawblox.errors import ManifestError
from clawblox.protocol import INSTANCE_ENV, MANIFEST_ENV
from clawblox.rundir.experiments import JOURNAL_NAME, LOST_PREFIX
from clawblox.rundir.journal import append_line, drop_lines, read_lines
from clawblox.rundir.listed import is_run_dir
from clawblox.rundir.paths import STATE_DIR_NAME, file_stamp, resolve_run_dir, run_dir_candidates
from clawblox.rundir.records import has_records, read_records
from clawblox.system.files import make_private_dir
from clawblox.system.process_tree import find_variables

MAX_DEPTH: Final = 5
"""Number of levels below a directory that are searched for run directories."""
_MAX_DIRECTORIES: Final = 20_000
_SETTLED_NS: Final = 2_000_000_000
"""Age after which any further change has a later time stamp on every file system."""
_OF_A_RUN: Final = frozenset(
    ("agents", "checkpoints", "logs", "recordings", "runtime", "sessions", "worlds")
)
"""Directories in a run directory that contain its own files and no other runs."""
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
            with contextlib.suppress(ManifestError):  # written by a later version of clawblox
                if any(record.cookie in known for record in read_records(candidate)):
                    yield resolve_run_dir(candidate)


def find_runs_below(directory: Path) -> list[Path]:
    """Return the run directories in a directory, including the directory itself.

    The walk goes :data:`MAX_DEPTH` levels down, and the same number of levels below an experiment.
    It skips links, hidden directories (except ``.clawblox/runs``), the files of runs, and installed
    packages, and ends after 20000 directories.
    """
    return sorted(place.path for place, _ in _walk(directory) if place.is_run)


def find_experiments_below(directory: Path) -> list[Path]:
    """Return the directories of experiments in a directory, including the directory itself.

    The walk is that of :func:`find_runs_below`, without entering experiments. Any directory with a
    journal, or with the saved history of a lost journal, counts.
    """
    places = _walk(directory, enters_experiments=False)
    return sorted(place.path for place, _ in places if place.is_experiment)


class RunSearch:
    """Finds the run directories and experiments below a directory repeatedly at little cost.

    A directory is read again if it, or its directory of clawblox's own files, has changed.

    Args:
        directory: The directory.

    Attributes:
        runs: The result of :func:`find_runs_below` at the last :meth:`search_again`.
        experiments: The result of :func:`find_experiments_below` at the last :meth:`search_again`.
    """

    def __init__(self, directory: Path) -> None:
        self.runs: Sequence[Path] = ()
        self.experiments: Sequence[Path] = ()
        self._directory = directory
        self._known: Mapping[Path, _RunPlace] = {}

    def search_again(self) -> None:
        """Search again. Blocks."""
        places = list(_walk(self._directory, known=self._known))
        self._known = {place.path: place for place, _ in places}
        self.runs = sorted(place.path for place, _ in places if place.is_run)
        self.experiments = sorted(
            place.path for place, is_inner in places if place.is_experiment and not is_inner
        )


class _RunPlace:
    """A directory that the walk visits.

    Attributes:
        path: Path of the directory.
        is_run: Whether it is a run directory.
        is_experiment: Whether it is the directory of an experiment.
        below: The directories in it that the walk may enter.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own = path / STATE_DIR_NAME
        self._stamp, looked_at = self._read_stamp(), time.time_ns()
        names, directories = _list_names(path)
        has_state = STATE_DIR_NAME in directories
        self.is_run = has_state and is_run_dir(path)
        self.is_experiment = any(
            name == JOURNAL_NAME or (name.startswith(LOST_PREFIX) and name.endswith(".jsonl"))
            for name in names
        )
        left_out = _OF_A_RUN if self.is_run else frozenset()
        self.below = [
            path / name
            for name in sorted(directories)
            if not name.startswith(".") and name not in _OF_OTHERS and name not in left_out
        ]
        own_runs = self._own / "runs"
        if has_state and own_runs.is_dir():
            self.below.append(own_runs)
        # A directory with own files can become a run without a change of the two directories.
        is_settled = self.is_run or not has_state
        changed_at = max((stamp[2] for stamp in self._stamp if stamp is not None), default=0)
        self._can_be_kept = is_settled and changed_at < looked_at - _SETTLED_NS

    @property
    def is_unchanged(self) -> bool:
        """True if the directory is certainly unchanged. Blocks."""
        return self._can_be_kept and self._stamp == self._read_stamp()

    def _read_stamp(self) -> Sequence[tuple[int, ...] | None]:
        return [file_stamp(self.path), file_stamp(self._own)]


def _walk(
    directory: Path,
    *,
    enters_experiments: bool = True,
    known: Mapping[Path, _RunPlace] | None = None,
) -> Iterator[tuple[_RunPlace, bool]]:
    """Yield a directory and those below it, each with whether it is below an experiment.

    Args:
        directory: The directory.
        enters_experiments: Whether to include directories below an experiment.
        known: The directories found by an earlier walk.
    """
    pending = [(directory, 0, False)]
    for path, depth, is_inner in pending:  # the list grows
        earlier = known.get(path) if known else None
        place = earlier if earlier is not None and earlier.is_unchanged else _RunPlace(path)
        yield place, is_inner
        if place.is_experiment:
            if not enters_experiments:
                continue
            depth, is_inner = 0, True
        if depth < MAX_DEPTH:
            room = _MAX_DIRECTORIES - len(pending)
            pending += [(below, depth + 1, is_inner) for below in place.below[:room]]


def _list_names(path: Path) -> tuple[list[str], set[str]]:
    """Return the names in a directory, and the names of its directories."""
    try:
        with os.scandir(path) as entries:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return [], set()
    return [*kinds], {name for name, is_directory in kinds.items() if is_directory}


# -- the index -------------------------------------------------------------------------------------


_FILE_NAME: Final = "runs.jsonl"
_MAX_RUNS: Final = 1000
"""Maximum number of run directories in the index; the oldest are dropped."""
_LOCK_WAIT_S: Final = 0.2


def add_run(run_dir: Path) -> None:
    """Add a run directory to the index if it is missing.

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
    """Return the existing run directories of the index, and drop the others from the index."""
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


def shown_log(run_dir: Path, log_file: Path) -> Path | None:
    """Return the log of an instance if it may be shown, or None. Blocks.

    The records of a stranger's run directory can name any file. So a log outside of the run
    directory is shown only if a world of this user has used that run directory.

    Args:
        run_dir: The run directory.
        log_file: The log according to the record of the instance.
    """
    home, log = os.path.realpath(run_dir), Path(os.path.realpath(log_file))
    if log.is_relative_to(home):
        return log
    with contextlib.suppress(RuntimeError):
        if home in read_lines(home_dir() / _FILE_NAME):
            return log_file
    return None


def _exists(run_dir: Path) -> bool:
    try:
        return run_dir.is_absolute() and run_dir.is_dir()
    except OSError:  # the file system does not answer, or a parent directory is not accessible
        return True
