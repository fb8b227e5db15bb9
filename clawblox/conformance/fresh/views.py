"""Arguments of bubblewrap that show directories as they were before a first start. Blocks.

An unchanged directory is bound. Any other directory is recreated, and its unchanged entries are
bound one by one, so that not even the names of new files are visible. Changes are detected with the
ctime, which no program can set. All sockets and pipes are hidden, because a process of an earlier
check may listen there.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import Final

_LONGEST_S: Final = 4.0
"""Maximum duration of the search of a directory, in seconds: about half a million files."""
COARSE_S: Final = 0.02
"""Maximum lag of the kernel's clock for files, in seconds: two ticks of the slowest clock."""
_MOST_MOUNTS: Final = 400
_LOOK_EVERY: Final = 1000


class TooMuch(Exception):  # noqa: N818 - names the condition
    """A directory has too many entries or changes for the available time or mounts."""


class DirectoryView:
    """A directory without its changed entries.

    Args:
        path: The directory, absolute and without links.
        since: UTC time in seconds since 1970; later changes are hidden.

    Raises:
        TooMuch: The directory is too large.
    """

    def __init__(self, path: str, since: float) -> None:
        self._path = path
        self._since_ns = int((since - COARSE_S) * 1e9)
        self._changed = set[str]()
        self._above = set[str]()
        self._channels = list[str]()
        self._mounts = 0
        self._search()

    def arguments(self, *, is_writable: bool = False) -> list[str]:
        """Return the arguments that show the directory; empty if it is unreadable.

        Args:
            is_writable: Whether new entries may be made in the directory itself.

        Raises:
            TooMuch: Too many entries have changed.
        """
        if not os.path.isdir(self._path):  # noqa: PTH112 - paths are texts here
            return []
        if not is_writable and not self._is_touched(self._path):
            return ["--ro-bind", self._path, self._path, *self._cover(self._path)]
        return ["--tmpfs", self._path, *self._rebuild(self._path)]

    def _search(self) -> None:
        deadline = time.monotonic() + _LONGEST_S
        waiting, count = [self._path], 0
        while waiting:
            for entry, status in _entries(waiting.pop()):
                if status.st_ctime_ns >= self._since_ns:
                    self._note(entry.path)
                elif stat.S_ISSOCK(status.st_mode) or stat.S_ISFIFO(status.st_mode):
                    self._channels.append(entry.path)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
            if count % _LOOK_EVERY == 0 and time.monotonic() > deadline:
                raise TooMuch
            count += 1

    def _note(self, path: str) -> None:
        self._changed.add(path)
        while path != self._path:
            path = path.rpartition("/")[0]
            if path in self._above:
                return
            self._above.add(path)

    def _is_touched(self, path: str) -> bool:
        return path in self._changed or path in self._above

    def _rebuild(self, directory: str) -> Iterator[str]:
        for entry, status in _entries(directory):
            path, is_directory = entry.path, stat.S_ISDIR(status.st_mode)
            if is_directory and self._is_touched(path):
                inner = [*self._rebuild(path)]
                if inner or path not in self._changed:  # otherwise the directory itself is new
                    self._count()
                    yield from ("--tmpfs", path, *inner)
            elif path in self._changed or status.st_ctime_ns >= self._since_ns:
                continue
            elif stat.S_ISLNK(status.st_mode):
                yield from ("--symlink", os.readlink(path), path)  # noqa: PTH115
            elif is_directory or stat.S_ISREG(status.st_mode):
                self._count()
                yield from ("--ro-bind", path, path, *(self._cover(path) if is_directory else ()))

    def _cover(self, directory: str) -> Iterator[str]:
        """Yield the arguments that hide the sockets and pipes in a bound directory."""
        for path in self._channels:
            if path.startswith(f"{directory}/"):
                self._count()
                yield from ("--ro-bind", os.devnull, path)

    def _count(self) -> None:
        self._mounts += 1
        if self._mounts > _MOST_MOUNTS:
            raise TooMuch


def _entries(directory: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Yield the readable entries of a directory with their current status."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    yield entry, entry.stat(follow_symlinks=False)
                except OSError:
                    continue
    except OSError:
        return
