"""What a world's files say about it, as the engine needs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

__all__ = ["EngineSettings"]


@attrs.frozen(kw_only=True)
class EngineSettings:
    """The settings of one world; `runner` reads them from ``world.toml``.

    Attributes:
        directory: The directory of the world.
        name: The name of the world.
        main: The path of the main script below the directory.
        tree: The path of the script tree below the directory, which may be absent.
        max_players: How many players may be in the world at a time.
        afk_timeout_s: Simulation time after which a player without input is removed; 0 means
            never.
        observation_radius: How far players see, in studs.
        player_object_physics: Whether characters push unanchored parts.
        solver_iterations: Iterations of the physics solver in each step.
        allow_reset: Whether agents may send ``Reset``.
        steps_per_tick: The steps that scripts may take in one tick.
        memory_bytes: The size of the heap of the scripts above which allocating fails.
        game_id: Names the world's rows in a DataStore.
        tables: The tables of ``world.toml`` that change what the world does, for its content hash.
    """

    directory: Path
    name: str = "world"
    main: str = "main.lua"
    tree: str = "scripts"
    max_players: int = 8
    afk_timeout_s: float = 300.0
    observation_radius: float = 100.0
    player_object_physics: bool = True
    solver_iterations: int = 4
    allow_reset: bool = False
    steps_per_tick: int = 20_000_000
    memory_bytes: int = 512 << 20
    game_id: str = "local"
    tables: Mapping[str, Any] = attrs.field(factory=dict)
