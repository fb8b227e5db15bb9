"""System calls of Linux that Python has no function for: renameat2(2) and syncfs(2)."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["EXCHANGE", "NO_REPLACE", "rename_with", "sync_file_system"]

NO_REPLACE: Final = 1
"""``RENAME_NOREPLACE``: a FileExistsError where something is already."""

EXCHANGE: Final = 2
"""``RENAME_EXCHANGE``: the two change places."""

_AT_FDCWD: Final = -100
_NO_FLAGS: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
"""How kernels, file systems and sandboxes say that they know no flags."""


def rename_with(
    flag: int,
    source: Path | str,
    destination: Path | str,
    *,
    source_dir: int = _AT_FDCWD,
    destination_dir: int = _AT_FDCWD,
) -> bool:
    """Rename in one step, as ``flag`` says. Blocks.

    Args:
        flag: :data:`NO_REPLACE` or :data:`EXCHANGE`.
        source: What is renamed.
        destination: Its new name.
        source_dir: Descriptor of the directory that a relative ``source`` is in.
        destination_dir: The same for ``destination``.

    Returns:
        False where the system cannot do it; then nothing has happened.

    Raises:
        OSError: It was not renamed.
    """
    renameat2 = _libc("renameat2")
    if renameat2 is None:
        return False
    names = source_dir, os.fsencode(source), destination_dir, os.fsencode(destination)
    if renameat2(*names, flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_FLAGS:
        return False
    raise OSError(code, os.strerror(code), str(destination))


def sync_file_system(fd: int) -> None:
    """Make durable all that was written to a file system: one wait, however many files. Blocks.

    Args:
        fd: Descriptor of anything on it.

    Raises:
        OSError: It may not be.
    """
    syncfs = _libc("syncfs")
    if syncfs is None:
        os.sync()
    elif syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@functools.cache
def _libc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)
