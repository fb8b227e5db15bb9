"""Refuses an experiment's directory if a link stands in place of a directory. Blocks.

This package never makes such a link. In a directory from elsewhere, a link could redirect writes
and removals to other files of the user.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from clawblox.errors import ClawbloxError
from clawblox.experiment import layout
from clawblox.experiment.plan.plan import Layout
from clawblox.rundir.paths import state_dir

_IN_RUNS: Final = ("checkpoints", "agents", ".clawblox")
_NAME: Final = re.compile(r"\.(?:failed|rescored)-")


def require_no_links(directory: Path, runs: Mapping[str, AbstractSet[str]], style: Layout) -> None:
    """Check that all directories that this package writes to are inside the experiment's directory.

    Args:
        directory: The directory of the experiment; it may itself be a link.
        runs: The names of the runs of each chain; other entries are not used.
        style: Layout of the experiment.

    Raises:
        ClawbloxError: One of the directories is a symbolic link.
        OSError: A directory cannot be read.
    """
    for path in _list_directories(directory, runs, style):
        require_no_link(path)


def require_no_link(*paths: Path) -> None:
    """Check that paths in the directory of an experiment are not symbolic links.

    Raises:
        ClawbloxError: A path is a symbolic link.
        OSError: The directory of a path cannot be read.
    """
    for path in paths:
        if _is_link(path):
            raise ClawbloxError(
                f"{path} must not be a symbolic link, but it points to {path.readlink()}",
                hint="move the original to this place; the experiment's directory may be a link",
            )


def _is_link(path: Path) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _list_directories(
    directory: Path, names: Mapping[str, AbstractSet[str]], style: Layout
) -> Iterator[Path]:
    yield from (state_dir(directory), directory / layout.INPUTS_DIR, directory / layout.CHAINS_DIR)
    for chain, known in names.items():
        chain_dir = layout.chain_dir(directory, chain, style)
        runs = layout.runs_dir(chain_dir)
        yield from (*([] if chain_dir == directory else [chain_dir]), runs)
        for run_dir in runs.iterdir() if runs.is_dir() else ():
            # Failed, rescored and incomplete runs have the name of an attempt with an addition.
            name = run_dir.name
            if name.startswith(".") or not known.isdisjoint((name, _NAME.split(name)[0])):
                yield run_dir
                yield from (run_dir / part for part in _IN_RUNS)
