"""Transfers directories between driver and node, each complete or absent. All functions block.

A directory is sent as a *bundle*, first whole (:func:`pack`, :func:`unpack`), later only the
changes (:func:`list_tree`, :func:`difference`, :func:`apply`). A bundle is a file with the contents
of all files, one after the other, then the index in MessagePack, a list of ``[name, mode, mtime_ns,
size, link]`` with each directory before its entries, and the length of the index as eight bytes,
the most significant first. Unlike a tar, it has no devices, hard links or holes.

Received bundles are untrusted: names cannot leave the directory, and links are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple, NoReturn, TypeAlias

import msgspec

from clawblox.experiment.cluster.chunks import TransferError
from clawblox.system.copy_tree import CHANGED
from clawblox.system.files import (
    PartialFile,
    fsync_directory,
    partial_tree,
    sync_file_system,
    write_all,
)
from clawblox.system.regular_files import (
    PRIVATE_DIR,
    closing_fd,
    create_regular,
    open_directory,
    open_regular,
    opened_parent,
)
from clawblox.system.trees import MAX_DEPTH, TreeWalk, make_writable, remove_tree

_PIECE_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 8
_MAX_INDEX_BYTES: Final = 128 << 20
_MAX_PATH_BYTES: Final = 4095
_MAX_NAME_BYTES: Final = 255
_TRIES: Final = 3
_PERMISSIONS: Final = 0o777
_KINDS: Final = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
_NO_NAMES: Final = (b"", b".", b"..")
_FRESH_NS: Final = 100_000_000
"""Age below which a file may change again with the same mtime, since file clocks are coarse."""

Check: TypeAlias = Callable[[], object]
"""Called often; raises an error to end the call."""


class TreeLimits(NamedTuple):
    """The largest directory that travels.

    Attributes:
        members: Number of files, links and directories.
        total_bytes: Apparent size of all files together.
    """

    members: int = 500_000
    total_bytes: int = 256 << 30


LIMITS: Final = TreeLimits()


def _go_on() -> None: ...


Stamp: TypeAlias = tuple[int, int, int, int]
"""Mode (which includes the file type), size, mtime and ctime, as in stat(2).

No program can set the ctime. It is -1 for directories, and for entries that have changed so
recently that they could change again with the same stamp.
"""


# -- the contents of a directory, and its changes --------------------------------------------------


def _walk(root: Path, check: Check) -> Iterator[tuple[str, int, os.stat_result]]:
    """Yield paths, open parents and statuses; each directory comes before its entries."""
    with TreeWalk(open_directory(root)) as walk:
        for entry in walk:
            check()
            path, parent = walk.path_to(entry.name), walk.fd
            if walk.depth >= MAX_DEPTH or len(os.fsencode(path)) > _MAX_PATH_BYTES:
                continue
            with _skipping(root / path):
                status = os.stat(entry.name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    status = os.fstat(walk.enter(entry.name))
                if stat.S_IFMT(status.st_mode) in _KINDS:
                    yield path, parent, status


@contextlib.contextmanager
def _skipping(path: Path) -> Iterator[None]:
    """Skip the rest of the block if an entry was removed or replaced."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        if error.errno not in CHANGED:
            raise


def _content_size(status: os.stat_result) -> int:
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _require_room(members: int, total: int, limits: TreeLimits) -> None:
    if members > limits.members or total > limits.total_bytes:
        most = f"{limits.members} files or {limits.total_bytes} bytes"
        raise TransferError(f"the directory has more than {most}")


def list_tree(root: Path, limits: TreeLimits = LIMITS) -> dict[str, Stamp]:
    """Return the files, links and directories below a directory, for :func:`difference`.

    Pipes, sockets, devices, and paths of more than 100 names or 4095 bytes are omitted.

    Args:
        root: The directory.
        limits: Limits for its size.

    Raises:
        TransferError: The directory exceeds a limit.
        OSError: A directory cannot be read; the error names it.
    """
    stamps: dict[str, Stamp] = {}
    fresh, total = time.time_ns() - _FRESH_NS, 0
    for path, _, status in _walk(root, _go_on):
        total += _content_size(status)
        _require_room(len(stamps) + 1, total, limits)
        is_settled = status.st_ctime_ns < fresh and not stat.S_ISDIR(status.st_mode)
        ctime_ns = status.st_ctime_ns if is_settled else -1
        stamps[path] = status.st_mode, status.st_size, status.st_mtime_ns, ctime_ns
    return stamps


