"""Fills the workspaces of agents in a new attempt. All functions block.

A workspace starts as a copy of a template or of the final workspace of the previous generation,
overlaid with the world's source. From an inherited workspace and from the world, the entries that
archives omit are omitted here too: settings that programs execute automatically, credentials, files
that can be rebuilt, and files that are too large. Links are not followed, and links that lead out
of a workspace are omitted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from clawblox.agents.layout import AgentDir
from clawblox.checkpoint.collect import tree
from clawblox.checkpoint.collect.policy import link_stays_inside
from clawblox.checkpoint.collect.workspace import find_oversized, list_workspace
from clawblox.config.options import DEFAULT_MAX_FILE_BYTES, DEFAULT_MAX_TOTAL_BYTES
from clawblox.config.world_toml import WorldConfig
from clawblox.errors import ConfigError
from clawblox.foreign_values import clean_text
from clawblox.system.copy_tree import IsKept, copy_tree
from clawblox.system.files import (
    make_private_dir,
    publish_bytes,
    read_size,
)
from clawblox.system.regular_files import read_regular
from clawblox.system.tree_digests import digest_tree
from clawblox.system.trees import MAX_DEPTH, make_writable
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.sources import MAX_SOURCE_BYTES, MAX_SOURCE_FILE_BYTES, is_cache, is_result

_log = OwnLog(__name__)

WORLD_COPY: Final = "world"
"""Directory of a workspace with the source of the world."""
_SERVER_NAME: Final = "server.py"

_MAX_SERVER_BYTES: Final = 16 << 20
_SHOWN_ENTRIES: Final = 10
_SHOWN_CHARS: Final = 200


class _Limits(NamedTuple):
    """Maximum apparent size of a file, and of all files, in bytes."""

    file_bytes: int
    total_bytes: int


_ARCHIVED: Final = _Limits(DEFAULT_MAX_FILE_BYTES, DEFAULT_MAX_TOTAL_BYTES)
"""The limits of archives, so copied and restored workspaces have the same files."""

_SOURCES: Final = _Limits(MAX_SOURCE_FILE_BYTES, MAX_SOURCE_BYTES)


def fill_workspace(
    target: Path,
    source: Path | None,
    world: WorldConfig,
    *,
    is_inherited: bool,
    final: Path,
    experiment_dir: Path,
    check: Callable[[], None] = lambda: None,
) -> list[str]:
    """Fill a new workspace; the world's entries replace those of the source.

    Args:
        target: The workspace; it is created if it is missing, and empty.
        source: The template, or the final workspace of the previous generation; None for an agent
            that gets only the world's source.
        world: The world.
        is_inherited: Whether an agent wrote the source.
        final: The final path of the workspace; git records it.
        experiment_dir: The directory of the experiment, which is not copied with the world.
        check: Called often; ends the call by raising an error.

    Returns:
        Entries of the source and the world that were not copied, with reasons; at most ten of each,
        those that are too large first.

    Raises:
        ConfigError: The source, or a source file of the world, is missing.
        CheckpointError: A directory cannot be read.
        OSError: A file cannot be copied; the disk is full, for example.
    """
    make_private_dir(target)
    left_out = _copy_world(world, target, final, experiment_dir.resolve(), check)
    if source is None:
        return left_out
    if not source.is_dir() or (is_inherited and source.is_symlink()):
        message = f"must be an existing directory, not {str(source)!r}"
        raise ConfigError(message, key="workspace" if is_inherited else "template")
    if is_inherited:
        entries = _copy_listed(source, target, final, _judge_cache, _ARCHIVED, check)
        return [*entries, *left_out]
    others = _copy(
        source.resolve(), target, lambda path, _is_dir: _judge_cache(str(path)) is None, check
    )
    return [*_report(source, others), *left_out]


def digest_workspaces(run_dir: Path, check: Callable[[], None] = lambda: None) -> dict[str, str]:
    """Return the digest of each agent's workspace, by the agent's full name.

    Args:
        run_dir: The directory of a run that has not started.
        check: Called often; ends the call by raising an error.

    Raises:
        OSError: A file cannot be read.
    """
    agents = sorted((run_dir / "agents").iterdir())
    return {
        agent.name: digest_tree(
            AgentDir(agent).workspace,
            max_bytes=_SOURCES.file_bytes,
            max_total_bytes=2 * _SOURCES.total_bytes,  # a template and a world
            check=check,
        )
        for agent in agents
    }


def _copy_world(
    world: WorldConfig,
    workspace: Path,
    final: Path,
    experiment_dir: Path,
    check: Callable[[], None],
) -> list[str]:
    """Copy the world's files for agents; return the omitted entries."""
    left_out: list[str] = []

    def judge(path: str, is_directory: bool) -> str | None:
        if is_result(path) or (is_directory and world.dir / path == experiment_dir):
            return "results of runs"
        return _judge_cache(path)

    if world.shares_source:
        target = workspace / WORLD_COPY
        left_out = _copy_listed(world.dir, target, final / WORLD_COPY, judge, _SOURCES, check)
        make_writable(workspace)  # the directories of an installed world may be read-only
    if world.server_source is not None:
        publish_bytes(workspace / _SERVER_NAME, read_server(world.server_source))
    return left_out


