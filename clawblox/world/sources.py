"""The source files of a world: its directory without files of runs and programs. Blocks.

Their digests at a start document the sources that a recording was made with. They show which files
have changed since, but never cause a refusal.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePath
from typing import Final

import msgspec

from clawblox.config.arguments import check_read_path, is_world_url
from clawblox.errors import ConfigError
from clawblox.instance.launch import Launch
from clawblox.protocol import FILES_ENV
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_entries import is_printable
from clawblox.rundir.paths import STATE_DIR_NAME

DEFAULT_EXPERIMENTS: Final = "experiments"
"""Default directory of experiments; it may be in the directory of a world."""

MAX_SOURCE_FILE_BYTES: Final = 16 << 30
"""Maximum apparent size of a source file; a digest of this size takes about 15 seconds."""

MAX_SOURCE_BYTES: Final = 64 << 30
"""Maximum apparent size of all source files; digests of this size take about a minute."""

_RESULTS: Final = ("results", STATE_DIR_NAME)
"""Entries of a world directory that runs write."""
_CACHES: Final = frozenset({".venv", "__pycache__", ".pytest_cache"})
HISTORY: Final = ".git"
"""Entry with the history in the top directory of a git repository."""
_HINT: Final = "replace it with its target"
MAX_FILES: Final = 2000
"""Maximum number of files whose digests are listed."""
MAX_BYTES: Final = 64 << 20
"""Maximum size of all listed files; digests of this size take about a tenth of a second."""
_MAX_ENTRIES: Final = 10_000
"""Maximum number of entries that are examined, including results and caches."""


def find_world_dir(given: str | Path) -> Path:
    """Return the directory of a world, resolved; a world at an address is downloaded.

    Args:
        given: The directory, or the address of one in a GitHub repository.

    Raises:
        ClawbloxError: ``given`` is not a path, or the world cannot be downloaded.
    """
    if isinstance(given, str) and is_world_url(given):
        from clawblox.config.download import fetch_world  # few worlds need it

        return fetch_world(given)
    return Path(os.path.realpath(check_read_path(given, "dir")))


def is_result(path: str) -> bool:
    """Return whether a path in the directory of a world belongs to results of runs."""
    return path.rpartition("/")[2] in _RESULTS or path == DEFAULT_EXPERIMENTS


def is_cache(path: str) -> bool:
    """Return whether a path in a directory of source files belongs to a cache."""
    name = path.rpartition("/")[2]
    return name in _CACHES or name.endswith(".pyc")


def is_program_data(name: str) -> bool:
    """Return whether a name belongs to a cache, to git's history or to the state of a run."""
    return name in (HISTORY, STATE_DIR_NAME) or is_cache(name)


def is_source(path: str) -> bool:
    """Return whether a path in the directory of a world is not a result, a cache or history."""
    return not (path.rpartition("/")[2] == HISTORY or is_result(path) or is_cache(path))


def digest_sources(
    directory: Path,
    *,
    skip: Callable[[str], bool] = lambda path: not is_source(path),
    check: Callable[[], object] = lambda: None,
) -> dict[str, str]:
    """Return the digests of the source files of a world, by relative path.

    Args:
        directory: The directory of the world.
        skip: Returns whether an entry is not a source.
        check: Called often; ends the call by raising an error.

    Raises:
        OSError: An entry cannot be read, or is larger than a source may be.
    """
    from clawblox.system.tree_digests import digest_files  # few commands copy or compare

    return digest_files(
        directory,
        max_bytes=MAX_SOURCE_FILE_BYTES,
        max_total_bytes=MAX_SOURCE_BYTES,
        skip=skip,
        check=check,
    )


