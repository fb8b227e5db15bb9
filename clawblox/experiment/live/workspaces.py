"""The workspaces of agents in a new attempt. Everything here blocks.

A workspace begins as a copy of a template or of the workspace at the end of the previous
generation. The world's source is laid over it. Of an inherited workspace and of the world,
everything is left out that archives leave out as well: settings that programs obey unasked,
credentials, and what can be rebuilt. No link is followed, and links that lead out of a workspace
are left out.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Final

from clawblox.agents.layout import AgentDir
from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.collect.policy import git_config, link_stays_inside
from clawblox.checkpoint.collect.workspace import list_workspace
from clawblox.config.world_toml import WorldConfig
from clawblox.errors import ConfigError
from clawblox.system.copy_tree import IsKept, copy_tree
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import read_regular
from clawblox.system.tree_digests import digest_tree
from clawblox.system.trees import MAX_DEPTH, make_writable
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.sources import is_cache, is_result

_log = OwnLog(__name__)

_WORLD_DIR: Final = "world"
_SERVER_NAME: Final = "server.py"

_MAX_SERVER_BYTES: Final = 16 << 20
_SHOWN_ENTRIES: Final = 10


def fill_workspace(
    target: Path,
    source: Path | None,
    world: WorldConfig,
    *,
    is_inherited: bool,
    experiment_dir: Path,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Fill a new workspace. Where the source has an entry of the world, the world's is taken.

    Args:
        target: The workspace; it is created if it is missing, and empty.
        source: The template, or the workspace at the end of the previous generation; None for
            an agent that gets the world's source only.
        world: The world.
        is_inherited: Whether an agent wrote the source.
        experiment_dir: The directory of the experiment, which is not copied with the world.
        check: Called often; ends the call by raising an error.

    Raises:
        ConfigError: The source, or a source file of the world, is missing.
        CheckpointError: A directory cannot be read.
        OSError: A file cannot be copied; the disk is full, for example.
    """
    make_private_dir(target)
    _copy_world(world, target, experiment_dir.resolve(), check)
    if source is None:
        return
    if not source.is_dir() or (is_inherited and source.is_symlink()):
        message = f"must be an existing directory, not {str(source)!r}"
        raise ConfigError(message, key="workspace" if is_inherited else "template")
    if is_inherited:
        _copy_listed(source, target, _judge_cache, check)
    else:
        _copy(source.resolve(), target, lambda path, _: _judge_cache(str(path)) is None, check)


def digest_workspaces(run_dir: Path) -> dict[str, str]:
    """Return the digest of each agent's workspace, by the agent's full name.

    Args:
        run_dir: The directory of a run in which nothing runs yet.

    Raises:
        OSError: A file cannot be read.
    """
    agents = sorted((run_dir / "agents").iterdir())
    return {agent.name: digest_tree(AgentDir(agent).workspace) for agent in agents}


def _copy_world(
    world: WorldConfig, workspace: Path, experiment_dir: Path, check: Callable[[], None]
) -> None:
    """Copy the files of a world that agents get."""

    def judge(path: str, is_directory: bool) -> str | None:
        if is_result(path) or (is_directory and world.dir / path == experiment_dir):
            return "results of runs"
        return _judge_cache(path)

    if world.shares_source:
        _copy_listed(world.dir, workspace / _WORLD_DIR, judge, check)
        make_writable(workspace)  # the directories of an installed world may not be
    if world.server_source is not None:
        publish_bytes(workspace / _SERVER_NAME, _read_server(world.server_source))


def _read_server(path: Path) -> bytes:
    try:
        return read_regular(os.path.realpath(path), max_bytes=_MAX_SERVER_BYTES)
    except OSError as error:
        message = f"must be a readable file, not {str(path)!r}: {error.strerror}"
        raise ConfigError(message, key="agent.server_source") from error


def _judge_cache(path: str, _is_directory: bool = False) -> str | None:
    return "can be rebuilt" if is_cache(path) else None


def _copy_listed(source: Path, target: Path, judge: tree.Judge, check: Callable[[], None]) -> None:
    """Copy what may be in an archive of a directory."""
    listing = list_workspace(
        source, "", judge=judge, is_name=lambda path: path.count("/") < MAX_DEPTH
    )
    files = [path for path in listing.files if os.access(source / path, os.R_OK)]
    entries = [*files, *listing.directories, *(path for path, _target in listing.links)]
    kept = {*entries, *itertools.chain.from_iterable(map(_parents, entries))}
    unreadable = [*listing.unreadable, *set(listing.files).difference(files)]
    _report(source, [f"{path} cannot be read" for path in unreadable])
    _copy(source, target, lambda path, _is_dir: str(path) in kept, check)
    _write_git_configs(target, files)


def _parents(path: str) -> Iterable[str]:
    return map(str, PurePath(path).parents)


def _copy(source: Path, target: Path, is_kept: IsKept, check: Callable[[], None]) -> None:
    """Copy entries for which the target has none yet, and links that stay inside."""

    def is_free(path: PurePath, is_dir: bool) -> bool:
        try:
            status = (target / path).lstat()
        except FileNotFoundError:
            return True
        return is_dir and stat.S_ISDIR(status.st_mode)

    left_out = copy_tree(
        source,
        target,
        is_kept=lambda path, is_dir: is_kept(path, is_dir) and is_free(path, is_dir),
        lead=lambda link, path: link if link_stays_inside(str(path), link) else None,
        check=check,
    )
    _report(source, [f"{entry.path} {entry.reason}" for entry in left_out])


def _report(source: Path, left_out: Sequence[str]) -> None:
    if left_out:
        shown = list(left_out[:_SHOWN_ENTRIES])
        _log.warning("not copied", source=str(source), entries=shown, count=len(left_out))


def _write_git_configs(target: Path, files: Sequence[str]) -> None:
    """Give each repository a new configuration, since git runs commands that are in the old one."""
    for head in files:
        directory = head.removesuffix("HEAD")
        if head == ".git/HEAD" or head.endswith("/.git/HEAD"):
            names = (path.removeprefix(directory) for path in files if path.startswith(directory))
            with contextlib.suppress(PermissionError):  # the agent made the directory read-only
                publish_bytes(target / directory / "config", git_config(names), durable=False)
