"""Opening a world for a command that runs it."""

from __future__ import annotations

from clawblox.cli.parameters import existing_path
from clawblox.cli.terminal.output import note
from clawblox.cli.terminal.warnings import configure_logging
from clawblox.config.download import is_world_url
from clawblox.world.async_world import AsyncWorld


def open_world(source: str) -> AsyncWorld:
    """Return a world with its ``world.toml`` read and, if it is a URL, downloaded. Blocks.

    From here on, warnings of the library are written to standard error.

    Args:
        source: A directory, or the URL of one in a GitHub repository.

    Raises:
        ClawbloxError: The path does not exist.
        ConfigError: It is not a world, or its ``world.toml`` is wrong.
        FetchError: It cannot be downloaded.
    """
    if is_world_url(source):
        note(f"Downloading {source}")
    else:
        existing_path(source)
    configure_logging()
    world = AsyncWorld(source)
    _ = world.name  # reads world.toml, so that a mistake in it is found now
    return world
