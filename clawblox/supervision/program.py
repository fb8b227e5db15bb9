"""Runs a program, reads its output, and ends all processes that it started."""

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
    """Run a program until it ends or is stopped, then end all processes that it started.

    Args:
        start: Spawns the program, given the cookie of its processes and the output. Blocks.
        take_output: Takes the output in pieces, with an empty piece at the end; an OSError ends the
            program.
        stop: Ends the program when its scope is cancelled.
        grace_seconds: Seconds between TERM and KILL.

    Returns:
        The exit of the program; None if it survived SIGKILL.

    Raises:
        CannotExecute: The program cannot be executed.
        OSError: The program cannot be started.

    Cancellation: ends the program.
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
            with anyio.CancelScope(shield=True):  # releases a spawned process
                await run_blocking(tree.watch)
                process = await run_blocking(start, tree.cookie, sink)
                tree.add(process)
        async with Tasks() as tasks:
            tasks.start_soon(read)
            with stop.scope:
                await process.wait()
            with anyio.CancelScope(shield=True):
                tree_end = await tree.end(stop.begin(grace_seconds))
            with anyio.move_on_after(_DRAIN_S):  # a process that escaped may keep the pipe open
                await is_read.wait()
        return None if tree_end.survivors else await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if tree.may_have_survivors:
                await tree.end(stop.begin(grace_seconds))
            await run_blocking(tree.forget)
        tree.release()
        os.close(source)
