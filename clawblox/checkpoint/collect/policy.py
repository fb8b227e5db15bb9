"""Decides which names of a workspace are left out of archives.

Save and load use the same policy, so a load never restores a file that a save would leave out.
Three kinds of names are left out: credentials, configuration that grants capabilities or runs
commands by itself, and directories that can be rebuilt. ``policy_names`` lists them. Names are
compared folded (:func:`clawblox.checkpoint.names.fold`), because a file system or an agent's
program may not distinguish two spellings. Pure; ``tree`` reads the directories.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Container, Iterable
from typing import Final

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
_REDIRECT: Final = "would lead to configuration elsewhere"

# The history of a repository, without anything that git runs or that leads elsewhere.
_GIT_CONTENT: Final = re.compile(
    r"head|[a-z_]+_head|packed-refs|index|shallow|description|merge_mode"
    r"|(commit_edit|merge_|squash_)msg|(refs|objects|logs|info)(/.*)?"
)
_GIT_ELSEWHERE: Final = re.compile(r"objects/info/(http-)?alternates|refs/.*\.lock")
_SHA256_OBJECT: Final = re.compile(
    r"objects/(?:[0-9a-f]{2}/[0-9a-f]{62}|pack/pack-[0-9a-f]{64}\.[a-z]+)"
)
_BARE_GIT_DENIED: Final = re.compile(r"config(\..*)?|commondir|hooks|modules|worktrees")


def find_repositories(paths: Iterable[str]) -> frozenset[FoldedPath]:
    """Return the directories that git may treat as repositories although no ``.git`` contains them.

    Such a directory contains a ``HEAD``; git would run commands from its ``config``.

    Args:
        paths: The files and links of a workspace, relative to it.
    """
    heads = (path for path in paths if names.fold(path.rpartition("/")[2]) == "head")
    directories = (fold_path(head)[:-1] for head in heads)
    return frozenset(parts for parts in directories if ".git" not in parts)


def workspace_exclusion(
    path: str,
    *,
    directory: bool = False,
    repositories: Container[FoldedPath] = (),
    keep: Collection[FoldedPath] = (),
) -> str | None:
    """Return why an entry of a workspace is left out.

    Args:
        path: Path below the workspace, ``/`` between components.
        directory: Whether the entry is a directory; a link never is, wherever it leads.
        repositories: Result of :func:`find_repositories` for that workspace.
        keep: Entries to archive with everything below them, although programs run or obey them.
            Credentials and files that git would run are left out all the same.

    Returns:
        The reason in a few words, also if a directory above the entry is left out; None if the
        entry is archived.
    """
    parts = fold_path(path)
    is_kept = any(_leads_to(parts, kept, directory=directory) for kept in keep)
    for end in range(1, len(parts) + 1):
        is_directory = directory or end < len(parts)
        reason = _exclusion(parts[:end], repositories, is_directory=is_directory)
        if reason is not None and not (reason == _CAPABILITY and is_kept):
            return reason
    return None


def _leads_to(parts: FoldedPath, kept: FoldedPath, *, directory: bool) -> bool:
    """Return whether an entry is kept, is below a kept entry, or is a directory above one."""
    return parts[: len(kept)] == kept or (directory and kept[: len(parts)] == parts)


def git_config(paths: Iterable[str]) -> bytes:
    """Return a new ``.git/config`` for a restored repository; the original is never archived.

    Args:
        paths: Files of the repository, relative to ``.git``. The names of its objects show its
            hash function, see gitrepository-layout(5).
    """
    is_sha256 = any(map(_SHA256_OBJECT.fullmatch, paths))
    extensions = "[extensions]\n\tobjectformat = sha256\n" if is_sha256 else ""
    core = f"[core]\n\trepositoryformatversion = {int(is_sha256)}\n\tfilemode = true\n"
    return f"{core}\tbare = false\n\tlogallrefupdates = true\n{extensions}".encode()


def link_stays_inside(path: str, target: str) -> bool:
    """Return whether a symbolic link may be restored.

    Args:
        path: Path of the link below the directory that it must not lead out of.
        target: Target of the link.

    Returns:
        Whether the target is relative and stays inside the directory at every step, also through
        other links that this function accepts.
    """
    if target.startswith("/") or not target or "\0" in target:
        return False
    steps = [step for step in target.split("/") if step not in {"", "."}]
    upwards = sum(1 for _ in itertools.takewhile(lambda step: step == "..", steps))
    # A name may be a link, so ".." after it need not lead back to the directory of the name.
    return upwards <= path.count("/") and ".." not in steps[upwards:]


def fold_path(path: str) -> FoldedPath:
    """Return the folded components of a path below a workspace."""
    return tuple(map(names.fold, path.split("/")))


def _exclusion(
    parts: FoldedPath, repositories: Container[FoldedPath], *, is_directory: bool
) -> str | None:
    """Return why the last of ``parts`` is left out; its parents are archived directories."""
    name, path = parts[-1], "/".join(parts[-4:])
    if is_directory and name in REBUILT_DIRS:
        return _REBUILT
    if CREDENTIAL_NAMES.fullmatch(name):
        return _CREDENTIALS
    if CAPABILITY_NAMES.fullmatch(name) or CAPABILITY_PATHS.fullmatch(path):
        return _CAPABILITY
    if not is_directory and (name in PROGRAM_CAPABILITIES or REDIRECT_PATHS.fullmatch(path)):
        return _REDIRECT
    return _program_exclusion(parts) or _git_exclusion(parts, repositories)


def _program_exclusion(parts: FoldedPath) -> str | None:
    *_, directory, name = ("", *parts)
    capabilities = PROGRAM_CAPABILITIES.get(directory)
    if capabilities is None:
        return None
    if PROGRAM_CREDENTIALS.fullmatch(name):
        return _CREDENTIALS
    return _CAPABILITY if capabilities.fullmatch(name) else None


def _git_exclusion(parts: FoldedPath, repositories: Container[FoldedPath]) -> str | None:
    *_, directory, name = ("", *parts)
    if ".git" in parts[:-1]:
        inner = "/".join(parts[parts.index(".git") + 1 :])
        travels = _GIT_CONTENT.fullmatch(inner) and not _GIT_ELSEWHERE.fullmatch(inner)
    else:
        is_repository = directory.endswith(".git") or parts[:-1] in repositories
        travels = not (is_repository and _BARE_GIT_DENIED.fullmatch(name))
    return None if travels else _REPOSITORY
