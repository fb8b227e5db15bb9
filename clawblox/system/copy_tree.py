"""Copies a directory that an agent or a stranger has filled, and may still change.

Links are not followed: directories and files are opened by name in their open directory. Pipes,
sockets and devices are left out. Extents are shared with the original if the file system supports
that, and holes of sparse files are kept, so that a file of terabytes does not fill the disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Final, NamedTuple, TypeAlias, TypeVar

import attrs

from clawblox.system.files import make_private_dir
from clawblox.system.regular_files import (
    OPEN_DIRECTORY,
    PRIVATE_DIR,
    create_regular,
    naming,
    open_regular,
)
from clawblox.system.trees import MAX_DEPTH, Descent, TreeWalk

MAX_LEFT_OUT: Final = 1000
"""Maximum number of entries that are reported as left out."""

CHANGED: Final = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EINVAL)
"""Errors of an entry that is missing or has changed its kind."""

_T = TypeVar("_T")

_PIECE_BYTES: Final = 8 << 20
_FICLONE: Final = 0x40049409
_OTHER_FILE_SYSTEM: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

IsKept: TypeAlias = Callable[[PurePath, bool], bool]
"""Returns whether to copy an entry, by its path in the tree and whether it is a directory."""

Lead: TypeAlias = Callable[[str, PurePath], str | None]
"""Returns the new text of a link from its old text and its path; None leaves the link out."""


class LeftOut(NamedTuple):
    """An entry that was not copied.

    Attributes:
        path: Path of the entry in the tree.
        reason: The reason, in a few words.
    """

    path: PurePath
    reason: str


def copy_tree(
    source: Path,
    target: Path,
    *,
    is_kept: IsKept = lambda _path, _is_dir: True,
    lead: Lead = lambda link, _path: link,
    missing_ok: bool = False,
    max_bytes: int | None = None,
    max_total_bytes: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[LeftOut]:
    """Copy directories, regular files and links, with their permissions and times. Blocks.

    Args:
        source: The directory; not a link.
        target: The directory of the copy, created as 0700 if it is missing. Other programs must not
            write to it. It may contain directories, but no other entries.
        is_kept: Selects entries; a directory that is not selected is skipped as a whole.
        lead: Chooses the targets of copied links.
        missing_ok: Whether a missing source gives an empty target.
        max_bytes: Maximum apparent size of each file in bytes; larger files are left out. None sets
            no limit.
        max_total_bytes: Maximum apparent size of all files together in bytes; files that exceed it
            are left out. None sets no limit.
        check: Called often; ends the copy by raising an error.

    Returns:
        Entries that could not be copied, links that were left out, and entries that changed their
        kind during the copy, up to :data:`MAX_LEFT_OUT`.

    Raises:
        OSError: An entry cannot be read or written; the error names it. The copy is incomplete.
    """
    copy = _Copy(source, is_kept, lead, max_bytes, max_total_bytes, check)
    make_private_dir(target)
    try:
        old = os.open(source, OPEN_DIRECTORY)
    except FileNotFoundError:
        if missing_ok:
            return []
        raise
    with (
        TreeWalk(old, copy.leave) as copy.old,
        Descent(os.open(target, OPEN_DIRECTORY)) as copy.new,
    ):
        for entry in copy.old:
            check()
            copy.copy_entry(PurePath(copy.old.path_to(entry.name)))
    return copy.left_out


@attrs.define(eq=False)
class _Copy:
    """One run of a copy. Paths are relative to the tree.

    Attributes:
        old: The walk through the original.
        new: The corresponding descent in the copy.
        left_out: Entries that were not copied.
    """

    _source: Path
    _is_kept: IsKept
    _lead: Lead
    _max_bytes: int | None
    _max_total_bytes: int | None
    _check: Callable[[], None]
    old: TreeWalk = attrs.field(init=False)
    new: Descent = attrs.field(init=False)
    left_out: list[LeftOut] = attrs.field(factory=list, init=False)
    _statuses: list[os.stat_result] = attrs.field(factory=list, init=False)
    _total_bytes: int = attrs.field(default=0, init=False)

    def copy_entry(self, path: PurePath) -> None:
        """Copy an entry; the entries of a directory are visited next."""
        old, new = self.old.fd, self.new.fd
        status = self._try(path, partial(os.stat, path.name, dir_fd=old, follow_symlinks=False))
        if status is None:
            return
        is_dir = stat.S_ISDIR(status.st_mode)
        if not self._is_kept(path, is_dir):
            return
        if is_dir:
            self._enter(path)
        elif stat.S_ISLNK(status.st_mode):
            self._copy_link(old, new, path, status)
        elif stat.S_ISREG(status.st_mode):
            self._copy_file(old, new, path)
        else:
            self._leave_out(path, "is a pipe, a socket or a device")

    def _enter(self, path: PurePath) -> None:
        if self.old.depth >= MAX_DEPTH:
            self._leave_out(path, f"is more than {MAX_DEPTH} directories deep")
            return
        inner = self._try(path, partial(self.old.enter, path.name))
        if inner is None:
            return
        with naming(self._source, path):
            with suppress(FileExistsError):
                os.mkdir(path.name, PRIVATE_DIR, dir_fd=self.new.fd)
            self.new.enter(path.name)
        self._statuses.append(os.fstat(inner))

    def leave(self, _name: str) -> None:
        """Complete the copy of a directory after its entries."""
        _copy_status(self._statuses.pop(), self.new.fd)
        self.new.leave()

    def _copy_link(self, old: int, new: int, path: PurePath, status: os.stat_result) -> None:
        link = self._try(path, partial(os.readlink, path.name, dir_fd=old))
        if link is None:
            return
        text = self._lead(link, path)
        if text is None:
            self._leave_out(path, f"is a link to {link!r}")
            return
        with naming(self._source, path):
            os.symlink(text, path.name, dir_fd=new)
            times = (status.st_atime_ns, status.st_mtime_ns)
            os.utime(path.name, ns=times, dir_fd=new, follow_symlinks=False)

    def _copy_file(self, old: int, new: int, path: PurePath) -> None:
        source = self._try(path, partial(open_regular, path.name, dir_fd=old))
        if source is None:
            return
        with ExitStack() as opened, naming(self._source, path):
            opened.callback(os.close, source)
            status = os.fstat(source)
            if not self._has_room(path, status.st_size):
                return
            copied = create_regular(path.name, dir_fd=new)
            opened.callback(os.close, copied)
            _copy_content(source, copied, status.st_size, self._check)
            _copy_status(status, copied)

    def _has_room(self, path: PurePath, size: int) -> bool:
        if self._max_bytes is not None and size > self._max_bytes:
            self._leave_out(path, f"is larger than {self._max_bytes} bytes")
            return False
        limit = self._max_total_bytes
        if limit is not None and self._total_bytes + size > limit:
            self._leave_out(path, f"makes the directory larger than {limit} bytes")
            return False
        self._total_bytes += size
        return True

    def _try(self, path: PurePath, access: Callable[[], _T]) -> _T | None:
        """Access an entry of the source; return None if it has changed its kind."""
        try:
            with naming(self._source, path):
                return access()
        except OSError as error:
            if error.errno not in CHANGED:
                raise
            self._leave_out(path, "changed while it was copied")
            return None

    def _leave_out(self, path: PurePath, reason: str) -> None:
        if len(self.left_out) < MAX_LEFT_OUT:
            self.left_out.append(LeftOut(path, reason))


def _copy_status(status: os.stat_result, copied: int) -> None:
    os.fchmod(copied, stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(copied, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_content(old: int, new: int, size: int, check: Callable[[], None]) -> None:
    try:
        fcntl.ioctl(new, _FICLONE, old)
    except OSError:  # a different file system, or one that cannot share extents
        for start, end in _find_extents(old, size):
            _copy_extent(old, new, start, end, check)
        os.ftruncate(new, min(size, os.fstat(old).st_size))


def _find_extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part of a file that is not a hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the rest is a hole
                return
            raise
        yield start, min(end, size)


def _copy_extent(old: int, new: int, start: int, end: int, check: Callable[[], None]) -> None:
    while start < end:
        check()
        copied = _copy_piece(old, new, start, min(_PIECE_BYTES, end - start))
        if not copied:  # it was truncated in the meantime
            return
        start += copied


def _copy_piece(old: int, new: int, start: int, size: int) -> int:
    """Copy some bytes and return their number; 0 at the end of the file."""
    try:
        return os.copy_file_range(old, new, size, start, start)
    except OSError as error:
        if error.errno not in _OTHER_FILE_SYSTEM:
            raise
    return os.pwrite(new, os.pread(old, size, start), start)
