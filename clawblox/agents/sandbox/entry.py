"""Starts a process in a sandbox, and limits its programs' use of this machine.

The limits are far above the needs of a large build. They prevent a runaway program from taking the
processes and the memory of its orchestrator, of worlds and of other agents.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.sandbox.endpoints import Endpoint
from clawblox.system.files import memory_file
from clawblox.system.network_namespace import (
    Confinement,
    helper_command,
    open_channel,
    receive_listeners,
)
from clawblox.system.process_tree import is_same_process, read_start_time


@attrs.define
class SandboxEntry:
    """Resources for the start of a process.

    Attributes:
        channel: This process's end of the channel on which the helper sends its sockets.
        helper_end: The other end.
        arguments: Descriptor of a file with bubblewrap's arguments.
        endpoints: The addresses reachable from inside.
        confinement: Restrictions that the helper applies to the program.
        files: Descriptors that bubblewrap inherits.
    """

    channel: socket.socket
    helper_end: socket.socket
    arguments: int
    endpoints: tuple[Endpoint, ...]
    confinement: Confinement
    files: list[int]

    @classmethod
    def open(
        cls,
        arguments: Sequence[str],
        endpoints: tuple[Endpoint, ...],
        confinement: Confinement,
        system_calls: bytes | None,
    ) -> SandboxEntry:
        """Open the resources.

        Args:
            arguments: bubblewrap's own arguments.
            endpoints: The addresses reachable from inside.
            confinement: Restrictions that the helper applies to the program.
            system_calls: Filter of its system calls; None without a filter.

        Raises:
            OSError: No descriptor is left.
        """
        with contextlib.ExitStack() as undo:
            files = []
            words = list(arguments)
            if system_calls is not None:
                files.append(memory_file("filter", system_calls))
                undo.callback(os.close, files[-1])
                words += ["--seccomp", str(files[-1])]
            content = b"".join(os.fsencode(word) + b"\0" for word in words)
            files.append(memory_file("arguments", content))
            undo.callback(os.close, files[-1])
            channel, helper_end = open_channel()
            undo.pop_all()
        return cls(channel, helper_end, files[-1], endpoints, confinement, files)

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """Descriptors that the helper inherits."""
        return self.helper_end.fileno(), *self.files

    def command(self, bubblewrap: str, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs ``argv`` inside."""
        listen = [(endpoint.address, endpoint.port) for endpoint in self.endpoints]
        # The program can read bubblewrap's command line, so it contains no paths of this machine.
        inner = [bubblewrap, "--args", str(self.arguments), "--", *argv]
        channel, *files = self.pass_fds
        return tuple(
            helper_command(channel, listen, inner, keep=files, confinement=self.confinement)
        )

    def hand_over(self) -> None:
        """Close the descriptors that only the helper needs."""
        self.helper_end.close()
        while self.files:
            os.close(self.files.pop())

    def receive(self) -> list[socket.socket]:
        """Return the listening sockets.

        Raises:
            NamespaceRefused: The helper could not open the sockets.
            OSError: The sockets cannot be received.
        """
        return receive_listeners(self.channel, len(self.endpoints))

    def close(self) -> None:
        """Close all resources."""
        self.hand_over()
        self.channel.close()


_PROCESSES: Final = 16_384
_SHARE_OF_PROCESSES: Final = 2
_SPARED_MEMORY: Final = 10
"""Reciprocal of the share of memory that is left to other processes."""

_PROCESS_TABLES: Final = (Path("/proc/sys/kernel/pid_max"), Path("/proc/sys/kernel/threads-max"))
_MEMINFO: Final = Path("/proc/meminfo")
_COUNTS_BY_NAMESPACE: Final = (5, 14)
"""First version of Linux that counts a user's processes per user namespace."""

