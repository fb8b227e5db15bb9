"""Files and Unix listeners that processes leave for later processes to find.

The kernel does not record which process made a file. If the world is alone, every new file is from
the world. Otherwise, a file is from the world if a process of the world was seen with the file
open, or if the file's directory changes whenever the world is saved and rarely in between. The
origin of other files is unknown.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.system.ports import find_owners
from clawblox.system.process_tree import Mark, Search, find_trees

SHARED_DIRS: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - they are looked at
"""Directories to which any process may write."""

_MOST_ENTRIES: Final = 20_000
_MAX_DEPTH: Final = 3
_INTERVAL_S: Final = 0.01
_SAVES: Final = 8
"""Number of saves that must each change a directory for its files to count as the world's.

Between the saves, the directory may change in at most half as many periods of the same length. One
percent of directories that change at random pass.
"""
_UNIX_TABLE: Final = "/proc/net/unix"
_LISTENING: Final = "00010000"
"""Flag of a listening socket in the table of the kernel: ``__SO_ACCEPTCON``."""
_FLAGS_FIELD, _INODE_FIELD, _PATH_FIELD = 3, 6, 7
_SOCKET: Final = "socket:["

_Version = tuple[int, int, int]


class FootprintWatch:
    """Watches the temporary directories and Unix listeners, from before a start to after a stop.

    Args:
        is_alone: Whether all other visible processes belong to the world.
        without: Paths of the checks themselves.
        known: Inodes of the Unix listeners before the first run of the world, since a process left
            by an earlier run may already listen.
    """

    def __init__(self, *, is_alone: bool, without: Sequence[str], known: Sequence[int]) -> None:
        self._is_alone = is_alone
        self._without = tuple(without)
        self._roots = tuple(dict.fromkeys((*SHARED_DIRS, tempfile.gettempdir())))
        self._files = self._list_files()
        self._known = frozenset(known)
        self._opened = set[str]()
        self._listeners = dict[int, str]()
        self._foreign = dict[int, str]()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, mark: Mark) -> None:
        """Start reading the descriptors of the world's processes."""
        if self._is_alone:
            return
        self._thread = threading.Thread(target=self._follow, args=(mark,), daemon=True)
        self._thread.start()

    def note_listeners(self, mark: Mark) -> None:
        """Record the Unix listeners while the world is running."""
        ours = _find_sockets(os.getpid())
        fresh = {
            inode: name
            for inode, name in list_listeners().items()
            if inode not in self._known and inode not in ours and not self._is_own(name)
        }
        if self._is_alone:
            self._listeners |= fresh
            return
        members = [proc.pid for proc in find_trees([Search((mark,))])[0]]
        owned = find_owners(fresh, members)
        self._listeners |= {inode: name for inode, name in fresh.items() if inode in owned}
        self._foreign |= {inode: name for inode, name in fresh.items() if inode not in owned}

    async def compare_saves(self, save: Callable[[], Awaitable[object]]) -> None:
        """Record the files that change whenever the world is saved, and rarely in between.

        Args:
            save: Saves the world, in a different state each time.
        """
        if self._is_alone:
            return
        saved, quiet = Counter[str](), Counter[str]()
        changed = set[str]()
        for _ in range(_SAVES):
            begun = anyio.current_time()
            paths = await self._find_changes(save)
            span = anyio.current_time() - begun
            changed |= paths
            saved.update(_parents(paths))
            quiet.update(_parents(await self._find_changes(partial(anyio.sleep, span))))
        own = {path for path, count in saved.items() if count == _SAVES}
        own -= {path for path, count in quiet.items() if count > _SAVES // 2}
        self._opened |= {path for path in changed if not own.isdisjoint(_parents([path]))}

    async def _find_changes(self, act: Callable[[], Awaitable[object]]) -> set[str]:
        """Return the files that change during an act."""
        before = await run_blocking(self._list_files)
        await act()
        after = await run_blocking(self._list_files)
        return {path for path, version in after.items() if before.get(path) != version}

    def end(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return the remains of the world; must be called after the stop.

        Returns:
            The world's new or changed files, its Unix listeners, and files and listeners of unknown
            origin.
        """
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        after = self._list_files()
        changed = [path for path, version in after.items() if self._files.get(path) != version]
        own_dir = tempfile.gettempdir()
        files = [
            path
            for path in changed
            if self._is_alone or path in self._opened or path.startswith(f"{own_dir}/")
        ]
        foreign = [path for path in changed if path not in files]
        listeners = tuple(sorted(self._listeners.values()))
        return tuple(files), listeners, (*sorted(self._foreign.values()), *foreign)

    def _is_own(self, path: str) -> bool:
        return any(path == own or path.startswith(f"{own}/") for own in self._without) or any(
            path.startswith(f"{root}/clawblox-") for root in self._roots
        )

    def _list_files(self) -> dict[str, _Version]:
        files: dict[str, _Version] = {}
        count = 0
        waiting = [(root, 0) for root in self._roots]
        while waiting and count < _MOST_ENTRIES:
            directory, depth = waiting.pop()
            for entry in _entries(directory):
                count += 1
                if self._is_own(entry.path):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if depth < _MAX_DEPTH and entry.path not in self._roots:
                        waiting.append((entry.path, depth + 1))
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                files[entry.path] = status.st_ino, status.st_ctime_ns, status.st_size
        return files

    def _follow(self, mark: Mark) -> None:
        while not self._is_over.wait(_INTERVAL_S):
            try:
                members = find_trees([Search((mark,))])[0]
                paths = {path for proc in members for path in _open_paths(proc.pid)}
            except OSError:
                continue
            self._opened |= {path for path in paths if path.startswith(self._roots)}


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _parents(paths: Iterable[str]) -> set[str]:
    return {str(Path(path).parent) for path in paths}


def _open_paths(pid: int) -> Iterable[str]:
    """Yield the paths of the open files of a process."""
    for entry in _entries(f"/proc/{pid}/fd"):
        try:
            yield str(Path(entry.path).readlink())
        except OSError:
            continue


def _find_sockets(pid: int) -> set[int]:
    """Return the inodes of the sockets of a process."""
    paths = [path for path in _open_paths(pid) if path.startswith(_SOCKET)]
    return {int(path.removeprefix(_SOCKET).removesuffix("]")) for path in paths}


def list_listeners() -> dict[int, str]:
    """Return the names of the Unix listeners by inode; abstract names start with ``@``. Blocks."""
    try:
        rows = Path(_UNIX_TABLE).read_text(errors="replace").splitlines()[1:]
    except OSError:
        return {}
    found = {}
    for row in rows:
        fields = row.split(None, _PATH_FIELD)
        if len(fields) > _INODE_FIELD and fields[_FLAGS_FIELD] == _LISTENING:
            name = fields[_PATH_FIELD] if len(fields) > _PATH_FIELD else "a socket without a name"
            found[int(fields[_INODE_FIELD])] = name
    return found
