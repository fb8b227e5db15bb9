"""The world's document of an archive, as a file that worlds can be restored from, and its rows."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from clawblox.checkpoint.archive.layout import Entry
from clawblox.checkpoint.archive.reader import Archive, located
from clawblox.checkpoint.names import ROWS_NAME, SNAPSHOT_NAME
from clawblox.checkpoint.progress import Progress, Report
from clawblox.errors import CheckpointError
from clawblox.snapshot.rows import rows_beside
from clawblox.system.files import (
    PartialFile,
    has_digest,
    make_private_dir,
    sweep_partials,
    write_all,
)

_DIGEST_CHARS: Final = 12
"""How much of the digest the name of an extracted document holds."""


def require_snapshot(path: Path) -> None:
    """Refuse an archive that no world can be started from. Blocks.

    Args:
        path: The archive.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: It has no snapshot of a world, or cannot be read.
    """
    with Archive.open(path) as archive:
        _find_entry(archive)


def extract_snapshot(path: Path, directory: Path, report: Report | None = None) -> tuple[Path, str]:
    """Put the world's document of an archive into a directory, and its rows beside it. Blocks.

    The file is named after the archive and after its own digest, and it is complete or absent. If
    it is there already, it is used again. Its rows, which another archive may have saved with the
    same document, are written each time.

    Args:
        path: The archive.
        directory: Where the file goes; it is made if it is missing.
        report: Called with bytes done and bytes in all; what it raises ends the extraction, and
            there is no file. None for no calls.

    Returns:
        The path of the file and its digest.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: It has no snapshot of a world, it cannot be read, or the file cannot be
            written.
    """
    with Archive.open(path) as archive, located(path), _translated(directory):
        entry = _find_entry(archive)
        rows = next((one for one in archive.entries if one.name == ROWS_NAME), None)
        progress = Progress(report, entry.size + (rows.size if rows else 0))
        known = archive.member(entry).sha256
        make_private_dir(directory)
        sweep_partials(directory)

        def place(digest: str) -> Path:
            return directory / f"{path.stem}-{digest[:_DIGEST_CHARS]}.snapshot"

        if known is None or not has_digest(place(known), known):
            # What stands there by its name has this content, or had it once.
            known = _extract(progress.counted(archive.stream(entry)), directory, place)
        snapshot = place(known)
        if rows is None:
            rows_beside(snapshot).unlink(missing_ok=True)
        else:
            content = progress.counted(archive.stream(rows))
            _extract(content, directory, lambda _: rows_beside(snapshot))
    return snapshot, known


def _extract(content: Iterator[bytes], directory: Path, place: Callable[[str], Path]) -> str:
    """Write a file to the place that its digest gives it; return the digest."""
    partial = PartialFile(directory, "extracted")
    try:
        digest = hashlib.sha256()
        for chunk in content:
            digest.update(chunk)
            write_all(partial.fd, chunk)
        partial.publish(place(digest.hexdigest()), overwrite=True)
    finally:
        with contextlib.suppress(OSError):  # a later sweep removes the rest
            partial.close()
    return digest.hexdigest()


def _find_entry(archive: Archive) -> Entry:
    for entry in archive.entries:
        if entry.name == SNAPSHOT_NAME:
            return entry
    raise CheckpointError(
        "the archive has no snapshot of a world, so no world can be started from it",
        path=archive.path,
        hint="load_checkpoint(path, run_dir), or clawblox ckpt extract, loads its agents",
    )


@contextlib.contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the snapshot cannot be taken out of the archive: {error.strerror}"
        place = Path(os.fsdecode(error.filename)) if error.filename else directory
        raise CheckpointError(message, path=place) from error
