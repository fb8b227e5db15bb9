"""What happens to the run directory of an attempt that has ended. Everything here blocks.

The agents may have replaced anything in their directories, so no link is followed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from clawblox.agents.layout import AgentDir
from clawblox.errors import AgentError
from clawblox.experiment import layout
from clawblox.system.files import fsync_directory, rename_new
from clawblox.system.regular_files import (
    closing_fd,
    open_directory,
    open_file,
    opened_parent,
)
from clawblox.system.trees import remove_tree
from clawblox.world.access import SESSION_FILE

_PRUNED: Final = (
    "sandbox-home/.local/share/claude/versions",
    "runtime/python",
    "workspace/.venv",
)
"""Directories that are large and can be made again, relative to an agent's directory."""


def validate_agent_dir(agent_dir: Path, driver: str) -> None:
    """Check that an agent has left everything that a generation must have.

    Args:
        agent_dir: The directory of the agent.
        driver: The name of its driver.

    Raises:
        AgentError: A file is missing or empty, or the workspace is empty.
    """
    paths = AgentDir(agent_dir)
    required = (paths.log_file, paths.system_prompt_file, paths.id_file(driver))
    for path in (*required, agent_dir / SESSION_FILE):
        if not _has_content(agent_dir, os.fspath(path.relative_to(agent_dir))):
            raise AgentError(f"{path} is missing or empty", agent_dir=agent_dir)
    if not _has_entries(agent_dir, paths.workspace.name):
        raise AgentError(f"{paths.workspace} is missing or empty", agent_dir=agent_dir)


def _has_content(agent_dir: Path, path: str) -> bool:
    try:
        with closing_fd(open_file(agent_dir.parent, f"{agent_dir.name}/{path}")) as fd:
            return os.fstat(fd).st_size > 0
    except OSError:
        return False


def _has_entries(agent_dir: Path, path: str) -> bool:
    try:
        fd = open_directory(agent_dir.parent, f"{agent_dir.name}/{path}")
        with closing_fd(fd), os.scandir(fd) as entries:
            return any(entries)
    except OSError:
        return False


def prune_agent_dir(agent_dir: Path) -> None:
    """Remove what is large and can be made again: program versions and virtual environments.

    Whatever cannot be removed stays, since a generation does not fail because of it.

    Args:
        agent_dir: The directory of the agent, which has stopped.
    """
    for path in _PRUNED:
        place = f"{agent_dir.name}/{path}"  # the agent's directory may be a link, too
        with contextlib.suppress(OSError), opened_parent(agent_dir.parent, place) as (parent, name):
            remove_tree(name, dir_fd=parent)  # an error for a link


def set_aside(chain_dir: Path, attempt: str, moved_to: str) -> None:
    """Rename the run directory of an attempt that failed. Idempotent.

    Args:
        chain_dir: The directory of the chain.
        attempt: The name of the attempt.
        moved_to: The new name of its directory.

    Raises:
        OSError: It cannot be renamed, for example because another directory has the name.
    """
    runs = layout.runs_dir(chain_dir)
    with contextlib.suppress(FileNotFoundError):  # it was renamed before, or never made
        rename_new(runs / attempt, runs / moved_to)
        fsync_directory(runs)
