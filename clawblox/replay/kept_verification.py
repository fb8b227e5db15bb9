"""The results of the last verified replay of a run or an experiment, in its directory. Blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.replay.judged_files import read_recordings
from clawblox.replay.verified_run import VerifiedRun, parse_run
from clawblox.rundir.manifest_entries import is_printable
from clawblox.rundir.paths import resolve_run_dir
from clawblox.world.kept_reports import KeptReport, keep_report, read_kept

VERIFY_NAME: Final = "verify.json"
"""Name of the file, in ``.clawblox`` of the run or the experiment."""


def keep_verification(directory: Path, run: VerifiedRun, version: str) -> None:
    """Leave results in the directory of their run or experiment; only a warning if that fails.

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
    """Return the results that were left in the directory of a run or an experiment, or None.

    Their files are names: a report that came with a stranger's directory can name any.

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
