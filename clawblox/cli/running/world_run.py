"""One world in the foreground, new or resumed, with an agent or without, up to the exit status."""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from clawblox import protocol
from clawblox.cli.running.foreground import Foreground
from clawblox.cli.running.start_progress import StartProgress
from clawblox.config.world_toml import read_world_config
from clawblox.errors import ClawbloxError, PortInUseError
from clawblox.results import StartedWorld
from clawblox.rundir.status import own_start
from clawblox.world.async_world import AsyncWorld

if TYPE_CHECKING:
    from clawblox.cli.running.companion import Companion


_TOKEN_BYTES = 32


def make_tokens() -> dict[str, str]:
    """Return the world's tokens: from the environment where it has them, else new ones."""
    return {
        name: os.environ.get(name, "").strip() or secrets.token_urlsafe(_TOKEN_BYTES)
        for name in protocol.SECRET_ENV
    }


def run_world(
    world: AsyncWorld,
    run_dir: Path,
    start: Callable[[], Awaitable[StartedWorld]],
    *,
    tokens: Mapping[str, str],
    grace: float,
    companion: Companion | None,
    waiting: Callable[[], str] = lambda: "waiting for the port",
) -> int:
    """Run a world to its end, and return the exit status.

    Args:
        world: The world, not open yet.
        run_dir: The run directory.
        start: Starts its instance.
        tokens: Its tokens, by the names of their variables; they are masked in what is printed.
        grace: Seconds between TERM and KILL.
        companion: The agent that acts in it; None for none.
        waiting: Returns what the start waits for as long as there is no process. Blocks.

    Raises:
        ClawbloxError: The world or its agent could not be started, or ended by itself.
    """
    progress = StartProgress(
        world.name,
        partial(own_start, run_dir),
        read_world_config(world.dir).ready,
        tokens.values(),
        waiting=waiting,
    )
    foreground = Foreground(
        world, start, progress, grace=grace, hidden=tokens.values(), companion=companion
    )
    try:
        return anyio.run(foreground.run)
    except PortInUseError as error:
        if error.port is None:  # not one port, but all that could be leased
            raise
        text = f"Port {error.port} is already in use. Try --port <PORT>\n  {error.message}"
        raise ClawbloxError(text) from error
