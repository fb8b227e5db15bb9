"""Private copies of worlds, from which ``check`` and ``verify`` start them.

A copy contains the directory of the world. If ``world.toml`` names a path above the directory, or
the caller has seen that the world does not start alone, the copy also contains the other files of
the git repository, at the same relative paths.

The repository may be a stranger's, and its configuration may name programs. So git runs without the
configuration of the user and the machine, with all settings that start programs turned off, and
without network access.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import tomlkit

from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.config.arguments import SECONDS
from clawblox.config.options import DEFAULT_HEALTH_TIMEOUT_S
from clawblox.config.world_toml import read_world_config
from clawblox.system.process import ProgramOutcome, run_briefly
from clawblox.world.async_world import AsyncWorld
from clawblox.world.sources import HISTORY, copy_sources, is_program_data
from clawblox.world_keys import CONFIG_NAME

_COPY_NAME: Final = "world"
_RUN_NAME: Final = "run"
_UP: Final = ".."
_HINT: Final = "replace it with its target, or run the world in place with in_place=True"
_BREAK: Final = re.compile(r"[\s=:;,'\"()<>|&]+")
_MAX_TEXTS: Final = 1000
"""Maximum number of strings of a ``world.toml`` that are searched for paths."""
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
    "safe.directory=*",  # harmless, because no repository can start a program here
    "submodule.recurse=false",
)
"""Settings that the configuration of the repository cannot override."""
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


@attrs.frozen(kw_only=True)
class TrialOptions:
    """The options with which a command starts a world for its own use.

    Attributes:
        in_place: Whether the world runs in its own directory instead of a private copy.
        health_timeout: Seconds until an instance must be ready.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    in_place: bool = False
    health_timeout: float = attrs.field(default=DEFAULT_HEALTH_TIMEOUT_S, validator=SECONDS)


class MissingFilesError(Exception):
    """A private copy cannot contain files that the world needs; the message names an example."""


@attrs.frozen
class _Extent:
    """The directory to copy, the world's directory in it, and the other files to copy."""

    top: Path
    world: str = ""
    beside: Collection[str] = ()


async def place_world(
    directory: Path, scratch: Path, *, in_place: bool, is_whole: bool = False
) -> AsyncWorld:
    """Return a world that runs in a private copy or in place, with a private run directory.

    The world is not open yet. Arguments and errors are those of :func:`copy_world`.
    """
    if in_place:
        return AsyncWorld(dir=directory, run_dir=scratch / _RUN_NAME)
    return await copy_world(directory, scratch, is_whole=is_whole)


async def copy_world(
    directory: Path,
    scratch: Path,
    *,
    name: str = "",
    is_whole: bool = False,
    change: Callable[[Any], None] | None = None,
) -> AsyncWorld:
    """Return an unopened world in a private copy, with a private run directory.

    Args:
        directory: The directory of the world.
        scratch: The directory for the copy and its run directory; the caller removes it.
        name: Unique name of this copy in ``scratch``; empty for the main copy.
        is_whole: Whether to copy the files of the repository even if ``world.toml`` does not name
            them.
        change: Changes the document of the copy's ``world.toml``; None leaves the file as it is.

    Raises:
        ConfigError: The directory of the world cannot be copied.
        MissingFilesError: The world needs files that are outside of its git repository or ignored
            by git, or there are too many files.
        OSError: An entry cannot be read or written.

    Cancellation: the copy stays incomplete.
    """
    config = (await run_blocking(read_world_config, directory)).config
    paths = await run_blocking(find_paths_above, directory, config)
    extent = _Extent(directory)
    if paths or is_whole:
        extent = await run_blocking(_find_extent, directory, paths)
    target = scratch / (name or _COPY_NAME)
    await run_checked(partial(_copy, extent, target, paths, change))
    run_dir = scratch / (f"{name}-{_RUN_NAME}" if name else _RUN_NAME)
    return AsyncWorld(dir=target / extent.world, run_dir=run_dir)


async def has_files_beside(directory: Path) -> bool:
    """Return whether the directory of a world is below the top of a git repository."""
    return await run_blocking(_find_repository, directory) not in (None, directory)


def find_paths_above(directory: Path, config: Mapping[str, Any]) -> list[str]:
    """Return the paths in a ``world.toml`` that exist and lead above the directory. Blocks.

    Args:
        directory: The directory of the world.
        config: Its ``world.toml``.
    """
    words = dict.fromkeys(word for text in _read_texts(config) for word in _split(text))
    above = (word for word in words if f"{os.path.normpath(word)}/".startswith(f"{_UP}/"))
    return [word for word in above if "\0" not in word and os.path.lexists(directory / word)]


