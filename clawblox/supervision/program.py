"""Runs a program and reads its output; all processes that it started end with it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.results import ProcessExit
from clawblox.supervision.tree import ProcessTree, SharedStop
from clawblox.system.process import Process
from clawblox.system.regular_files import closing_fd

_DRAIN_S: Final = 1.0
_CHUNK_BYTES: Final = 1 << 16


async def run_program(
    start: Callable[[str, int], Process],
    take_output: Callable[[bytes], Awaitable[None]],
    stop: SharedStop,
    grace_seconds: float,
) -> ProcessExit | None:
    """Run a program until it ends or is to end, then end all that it has started.

    Args:
        start: Spawns it, given the cookie of its processes and its output. Blocks.
        take_output: Takes what it writes, and an empty piece at the end; an OSError ends it.
        stop: Ends it, when its scope is cancelled.
        grace_seconds: Seconds between TERM and KILL.

    Returns:
        How it ended; None if not even SIGKILL ended it.

    Raises:
        CannotExecute: It cannot be executed.
        OSError: It cannot be started.

    Cancellation: ends it.
    """
    tree, is_read = ProcessTree(secrets.token_hex(16)), anyio.Event()
    source, sink = os.pipe()
    os.set_blocking(source, False)

    async def read() -> None:
        data = b"-"
        try:
            while data:
                await anyio.wait_readable(source)
                data = os.read(source, _CHUNK_BYTES)
                await take_output(data)
        except OSError:
            stop.scope.cancel()
        is_read.set()

    try:
        with closing_fd(sink):
            with anyio.CancelScope(shield=True):  # a process that was spawned is released
                await run_blocking(tree.watch)
                process = await run_blocking(start, tree.cookie, sink)
                tree.add(process)
        async with Tasks() as tasks:
            tasks.start_soon(read)
            with stop.scope:
                await process.wait()
            with anyio.CancelScope(shield=True):
                tree_end = await tree.end(stop.begin(grace_seconds))
            with anyio.move_on_after(_DRAIN_S):  # a process that escaped may keep the pipe
                await is_read.wait()
        return None if tree_end.survivors else await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if tree.may_have_survivors:
                await tree.end(stop.begin(grace_seconds))
            await run_blocking(tree.forget)
        tree.release()
        os.close(source)
