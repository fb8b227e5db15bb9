"""Private copies of worlds, from which ``check`` and ``verify`` start them.

A copy has the directory of the world. Where that is not enough, it has the other files of the git
repository too, each at the same relative place. It is enough unless ``world.toml`` names a path
above the directory, or the caller has seen that the world does not start alone.
"""

from __future__ import annotations

import os
import re
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
from clawblox.world.async_world import AsyncWorld
from clawblox.world.repository_files import UnlistedRepositoryError, find_repository, list_beside
from clawblox.world.sources import copy_sources
from clawblox.world_keys import CONFIG_NAME

_COPY_NAME: Final = "world"
_RUN_NAME: Final = "run"
_UP: Final = ".."
_HINT: Final = "replace it by what it leads to, or run the world in place with in_place=True"
_BREAK: Final = re.compile(r"[\s=:;,'\"()<>|&]+")
_MAX_TEXTS: Final = 1000
"""Number of texts of a ``world.toml`` that are searched for paths."""


@attrs.frozen(kw_only=True)
class TrialOptions:
    """The options with which a command starts a world for itself.

    Attributes:
        in_place: Whether the world runs in its own directory instead of a private copy.
        health_timeout: Seconds until an instance must be ready.

    Raises:
        ConfigError: A value is invalid; the error names the option and the value.
    """

    in_place: bool = False
    health_timeout: float = attrs.field(default=DEFAULT_HEALTH_TIMEOUT_S, validator=SECONDS)


class MissingFilesError(Exception):
    """A private copy cannot have files that the world needs; the text names one of them."""


@attrs.frozen
class _Extent:
    """The directory that is copied, the world's directory in it, and the files beside that."""

    top: Path
    world: str = ""
    beside: Collection[str] = ()


async def place_world(
    directory: Path, scratch: Path, *, in_place: bool, is_whole: bool = False
) -> AsyncWorld:
    """Return a world that runs in a private copy, or in place; its run directory is private.

    It is not open yet. Arguments and errors are those of :func:`copy_world`.
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
    """Make a private copy of a world; it is not open yet, and its run directory is private too.

    Args:
        directory: The directory of the world.
        scratch: The directory for the copy and its run directory; the caller removes it.
        name: Name of this copy in ``scratch``, which no other has; empty for the main one.
        is_whole: Whether the copy gets the files of the repository although ``world.toml`` names
            none of them.
        change: Changes the document of the copy's ``world.toml``; None leaves the file as it is.

    Raises:
        ConfigError: The directory of the world cannot be copied.
        MissingFilesError: The world needs files that are in no git repository with it, that git
            ignores, or that are too many.
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
    """Return whether the directory of a world is in a git repository, below its top."""
    return await run_blocking(find_repository, directory) not in (None, directory)


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
    """Return the texts of a ``world.toml`` that the start of a world uses."""
    run = config.get("run", {})
    commands = [run, *run.get("sidecar", ())]
    texts = [word for command in commands for word in command.get("command", ())]
    scripts, api = config.get("scripts", {}), config.get("api", {})
    texts += [scripts.get(key, "") for key in ("main", "tree", "skill")]
    texts.append(api.get("doc_path", ""))
    return [text for text in texts if isinstance(text, str)][:_MAX_TEXTS]


def _split(text: str) -> Iterator[str]:
    """Yield a text and its words: an option or a line for a shell may have a path in it."""
    if _UP in text:
        yield text
        yield from (word for word in _BREAK.split(text) if _UP in word)


def _find_extent(directory: Path, paths: Sequence[str]) -> _Extent:
    """Return what is copied where the directory alone is not enough. Blocks."""
    top = find_repository(directory)
    if top is None:
        raise MissingFilesError(_explain(paths, "the directory is not in a git repository"))
    for path in paths:
        if not Path(os.path.normpath(directory / path)).is_relative_to(top):
            raise MissingFilesError(_explain([path], f"the git repository is only {top}"))
    world = str(directory.relative_to(top))
    try:
        return _Extent(top, world, list_beside(top, world))
    except UnlistedRepositoryError as error:
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
        return f"the private copy has the directory of the world only: {reason}"
    return (
        f"world.toml names {paths[0]}, which is outside of the world's directory, and a private"
        f" copy cannot have it: {reason}"
    )
