"""How much of this machine the programs of one sandbox may use.

The limits are far above what a large build needs. They keep a program that has run wild from taking
the processes and the memory of its orchestrator, of worlds and of other agents.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.system.control_groups import ControlGroup, find_delegated, make_group

_PROCESSES: Final = 16_384
_SHARE_OF_PROCESSES: Final = 2
_SPARED_MEMORY: Final = 10
"""One part in so many is left to others."""

_PROCESS_TABLES: Final = (
    Path("/proc/sys/kernel/pid_max"),
    Path("/proc/sys/kernel/threads-max"),
)
_MEMINFO: Final = Path("/proc/meminfo")
_COUNTS_BY_NAMESPACE: Final = (5, 14)
"""The first Linux that counts the processes of a user for each user namespace."""

_CONTROLLERS: Final = frozenset({"memory", "pids"})


@attrs.frozen
class Limits:
    """The limits of one sandbox.

    Attributes:
        processes: Most processes and threads.
        memory_bytes: Most memory.
        parent: Where control groups can be made; None means that memory has no limit.
        counts_by_user: Whether RLIMIT_NPROC limits the processes.
    """

    processes: int
    memory_bytes: int
    parent: Path | None
    counts_by_user: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What holds, by name; None for what has no limit."""
        is_grouped = self.parent is not None
        return {
            "max_processes": self.processes if is_grouped or self.counts_by_user else None,
            "max_memory_bytes": self.memory_bytes if is_grouped else None,
        }

    def make_group(self) -> ControlGroup | None:
        """Make the control group of a process; None where none can be made. Blocks.

        Raises:
            OSError: It cannot be made although it should.
        """
        if self.parent is None:
            return None
        limits = {"pids.max": self.processes, "memory.max": self.memory_bytes}
        return make_group(self.parent, limits)


def find_limits(outer_uid: int) -> Limits:
    """Return the limits of a sandbox on this machine. Blocks.

    Args:
        outer_uid: The user that its programs are outside; the kernel lets root fork without limit.

    Raises:
        OSError: ``/proc`` cannot be read.
    """
    return Limits(
        processes=_find_processes(),
        memory_bytes=_find_memory(),
        parent=_find_parent(),
        counts_by_user=outer_uid != 0 and _kernel() >= _COUNTS_BY_NAMESPACE,
    )


@functools.cache
def _find_parent() -> Path | None:
    return find_delegated(_CONTROLLERS)


def _find_processes() -> int:
    tables = [int(table.read_text()) // _SHARE_OF_PROCESSES for table in _PROCESS_TABLES]
    return min(_PROCESSES, *tables)


def _find_memory() -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
    assert found is not None, "proc(5) promises it"
    total = int(found[1]) * 1024
    return total - total // _SPARED_MEMORY


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))
