"""Runs a program as an otherwise unused user, who sees some files of root as its own.

Namespaces confine their root, except where the kernel checks only for the user id of root, for
example below ``/proc/sys`` and in control groups: there, root in a namespace is the real root. So a
helper that root starts becomes another user before it creates any namespace. The files still belong
to root: they are bound to paths in a private file system, with mounts that map the owner
(mount_setattr(2), ``MOUNT_ATTR_IDMAP``). Files that the program creates there also belong to root,
so no file on disk changes its owner.

Standard library only, because helpers use it. The system call numbers are the same on x86-64 and
AArch64.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from clawblox.system.regular_files import closing_fd

OUTER_DIR = "/tmp"  # noqa: S108 - in the helper's own mount namespace
"""Directory in which the files are bound as ``0``, ``1`` and so on. bubblewrap also needs it."""

OUTER_PROC = f"{OUTER_DIR}/proc"
"""Path of an uncovered ``/proc``, if it can be mounted."""

_FIRST_UID = 2_010_000_000
_UIDS = 100_000_000
"""First user id: above systemd's containers and SSSD's users, below systemd's reserved ids."""

_NEEDED = {
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
}
"""Capabilities needed to become that user, and to find and end the user's processes."""

_CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 0x1, 0x80000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_MOUNT_ATTR_IDMAP = 0x00100000
_PR_SET_DUMPABLE = 4
_MOST_IDS = 2**32 - 1


# ------------------------------------------------------------------------- the orchestrator's side


def choose_uid(name: str) -> int:
    """Return the user id for ``name``, which is stable and rarely equals that of another name.

    Args:
        name: A name such as the agent's directory. Programs with the same user share the kernel's
            limits for a user.
    """
    return _FIRST_UID + zlib.crc32(os.fsencode(name)) % _UIDS


def find_obstacle(uid: int) -> str | None:
    """Return the reason why this process cannot run programs as another user, or None. Blocks.

    Args:
        uid: The user.
    """
    with Path("/proc/self/status").open() as file:
        fields = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    held = int(fields["CapEff"], 16)
    absent = [name for name, number in _NEEDED.items() if not held >> number & 1]
    if absent:
        return f"root lacks {', '.join(absent)} here"
    if not all(_is_mapped(uid, Path("/proc/self", name)) for name in ("uid_map", "gid_map")):
        return f"user {uid} does not exist in this user namespace"
    return None


def _is_mapped(number: int, table: Path) -> bool:
    ranges = [tuple(map(int, line.split())) for line in table.read_text().splitlines()]
    return any(first <= number < first + count for first, _, count in ranges)


# ---------------------------------------------------------------------------------- the helper


