"""Lists the entries of a workspace that archives may contain.

``policy`` names all others: files that programs execute or follow automatically, credentials, and
files that can be rebuilt. ``tree`` walks the directories, and ``repositories`` reads the settings
of git directories. Everything here blocks.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.collect import policy, repositories, tree

_UNSETTLED: Final = re.compile(r"\.git.*/(?:modules|worktrees)(?:/|\Z)", re.IGNORECASE | re.DOTALL)
"""Paths that may be in a git directory inside a ``.git``, like all non-ASCII paths."""


@attrs.define(kw_only=True)
class Workspace(tree.Tree):
    """The entries of a workspace.

    Attributes:
        git: Its git directories.
    """

    git: repositories.GitDirectories


def list_workspace(
    root: Path,
    path: str,
    *,
    is_name: Callable[[str], bool],
    keep: Collection[policy.FoldedPath] = (),
    judge: tree.Judge = lambda _path, _is_directory: None,
) -> Workspace:
    """List a workspace without the entries that archives leave out.

    Args:
        root: A directory; its path is trusted.
        path: Path of the workspace below ``root``; no link is followed.
        is_name: Returns whether the name of an entry, relative to the workspace, is possible.
        keep: As for ``policy.workspace_exclusion``.
        judge: Returns another reason for omitting an entry, or None.

    Raises:
        OSError: The workspace cannot be opened.
        CheckpointError: A directory in it cannot be read.
    """
    exclusion = functools.partial(policy.workspace_exclusion, repositories=None, keep=keep)
    listing = tree.walk(
        root,
        path,
        lambda path, is_dir: judge(path, is_dir) or exclusion(path, directory=is_dir),
        is_name,
    )
    found = repositories.read_repositories(root / path, listing, is_name)
    _leave_out(listing, keep, found)
    return Workspace(**attrs.asdict(listing, recurse=False), git=found.directories)


def find_oversized(
    sizes: Mapping[str, int], *, max_file_bytes: int, max_total_bytes: int
) -> set[str]:
    """Return the files above the limit for a file, and the largest files of an excessive total.

    Args:
        sizes: Apparent sizes of the files in bytes.
        max_file_bytes: Maximum size of a file.
        max_total_bytes: Maximum size of all files together.
    """
    oversized = {name for name, size in sizes.items() if size > max_file_bytes}
    rest = sorted(sizes.keys() - oversized, key=lambda name: (sizes[name], name))
    total = sum(sizes[name] for name in rest)
    while total > max_total_bytes:
        name = rest.pop()
        oversized.add(name)
        total -= sizes[name]
    return oversized


def _leave_out(
    listing: tree.Tree, keep: Collection[policy.FoldedPath], found: repositories.Found
) -> None:
    """Exclude files of repositories that are recognisable only from the places of all repositories.

    Args:
        listing: All entries that are not excluded by name.
        keep: As for ``policy.workspace_exclusion``.
        found: The repositories.
    """
    layout = found.directories.layout
    left_out: dict[str, str] = {}

    def travels(path: str, *, directory: bool = False) -> bool:
        if path.isascii() and not _UNSETTLED.search(path) and not layout.strays:
            return True
        exclusion = policy.find_exclusion(path, directory=directory, repositories=layout, keep=keep)
        if exclusion is None:
            return True
        # A directory represents everything in it, unless a part has a reason of its own.
        count, reason = exclusion
        top = "/".join(path.split("/")[:count])
        left_out[next((place for place in _parents(path) if place in found.reasons), top)] = reason
        return False

    listing.files = [path for path in listing.files if travels(path)]
    listing.links = [link for link in listing.links if travels(link[0])]
    listing.directories = [path for path in listing.directories if travels(path, directory=True)]
    listing.unarchivable = [path for path in listing.unarchivable if travels(path)]
    excluded = [entry for entry in listing.excluded if entry[0] not in found.rebuilt]
    listing.excluded = [
        (path, found.reasons.get(path, reason)) for path, reason in (*excluded, *left_out.items())
    ]


def _parents(path: str) -> Iterable[str]:
    """Return the directories above an entry, the topmost first."""
    return itertools.accumulate(path.split("/")[:-1], "{}/{}".format)