def difference(
    before: Mapping[str, Stamp], now: Mapping[str, Stamp]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names that are new or may have changed, and those that are gone.

    Directories are always among the former: their permissions and times are set after their
    content. ``now`` must be listed before the names are packed: a file that changes after it was
    listed has another stamp in the next list.
    """
    same = {name for name in now if now[name] == before.get(name) and now[name][-1] >= 0}
    return frozenset(now.keys() - same), tuple(sorted(before.keys() - now.keys()))


# -- bundles ---------------------------------------------------------------------------------------


class _Member(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: bytes
    mode: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    mtime_ns: int
    size: Annotated[int, msgspec.Meta(ge=0)]
    link: bytes


_decoder: Final = msgspec.msgpack.Decoder(list[_Member])


def pack(
    root: Path, file: Path, names: Collection[str] | None = None, check: Check = _go_on
) -> None:
    """Write files, links and directories below a directory to a bundle.

    Links stay links; entries that :func:`list_tree` omits are omitted. A file that changes while it
    is read is read again; if it keeps changing, it is truncated if it only grows, and omitted
    otherwise. Permissions and modification times are kept.

    Args:
        root: The directory.
        file: The bundle, outside of ``root``; it is replaced, and complete or absent.
        names: Paths below ``root`` to pack, with all their directories, as :func:`difference`
            returns them; None packs everything.
        check: Called often.

    Raises:
        OSError: An entry cannot be read, or the bundle cannot be written.
    """
    members: list[_Member] = []
    with contextlib.closing(PartialFile(file.parent, "pack")) as bundle:
        for path, parent, status in _walk(root, check):
            if names is None or path in names:
                with _skipping(root / path):
                    members.append(_pack_entry(bundle.fd, path, parent, status, check))
        index = msgspec.msgpack.encode(members)
        write_all(bundle.fd, index + len(index).to_bytes(_LENGTH_BYTES))
        bundle.publish(file, overwrite=True, durable=False)


def _pack_entry(
    bundle: int, path: str, parent: int, status: os.stat_result, check: Check
) -> _Member:
    name, link = path.rpartition("/")[2], ""
    if stat.S_ISREG(status.st_mode):
        with closing_fd(open_regular(name, dir_fd=parent)) as fd:
            status = _pack_content(bundle, fd, check)
    elif stat.S_ISLNK(status.st_mode):
        link = os.readlink(name, dir_fd=parent)
    size, mtime_ns = _content_size(status), status.st_mtime_ns
    return _Member(os.fsencode(path), status.st_mode, mtime_ns, size, os.fsencode(link))


def _pack_content(bundle: int, fd: int, check: Check) -> os.stat_result:
    """Copy an open file and return its status; treat a file that keeps changing as missing."""
    start = os.lseek(bundle, 0, os.SEEK_CUR)
    for tries_left in reversed(range(_TRIES)):
        before = os.fstat(fd)
        is_whole = _copy(fd, bundle, 0, before.st_size, check)
        after = os.fstat(fd)
        is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        has_grown = after.st_size > before.st_size
        if is_whole and (is_same or (has_grown and not tries_left)):
            return before
        os.ftruncate(bundle, os.lseek(bundle, start, os.SEEK_SET))
    raise FileNotFoundError(errno.ENOENT, "keeps changing")


def _copy(source: int, target: int, start: int, size: int, check: Check) -> bool:
    """Copy a part of a file to another file's position; return False if the source is shorter."""
    while size:
        check()
        if not (piece := os.pread(source, min(size, _PIECE_BYTES), start)):
            return False
        write_all(target, piece)
        start, size = start + len(piece), size - len(piece)
    return True


def _read_index(bundle: int, limits: TreeLimits) -> list[_Member]:
    """Check and return the members of an untrusted bundle."""
    end = os.fstat(bundle).st_size - _LENGTH_BYTES
    length = int.from_bytes(os.pread(bundle, _LENGTH_BYTES, max(0, end)))
    if not length <= min(end, _MAX_INDEX_BYTES):
        raise TransferError("the bundle is truncated, or its index is too long")
    try:
        members = _decoder.decode(os.pread(bundle, length, end - length))
    except msgspec.DecodeError as error:
        raise TransferError(f"the index of the bundle is damaged: {error}") from error
    _require_room(len(members), end - length, limits)
    is_directory = {"": True}
    for member in members:
        name = check_name(os.fsdecode(member.name))
        if name in is_directory or not is_directory.get(name.rpartition("/")[0]):
            _refuse(name, "is listed twice, or its directory is not listed before it")
        is_directory[name] = stat.S_ISDIR(member.mode)
        is_link_bad = not 0 < len(member.link) <= _MAX_PATH_BYTES or 0 in member.link
        kind = stat.S_IFMT(member.mode)
        if kind not in _KINDS or (kind == stat.S_IFLNK and is_link_bad):
            _refuse(name, "is not a file, a directory or a possible link")
    if sum(member.size for member in members) != end - length:
        raise TransferError("the bundle does not have the size of its files")
    return members


def check_name(name: str) -> str:
    """Return an untrusted name if it is a relative path with ``/`` between components.

    Raises:
        TransferError: It is not such a path, or is too long or too deep.
    """
    path = b""
    with contextlib.suppress(UnicodeEncodeError):
        path = os.fsencode(name)
    parts = path.split(b"/") if len(path) <= _MAX_PATH_BYTES and b"\0" not in path else []
    are_names = (part not in _NO_NAMES and len(part) <= _MAX_NAME_BYTES for part in parts)
    if not 0 < len(parts) <= MAX_DEPTH or not all(are_names):
        _refuse(name, "is not a path below the directory, or too long")
    return name


def _refuse(name: str, reason: str) -> NoReturn:
    raise TransferError(f"{name[:200]!r} {reason}")


# -- unpacking -------------------------------------------------------------------------------------


def unpack(file: Path, target: Path, limits: TreeLimits = LIMITS, check: Check = _go_on) -> None:
    """Unpack an untrusted bundle into a directory, which is complete or absent.

    Args:
        file: The bundle.
        target: The directory, which does not exist or is empty; its parent is trusted.
        limits: Limits for its size.
        check: Called often.

    Raises:
        TransferError: The bundle is damaged, or something in it is not allowed.
        OSError: The directory is not empty, or cannot be written.
    """
    with partial_tree(target.parent, "pull") as hidden:
        apply(file, hidden, (), limits, check)
        hidden.rename(target)
        fsync_directory(target.parent)


def apply(
    file: Path,
    target: Path,
    gone: Iterable[str],
    limits: TreeLimits = LIMITS,
    check: Check = _go_on,
) -> None:
    """Apply the changes of another directory, given by untrusted names and an untrusted bundle.

    All names are checked first. At any time each file is either the old or the new version; all are
    durable at the end. Links in the directory are replaced or removed, not followed.

    Args:
        file: Bundle of the names that are new or have changed.
        target: The directory. It must not change during the call; its parent is trusted.
        gone: Names to remove, with everything below them.
        limits: Limits for the content of the bundle.
        check: Called often.

    Raises:
        TransferError: The bundle is damaged, or something in it is not allowed.
        OSError: The directory cannot be written.
    """
    gone = [check_name(name) for name in gone]
    with (
        closing_fd(open_regular(file)) as bundle,
        partial_tree(target.parent, "pull") as hidden,
        closing_fd(open_directory(target)) as top,
    ):
        members = _read_index(bundle, limits)
        make_writable(target)
        for name in gone:
            check()
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),  # the parent is gone
                opened_parent(target, name) as (parent, last),
            ):
                _remove(last, parent)
        start = 0
        for member in members:
            check()
            _place(bundle, start, member, hidden / "new", target, check)
            start += member.size
        for member in members:
            if stat.S_ISDIR(member.mode):
                with closing_fd(open_directory(target, os.fsdecode(member.name))) as fd:
                    _set_status(fd, member)
        sync_file_system(top)


