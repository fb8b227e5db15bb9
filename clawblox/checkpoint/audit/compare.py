"""What one archive has and another does not."""

from __future__ import annotations

import hashlib
import os
from typing import Final

import attrs

from clawblox.checkpoint.archive.layout import Entry
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.model import Limits
from clawblox.checkpoint.names import METADATA_NAME
from clawblox.config.arguments import check_read_path

_TOLD_OF_FILES: Final = ("files", "secret_scan")
"""What the metadata says of the members; the members themselves are compared."""


@attrs.frozen(kw_only=True)
class Difference:
    """How the second of two archives differs from the first. Names are in order.

    Attributes:
        added: Members that only the second has.
        removed: Members that only the first has.
        changed: Members of both whose content or mode differs.
        unchanged: How many members are the same.
        metadata: Keys of ``metadata.json`` whose values differ.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: int
    metadata: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.metadata)


def diff_checkpoints(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Difference:
    """Compare two archives; members of the same size and mode by their content. Blocks.

    Args:
        first: An archive.
        second: Another one.
        limits: How large each may be.

    Raises:
        CheckpointFormatError: One of them is not sound, as far as it was read.
        CheckpointError: One of them cannot be read.
        ConfigError: One of the arguments is not a path.
    """
    paths = check_read_path(first, "first"), check_read_path(second, "second")
    with Archive.open(paths[0], limits) as one, Archive.open(paths[1], limits) as other:
        ours, theirs = _members(one), _members(other)
        common = sorted(ours.keys() & theirs.keys())
        changed = [name for name in common if _differs(one, ours[name], other, theirs[name])]
        return Difference(
            added=tuple(sorted(theirs.keys() - ours.keys())),
            removed=tuple(sorted(ours.keys() - theirs.keys())),
            changed=tuple(changed),
            unchanged=len(common) - len(changed),
            metadata=_differing_keys(one, other),
        )


def _members(archive: Archive) -> dict[str, Entry]:
    return {entry.name: entry for entry in archive.entries if entry.name != METADATA_NAME}


def _differs(one: Archive, ours: Entry, other: Archive, theirs: Entry) -> bool:
    if (ours.size, ours.crc, ours.mode) != (theirs.size, theirs.crc, theirs.mode):
        return True
    return _digest(one, ours) != _digest(other, theirs)


def _digest(archive: Archive, entry: Entry) -> str:
    # Not the one in the metadata: it has not been compared with the content yet.
    digest = hashlib.sha256()
    for chunk in archive.stream(entry):
        digest.update(chunk)
    return digest.hexdigest()


def _differing_keys(one: Archive, other: Archive) -> tuple[str, ...]:
    keys = (one.metadata.keys() | other.metadata.keys()).difference(_TOLD_OF_FILES)
    missing = object()
    return tuple(
        sorted(
            key
            for key in keys
            if one.metadata.get(key, missing) != other.metadata.get(key, missing)
        )
    )
