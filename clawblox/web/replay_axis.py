"""The axis of time of a recorded instance, with a lane for each of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from clawblox.errors import ClawbloxError
from clawblox.recording.reader import BlockEntry
from clawblox.rundir.lineage import Lineage, read_lineage
from clawblox.rundir.recordings import FoundRecording
from clawblox.web.axis import Axis, LanePoint, make_axis
from clawblox.web.descent import find_descent, find_life
from clawblox.web.recorded import Sent, list_replays
from clawblox.web.site import RunSummary, Site

_MAX_RUNS: Final = 50
"""Run directories of a line of descent."""


def read_axis(
    site: Site, run: RunSummary, found: FoundRecording
) -> tuple[Axis, Mapping[str, list[LanePoint]]]:
    """Return the axis of the instance that made a recording, and what its agents sent. Blocks.

    Args:
        site: Where the run directories are that it may come from.
        run: Its run.
        found: The recording.
    """
    lineages = _read_lineages(site, run)
    instances = lineages[0].instances if lineages else ()
    name = found.instance or (instances[0].name if instances else "")
    lives = find_descent(lineages, run.directory, name)
    blocks: dict[int, list[BlockEntry]] = {}
    sent: dict[int, list[Sent]] = {}
    for directory in dict.fromkeys(life.run_dir for life in lives):
        for other in list_replays(directory).values():
            with suppress(ClawbloxError), site.recordings.opened(other, directory) as recording:
                first = recording.reader.index[0].header.first
                life = find_life(lives, directory, other.instance, first)
                if life is not None:
                    blocks.setdefault(life, []).extend(recording.reader.index)
                    sent.setdefault(life, []).extend(recording.sent)
    axis = make_axis(lives, blocks)
    lanes: dict[str, list[LanePoint]] = {}
    for life, inputs in sorted(sent.items()):
        for one in inputs:
            is_lost = axis.is_lost(life, one.time)
            if is_lost is not None:
                lanes.setdefault(one.name, []).append(LanePoint(one.time, is_lost, one.is_message))
    return axis, lanes


def _read_lineages(site: Site, run: RunSummary) -> list[Lineage]:
    """Return the lineage of a run, and those of the runs that its instances come from."""
    lineages: dict[Path, Lineage] = {}
    wanted = [run.directory]
    while wanted and len(lineages) < _MAX_RUNS:
        directory = wanted.pop()
        if directory in lineages:
            continue
        with suppress(ClawbloxError):
            lineages[directory] = lineage = read_lineage(directory)
            origins = {life.origin.path for one in lineage.instances for life in one.lives
                       if life.origin is not None}  # fmt: skip
            wanted += [
                other.directory
                for other in site.runs()
                if any(path.is_relative_to(other.directory) for path in origins)
            ]
    return [*lineages.values()]