def copy_sources(
    directory: Path,
    target: Path,
    *,
    world: str = "",
    beside: Collection[str] = (),
    hint: str = _HINT,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Copy the source files of a world, without following a link.

    Args:
        directory: The directory of the world, or a directory that it is in.
        target: The directory of the copy, created as 0700.
        world: The directory of the world, relative to ``directory``; empty for ``directory``
            itself.
        beside: Paths in ``directory`` outside of the world to copy too if they are files, or links
            that do not lead elsewhere.
        hint: Advice for an entry of the world that cannot be copied.
        check: Called often; ends the call by raising an error.

    Raises:
        ConfigError: The world contains a link, a pipe, a socket or a device, or is too large.
        OSError: An entry cannot be read or written.
    """
    # Imported here because every start uses this module, and few copy.
    from clawblox.checkpoint.collect.policy import link_stays_inside
    from clawblox.system.copy_tree import copy_tree

    ways = {str(parent) for path in (world, *beside) for parent in PurePath(path).parents}

    def find_source(path: PurePath) -> str | None:
        return str(path.relative_to(world)) if path.is_relative_to(world) else None

    def is_kept(path: PurePath, is_dir: bool) -> bool:  # noqa: FBT001, RUF100 - copy_tree's
        if (source := find_source(path)) is not None:
            return is_source(source)
        return str(path) in (ways if is_dir else beside)

    def lead(link: str, path: PurePath) -> str | None:
        is_beside = find_source(path) is None
        return link if is_beside and link_stays_inside(str(path), link) else None

    left_out = copy_tree(
        directory,
        target,
        is_kept=is_kept,
        lead=lead,
        max_bytes=MAX_SOURCE_FILE_BYTES,
        max_total_bytes=MAX_SOURCE_BYTES,
        check=check,
    )
    for path, reason in left_out:
        if (source := find_source(path)) is not None:
            raise ConfigError(
                f"cannot be copied: {source} {reason}",
                key="dir",
                value=str(directory / world),
                hint=hint,
            )


class WorldFiles(msgspec.Struct, frozen=True):
    """The source files of a world.

    Attributes:
        files: Their SHA-256 digests, in hexadecimal, by relative path.
    """

    files: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """Digest of all names and contents, in hexadecimal."""
        total = hashlib.sha256()
        for path, digest in sorted(self.files.items()):
            total.update(f"{path}\0{digest}\n".encode())
        return total.hexdigest()

    def find_changes(self, now: WorldFiles) -> tuple[str, ...]:
        """Return the paths of the files that are new, gone or different now."""
        paths = {*self.files, *now.files}
        return tuple(sorted(p for p in paths if self.files.get(p) != now.files.get(p)))


def read_world_files(directory: Path) -> WorldFiles | None:
    """Return the source files of a world; None if they are too many, too large or unreadable.

    Args:
        directory: The directory of the world. Links below it are not followed.
    """
    from clawblox.system.tree_digests import digest_files  # only recordings need it

    seen = 0

    def skip(path: str) -> bool:
        nonlocal seen
        seen += 1
        if seen > 2 * _MAX_ENTRIES:  # each entry is examined twice
            raise OSError(errno.E2BIG, "has too many entries", str(directory))
        return not is_source(path)

    try:
        files = digest_files(directory, max_bytes=MAX_BYTES, max_total_bytes=MAX_BYTES, skip=skip)
    except OSError:
        return None
    is_small = len(files) <= MAX_FILES
    return WorldFiles(files) if is_small and all(map(is_printable, files)) else None


def register_start(
    launch: Launch, describe: Callable[[Launch], Update], write: Callable[[Update], None]
) -> Mapping[str, str]:
    """Write the manifest update of a start, including source files if the world records itself.

    Args:
        launch: The launch of the world.
        describe: Returns the update, without files.
        write: Writes the update.

    Returns:
        The environment variable with the digest of the files.
    """
    update, files = describe(launch), None
    if launch.record_dir is not None and launch.config.records_itself:
        files = read_world_files(launch.config.dir)
    if files is None:
        write(update)
        return {}
    write(
        msgspec.structs.replace(
            update, world_files=({"sha256": files.sha256, "files": dict(files.files)},)
        )
    )
    return {FILES_ENV: files.sha256}


def parse_world_files(value: object, sha256: object) -> WorldFiles | None:
    """Return the files that a manifest entry lists; None if their digest is different.

    Args:
        value: The list, which may contain any value.
        sha256: The digest of all files, as in a recording.
    """
    if not isinstance(value, dict) or len(value) > MAX_FILES:
        return None
    if not all(isinstance(text, str) and is_printable(text) for text in value.values()):
        return None
    files = WorldFiles(value)
    try:
        return files if files.sha256 == sha256 else None
    except UnicodeEncodeError:  # an unpaired surrogate in a path
        return None
