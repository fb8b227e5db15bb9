"""Lists the entries of a workspace that may be in an archive.

``policy`` names the others: files that programs run or obey unasked, credentials, and what can be
rebuilt. ``tree`` walks the directories. Everything here blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from clawblox.checkpoint.collect import policy, tree


def list_workspace(
    root: Path,
    path: str,
    *,
    is_name: Callable[[str], bool],
    keep: Collection[policy.FoldedPath] = (),
    judge: tree.Judge = lambda _path, _is_directory: None,
) -> tree.Tree:
    """List a workspace without the entries that archives leave out.

    Args:
        root: A directory; its own path is trusted.
        path: Path of the workspace below ``root``; no link is followed.
        is_name: Returns whether the name of an entry, relative to the workspace, is possible.
        keep: As for ``policy.workspace_exclusion``.
        judge: Returns why an entry is left out for another reason; None keeps it.

    Raises:
        OSError: The workspace cannot be opened.
        CheckpointError: A directory in it cannot be read.
    """
    exclusion = functools.partial(policy.workspace_exclusion, keep=keep)
    listing = tree.walk(
        root,
        path,
        lambda path, is_dir: judge(path, is_dir) or exclusion(path, directory=is_dir),
        is_name,
    )
    _leave_out_repository_settings(listing, keep)
    return listing


def find_oversized(
    sizes: Mapping[str, int], *, max_file_bytes: int, max_total_bytes: int
) -> set[str]:
    """Return the files that are too large: by themselves, or the largest of too large a total.

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


def _leave_out_repository_settings(listing: tree.Tree, keep: Collection[policy.FoldedPath]) -> None:
    """Exclude what a repository without ``.git`` runs; its place is known only from all paths."""
    paths = [*listing.files, *(path for path, _ in listing.links)]
    repositories = policy.find_repositories(paths)
    if not repositories:
        return
    judge = functools.partial(policy.workspace_exclusion, repositories=repositories, keep=keep)
    verdicts = {path: judge(path) for path in paths}
    verdicts |= {path: judge(path, directory=True) for path in listing.directories}
    listing.files = [path for path in listing.files if not verdicts[path]]
    listing.links = [link for link in listing.links if not verdicts[link[0]]]
    listing.directories = [path for path in listing.directories if not verdicts[path]]
    listing.excluded += [(path, why) for path, why in verdicts.items() if why]
