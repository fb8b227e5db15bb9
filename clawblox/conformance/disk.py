"""Searches the files that the runs of a world leave for the secrets of these runs.

A later run may overwrite a file of an earlier run. The search is therefore repeated at the end of
each run, and only reads files that have changed since.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from clawblox.system.regular_files import open_directory, read_file
from clawblox.system.trees import TreeWalk

MAX_FILE_BYTES: Final = 64 << 20
"""Maximum size of a file to search."""
_MAX_LOOK_BYTES: Final = 512 << 20
"""Maximum total size of the files that one search reads."""
_MAX_DEPTH: Final = 100

_Stamp: TypeAlias = tuple[int, int, int, int]


class DiskSearch:
    """The files of all runs of a world.

    Args:
        directory: The directory of the world.
        skip: Returns whether to leave out an entry of the directory, given its relative path.
        run_dir: The run directory, with the logs, recordings and other files of each run.

    Attributes:
        searched: Names of the files that were read.
        traces: Descriptions of the found secrets, by file.
        unread: Reasons why files could not be searched, by file.
    """

    def __init__(self, directory: Path, skip: Callable[[str], bool], run_dir: Path) -> None:
        self._directory = directory
        self._skip = skip
        self._run_dir = run_dir
        self._stamps: dict[Path, _Stamp] = {}
        self._lock = threading.Lock()
        self.searched: set[str] = set()
        self.traces: dict[str, str] = {}
        self.unread: dict[str, str] = {}

    def begin(self) -> None:
        """Record the state of the files before the first run. Blocks."""
        for _ in self._changed_files():
            pass

    def search_changed(self, secrets: Mapping[str, str]) -> None:
        """Search the files that have changed since the last look. Blocks.

        Args:
            secrets: The variables of the runs, by their secret values.
        """
        with self._lock:
            left = _MAX_LOOK_BYTES
            for root, path, size in self._changed_files():
                left -= min(size, MAX_FILE_BYTES)
                if left < 0:
                    self.unread["a file"] = "too much was written between two looks"
                    return
                self._search(root, path, secrets)

    def _search(self, root: Path, path: str, secrets: Mapping[str, str]) -> None:
        is_own = root == self._directory
        name = path if is_own else "the log" if path.endswith(".log") else f"the run's {path}"
        try:
            content = read_file(root, path, max_bytes=MAX_FILE_BYTES)
        except FileNotFoundError:  # removed by another instance in the meantime
            return
        except OSError as error:
            self.unread[name] = error.strerror or str(error)
            return
        self.searched.add(name)
        for value, variable in secrets.items():
            if value.encode() in content:
                self.traces.setdefault(name, f"the value of {variable}")

    def _changed_files(self) -> Iterator[tuple[Path, str, int]]:
        """Yield the root, path and size of the changed files, and record their new state."""
        for root, skip in ((self._directory, self._skip), (self._run_dir, lambda _path: False)):
            try:
                for path, stamp in _walk(root, skip):
                    if self._stamps.get(root / path) != stamp:
                        self._stamps[root / path] = stamp
                        yield root, path, stamp[-1]
            except OSError as error:
                self.unread["a directory"] = error.strerror or str(error)


def _walk(root: Path, skip: Callable[[str], bool]) -> Iterator[tuple[str, _Stamp]]:
    try:
        top = open_directory(root)
    except FileNotFoundError:
        return
    with TreeWalk(top) as walk:
        for entry in walk:
            relative = walk.path_to(entry.name)
            if skip(relative):
                continue
            try:
                if entry.kind == "directory" and walk.depth < _MAX_DEPTH:
                    walk.enter(entry.name)
                elif entry.kind == "file":
                    status = os.stat(entry.name, dir_fd=walk.fd, follow_symlinks=False)
                    stamp = status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size
                    yield relative, stamp
            except OSError:  # removed by an instance in the meantime
                continue
