"""The results of the last verified replay of a run or an experiment, in its directory. Blocks.

They include digests of the judged recordings and worlds, to show later whether the files have
changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.errors import ClawbloxError
from clawblox.replay.attempts import is_experiment, list_attempts
from clawblox.replay.results import VerifiedRun, parse_run
from clawblox.rundir.manifest_entries import is_printable
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.recordings import list_recordings, read_digest
from clawblox.world.kept_reports import OWN, KeptReport, keep_report, read_kept
from clawblox.world.sources import MAX_FILES, WorldFiles, read_world_files

VERIFY_NAME: Final = "verify.json"
"""Name of the file, in ``.clawblox`` of the run or the experiment."""


def keep_verification(directory: Path, run: VerifiedRun, version: str) -> None:
    """Keep results in the directory of their run or experiment; log a warning on failure.

    Args:
        directory: The directory.
        run: The results.
        version: The version of clawblox.
    """
    directory = resolve_run_dir(directory)

    def place(path: Path) -> Path:
        return path.relative_to(directory) if path.is_relative_to(directory) else path

    moved = (attrs.evolve(replay, recording=place(replay.recording)) for replay in run.replays)
    document = attrs.evolve(run, replays=tuple(moved)).document()
    keep_report(directory, VERIFY_NAME, document, run.judged, version)


def read_verification(directory: Path) -> KeptReport[VerifiedRun] | None:
    """Return the results kept in the directory of a run or an experiment, or None.

    Their file names are untrusted, since the directory may come from a stranger.

    Raises:
        ClawbloxError: As for :func:`clawblox.world.kept_reports.read_kept`.
    """
    return read_kept(directory, VERIFY_NAME, _parse, read_recordings)


def _parse(document: Mapping[str, Any], directory: Path) -> VerifiedRun:
    run = parse_run(document)
    replays = [
        attrs.evolve(replay, recording=directory / replay.recording) for replay in run.replays
    ]
    if not all(is_printable(str(replay.recording)) for replay in replays):
        raise ValueError("a recording has no path")
    return attrs.evolve(run, replays=tuple(replays))


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
        # If one contains the other, they move together.
        place = os.path.relpath(world, directory) if directory.is_relative_to(world) else world
        judged[place] = read_world_files(Path(world))
    return judged


def read_recordings(directory: Path) -> WorldFiles | None:
    """Return the digests of the recordings of a run or an experiment; None if unknown.

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
                    yield os.path.relpath(found.path, directory), read_digest(found, run_dir)


def _find_run_dirs(directory: Path) -> list[Path]:
    if not is_experiment(directory):
        return [directory]
    return [one.run_dir for one in list_attempts(directory) if one.run_dir is not None]
