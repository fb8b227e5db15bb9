"""The report of the last check of a world, in the world's directory. Blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clawblox.conformance.report import Report, parse_report
from clawblox.world.kept_reports import OWN, KeptReport, keep_report, read_kept
from clawblox.world.sources import WorldFiles

CHECK_NAME: Final = "check.json"
"""Name of the file, in ``.clawblox`` of the world."""


def keep_check(world: Path, report: Report, files: WorldFiles | None, version: str) -> None:
    """Store the report of a check in the directory of the world; a failure is only a warning.

    Args:
        world: The directory.
        report: The report.
        files: The files of the world before the check; None if unknown.
        version: The version of clawblox.
    """
    keep_report(world, CHECK_NAME, report.document(), {OWN: files}, version)


def read_check(world: Path) -> KeptReport[Report] | None:
    """Return the report of the last check of a world directory; None if there is none.

    Raises:
        ClawbloxError: As for :func:`clawblox.world.kept_reports.read_kept`.
    """
    return read_kept(
        world, CHECK_NAME, lambda document, place: parse_report(document, target=str(place))
    )
