"""What of a workspace never travels, told by its name alone.

The same list is asked when an archive is made and when one is loaded, so what an archive says
cannot bring back what a save would have left out. Three kinds of things stay out: credentials,
configuration that grants capabilities or runs commands by itself, and what can be built anew;
``policy_names`` lists them.
Names are compared folded (:func:`clawblox.checkpoint.names.fold`), because a file system or an
agent's program may take two spellings for one. Pure: how a directory is read is ``tree``'s.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterable
from typing import Final

from clawblox.checkpoint import names
from clawblox.checkpoint.collect.policy_names import (
    CAPABILITY_NAMES,
    CREDENTIAL_NAMES,
    PROGRAM_CAPABILITIES,
    PROGRAM_CREDENTIALS,
    REBUILT_DIRS,
)

__all__ = ["find_repositories", "git_config", "link_stays_inside", "workspace_exclusion"]

Parts = tuple[str, ...]
"""A path below a workspace, its components folded."""

_REBUILT: Final = "can be built anew"
_CREDENTIALS: Final = "holds credentials"
_CAPABILITY: Final = "grants capabilities or runs by itself"
_REPOSITORY: Final = "no part of a repository's content"
_REDIRECT: Final = "would lead to configuration elsewhere"

# Of a repository: what makes its history, and nothing that git runs or that leads elsewhere.
_GIT_CONTENT: Final = re.compile(
    r"head|[a-z_]+_head|packed-refs|index|shallow|description|merge_mode"
    r"|(commit_edit|merge_|squash_)msg|(refs|objects|logs|info)(/.*)?"
)
_GIT_ELSEWHERE: Final = re.compile(r"objects/info/(http-)?alternates|refs/.*\.lock")
_SHA256_OBJECT: Final = re.compile(
    r"objects/(?:[0-9a-f]{2}/[0-9a-f]{62}|pack/pack-[0-9a-f]{64}\.[a-z]+)"
)
_BARE_GIT_DENIED: Final = re.compile(r"config(\..*)?|commondir|hooks|modules|worktrees")


def find_repositories(paths: Iterable[str]) -> frozenset[Parts]:
    """Return the directories that git may take for repositories although they are no ``.git``.

    Git runs what the ``config`` in such a directory says, and a ``HEAD`` beside it makes it one.

    Args:
        paths: The files and links of a workspace, by their names below it.
    """
    heads = (path for path in paths if names.fold(path.rpartition("/")[2]) == "head")
    directories = (_fold_parts(head)[:-1] for head in heads)
    return frozenset(parts for parts in directories if ".git" not in parts)


def workspace_exclusion(
    path: str, *, directory: bool = False, repositories: Container[Parts] = ()
) -> str | None:
    """Say why something of a workspace stays out.

    Args:
        path: Its name below the workspace, ``/`` between components.
        directory: Whether it is itself a directory; a link is none, wherever it leads.
        repositories: What :func:`find_repositories` found in that workspace.

    Returns:
        The reason in a few words, also when it lies below something that stays out; None when
        it travels.
    """
    parts = _fold_parts(path)
    for end in range(1, len(parts) + 1):
        is_directory = directory or end < len(parts)
        reason = _exclusion(parts[:end], repositories, is_directory=is_directory)
        if reason is not None:
            return reason
    return None


def git_config(paths: Iterable[str]) -> bytes:
    """Return what a restored repository has for its ``.git/config``, which itself never travels.

    Args:
        paths: Its files, by their names below ``.git``: what objects are called tells their hash,
            as in the gitrepository-layout(5) manual.
    """
    is_sha256 = any(map(_SHA256_OBJECT.fullmatch, paths))
    extensions = "[extensions]\n\tobjectformat = sha256\n" if is_sha256 else ""
    core = f"[core]\n\trepositoryformatversion = {int(is_sha256)}\n\tfilemode = true\n"
    return f"{core}\tbare = false\n\tlogallrefupdates = true\n{extensions}".encode()


def link_stays_inside(path: str, target: str) -> bool:
    """Say whether a symbolic link may be made again.

    Args:
        path: Its name below the directory that it must not lead out of.
        target: What it says.

    Returns:
        Whether it is relative and no step of it leaves that directory, whatever other links of
        which the same is true stand on the way.
    """
    if target.startswith("/") or not target or "\0" in target or "\\" in target:
        return False
    steps = [step for step in target.split("/") if step not in {"", "."}]
    upwards = sum(1 for _ in itertools.takewhile(lambda step: step == "..", steps))
    # Behind a name, which may be a link itself, ".." is not the directory that it seems.
    return upwards <= path.count("/") and ".." not in steps[upwards:]


def _fold_parts(path: str) -> Parts:
    return tuple(map(names.fold, path.split("/")))


def _exclusion(parts: Parts, repositories: Container[Parts], *, is_directory: bool) -> str | None:
    """Judge the last of folded ``parts``; those before it are directories that travel."""
    name = parts[-1]
    if is_directory and name in REBUILT_DIRS:
        return _REBUILT
    if CREDENTIAL_NAMES.fullmatch(name):
        return _CREDENTIALS
    if CAPABILITY_NAMES.fullmatch(name):
        return _CAPABILITY
    if not is_directory and (name == ".git" or name in PROGRAM_CAPABILITIES):
        return _REDIRECT
    return _program_exclusion(parts) or _git_exclusion(parts, repositories)


def _program_exclusion(parts: Parts) -> str | None:
    *_, directory, name = ("", *parts)
    capabilities = PROGRAM_CAPABILITIES.get(directory)
    if capabilities is None:
        return None
    if PROGRAM_CREDENTIALS.fullmatch(name):
        return _CREDENTIALS
    return _CAPABILITY if capabilities.fullmatch(name) else None


def _git_exclusion(parts: Parts, repositories: Container[Parts]) -> str | None:
    *_, directory, name = ("", *parts)
    if ".git" in parts[:-1]:
        inner = "/".join(parts[parts.index(".git") + 1 :])
        travels = _GIT_CONTENT.fullmatch(inner) and not _GIT_ELSEWHERE.fullmatch(inner)
    else:
        is_repository = directory.endswith(".git") or parts[:-1] in repositories
        travels = not (is_repository and _BARE_GIT_DENIED.fullmatch(name))
    return None if travels else _REPOSITORY
