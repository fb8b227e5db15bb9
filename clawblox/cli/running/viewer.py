"""The viewer of a world, ``[replay] command``: it runs in the foreground, and ends with this."""

from __future__ import annotations

import codecs
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from clawblox.cli.running.command_signals import CommandSignals, shell_status
from clawblox.cli.terminal.output import Output, OutputGone, note
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import CONFIG_NAME, read_world_config
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.protocol import INSTANCE_ENV
from clawblox.supervision.tree import Grace, ProcessTree
from clawblox.system.ports import NoFreePort, take_free_port
from clawblox.system.process import CannotExecute, Process, spawn
from clawblox.views.formatting import shorten_path

_HOST: Final = "127.0.0.1"
_GRACE_S: Final = 5.0
_DRAIN_S: Final = 1.0
_CHUNK_BYTES: Final = 1 << 16
_PLACEHOLDER: Final = re.compile(r"\{(recording|port)\}")


async def run_viewer(world_dir: Path, recording: Path) -> int:
    """Run the viewer of a world with a recording, until it ends or a signal ends it.

    Its world is noted first. What it writes is printed. Whatever it has started ends with it.

    Args:
        world_dir: The world.
        recording: The file to show, absolute.

    Returns:
        The exit status: the viewer's; or 128 and the number of the signal that ended it or this.

    Raises:
        ConfigError: The world has no viewer.
        ClawbloxError: It cannot be started.

    Cancellation: ends it.
    """
    config = await run_blocking(read_world_config, world_dir)
    command = config.replay_command
    if command is None:
        raise ConfigError(
            "must be set to a command that shows a recording",
            path=config.dir / CONFIG_NAME,
            key="replay.command",
            hint='for example command = ["python", "replay.py", "{recording}", "{port}"]',
        )
    note(f"World: {shorten_path(config.dir)}")
    with _leased_port() as port:
        words = _fill(command, {"recording": str(recording), "port": str(port)})
        if any("{port}" in word for word in command):
            note(f"The viewer gets the address http://{_HOST}:{port}")
        return await _run(words, config.dir)


@contextmanager
def _leased_port() -> Iterator[int]:
    try:
        lease = take_free_port(_HOST)
    except NoFreePort as error:
        raise ClawbloxError(str(error)) from error
    try:
        yield lease.port
    finally:
        lease.release()


def _fill(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in command]


async def _run(words: Sequence[str], cwd: Path) -> int:
    tree, grace, ending = ProcessTree(secrets.token_hex(16)), Grace(_GRACE_S), anyio.Event()
    signals = CommandSignals()

    async def stop(_: object) -> bool:
        ending.set()
        return True

    async def kill() -> None:
        grace.shorten(0)

    source, sink = os.pipe()
    try:
        async with signals.obeyed(stop, kill):
            try:
                process = await _start(tree, words, cwd, sink)
            finally:
                os.close(sink)
            await _accompany(tree, process, grace, source, ending)
            end = await process.wait()
            tree.release()
    finally:
        os.close(source)
    return shell_status(end) if signals.exit_status is None else signals.exit_status


async def _start(tree: ProcessTree, words: Sequence[str], cwd: Path, sink: int) -> Process:
    env = {**os.environ, INSTANCE_ENV: tree.cookie}
    try:
        await run_blocking(tree.watch)
        process = await run_blocking(partial(spawn, words, cwd=cwd, env=env, output=sink))
    except (CannotExecute, OSError) as error:
        tree.forget()
        raise ClawbloxError(f"The viewer cannot be started: {error}") from error
    tree.add(process)
    return process


async def _accompany(
    tree: ProcessTree, process: Process, grace: Grace, source: int, ending: anyio.Event
) -> None:
    """Print what the viewer writes until it has ended, or is to end; then end what is left."""
    is_printed = anyio.Event()

    async def wait() -> None:
        await process.wait()
        ending.set()

    async def print_output() -> None:
        try:
            await _print(source)
        except (OutputGone, OSError):
            ending.set()
        is_printed.set()

    try:
        async with Tasks() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(print_output)
            await ending.wait()
            with anyio.CancelScope(shield=True):
                await tree.end(grace)
            with anyio.move_on_after(_DRAIN_S):  # a process that escaped may keep the pipe
                await is_printed.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if tree.may_have_survivors:
                await tree.end(grace)
        tree.forget()


async def _print(source: int) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with Output(sys.stdout) as output:
        while True:
            await anyio.wait_readable(source)
            data = os.read(source, _CHUNK_BYTES)
            await output.write(decoder.decode(data, final=not data))
            if not data:
                return
