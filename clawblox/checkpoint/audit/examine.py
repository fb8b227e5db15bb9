"""Reading all of an archive: it is what it says it is, and no secret is in it.

Owns the one pass that does both, over exactly the bytes that are in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clawblox.checkpoint.archive.layout import Entry
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.progress import Progress
from clawblox.checkpoint.secrets import Scanner
from clawblox.results import Finding

__all__ = ["examine"]


def examine(
    archive: Archive, entries: Iterable[Entry], scanner: Scanner, progress: Progress
) -> list[Finding]:
    """Read members to their ends, which verifies them, and search them for secrets. Blocks.

    Raises:
        CheckpointFormatError: A member is not what the archive says.
    """
    found: list[Finding] = []
    for entry in entries:
        content = progress.counted(archive.stream(entry))
        found += scanner.scan(entry.name, content)
        _exhaust(content)
    return found


def _exhaust(content: Iterator[bytes]) -> None:
    # The digest of a member is checked when its last piece was read, and not before.
    for _ in content:
        pass
