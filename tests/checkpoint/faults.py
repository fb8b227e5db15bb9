"""Failing file systems: failing system calls, and disks that lose unsynced content.

:class:`FaultFS` replaces the functions of ``os`` that work on files below a directory. It counts
the calls, makes a chosen call fail, and records changes of the disk. :func:`crash_states` returns
the possible disks after a power loss from this record, after Pillai et al., "All File Systems Are
Not Created Equal", OSDI 2014.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import attrs

CHANGING = ("pwrite", "write", "fsync", "ftruncate", "link", "unlink", "replace", "rename")
CHANGING += ("mkdir", "chmod", "fchmod")
LOOKING = ("fstat", "pread", "read", "stat", "lstat", "scandir", "listdir")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
BY_DESCRIPTOR = ("fstat", "pwrite", "write", "fsync", "ftruncate", "fchmod", "pread", "read")


# ---------------------------------------------------------------------------------------- faults


@attrs.frozen
class Fails:
    """The call raises without an effect."""

    errno: int

    def __str__(self) -> str:
        return errno.errorcode[self.errno]


@attrs.frozen
class FallsShort:
    """The call does half of its work, if partial work is allowed."""

    def __str__(self) -> str:
        return "short"


@attrs.frozen
class Dies:
    """The process ends before the call.

    Calls without changes are not counted: a death before such a call has the same result as a death
    before the next change.
    """

    def __str__(self) -> str:
        return "exit"


@attrs.frozen
class Event:
    """A change of the disk; ``inode`` is the changed file."""

    kind: str
    inode: int = 0
    directory: str = ""
    name: str = ""
    source: tuple[str, str] = ("", "")
    offset: int = 0
    data: bytes = b""


@attrs.define
class FaultFS:
    """A context manager that counts and records calls below ``root``, which may fail.

    Attributes:
        root: The directory.
        at: Index of the failing call, from 0; None without a failure.
        fault: The fault.
        stays: Whether all later calls also fail.
        calls: The names of the calls so far.
        trace: The changes of the disk.
    """

    root: Path
    at: int | None = None
    fault: Fails | FallsShort | Dies | None = None
    stays: bool = False
    calls: list[str] = attrs.field(factory=list)
    trace: list[Event] = attrs.field(factory=list)
    _real: dict[str, Callable[..., Any]] = attrs.field(factory=dict)
    _paths: dict[int, str] = attrs.field(factory=dict)

    @property
    def has_struck(self) -> bool:
        return self.at is not None and len(self.calls) > self.at

    def __enter__(self) -> FaultFS:
        for name in ("open", "close", *CHANGING, *LOOKING):
            self._real[name] = getattr(os, name)
            setattr(os, name, self._stand_in(name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._real.items():
            setattr(os, name, function)

    def _stand_in(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def open_(path: Any, *args: Any, **options: Any) -> int:
            full = self._full(path, options.get("dir_fd"))
            if full is not None:
                self._count(name, is_change=bool(args[0] & WRITING))
            existed = full is not None and self._exists(full)
            descriptor: int = real(path, *args, **options)
            self._paths.pop(descriptor, None)
            if full is not None:
                self._paths[descriptor] = full
                if not existed:
                    self._note("create", full, inode=self._inode(descriptor))
            return descriptor

        def close(descriptor: int) -> None:
            self._paths.pop(descriptor, None)
            real(descriptor)

        def call(*args: Any, **options: Any) -> Any:
            if not self._is_ours(name, args, options):
                return real(*args, **options)
            self._count(name, is_change=name in CHANGING)
            if isinstance(self.fault, FallsShort) and self._is_due():
                args = _halved(name, args)
            return self._noted(name, real, args, options)

        return {"open": open_, "close": close}.get(name, call)

    def _is_due(self) -> bool:
        place = len(self.calls) - 1
        return self.at is not None and (place == self.at or (self.stays and place > self.at))

    def _count(self, name: str, *, is_change: bool) -> None:
        if isinstance(self.fault, Dies) and not is_change:
            return
        self.calls.append(name)
        if not self._is_due():
            return
        if isinstance(self.fault, Dies):
            os._exit(137)
        if isinstance(self.fault, Fails):
            raise OSError(self.fault.errno, os.strerror(self.fault.errno))

    def _full(self, path: Any, dir_fd: int | None) -> str | None:
        if isinstance(path, int):
            return self._paths.get(path)
        if dir_fd is not None:
            above = self._paths.get(dir_fd)
            return None if above is None else os.path.normpath(f"{above}/{os.fspath(path)}")
        full = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))
        return full if full.startswith(f"{self.root}/") or full == str(self.root) else None

    def _is_ours(self, name: str, args: Sequence[Any], options: dict[str, Any]) -> bool:
        if name in BY_DESCRIPTOR:
            return args[0] in self._paths
        path = args[0] if args else "."
        dir_fd = options.get("dir_fd", options.get("src_dir_fd"))
        return self._full(path, dir_fd) is not None

    # -- the record ---------------------------------------------------------------------

    def _exists(self, path: str) -> bool:
        try:
            self._real["lstat"](path)
        except OSError:
            return False
        return True

    def _inode(self, descriptor: int) -> int:
        return self._real["fstat"](descriptor).st_ino

    def _note(self, kind: str, path: str, **fields: Any) -> None:
        directory, name = os.path.split(path)
        self.trace.append(Event(kind, directory=directory, name=name, **fields))

    def _noted(
        self, name: str, real: Callable[..., Any], args: Any, options: dict[str, Any]
    ) -> Any:
        if name in ("unlink", "replace", "rename", "link"):
            before = self._full(args[0], options.get("dir_fd", options.get("src_dir_fd")))
            inode = self._real["lstat"](args[0]).st_ino if self._exists(str(before)) else 0
        result = real(*args, **options)
        match name:
            case "write":
                end = os.lseek(args[0], 0, os.SEEK_CUR)
                data = bytes(args[1])[:result]
                self._note_data("write", args[0], offset=end - result, data=data)
            case "pwrite":
                self._note_data("write", args[0], offset=args[2], data=bytes(args[1])[:result])
            case "ftruncate":
                self._note_data("truncate", args[0], offset=args[1])
            case "fsync":
                kind = "sync directory" if os.path.isdir(self._paths[args[0]]) else "sync"
                self.trace.append(
                    Event(kind, inode=self._inode(args[0]), directory=self._paths[args[0]])
                )
            case "mkdir":
                self._note("mkdir", str(self._full(args[0], options.get("dir_fd"))))
            case "unlink":
                self._note("unlink", str(before), inode=inode)
            case "link" | "replace" | "rename":
                assert before is not None
                after = str(self._full(args[1], options.get("dst_dir_fd")))
                source = ("", "") if name == "link" else os.path.split(before)
                self._note("name", after, inode=inode, source=source)
        return result

    def _note_data(self, kind: str, descriptor: int, **fields: Any) -> None:
        self.trace.append(Event(kind, inode=self._inode(descriptor), **fields))


def _halved(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if name in ("write", "pwrite") and len(args[1]) > 1:
        return args[0], args[1][: len(args[1]) // 2], *args[2:]
    if name in ("read", "pread") and args[1] > 1:
        return args[0], args[1] // 2, *args[2:]
    return args


# ------------------------------------------------------------------------------ possible losses

SECTOR = 512

Disk = dict[str, bytes]
"""Files by path, if their directories exist."""


@attrs.define
class _File:
    """The content of a file: durable and pending."""

    durable: bytes = b""
    pending: list[Event] = attrs.field(factory=list)

    def versions(self) -> list[bytes]:
        """Return the content with no pending writes, all, only the size, or a torn last sector."""
        if not self.pending:
            return [self.durable] * 4
        whole = self.durable
        for event in self.pending:
            whole = _written(whole, event)
        start = min(len(whole), *(event.offset for event in self.pending))
        kept = min(len(whole), (start + len(whole)) // 2 // SECTOR * SECTOR)
        zeros = whole[:start].ljust(len(whole), b"\0")
        torn = whole[:kept].ljust(len(whole), b"\0")
        return [self.durable, whole, zeros, torn]


def _written(content: bytes, event: Event) -> bytes:
    if event.kind == "truncate":
        return content[: event.offset].ljust(event.offset, b"\0")
    padded = content.ljust(event.offset, b"\0")
    return padded[: event.offset] + event.data + padded[event.offset + len(event.data) :]


def crash_states(
    trace: Sequence[Event], before: Disk, inodes: dict[str, int]
) -> Iterator[tuple[bool, Disk]]:
    """Yield every possible disk after a power loss during or right after ``trace``.

    Unsynced content is old, new, zeros, or torn at a sector. Each unsynced change of a directory
    happened or not, independently of other changes.

    Args:
        trace: The record of :class:`FaultFS`.
        before: Durable files by path before ``trace``.
        inodes: Their inodes.

    Yields:
        Whether all of ``trace`` had happened, and the disk.
    """
    files = {inodes[path]: _File(content) for path, content in before.items()}
    names = dict(inodes)
    directories = {os.path.dirname(path) for path in before}
    pending: list[Event] = []
    yield not trace, dict(before)
    for place, event in enumerate(trace):
        match event.kind:
            case "write" | "truncate":
                files[event.inode].pending.append(event)
            case "sync":
                file = files[event.inode]
                file.durable, file.pending = file.versions()[1], []
            case "sync directory":
                synced = [one for one in pending if _touches(one, event.directory)]
                names, directories = _renamed(names, directories, synced)
                pending = [one for one in pending if one not in synced]
            case _:
                if event.kind == "create":
                    files[event.inode] = _File()
                pending.append(event)
        for disk in _disks(files, names, directories, pending):
            yield place == len(trace) - 1, disk


def _touches(event: Event, directory: str) -> bool:
    return directory in (event.directory, event.source[0])


def _renamed(
    names: dict[str, int], directories: set[str], events: Sequence[Event]
) -> tuple[dict[str, int], set[str]]:
    names, directories = dict(names), set(directories)
    for event in events:
        path = f"{event.directory}/{event.name}"
        match event.kind:
            case "mkdir":
                directories.add(path)
            case "unlink":
                names.pop(path, None)
            case "create" | "name":
                names[path] = event.inode
                names.pop("/".join(event.source), None)
    return names, directories


def _disks(
    files: dict[int, _File],
    names: dict[str, int],
    directories: set[str],
    pending: Sequence[Event],
) -> Iterator[Disk]:
    made = set(directories) | {
        f"{event.directory}/{event.name}" for event in pending if event.kind == "mkdir"
    }
    sizes = range(len(pending) + 1)
    for events in chain.from_iterable(combinations(pending, size) for size in sizes):
        found, present = _renamed(names, directories, events)
        for version in range(4):
            yield {
                path: files[inode].versions()[version]
                for path, inode in found.items()
                if all(str(above) in present for above in Path(path).parents if str(above) in made)
            }
