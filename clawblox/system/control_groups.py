"""Control groups of our own, in which the kernel limits programs; see the kernel's cgroup-v2.rst.

A group may be made only where somebody has left a part of the hierarchy to us: where the group that
this process is in lies in one that it may write, and that systemd has marked as delegated, if
systemd runs here. Only version 2 is known.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from clawblox.system.process_tree import is_same_process, read_start_time

_HIERARCHY: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_SYSTEMD: Final = Path("/run/systemd/system")
_MARKS: Final = ("user.delegate", "trusted.delegate")
_NAME: Final = re.compile(r"clawblox-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]+")


@attrs.frozen
class ControlGroup:
    """A group of our own.

    Attributes:
        path: Its directory.
    """

    path: Path

    @property
    def procs_file(self) -> str:
        """The file by which a process joins it."""
        return str(self.path / "cgroup.procs")

    def remove(self) -> None:
        """Kill what is left in it, and remove it; what cannot be removed is left for later."""
        with contextlib.suppress(OSError):  # Linux 5.14
            (self.path / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            self.path.rmdir()


def find_delegated(controllers: frozenset[str]) -> Path | None:
    """Return the directory in which groups of our own can be made; None if there is none. Blocks.

    Args:
        controllers: What must be limited there, ``memory`` for example.
    """
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name = line.removeprefix("0::/")
        if name == line or ".." in Path(name).parts:  # of version 1, or outside of our view
            continue
        own = _HIERARCHY / name
        group = own.parent if name else own
        if _is_delegated(group) and _enable(group, controllers):
            return group
    return None


def _is_delegated(group: Path) -> bool:
    files = (group, group / "cgroup.procs", group / "cgroup.subtree_control")
    if not all(os.access(path, os.W_OK) for path in files):
        return False
    return not _SYSTEMD.is_dir() or any(_is_marked(group, mark) for mark in _MARKS)


def _is_marked(group: Path, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(group, mark) == b"1"
    return False


def _enable(group: Path, controllers: frozenset[str]) -> bool:
    """Have groups in this one limited; return whether they are."""
    control = group / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if not controllers <= set(control.read_text().split()):
            control.write_text(" ".join(f"+{name}" for name in sorted(controllers)))
        return controllers <= set(control.read_text().split())
    return False


def make_group(parent: Path, limits: Mapping[str, int]) -> ControlGroup:
    """Make a group, and remove those that other processes left. Blocks.

    Args:
        parent: A directory from :func:`find_delegated`.
        limits: Its limits, by the names of their files.

    Raises:
        OSError: It cannot be made.
    """
    _sweep(parent)
    pid = os.getpid()
    name = f"clawblox-{pid}-{read_start_time(pid)}-{secrets.token_hex(4)}"
    group = ControlGroup(parent / name)
    group.path.mkdir()
    try:
        for file, limit in limits.items():
            (group.path / file).write_text(str(limit))
    except OSError:
        group.remove()
        raise
    return group


def _sweep(parent: Path) -> None:
    for path in parent.iterdir():
        found = _NAME.fullmatch(path.name)
        if found and not is_same_process(int(found["pid"]), int(found["start"])):
            try:
                path.rmdir()
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENOENT):
                    raise
