"""Lists everything in an agent's directory that an archive leaves out beside the workspace.

``workspace`` lists what is left out of the workspace. Nothing is read but names. Everything here
blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from clawblox.checkpoint.collect import tree
from clawblox.system.regular_files import open_directory
from clawblox.system.trees import Entry, TreeWalk


def list_beside(agent_dir: Path, workspace: str, archived: Collection[str]) -> list[str]:
    """List the entries beside the workspace that are not archived.

    A directory in which nothing is archived is a single entry, and is not read.

    Args:
        agent_dir: The agent directory; its own path is trusted.
        workspace: Name of the workspace in it.
        archived: The archived files; all paths are relative to the agent directory.

    Returns:
        The paths, as they are on the disk.

    Raises:
        CheckpointError: The agent directory cannot be read.
    """
    kept = {workspace, *archived}
    parents = {str(parent) for path in archived for parent in PurePosixPath(path).parents}
    listed: list[str] = []
    try:
        with TreeWalk(open_directory(agent_dir)) as walk:
            for entry in walk:
                path = walk.path_to(entry.name)
                if path in kept or (path in parents and _entered(walk, entry)):
                    continue
                listed.append(path)
    except OSError as error:
        raise tree.unreadable_error(agent_dir, error) from None
    return listed


def _entered(walk: TreeWalk, entry: Entry) -> bool:
    """Return whether the entry is a directory, which is visited next."""
    with contextlib.suppress(OSError):
        walk.enter(entry.name)
        return True
    return False