def _read_texts(config: Mapping[str, Any]) -> list[str]:
    """Return the strings of a ``world.toml`` that the start of a world uses."""
    run = config.get("run", {})
    commands = [run, *run.get("sidecar", ())]
    texts = [word for command in commands for word in command.get("command", ())]
    scripts, api = config.get("scripts", {}), config.get("api", {})
    texts += [scripts.get(key, "") for key in ("main", "tree", "skill")]
    texts.append(api.get("doc_path", ""))
    return [text for text in texts if isinstance(text, str)][:_MAX_TEXTS]


def _split(text: str) -> Iterator[str]:
    """Yield a text and its words, because an option or a shell line may contain a path."""
    if _UP in text:
        yield text
        yield from (word for word in _BREAK.split(text) if _UP in word)


def _find_extent(directory: Path, paths: Sequence[str]) -> _Extent:
    """Return the extent to copy if the world's directory is not enough. Blocks."""
    top = _find_repository(directory)
    if top is None:
        raise MissingFilesError(_explain(paths, "the directory is not in a git repository"))
    for path in paths:
        if not Path(os.path.normpath(directory / path)).is_relative_to(top):
            raise MissingFilesError(_explain([path], f"the git repository is only {top}"))
    world = str(directory.relative_to(top))
    try:
        return _Extent(top, world, _list_beside(top, world))
    except _UnlistedRepositoryError as error:
        raise MissingFilesError(_explain(paths, str(error))) from None


def _copy(
    extent: _Extent,
    target: Path,
    paths: Sequence[str],
    change: Callable[[Any], None] | None,
    check: Callable[[], None],
) -> None:
    """Make a copy, and change its ``world.toml``. Blocks."""
    copy_sources(
        extent.top, target, world=extent.world, beside=extent.beside, hint=_HINT, check=check
    )
    directory = target / extent.world
    for path in paths:
        if not os.path.lexists(directory / path):
            raise MissingFilesError(
                _explain([path], "git ignores it, or it is not a file or directory")
            )
    if change is not None:
        file = directory / CONFIG_NAME
        document = tomlkit.parse(file.read_text())
        change(document)
        file.write_text(tomlkit.dumps(document))


def _explain(paths: Sequence[str], reason: str) -> str:
    if not paths:
        return f"the private copy contains only the directory of the world: {reason}"
    return (
        f"world.toml names {paths[0]}, which is outside of the world's directory, and a private"
        f" copy cannot contain it: {reason}"
    )


class _UnlistedRepositoryError(Exception):
    """The files of a repository are unknown or too many; the message is the reason."""


def _find_repository(directory: Path) -> Path | None:
    """Return the top of the git repository that contains a directory; None if there is none.

    Args:
        directory: An absolute path without symbolic links.
    """
    tops = (path for path in (directory, *directory.parents) if os.path.lexists(path / HISTORY))
    return next(tops, None)


def _list_beside(top: Path, world: str) -> frozenset[str]:
    """Return the files of a repository outside of a world's directory, relative to its top.

    These are the existing files that git does not ignore, tracked or not, including links.
    Submodules, other repositories, caches and the state of runs are excluded.

    Args:
        top: The top of the repository.
        world: The directory of the world, relative to the top.

    Raises:
        _UnlistedRepositoryError: git is missing, refuses the repository or takes too long, or the
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
            raise _UnlistedRepositoryError(f"{top} has more than {MAX_BESIDE_FILES} files")
        if size > MAX_BESIDE_BYTES:
            raise _UnlistedRepositoryError(f"{top} has more than {MAX_BESIDE_BYTES >> 20} MB")
    return frozenset(files)


def _list_names(top: Path) -> Iterator[str]:
    """Yield the names of a repository's files as git lists them."""
    outcome = _run_git(top, has_errors=False)
    if outcome.status != 0:
        reason = _run_git(top, has_errors=True).first_line.removeprefix("fatal: ")
        raise _UnlistedRepositoryError(f"git cannot list {top}: {reason}")
    yield from dict.fromkeys(filter(None, outcome.output.split("\0")))


def _run_git(top: Path, *, has_errors: bool) -> ProgramOutcome:
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    words = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    env = {
        **_ENVIRONMENT,
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_WORK_TREE": str(top),  # instead of the repository's core.worktree
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
        raise _UnlistedRepositoryError("git is not installed") from None
    except OSError as error:  # too slow, too much output, or not executable
        raise _UnlistedRepositoryError(f"git cannot list {top}: {error}") from None
