"""Running a program's version command without leaving processes behind."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.results import ProcessExit
from clawblox.supervision.tree import Grace, ProcessTree
from clawblox.system.process import memory_log, spawn

_GRACE_S = 1.0
_MOST_BYTES = 4096
_NUMBER = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


@attrs.frozen
class VersionAnswer:
    """Answer of a version command.

    Attributes:
        exit: How it ended.
        text: Its standard output; its standard error if it printed nothing there.
    """

    exit: ProcessExit
    text: str


def find_number(text: str) -> str | None:
    """Return the version number in a text, ``2.1.197``; None without one."""
    match = _NUMBER.search(text)
    return match[0] if match else None


async def ask_version(
    argv: Sequence[str], *, env: Mapping[str, str], cookie: str, timeout: float
) -> VersionAnswer | None:
    """Run a version command, and end all processes that it started.

    Args:
        argv: The command that prints the version.
        env: Its whole environment.
        cookie: Marks its processes, in ``env``.
        timeout: Seconds after which the command is ended.

    Returns:
        The answer; None if the command did not end in time.

    Raises:
        CannotExecute: The command cannot be executed.
        OSError: No descriptor is left.

    Cancellation: ends the processes.
    """
    with memory_log("version") as output, memory_log("complaints") as errors:
        tree, end = ProcessTree(cookie), None
        start = partial(spawn, argv, cwd=Path("/"), env=env, output=output, errors=errors)
        tree.add(process := await run_blocking(start))
        try:
            with anyio.move_on_after(timeout):
                end = await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await tree.end(Grace(_GRACE_S))
            tree.release()
        return None if end is None else VersionAnswer(end, _read(output) or _read(errors))


def _read(output: int) -> str:
    return os.pread(output, _MOST_BYTES, 0).decode(errors="replace").strip()
