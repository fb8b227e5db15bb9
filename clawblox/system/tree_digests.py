"""Digests of the files below a directory, without following links. Everything here blocks."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

from clawblox.system.regular_files import (
    closing_fd,
    digest_open,
    naming,
    open_directory,
    open_regular,
)
from clawblox.system.trees import MAX_DEPTH, TreeWalk

_MAX_DEPTH: Final = 2 * MAX_DEPTH
"""Maximum depth; larger than for copies, because a copy may be deeper in another tree."""


def digest_files(
    root: Path,
    *,
    max_bytes: int,
    max_total_bytes: int,
    skip: Callable[[str], bool] = lambda _path: False,
    check: Callable[[], object] = lambda: None,
) -> dict[str, str]:
    """Return the SHA-256 digests of the files and links below a directory, by relative path.

    The digest of a link covers the name of its target. Directories and pipes have no digests.

    Args:
        root: The directory.
        max_bytes: Maximum apparent size of each file in bytes.
        max_total_bytes: Maximum apparent size of all files together in bytes.
        skip: Returns whether to leave out the entry with a relative path and its whole content.
        check: Called often; ends the call by raising an error.

    Raises:
        OSError: The directory, or an entry in it, cannot be read, is larger, or is nested too
            deeply; the error names the path.
    """
    return dict(sorted(_Digests(root, max_bytes, max_total_bytes, skip, check).read()))


def digest_tree(
    root: Path,
    *,
    max_bytes: int,
    max_total_bytes: int,
    skip: Callable[[str], bool] = lambda _path: False,
    check: Callable[[], object] = lambda: None,
) -> str:
    """Return a single digest of all names and contents below a directory.

    Args:
        root: The directory.
        max_bytes: Maximum apparent size of each file in bytes.
        max_total_bytes: Maximum apparent size of all files together in bytes.
        skip: Returns whether to leave out an entry.
        check: Called often; ends the call by raising an error.

    Raises:
        OSError: As for :func:`digest_files`.
    """
    limits = {"max_bytes": max_bytes, "max_total_bytes": max_total_bytes}
    total = hashlib.sha256()
    for path, digest in digest_files(root, **limits, skip=skip, check=check).items():
        total.update(os.fsencode(path) + b"\0" + digest.encode() + b"\n")
    return total.hexdigest()


@attrs.define(eq=False)
class _Digests:
    """One reading of a tree."""

    _root: Path
    _max_bytes: int
    _max_total_bytes: int
    _skip: Callable[[str], bool]
    _check: Callable[[], object]
    _left: int = attrs.field(default=0, init=False)

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield the paths and digests of files and links, after checking all sizes."""
        for _ in self._visit(lambda _fd: ""):
            pass
        yield from self._visit(self._digest)

    def _visit(self, read: Callable[[int], str]) -> Iterator[tuple[str, str]]:
        self._left = self._max_total_bytes
        with TreeWalk(open_directory(self._root)) as walk:
            for entry in walk:
                self._check()
                path = walk.path_to(entry.name)
                if self._skip(path):
                    continue
                with naming(self._root, path):
                    if entry.kind == "directory":
                        self._enter(walk, entry.name)
                    elif entry.kind == "link":
                        target = os.fsencode(os.readlink(entry.name, dir_fd=walk.fd))
                        yield path, hashlib.sha256(b"link to " + target).hexdigest()
                    elif entry.kind == "file":
                        yield path, self._read_file(entry.name, walk.fd, read)

    def _enter(self, walk: TreeWalk, name: str) -> None:
        if walk.depth >= _MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, f"is more than {_MAX_DEPTH} directories deep")
        walk.enter(name)

    def _read_file(self, name: str, directory: int, read: Callable[[int], str]) -> str:
        with closing_fd(open_regular(name, dir_fd=directory, max_bytes=self._max_bytes)) as fd:
            self._left -= os.fstat(fd).st_size
            if self._left < 0:
                message = f"makes the directory larger than {self._max_total_bytes} bytes"
                raise OSError(errno.EFBIG, message)
            return read(fd)

    def _digest(self, fd: int) -> str:
        return digest_open(fd, max_bytes=self._max_bytes, check=self._check)