def read_server(path: Path) -> bytes:
    """Return the source of a world's server for its agents.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return read_regular(os.path.realpath(path), max_bytes=_MAX_SERVER_BYTES)
    except OSError as error:
        message = f"must be a readable file, not {str(path)!r}: {error.strerror}"
        raise ConfigError(message, key="agent.server_source") from error


def _judge_cache(path: str, _is_directory: bool = False) -> str | None:
    return "can be rebuilt" if is_cache(path) else None


def _copy_listed(
    source: Path,
    target: Path,
    final: Path,
    judge: tree.Judge,
    limits: _Limits,
    check: Callable[[], None],
) -> list[str]:
    """Copy the files of a directory that an archive may contain; return the omitted entries."""
    listing = list_workspace(
        source, "", judge=judge, is_name=lambda path: path.count("/") < MAX_DEPTH
    )
    readable = [path for path in listing.files if os.access(source / path, os.R_OK)]
    oversized = find_oversized(
        {path: read_size(source / path) for path in readable},
        max_file_bytes=limits.file_bytes,
        max_total_bytes=limits.total_bytes,
    )
    files = [path for path in readable if path not in oversized]
    entries = [*files, *listing.directories, *(path for path, _target in listing.links)]
    kept = {*entries, *(str(parent) for path in entries for parent in PurePath(path).parents)}
    unreadable = [*listing.unreadable, *set(listing.files).difference(readable)]
    left_out = [
        *(f"{path} is too large" for path in sorted(oversized)),
        *(f"{path} cannot be read" for path in unreadable),
        *(f"{ascii(path)[1:-1]} cannot be in an archive" for path in listing.unarchivable),
        *_copy(source, target, lambda path, _is_dir: str(path) in kept, check),
    ]
    # Git runs commands from a repository's old configuration.
    for path, content in listing.git.rebuild(files, final.resolve()):
        # The agent may have made the directory read-only, and the world may have a conflicting
        # entry.
        with contextlib.suppress(PermissionError, IsADirectoryError, NotADirectoryError):
            make_private_dir((target / path).parent)
            publish_bytes(target / path, content, durable=False)
    return _report(source, left_out)


def _copy(source: Path, target: Path, is_kept: IsKept, check: Callable[[], None]) -> list[str]:
    """Copy entries that the target lacks, except links that lead outside.

    Returns:
        The entries not copied, with reasons.
    """

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
        max_bytes=_SOURCES.file_bytes,
        check=check,
    )
    return [f"{entry.path} {entry.reason}" for entry in left_out]


def _report(source: Path, left_out: Sequence[str]) -> list[str]:
    """Log entries that were not copied; return the first ones, escaped for storage."""
    shown = [clean_text(entry, max_chars=_SHOWN_CHARS) for entry in left_out[:_SHOWN_ENTRIES]]
    if shown:
        _log.warning("not copied", source=str(source), entries=shown, count=len(left_out))
    return shown
