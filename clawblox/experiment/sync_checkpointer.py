"""The checkpointer without ``await``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from clawblox.concurrency.portal import portal
from clawblox.concurrency.synchronous import call_as, synchronous
from clawblox.config.agent_arguments import Agents
from clawblox.experiment.checkpointer import Checkpointer, Outcome, SavedCheckpoint
from clawblox.world.sync_world import World


class _Options(TypedDict, total=False):
    every: float
    idle_quiet: float
    idle_wait: float
    keep: int | None
    min_free: int | str | None
    metadata: Mapping[str, Any] | None
    instance: str | None
    pointer: str | os.PathLike[str] | None
    elapsed: float
    on_outcome: Outcome | None


def _twin(checkpointer: SyncCheckpointer) -> Checkpointer:
    return checkpointer._checkpointer


class SyncCheckpointer:
    """Makes archives of a world and its agents while its ``with`` block runs.

    Args:
        world: The world.
        agents: Its agents, or their directories by name.
        dir: Where the archives go.
        **options: As those of :class:`Checkpointer`. ``on_outcome`` is called in another thread.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        world: World,
        agents: Agents,
        *,
        dir: str | os.PathLike[str],  # noqa: A002 - the word of the API
        **options: Unpack[_Options],
    ) -> None:
        world.open()
        name = type(self).__qualname__
        self._checkpointer = call_as(name, Checkpointer, world._world, agents, dir=dir, **options)

    @property
    def latest(self) -> SavedCheckpoint | None:
        """See :attr:`Checkpointer.latest`."""
        return self._checkpointer.latest

    def __enter__(self) -> Self:
        portal.enter(self._checkpointer, lambda: None)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        portal.leave(self._checkpointer, exc)

    save = synchronous(Checkpointer.save, f"{__name__}.SyncCheckpointer", _twin)
