"""The seeds of starts: given or drawn, one per instance."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from clawblox.config.world_toml import WorldConfig
from clawblox.errors import ConfigError
from clawblox.protocol import SEEDS
from clawblox.world_keys import CONFIG_NAME

_DRAWN_SEEDS: Final = 2**53
"""Upper bound of drawn seeds; all JSON readers represent integers below it exactly."""


def require_seedable(config: WorldConfig, first: int | None, count: int) -> None:
    """Refuse seeds that a world does not take.

    Args:
        config: The world.
        first: Seed of the first instance, or None.
        count: Number of instances; the seed increases by 1 per instance.

    Raises:
        ConfigError: The world does not take seeds, or the last seed would be too large.
    """
    if first is None:
        return
    if not config.takes_reseed:
        raise ConfigError(
            "this world does not support reseeding",
            path=config.dir / CONFIG_NAME,
            key="run.reseed",
            hint="leave out reseed=, or set reseed = true if the world reads WORLD_RESEED",
        )
    last = first + max(0, count - 1)
    if last not in SEEDS:
        raise ConfigError("must be a whole number from 0 to 2**64 - 1", key="reseed", value=last)


def choose_seed(config: WorldConfig, given: int | None, resume_path: Path | None) -> int | None:
    """Return the seed of one instance.

    Args:
        config: The world.
        given: The seed from the caller; None to draw one for a new world.
        resume_path: The snapshot to restore; None for a new world.

    Returns:
        The seed. None if the snapshot has the random state, or the world does not take seeds.
    """
    if given is not None or resume_path is not None or not config.takes_reseed:
        return given
    return secrets.randbelow(_DRAWN_SEEDS)
