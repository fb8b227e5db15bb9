"""The files of the git repository that a world is in, as git lists them. Blocks.

The repository may be a stranger's, and its configuration may name programs. So git is run without
the configuration of the user and of the machine, with every setting off that starts a program, and
without access to any host.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from clawblox.system.process import Outcome, run_briefly
from clawblox.world.sources import HISTORY, is_program_data

MAX_BESIDE_FILES: Final = 20_000
"""Maximum number of files beside a world in a private copy."""
MAX_BESIDE_BYTES: Final = 512 << 20
"""Maximum apparent size of the files beside a world in a private copy."""

_TIMEOUT_S: Final = 30.0
_MAX_LISTING_BYTES: Final = 16 << 20
_SETTINGS: Final = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    f"core.excludesFile={os.devnull}",
    f"core.attributesFile={os.devnull}",
    "core.untrackedCache=false",
    "core.sshCommand=false",
    "credential.helper=",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
    "safe.directory=*",  # another user's repository can start nothing either
    "submodule.recurse=false",
)
"""Settings that no configuration of the repository overrides."""
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class UnlistedRepositoryError(Exception):
    """The files of a repository are not known, or are too many; the text is the reason."""


def find_repository(directory: Path) -> Path | None:
    """Return the top of the git repository that a directory is in; None without one.

    Args:
        directory: An absolute path without symbolic links.
    """
    tops = (path for path in (directory, *directory.parents) if os.path.lexists(path / HISTORY))
    return next(tops, None)


def list_beside(top: Path, world: str) -> frozenset[str]:
    """Return the files of a repository outside of a world's directory, relative to its top.

    They are the tracked files and those that git neither tracks nor ignores, as far as they exist;
    links are among them. Submodules, other repositories, caches and state of runs are not.

    Args:
        top: The top of the repository.
        world: The directory of the world, relative to the top.

    Raises:
        UnlistedRepositoryError: git is missing, refuses the repository or takes too long, or the
            files are too many or too large.
    """
    files = set[str]()
    size = 0
    for path in _list_names(top):
        if path.startswith(f"{world}/") or any(map(is_program_data, path.split("/"))):
            continue
        try:
            status = (top / path).lstat()
        except OSError:  # deleted, or left out of a sparse checkout
            continue
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            continue
        files.add(path)
        size += status.st_size
        if len(files) > MAX_BESIDE_FILES:
            raise UnlistedRepositoryError(f"{top} has more than {MAX_BESIDE_FILES} files")
        if size > MAX_BESIDE_BYTES:
            raise UnlistedRepositoryError(f"{top} has more than {MAX_BESIDE_BYTES >> 20} MB")
    return frozenset(files)


def _list_names(top: Path) -> Iterator[str]:
    """Yield the names of a repository's files, as git lists them."""
    outcome = _run_git(top, has_errors=False)
    if outcome.status != 0:
        reason = _run_git(top, has_errors=True).first_line.removeprefix("fatal: ")
        raise UnlistedRepositoryError(f"git cannot list {top}: {reason}")
    yield from dict.fromkeys(filter(None, outcome.output.split("\0")))


def _run_git(top: Path, *, has_errors: bool) -> Outcome:
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    words = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    env = {
        **_ENVIRONMENT,
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_WORK_TREE": str(top),  # not that of the repository's core.worktree
        "GIT_CEILING_DIRECTORIES": str(top.parent),
    }
    try:
        return run_briefly(
            ("git", *settings, *words),
            env=env,
            cwd=str(top),
            timeout=_TIMEOUT_S,
            max_bytes=_MAX_LISTING_BYTES,
            has_errors=has_errors,
        )
    except FileNotFoundError:
        raise UnlistedRepositoryError("git is not installed") from None
    except OSError as error:  # too slow, too much output, or not executable
        raise UnlistedRepositoryError(f"git cannot list {top}: {error}") from None
