"""Opening a world for a command that runs it."""

from __future__ import annotations

from clawblox.cli.parameters import existing_path
from clawblox.cli.terminal.output import note
from clawblox.config.download import is_world_url
from clawblox.world.async_world import AsyncWorld

__all__ = ["open_world"]


def open_world(source: str) -> AsyncWorld:
    """Return a world with its ``world.toml`` read, so that nothing slow is left to open it.

    Args:
        source: A directory, or the address of one in a GitHub repository.

    Raises:
        ClawbloxError: It does not exist, or is no world.
    """
    if is_world_url(source):
        note(f"Fetching {source}")
    else:
        existing_path(source)
    world = AsyncWorld(source)
    _ = world.name
    return world
