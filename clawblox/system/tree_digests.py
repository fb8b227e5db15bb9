"""Digests of the files below a directory; no link is followed. Everything here blocks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from clawblox.system.regular_files import OPEN_DIRECTORY, open_directory, open_regular


def digest_files(
    root: Path, *, skip: Callable[[str], bool] | None = None, max_bytes: int | None = None
) -> dict[str, str]:
    """Return the SHA-256 digests of the files and links below a directory, by relative path.

    The digest of a link depends on the name of its target. Directories and pipes have none.

    Args:
        root: The directory.
        skip: Returns whether an entry, by its relative path, is left out with everything below it;
            None leaves nothing out.
        max_bytes: Maximum apparent size of each file in bytes; None sets no limit.

    Raises:
        OSError: The directory, or something below it, cannot be read, or a file is larger.
    """
    directory = open_directory(root)
    try:
        return dict(sorted(_walk(directory, "", skip or _skip_nothing, max_bytes)))
    finally:
        os.close(directory)


def digest_tree(
    root: Path, *, skip: Callable[[str], bool] | None = None, max_bytes: int | None = None
) -> str:
    """Return one digest of all names and contents below a directory.

    Args:
        root: The directory.
        skip: As for :func:`digest_files`.
        max_bytes: As for :func:`digest_files`.

    Raises:
        OSError: The directory, or something below it, cannot be read, or a file is larger.
    """
    total = hashlib.sha256()
    for path, digest in digest_files(root, skip=skip, max_bytes=max_bytes).items():
        total.update(os.fsencode(path) + b"\0" + digest.encode() + b"\n")
    return total.hexdigest()


def _skip_nothing(_path: str) -> bool:
    return False


def _walk(
    directory: int, prefix: str, skip: Callable[[str], bool], max_bytes: int | None
) -> Iterator[tuple[str, str]]:
    """Yield the digests below an open directory; ``prefix`` ends in a slash or is empty."""
    with os.scandir(directory) as entries:
        listed = [entry for entry in entries if not skip(prefix + entry.name)]
    for entry in listed:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            inner = os.open(entry.name, OPEN_DIRECTORY, dir_fd=directory)
            try:
                yield from _walk(inner, f"{path}/", skip, max_bytes)
            finally:
                os.close(inner)
        elif entry.is_symlink():
            target = os.fsencode(os.readlink(entry.name, dir_fd=directory))
            yield path, hashlib.sha256(b"link to " + target).hexdigest()
        elif entry.is_file(follow_symlinks=False):
            content = open_regular(entry.name, dir_fd=directory, max_bytes=max_bytes)
            with os.fdopen(content, "rb") as file:
                yield path, hashlib.file_digest(file, "sha256").hexdigest()
