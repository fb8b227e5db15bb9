"""What of a workspace never travels, told by its name alone.

The same list is asked when an archive is made and when one is loaded, so what an archive says
cannot bring back what a save would have left out. Three kinds of things stay out: credentials,
configuration that grants capabilities or runs commands by itself, and what can be built anew.
Names are compared folded (:func:`clawblox.checkpoint.names.fold`), because a file system or an
agent's program may take two spellings for one. Pure: how a directory is read is ``tree``'s.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from clawblox.checkpoint import names

__all__ = ["GIT_CONFIG", "link_stays_inside", "workspace_exclusion"]

GIT_CONFIG: Final = (
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
    b"\tlogallrefupdates = true\n"
)
"""What a restored repository has for its ``.git/config``, which itself never travels."""

_REBUILT: Final = "can be built anew"
_CREDENTIALS: Final = "holds credentials"
_CAPABILITY: Final = "grants capabilities or runs by itself"
_REPOSITORY: Final = "no part of a repository's content"
_REDIRECT: Final = "would lead to configuration elsewhere"

_REBUILT_DIRS: Final = frozenset(
    {
        ".cache",
        ".eggs",
        ".gradle",
        ".mypy_cache",
        ".nox",
        ".npm",
        ".parcel-cache",
        ".pnpm-store",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "site-packages",
        "venv",
    }
)

# By their names, wherever they are; then what is directly in a directory that an agent's
# program reads its own configuration from.
_DENIED: Final = {
    ".claude.json": _CREDENTIALS,
    ".credentials.json": _CREDENTIALS,
    ".codex": _CAPABILITY,
    ".mcp.json": _CAPABILITY,
}
_PROGRAM_CREDENTIALS: Final = re.compile(r"auth\.json|credentials(\..*)?")
_PROGRAM_CAPABILITIES: Final = {
    ".agents": re.compile(r"agents|hooks.*|mcp\.json|plugins"),
    ".claude": re.compile(r"agents|hooks.*|plugins|settings.*"),
    ".kimi-code": re.compile(r"agents|hooks.*|mcp\.json|plugins|.*\.toml"),
}

# Of a repository: what makes its history, and nothing that git runs or that leads elsewhere.
_GIT_CONTENT: Final = re.compile(
    r"head|[a-z_]+_head|packed-refs|index|shallow|description|merge_mode"
    r"|(commit_edit|merge_|squash_)msg|(refs|objects|logs|info)(/.*)?"
)
_GIT_ELSEWHERE: Final = re.compile(r"objects/info/(http-)?alternates|refs/.*\.lock")
_BARE_GIT_DENIED: Final = re.compile(r"config(\..*)?|commondir|hooks|modules|worktrees")


def workspace_exclusion(path: str, *, directory: bool = False) -> str | None:
    """Say why something of a workspace stays out.

    Args:
        path: Its name below the workspace, ``/`` between components.
        directory: Whether it is itself a directory; a link is none, wherever it leads.

    Returns:
        The reason in a few words, also when it lies below something that stays out; None when
        it travels.
    """
    parts = tuple(names.fold(part) for part in path.split("/"))
    for end in range(1, len(parts) + 1):
        reason = _exclusion(parts[:end], is_directory=directory or end < len(parts))
        if reason is not None:
            return reason
    return None


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


def _exclusion(parts: tuple[str, ...], *, is_directory: bool) -> str | None:
    """Judge the last of folded ``parts``; those before it are directories that travel."""
    name = parts[-1]
    if is_directory and name in _REBUILT_DIRS:
        return _REBUILT
    if name in _DENIED:
        return _DENIED[name]
    if not is_directory and (name == ".git" or name in _PROGRAM_CAPABILITIES):
        return _REDIRECT
    return _program_exclusion(parts) or _git_exclusion(parts)


def _program_exclusion(parts: tuple[str, ...]) -> str | None:
    *_, directory, name = ("", *parts)
    capabilities = _PROGRAM_CAPABILITIES.get(directory)
    if capabilities is None:
        return None
    if _PROGRAM_CREDENTIALS.fullmatch(name):
        return _CREDENTIALS
    return _CAPABILITY if capabilities.fullmatch(name) else None


def _git_exclusion(parts: tuple[str, ...]) -> str | None:
    *_, directory, name = ("", *parts)
    if ".git" in parts[:-1]:
        inner = "/".join(parts[parts.index(".git") + 1 :])
        travels = _GIT_CONTENT.fullmatch(inner) and not _GIT_ELSEWHERE.fullmatch(inner)
    else:
        travels = not (directory.endswith(".git") and _BARE_GIT_DENIED.fullmatch(name))
    return None if travels else _REPOSITORY