def _place(
    bundle: int, start: int, member: _Member, staged: Path, target: Path, check: Check
) -> None:
    is_directory = stat.S_ISDIR(member.mode)
    if stat.S_ISLNK(member.mode):
        staged.symlink_to(os.fsdecode(member.link))
        os.utime(staged, ns=(member.mtime_ns, member.mtime_ns), follow_symlinks=False)
    elif not is_directory:
        with closing_fd(create_regular(staged)) as fd:
            _copy(bundle, fd, start, member.size, check)
            _set_status(fd, member)
    with opened_parent(target, os.fsdecode(member.name)) as (parent, name):
        was_directory = _is_directory(name, parent)
        if was_directory != is_directory:
            _remove(name, parent)
        if not is_directory:
            os.rename(staged, name, dst_dir_fd=parent)
        elif not was_directory:
            os.mkdir(name, PRIVATE_DIR, dir_fd=parent)


def _is_directory(name: str, parent: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _set_status(fd: int, member: _Member) -> None:
    os.fchmod(fd, member.mode & _PERMISSIONS)
    os.utime(fd, ns=(member.mtime_ns, member.mtime_ns))


def _remove(name: str, parent: int) -> None:
    try:
        remove_tree(name, dir_fd=parent)
    except NotADirectoryError:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