_CONTROLLERS: Final = frozenset({"memory", "pids"})
_HIERARCHY: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_SYSTEMD: Final = Path("/run/systemd/system")
_MARKS: Final = ("user.delegate", "trusted.delegate")
_NAME: Final = re.compile(r"clawblox-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]+")


@attrs.frozen
class SandboxLimits:
    """The limits of one sandbox.

    Attributes:
        processes: Maximum number of processes and threads.
        memory_bytes: Maximum memory.
        parent: Directory in which control groups can be created; None if memory cannot be limited.
        counts_by_user: Whether RLIMIT_NPROC limits the processes.
    """

    processes: int
    memory_bytes: int
    parent: Path | None
    counts_by_user: bool

    @property
    def facts(self) -> dict[str, Any]:
        """Limits by name; None means no limit."""
        is_grouped = self.parent is not None
        return {
            "max_processes": self.processes if is_grouped or self.counts_by_user else None,
            "max_memory_bytes": self.memory_bytes if is_grouped else None,
        }

    def make_group(self) -> ControlGroup | None:
        """Create the control group of a process; return None without a parent group. Blocks.

        Raises:
            OSError: Creating it failed although this machine supports it.
        """
        if self.parent is None:
            return None
        limits = {"pids.max": self.processes, "memory.max": self.memory_bytes}
        return make_group(self.parent, limits)


def find_limits(outer_uid: int) -> SandboxLimits:
    """Return the limits of a sandbox on this machine. Blocks.

    Args:
        outer_uid: User id of its programs outside; the kernel does not limit root's processes.

    Raises:
        OSError: ``/proc`` cannot be read.
    """
    tables = [int(table.read_text()) // _SHARE_OF_PROCESSES for table in _PROCESS_TABLES]
    memory = re.search(r"^MemTotal:\s+(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
    assert memory is not None, "proc(5) promises it"
    total = int(memory[1]) * 1024
    kernel = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    return SandboxLimits(
        processes=min(_PROCESSES, *tables),
        memory_bytes=total - total // _SPARED_MEMORY,
        parent=_find_parent(),
        counts_by_user=outer_uid != 0 and kernel >= _COUNTS_BY_NAMESPACE,
    )


@functools.cache
def _find_parent() -> Path | None:
    return find_delegated(_CONTROLLERS)


# -- control groups, in which the kernel limits programs; see its cgroup-v2.rst ---------------- A
# group may be created only in a delegated part of the hierarchy: the parent of this process's group
# must be writable, and marked as delegated if systemd runs here. Only version 2 is supported.


@attrs.frozen
class ControlGroup:
    """A control group for one process.

    Attributes:
        path: Its directory.
    """

    path: Path

    def remove(self) -> None:
        """Kill the group's processes and remove the group; leave it if it cannot be removed."""
        with contextlib.suppress(OSError):  # Linux 5.14
            (self.path / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            self.path.rmdir()


def find_delegated(controllers: frozenset[str]) -> Path | None:
    """Return a directory in which groups can be created; None without such a directory. Blocks.

    Args:
        controllers: Resources that must be limited there, such as ``memory``.
    """
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name = line.removeprefix("0::/")
        if name == line or ".." in Path(name).parts:  # a group of version 1, or outside our view
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
    """Enable the controllers for groups in this group; return whether they are enabled."""
    control = group / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if not controllers <= set(control.read_text().split()):
            control.write_text(" ".join(f"+{name}" for name in sorted(controllers)))
        return controllers <= set(control.read_text().split())
    return False


def make_group(parent: Path, limits: Mapping[str, int]) -> ControlGroup:
    """Create a group, and remove groups left by ended processes. Blocks.

    Args:
        parent: A directory from :func:`find_delegated`.
        limits: Its limits, by the names of their files.

    Raises:
        OSError: The group cannot be created.
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
        owner = _NAME.fullmatch(path.name)
        if owner and not is_same_process(int(owner["pid"]), int(owner["start"])):
            try:
                path.rmdir()
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENOENT):
                    raise
