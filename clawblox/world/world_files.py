"""The files of a world at a start, by their digests: evidence of what a recording was made with.

They show which files have changed since, and nothing is refused because of them. Blocks.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from clawblox.instance.launch import Launch
from clawblox.protocol import FILES_ENV
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_entries import is_printable
from clawblox.system.tree_digests import digest_files
from clawblox.world.sources import is_source

MAX_FILES: Final = 2000
"""Maximum number of files whose digests are listed."""
MAX_BYTES: Final = 64 << 20
"""Maximum size of all files together, whose digests take about a tenth of a second then."""
_MAX_ENTRIES: Final = 10_000
"""Maximum number of entries that are looked at, results and caches included."""


@attrs.frozen
class WorldFiles:
    """The source files of a world.

    Attributes:
        files: Their SHA-256 digests, in hexadecimal, by relative path.
    """

    files: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """One digest of all names and contents, in hexadecimal."""
        total = hashlib.sha256()
        for path, digest in sorted(self.files.items()):
            total.update(f"{path}\0{digest}\n".encode())
        return total.hexdigest()

    def find_changes(self, now: WorldFiles) -> tuple[str, ...]:
        """Return the paths of the files that are new, gone or different now."""
        paths = {*self.files, *now.files}
        return tuple(sorted(p for p in paths if self.files.get(p) != now.files.get(p)))


def read_world_files(directory: Path) -> WorldFiles | None:
    """Return the source files of a world; None if they are too many or too large, or unreadable.

    Args:
        directory: The directory of the world. No link below it is followed.
    """
    seen = 0

    def skip(path: str) -> bool:
        nonlocal seen
        seen += 1
        if seen > 2 * _MAX_ENTRIES:  # each is looked at twice
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
    """Write the update of a start to the manifest, with the world's files if it records itself.

    Args:
        launch: How the world is started.
        describe: Returns the update, without files.
        write: Writes it.

    Returns:
        The variable with the digest of the files, for the world.
    """
    update, files = describe(launch), None
    if launch.record_dir is not None and launch.config.records_itself:
        files = read_world_files(launch.config.dir)
    if files is None:
        write(update)
        return {}
    write(attrs.evolve(update, world_files=({"sha256": files.sha256, "files": dict(files.files)},)))
    return {FILES_ENV: files.sha256}


def parse_world_files(value: object, sha256: object) -> WorldFiles | None:
    """Return the files that the entry of a manifest lists; None if its digest is another one.

    Args:
        value: The list, whatever is in it.
        sha256: The digest of all of them, as a recording has it.
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
