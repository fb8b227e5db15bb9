"""The viewer of a world, ``[replay] command``: started on a leased port, ended with all of it."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import CONFIG_NAME, read_world_config
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.protocol import INSTANCE_ENV
from clawblox.results import ProcessExit
from clawblox.supervision.tree import ProcessTree, SharedStop
from clawblox.system.ports import NoFreePort, take_free_port
from clawblox.system.process import CannotExecute, Process, spawn

HOST: Final = "127.0.0.1"
GRACE_S: Final = 5.0
"""Seconds that a viewer gets between TERM and KILL."""
_DRAIN_S: Final = 1.0
_CHUNK_BYTES: Final = 1 << 16
_PLACEHOLDER: Final = re.compile(r"\{(recording|port)\}")


@attrs.frozen
class ViewerCommand:
    """The command of a viewer.

    Attributes:
        words: The command, with ``{recording}`` and ``{port}`` where it has them.
        cwd: The directory of the world, in which it is run.
    """

    words: tuple[str, ...]
    cwd: Path

    @property
    def has_port(self) -> bool:
        """Whether it serves a page on a port that it is given."""
        return any("{port}" in word for word in self.words)

    def fill(self, recording: Path, port: int | None) -> list[str]:
        """Return the words that are run.

        Args:
            recording: The file to show, absolute.
            port: The port; None leaves ``{port}`` as it is.
        """
        values: Mapping[str, str] = {"recording": str(recording)}
        if port is not None:
            values = {**values, "port": str(port)}
        return [
            _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), word)
            for word in self.words
        ]


def find_viewer(world_dir: Path) -> ViewerCommand | None:
    """Return the command of a world's viewer; None if it has none. Blocks.

    Raises:
        ConfigError: The world cannot be read.
    """
    config = read_world_config(world_dir)
    words = config.replay_command
    return None if words is None else ViewerCommand(tuple(words), config.dir)


def require_viewer(world_dir: Path) -> ViewerCommand:
    """Return the command of a world's viewer. Blocks.

    Raises:
        ConfigError: The world cannot be read, or has no viewer.
    """
    viewer = find_viewer(world_dir)
    if viewer is None:
        raise ConfigError(
            "must be set to a command that shows a recording",
            path=world_dir / CONFIG_NAME,
            key="replay.command",
            hint='for example command = ["python", "replay.py", "{recording}", "{port}"]',
        )
    return viewer


async def run_viewer(
    viewer: ViewerCommand,
    recording: Path,
    begin: Callable[[list[str], int], None],
    take_output: Callable[[bytes], Awaitable[None]],
    stop: SharedStop,
) -> ProcessExit:
    """Run a viewer until it ends or is to end. Whatever it has started ends with it.

    Args:
        viewer: The viewer.
        recording: The file to show, absolute.
        begin: Called before it starts, with the words that are run and the port that it is given.
        take_output: Takes what it writes, and an empty piece at the end; an OSError ends it.
        stop: Ends it, when its scope is cancelled.

    Returns:
        How it ended.

    Raises:
        ClawbloxError: It cannot be started, or no port is free.

    Cancellation: ends it.
    """
    try:
        lease = take_free_port(HOST)
    except NoFreePort as error:
        raise ClawbloxError(str(error)) from error
    tree = ProcessTree(secrets.token_hex(16))
    source, sink = os.pipe()
    try:
        try:
            words = viewer.fill(recording, lease.port)
            begin(words, lease.port)
            process = await _start(tree, words, viewer.cwd, sink)
        finally:
            os.close(sink)
        await _accompany(tree, process, partial(_read, source, take_output), stop)
        return await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if tree.may_have_survivors:
                await tree.end(stop.begin(GRACE_S))
        tree.forget()
        tree.release()
        os.close(source)
        lease.release()


async def _read(source: int, take_output: Callable[[bytes], Awaitable[None]]) -> None:
    data = b"-"
    while data:
        await anyio.wait_readable(source)
        data = os.read(source, _CHUNK_BYTES)
        await take_output(data)


async def _start(tree: ProcessTree, words: Sequence[str], cwd: Path, sink: int) -> Process:
    env = {**os.environ, INSTANCE_ENV: tree.cookie}
    try:
        await run_blocking(tree.watch)
        process = await run_blocking(partial(spawn, words, cwd=cwd, env=env, output=sink))
    except (CannotExecute, OSError) as error:
        raise ClawbloxError(f"The viewer cannot be started: {error}") from error
    tree.add(process)
    return process


async def _accompany(
    tree: ProcessTree,
    process: Process,
    read_output: Callable[[], Awaitable[None]],
    stop: SharedStop,
) -> None:
    """Read what the viewer writes until it has ended, or is to end; then end what is left."""
    is_read = anyio.Event()

    async def wait() -> None:
        await process.wait()
        stop.scope.cancel()

    async def read() -> None:
        try:
            await read_output()
        except OSError:
            stop.scope.cancel()
        is_read.set()

    async with Tasks() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(read)
        with stop.scope:
            await anyio.sleep_forever()
        with anyio.CancelScope(shield=True):
            await tree.end(stop.begin(GRACE_S))
        with anyio.move_on_after(_DRAIN_S):  # a process that escaped may keep the pipe
            await is_read.wait()