def become(uid: int, own: Sequence[str], shown: Sequence[str]) -> None:
    """Bind files to paths in :data:`OUTER_DIR`, and become a user who sees them as its own.

    Args:
        uid: The user; its group has the same number.
        own: Files and directories that the user must be able to write.
        shown: Files and directories that the user only reads. If a file system cannot map their
            owner, they keep it.

    Raises:
        OSError: A system call is refused; the message names it.
    """
    with closing_fd(_open_mapping(uid)) as namespace:
        _own_streams(uid, namespace)
        trees = [_open_tree(path, namespace, must_map=True) for path in own]
        trees += [_open_tree(path, namespace, must_map=False) for path in shown]
    call("unshare(CLONE_NEWNS)", "unshare", _CLONE_NEWNS)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", OUTER_DIR, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
    for number, tree in enumerate(trees):
        _attach(tree, f"{OUTER_DIR}/{number}")
    _show_processes()
    os.chdir("/")
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Without this, its own entries in /proc would belong to root, and it could not map users.
    call("prctl(PR_SET_DUMPABLE)", "prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)


def _open_mapping(uid: int) -> int:
    """Return a descriptor of a user namespace that maps root to ``uid``.

    All other users are mapped to themselves.
    """
    ready, ended = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.close(ended[1])
            call("unshare(CLONE_NEWUSER)", "unshare", CLONE_NEWUSER)
            os.write(ready[1], b"+")
            os.read(ended[0], 1)
            status = 0
        os._exit(status)
    try:
        os.close(ready[1])
        if not os.read(ready[0], 1):
            raise PermissionError(errno.EPERM, "unshare(CLONE_NEWUSER): Operation not permitted")
        rest = uid + 1
        lines = (f"0 {uid} 1", f"1 1 {uid - 1}", f"{rest} {rest} {_MOST_IDS - rest}")
        for name in ("uid_map", "gid_map"):
            with _naming(f"write /proc/<pid>/{name}"):
                Path(f"/proc/{child}/{name}").write_text("\n".join(lines))
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (ready[0], *ended):
            os.close(descriptor)
        os.waitpid(child, 0)


def _open_tree(path: str, namespace: int, *, must_map: bool) -> int:
    """Return a copy of a mount that ends at ``path``, with its owner mapped."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    with _naming(f"open_tree({path})"):
        tree = call("", "syscall", _OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)
    try:
        _map_owner(tree, namespace)
    except OSError as error:
        if must_map:
            error.strerror = f"mount_setattr(MOUNT_ATTR_IDMAP, {path}): {error.strerror}"
            raise
    return tree


def _map_owner(tree: int, namespace: int) -> None:
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace)
    flags = _AT_EMPTY_PATH | _AT_RECURSIVE
    call("", "syscall", _MOUNT_SETATTR, tree, b"", flags, attributes, len(attributes))


def _attach(tree: int, place: str) -> None:
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        Path(place).mkdir()
    else:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    target = os.fsencode(place)
    moved = _MOVE_MOUNT, tree, b"", _AT_FDCWD, target, _MOVE_MOUNT_F_EMPTY_PATH
    call(f"move_mount({place})", "syscall", *moved)
    os.close(tree)


def _show_processes() -> None:
    """Mount ``/proc`` again, uncovered.

    Containers cover parts of ``/proc``, and only a process that sees an uncovered ``/proc`` may
    mount another one in its own namespaces.
    """
    Path(OUTER_PROC).mkdir()
    with contextlib.suppress(OSError):  # not needed if nothing is covered
        _mount("proc", OUTER_PROC, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _own_streams(uid: int, namespace: int) -> None:
    """Let the user open its standard streams by name, for example as ``/dev/stderr``."""
    for descriptor in (0, 1, 2):
        found = os.fstat(descriptor)
        if stat.S_ISFIFO(found.st_mode) or not found.st_nlink:
            with contextlib.suppress(OSError):
                os.fchown(descriptor, uid, uid)
        elif stat.S_ISREG(found.st_mode):
            with contextlib.suppress(OSError):  # writing still works
                _reopen(descriptor, namespace)


def _reopen(descriptor: int, namespace: int) -> None:
    """Open a regular file again, through a mount with its owner mapped."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_EMPTY_PATH
    with closing_fd(call("", "syscall", _OPEN_TREE, descriptor, b"", flags)) as tree:
        _map_owner(tree, namespace)
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
        again = os.open(f"/proc/self/fd/{tree}", mode | os.O_CLOEXEC)
    os.dup2(again, descriptor)
    os.close(again)


def _mount(
    source: str | None, place: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    words = [None if word is None else word.encode() for word in (source, place, kind)]
    call(f"mount({place})", "mount", *words, flags, None if data is None else data.encode())


def call(text: str, function: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library; ``text`` names the call in errors."""
    library = ctypes.CDLL(None, use_errno=True)
    values = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = getattr(library, function)(*values)
    if result < 0:
        number = ctypes.get_errno()
        reason = os.strerror(number)
        raise OSError(number, f"{text}: {reason}" if text else reason)
    return result


@contextlib.contextmanager
def _naming(call: str) -> Iterator[None]:
    """Name a call in the errors that it raises."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{call}: {error.strerror}") from error
