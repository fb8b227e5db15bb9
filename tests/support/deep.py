"""Deep trees, and limits for walking them: few descriptors, and a shallow stack."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

NAME = "d" * 200
LEVELS = 150
"""Number of nested directories whose path exceeds the maximum length of a path."""

_CALLS = 100


def make_deep(top: Path, name: str = NAME, levels: int = LEVELS) -> Path:
    """Create nested directories with a file in the deepest; return the outermost."""
    top.mkdir(parents=True, exist_ok=True)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    return top / name


@contextlib.contextmanager
def constrained() -> Iterator[None]:
    """Allow 64 more descriptors, and fewer nested calls than a deep tree has levels."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = {int(name) for name in os.listdir("/proc/self/fd")}
    free = (fd for fd in range(hard) if fd not in opened)
    lowest = next(fd for number, fd in enumerate(free) if number == 64)
    calls = sys.getrecursionlimit()
    depth = 0
    frame = sys._getframe()
    while frame := frame.f_back:
        depth += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    sys.setrecursionlimit(depth + _CALLS)
    try:
        yield
    finally:
        sys.setrecursionlimit(calls)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
