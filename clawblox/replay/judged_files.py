"""The files that a verified replay judges, by their digests: recordings and worlds. Blocks.

They show later whether the results are still about what is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from clawblox.errors import ClawbloxError
from clawblox.replay.attempt_places import is_experiment
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.recordings import list_recordings, read_digest
from clawblox.world.kept_reports import OWN
from clawblox.world.world_files import MAX_FILES, WorldFiles, read_world_files


def digest_judged(directory: Path, worlds: Iterable[str]) -> dict[str, WorldFiles | None]:
    """Return the digests of the recordings of a run or an experiment, and of its worlds.

    Takes about a second for each gigabyte.

    Args:
        directory: The directory of the run or the experiment; the file of a recording has none.
        worlds: The directories or addresses of the worlds; nothing is read at an address.
    """
    if not directory.is_dir():
        return {}
    directory = resolve_run_dir(directory)
    judged: dict[str, WorldFiles | None] = {OWN: read_recordings(directory)}
    for world in map(os.path.realpath, filter(os.path.isdir, worlds)):
        # Where one has the other, they move together.
        place = os.path.relpath(world, directory) if directory.is_relative_to(world) else world
        judged[place] = read_world_files(Path(world))
    return judged


def read_recordings(directory: Path) -> WorldFiles | None:
    """Return the digests of the recordings of a run or an experiment; None if they are not known.

    Args:
        directory: The directory of the run or the experiment, resolved.
    """
    try:
        files = dict(_digest_recordings(directory))
    except (ClawbloxError, OSError):
        return None
    return WorldFiles(files) if len(files) <= MAX_FILES else None


def _digest_recordings(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield each recording that can be read, by its path, with its digest."""
    for run_dir in _find_run_dirs(directory):
        with suppress(ClawbloxError):  # no manifest: it has no recording
            for found in list_recordings(run_dir):
                with suppress(ClawbloxError):
                    digest = read_digest(found, run_dir)
                    yield os.path.relpath(found.path, directory), digest


def _find_run_dirs(directory: Path) -> list[Path]:
    if not is_experiment(directory):
        return [directory]
    # Here, because a run needs nothing of experiments, which take long to import.
    from clawblox.replay.attempts import list_attempts

    return [one.run_dir for one in list_attempts(directory) if one.run_dir is not None]
