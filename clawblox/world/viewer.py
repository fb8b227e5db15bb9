"""Runs the viewer of a world, ``[replay] command``, on a leased port, and ends it completely."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs

from clawblox.config.world_toml import read_world_config
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.protocol import INSTANCE_ENV
from clawblox.results import ProcessExit
from clawblox.supervision.program import run_program
from clawblox.supervision.tree import SharedStop
from clawblox.system.ports import NoFreePort, take_free_port
from clawblox.system.process import CannotExecute, Process, spawn
from clawblox.world_keys import CONFIG_NAME

HOST: Final = "127.0.0.1"
GRACE_S: Final = 5.0
"""Seconds between TERM and KILL for a viewer."""
_PLACEHOLDER: Final = re.compile(r"\{(recording|port)\}")


@attrs.frozen
class ViewerCommand:
    """The command of a viewer.

    Attributes:
        words: The command, which may contain ``{recording}`` and ``{port}``.
        cwd: Working directory of the command, the directory of the world.
    """

    words: tuple[str, ...]
    cwd: Path

    @property
    def has_port(self) -> bool:
        """True if the viewer serves a page on a given port."""
        return any("{port}" in word for word in self.words)

    def fill(self, recording: Path, port: int | str) -> list[str]:
        """Return the command with recording and port filled in.

        Args:
            recording: The file to show, absolute.
            port: The port, or a placeholder.
        """
        values = {"recording": str(recording), "port": str(port)}
        return [_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in self.words]


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
    """Run a viewer until it ends or is stopped, and end all its processes.

    Args:
        viewer: The viewer.
        recording: The file to show, absolute.
        begin: Called before the start, with the command and the port of the viewer.
        take_output: As for :func:`clawblox.supervision.program.run_program`.
        stop: Scope whose cancellation ends the viewer.

    Returns:
        The exit of the viewer.

    Raises:
        ClawbloxError: The viewer cannot be started, or no port is free.

    Cancellation: ends the viewer.
    """
    try:
        lease = take_free_port(HOST)
    except NoFreePort as error:
        raise ClawbloxError(str(error)) from error
    words = viewer.fill(recording, lease.port)
    begin(words, lease.port)

    def start(cookie: str, output: int) -> Process:
        env = {**os.environ, INSTANCE_ENV: cookie}
        return spawn(words, cwd=viewer.cwd, env=env, output=output)

    try:
        return await run_program(start, take_output, stop, GRACE_S) or ProcessExit()
    except (CannotExecute, OSError) as error:
        raise ClawbloxError(f"The viewer cannot be started: {error}") from error
    finally:
        lease.release()
