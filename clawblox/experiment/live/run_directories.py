"""Makes, checks, prunes and renames the run directories of attempts. All functions block.

A directory has a temporary name until it is complete. Agents may have replaced anything in their
directories, so links are not followed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clawblox.agents.layout import AgentDir
from clawblox.errors import AgentError
from clawblox.experiment import layout
from clawblox.rundir.paths import SESSION_FILE
from clawblox.system.files import fsync_directory, make_private_dir, publish_tree, rename_new
from clawblox.system.regular_files import (
    closing_fd,
    open_directory,
    open_file,
    opened_parent,
)
from clawblox.system.trees import remove_tree

_PRUNED: Final = (
    "sandbox-home/.local/share/claude/versions",
    "runtime/python",
    "workspace/.venv",
)
"""Large directories that can be recreated, relative to an agent's directory."""


@contextlib.contextmanager
def making_run(chain_dir: Path, attempt: str) -> Iterator[Path]:
    """Make a run directory that is complete and durable, or absent.

    Args:
        chain_dir: The directory of the chain; it is created if it is missing.
        attempt: The name of the attempt.

    Yields:
        The incomplete directory, with the standard subdirectories. It gets its final name at the
        end of the block, or is removed if the block raises an error.

    Raises:
        FileExistsError: The attempt already has a run directory.
        OSError: It cannot be made.
    """
    discard_partial(chain_dir, attempt)
    run_dir = layout.attempt_dir(chain_dir, attempt)
    partial = run_dir.with_name(layout.partial_name(attempt))
    try:
        for name in layout.RUN_DIRS:
            make_private_dir(partial / name)
        yield partial
        publish_tree(partial, run_dir)
    except BaseException:
        discard_partial(chain_dir, attempt)
        raise


def discard_partial(chain_dir: Path, attempt: str) -> None:
    """Remove an incomplete run directory of a killed process.

    Args:
        chain_dir: The directory of the chain.
        attempt: The name of the attempt.

    Raises:
        OSError: It cannot be removed.
    """
    partial = layout.runs_dir(chain_dir) / layout.partial_name(attempt)
    with contextlib.suppress(FileNotFoundError):
        remove_tree(partial)


def validate_agent_dir(agent_dir: Path, driver: str) -> None:
    """Check that an agent's directory has all files that a generation requires.

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
    """Remove large files that can be recreated: program versions and virtual environments.

    Files that cannot be removed are kept without an error.

    Args:
        agent_dir: The directory of the stopped agent.
    """
    for path in _PRUNED:
        place = f"{agent_dir.name}/{path}"  # the agent's directory may be a link, too
        with contextlib.suppress(OSError), opened_parent(agent_dir.parent, place) as (parent, name):
            remove_tree(name, dir_fd=parent)  # raises an error for a link


def set_aside(chain_dir: Path, attempt: str, moved_to: str) -> None:
    """Rename the run directory of a failed attempt. Idempotent.

    Args:
        chain_dir: The directory of the chain.
        attempt: The name of the attempt.
        moved_to: The new name of its directory.

    Raises:
        OSError: It cannot be renamed, for example because another directory has the name.
    """
    runs = layout.runs_dir(chain_dir)
    with contextlib.suppress(FileNotFoundError):  # already renamed, or never made
        rename_new(runs / attempt, runs / moved_to)
        fsync_directory(runs)
