"""Checkpointer: AsyncCheckpointer without ``await``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from clawblox.concurrency.synchronous import (
    Mirrored,
    Twin,
    mirrored,
    suggesting,
    synchronous,
    unwrap,
)
from clawblox.config.agent_arguments import Agents
from clawblox.results import SavedCheckpoint
from clawblox.team.async_checkpointer import (
    DEFAULT_CHECKPOINTER_IDLE_WAIT_S,
    DEFAULT_EVERY_S,
    DEFAULT_IDLE_QUIET_S,
    AsyncCheckpointer,
    Outcome,
)
from clawblox.world.sync_world import World


class Checkpointer(Twin[AsyncCheckpointer]):
    """Saves archives of a world and its agents at an interval while its ``with`` block runs.

    Args:
        world: The world.
        agents: Its agents, or their directories by name.
        dir: Directory for the archives; it is created if it is missing.
        every: Seconds from the beginning of one checkpoint to that of the next.
        idle_quiet: Seconds without output after which an agent that does not report its state may
            be between two turns.
        idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn.
        keep: Number of this object's archives to keep; None keeps all.
        min_free: Free disk space below which no checkpoint is made at the interval, in bytes or as
            text such as ``"5 GB"``; None for no limit.
        metadata: JSON values for the top level of the archives' metadata; None for none.
        instance: Name of the instance; not needed while there is only one.
        pointer: The file that names the latest archive; None means ``checkpoint.json`` in ``dir``.
        elapsed: Seconds that the run had lasted before it was resumed.
        on_outcome: Called in another thread with each checkpoint made at the interval, or with the
            error; None for no calls.

    Raises:
        ConfigError: An argument is wrong.
    """

    @suggesting
    def __init__(
        self,
        world: World,
        agents: Agents,
        *,
        dir: str | os.PathLike[str],  # noqa: A002 - the word of the API
        every: float = DEFAULT_EVERY_S,
        idle_quiet: float = DEFAULT_IDLE_QUIET_S,
        idle_wait: float = DEFAULT_CHECKPOINTER_IDLE_WAIT_S,
        keep: int | None = None,
        min_free: int | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        instance: str | None = None,
        pointer: str | os.PathLike[str] | None = None,
        elapsed: float = 0.0,
        on_outcome: Outcome | None = None,
    ) -> None:
        arguments = {**locals(), "world": unwrap(world)}
        del arguments["self"]
        Twin.__init__(self, AsyncCheckpointer(**arguments))

    latest: Mirrored[SavedCheckpoint | None] = mirrored(AsyncCheckpointer.latest)
    run = synchronous(AsyncCheckpointer.run)
    save = synchronous(AsyncCheckpointer.save)
