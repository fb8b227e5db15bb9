"""Decides the names of a workspace that are left out of archives.

Save and load use the same policy, so a load never restores a file that a save would leave out.
Three kinds of names are left out: credentials, configuration that grants capabilities or runs
commands automatically, and directories that can be rebuilt. ``policy_names`` lists them. Names are
compared in folded form (:func:`clawblox.checkpoint.names.fold`), because a file system or an
agent's program may treat two spellings as equal. Pure; ``tree`` reads the directories.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Container, Iterable, Iterator
from typing import Final

import attrs

from clawblox.checkpoint import names
from clawblox.checkpoint.collect.policy_names import (
    CAPABILITY_NAMES,
    CAPABILITY_PATHS,
    CREDENTIAL_NAMES,
    PROGRAM_CAPABILITIES,
    PROGRAM_CREDENTIALS,
    REBUILT_DIRS,
    REDIRECT_PATHS,
)

FoldedPath = tuple[str, ...]
"""The folded components of a path below a workspace."""

_REBUILT: Final = "can be rebuilt"
_CREDENTIALS: Final = "contains credentials"
_CAPABILITY: Final = "grants capabilities or runs by itself"
_REPOSITORY: Final = "not part of a repository's content"
REDIRECT: Final = "would lead to configuration elsewhere"

GIT_DIR: Final = ".git"
MODULES: Final = "modules"
WORKTREES: Final = "worktrees"
_NESTED: Final = (MODULES, WORKTREES)
"""Directories of a git directory with other git directories: submodules and linked worktrees."""

# The history of a repository, without files that git runs or that lead elsewhere.
_GIT_CONTENT: Final = re.compile(
    r"head|[a-z_]+_head|packed-refs|index|sharedindex\.[0-9a-f]{40,64}|shallow|description|locked"
    r"|merge_mode|(commit_edit|merge_|squash_)msg|(refs|objects|logs|info)(/.*)?"
)
_GIT_ELSEWHERE: Final = re.compile(r"objects/info/(http-)?alternates|refs/.*\.lock")
_BARE_GIT_DENIED: Final = re.compile(r"config(\..*)?|commondir|hooks|modules|worktrees")
_GIT_COMPANIONS: Final = (frozenset(("commondir",)), frozenset(("objects", "refs")))
"""Sets of entries next to ``HEAD``; git recognises a repository only with one of these sets."""
_COMPANION_NAMES: Final = frozenset().union(*_GIT_COMPANIONS)


@attrs.frozen
class Repositories:
    """The directories of a workspace that git may treat as repositories. All paths are folded.

    Attributes:
        nested: Git directories of submodules and linked worktrees, inside a ``.git``.
        above: These directories, and the directories between them and the ``.git``.
        strays: Directories with a ``HEAD`` in other places; git would run commands from their
            ``config``.
    """

    nested: frozenset[FoldedPath] = frozenset()
    above: frozenset[FoldedPath] = frozenset()
    strays: frozenset[FoldedPath] = frozenset()


NO_REPOSITORIES: Final = Repositories()


def find_repositories(
    paths: Collection[str], left_out: Collection[FoldedPath] = ()
) -> Repositories:
    """Return the directories that git may treat as repositories, other than ``.git`` itself.

    Args:
        paths: The files, links and empty directories of a workspace, relative to it.
        left_out: Git directories inside a ``.git`` to ignore.
    """
    heads = (path for path in paths if names.fold(path.rpartition("/")[2]) == "head")
    directories = {fold_path(head)[:-1] for head in heads}
    inside = {parts for parts in directories if GIT_DIR in parts}
    proper = _find_git_directories(inside.difference(left_out))
    nested = frozenset(parts for parts, kind in proper.items() if kind)
    strays = directories - inside
    if candidates := inside - proper.keys():
        # The ``HEAD`` of a remote or of a log does not turn its directory into a repository.
        strays |= _with_companions(candidates, paths)
    return Repositories(nested, frozenset(_above(nested)), frozenset(strays))


def find_git_directories(files: Iterable[str], repositories: Repositories) -> dict[str, str]:
    """Return the git directories that git finds by itself: each ``.git``, and those within.

    Args:
        files: The files of a workspace, relative to it.
        repositories: Result of :func:`find_repositories` for that workspace.

    Returns:
        The kind of each by its path, sorted: :data:`MODULES`, :data:`WORKTREES`, or ``""`` for a
        ``.git``.
    """
    end = "/HEAD" if repositories.nested else f"{GIT_DIR}/HEAD"
    heads = (tuple(path.split("/")) for path in files if path.endswith(end))
    directories = _find_git_directories({head[:-1] for head in heads if GIT_DIR in head})
    return {
        "/".join(parts): kind
        for parts, kind in sorted(directories.items())
        if not kind or tuple(map(names.fold, parts)) in repositories.nested
    }


def _find_git_directories(directories: Iterable[FoldedPath]) -> dict[FoldedPath, str]:
    """Return the directories in places for git directories, with their kinds."""
    kinds: dict[FoldedPath, str] = {}
    above: set[FoldedPath] = set()
    for parts in sorted(directories, key=len):
        _, (kind, *name) = _split_git_path((*parts, ""), kinds, above)
        if not kind:
            kinds[parts] = ""
        elif kind == MODULES and len(name) > 1 and GIT_DIR not in name:
            kinds[parts] = MODULES
            above.update(_above([parts]))
        elif kind == WORKTREES and len(name) == 2 and GIT_DIR not in name:
            kinds[parts] = WORKTREES
            above.update(_above([parts]))
    return kinds


def _split_git_path(
    parts: FoldedPath, directories: Container[FoldedPath], above: Container[FoldedPath]
) -> tuple[FoldedPath, FoldedPath]:
    """Split a path below a ``.git`` into the innermost git directory and the rest.

    Args:
        parts: The path.
        directories: Git directories inside a ``.git``.
        above: These directories, and the directories between them and the ``.git``.
    """
    start = parts.index(GIT_DIR) + 1
    while parts[start] in _NESTED:
        prefixes = (parts[:end] for end in range(start + 1, len(parts)))
        way = itertools.takewhile(above.__contains__, prefixes)
        end = next((len(prefix) for prefix in way if prefix in directories), None)
        if end is None:
            break
        start = end
    return parts[:start], parts[start:]


def _above(nested: Iterable[FoldedPath]) -> Iterator[FoldedPath]:
    for parts in nested:
        for end in range(parts.index(GIT_DIR) + 2, len(parts) + 1):
            yield parts[:end]


def _with_companions(directories: set[FoldedPath], paths: Iterable[str]) -> set[FoldedPath]:
    """Return the directories inside a ``.git`` that have all entries of a repository."""
    entries: dict[FoldedPath, set[str]] = {parts: set() for parts in directories}
    for path in paths:
        if not path.isascii() or GIT_DIR in path.lower():
            parts = fold_path(path)
            for count, name in enumerate(parts):
                if name in _COMPANION_NAMES and parts[:count] in entries:
                    entries[parts[:count]].add(name)
    return {
        parts
        for parts, found in entries.items()
        if any(found.issuperset(companions) for companions in _GIT_COMPANIONS)
    }


def workspace_exclusion(
    path: str,
    *,
    directory: bool = False,
    repositories: Repositories | None = NO_REPOSITORIES,
    keep: Collection[FoldedPath] = (),
) -> str | None:
    """Return the reason for omitting an entry of a workspace, or None.

    Args:
        path: Path below the workspace, ``/`` between components.
        directory: Whether the entry is a directory; a link is not, even if it leads to one.
        repositories: Result of :func:`find_repositories` for that workspace; None if not yet known:
            git directories inside a ``.git`` are then ignored.
        keep: Entries to archive with everything below them, even though programs execute or follow
            them. Credentials and files that git would run are still left out.

    Returns:
        The reason in a few words, even if a directory above the entry is left out; None if the
        entry is archived.
    """
    exclusion = find_exclusion(path, directory=directory, repositories=repositories, keep=keep)
    return None if exclusion is None else exclusion[1]


def find_exclusion(
    path: str,
    *,
    directory: bool = False,
    repositories: Repositories | None = NO_REPOSITORIES,
    keep: Collection[FoldedPath] = (),
) -> tuple[int, str] | None:
    """Return the omitted part of an entry's path with the reason; see :func:`workspace_exclusion`.

    Returns:
        The number of components of the topmost omitted directory, or of the entry itself, and the
        reason; None if the entry is archived.
    """
    parts = fold_path(path)
    is_kept = any(_leads_to(parts, kept, directory=directory) for kept in keep)
    for end in range(1, len(parts) + 1):
        is_directory = directory or end < len(parts)
        reason = _exclusion(parts[:end], repositories, is_directory=is_directory)
        if reason is not None and not (reason == _CAPABILITY and is_kept):
            return end, reason
    return None


def _leads_to(parts: FoldedPath, kept: FoldedPath, *, directory: bool) -> bool:
    """Return whether an entry is kept, below a kept entry, or a directory above a kept entry."""
    return parts[: len(kept)] == kept or (directory and kept[: len(parts)] == parts)


def link_stays_inside(path: str, target: str) -> bool:
    """Return whether a symbolic link may be restored.

    Args:
        path: Path of the link below the directory in which it must stay.
        target: Target of the link.

    Returns:
        Whether the target is relative and stays inside the directory at every step, even through
        other links that this function accepts. Links among the objects of a repository are refused,
        because git follows the file ``alternates`` behind them, which may name any directory.
    """
    parts = fold_path(path)
    if target.startswith("/") or not target or "\0" in target:
        return False
    if GIT_DIR in parts and "objects" in parts[parts.index(GIT_DIR) :]:
        return False
    steps = [step for step in target.split("/") if step not in {"", "."}]
    upwards = sum(1 for _ in itertools.takewhile(lambda step: step == "..", steps))
    # A name may be a link, so ".." after it may lead to another directory.
    return upwards <= path.count("/") and ".." not in steps[upwards:]


def fold_path(path: str) -> FoldedPath:
    """Return the folded components of a path below a workspace."""
    return tuple(map(names.fold, path.split("/")))


def _exclusion(
    parts: FoldedPath, repositories: Repositories | None, *, is_directory: bool
) -> str | None:
    """Return the reason for omitting the last of ``parts``, whose parents are archived, or None."""
    name, path = parts[-1], "/".join(parts[-4:])
    if is_directory and name in REBUILT_DIRS:
        return _REBUILT
    if CREDENTIAL_NAMES.fullmatch(name):
        return _CREDENTIALS
    if CAPABILITY_NAMES.fullmatch(name) or CAPABILITY_PATHS.fullmatch(path):
        return _CAPABILITY
    if not is_directory and (name in PROGRAM_CAPABILITIES or REDIRECT_PATHS.fullmatch(path)):
        return REDIRECT
    return _program_exclusion(parts) or _git_exclusion(
        parts, repositories, is_directory=is_directory
    )


def _program_exclusion(parts: FoldedPath) -> str | None:
    *_, directory, name = ("", *parts)
    capabilities = PROGRAM_CAPABILITIES.get(directory)
    if capabilities is None:
        return None
    if PROGRAM_CREDENTIALS.fullmatch(name):
        return _CREDENTIALS
    return _CAPABILITY if capabilities.fullmatch(name) else None


def _git_exclusion(
    parts: FoldedPath, repositories: Repositories | None, *, is_directory: bool
) -> str | None:
    *_, directory, name = ("", *parts)
    known = repositories or NO_REPOSITORIES
    is_stray = parts[:-1] in known.strays
    if GIT_DIR in parts[:-1]:
        is_unsettled = repositories is None and parts[parts.index(GIT_DIR) + 1] in _NESTED
        if is_unsettled or (is_directory and parts in known.above):
            return None
        _, rest = _split_git_path(parts, known.nested, known.above)
        inner = "/".join(rest)
        travels = _GIT_CONTENT.fullmatch(inner) and not _GIT_ELSEWHERE.fullmatch(inner)
    else:
        is_stray = is_stray or directory.endswith(GIT_DIR)
        travels = True
    is_denied = is_stray and _BARE_GIT_DENIED.fullmatch(name)
    return None if travels and not is_denied else _REPOSITORY
