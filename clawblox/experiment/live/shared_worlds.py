"""The worlds of an experiment, each open once, whatever the number of its instances."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import attrs

from clawblox.experiment.schedule.mailbox import Mailbox
from clawblox.system.clock import SystemClock
from clawblox.world.async_world import AsyncWorld


@attrs.define
class _Opening:
    """A world that is open, or about to be.

    Attributes:
        directory: Its directory or address.
        world: The world; None before it is open.
        error: Why it could not be opened.
        is_settled: Set when it is open, or could not be opened.
    """

    directory: Path | str
    world: AsyncWorld | None = None
    error: Exception | None = None
    is_settled: anyio.Event = attrs.field(factory=anyio.Event)


class SharedWorlds:
    """Opens worlds when they are first used, and closes them with the experiment.

    Each world looks after its instances by tasks of its own, so one for each attempt would cost
    many times as much.
    """

    def __init__(self) -> None:
        self._openings: dict[Path | str, _Opening] = {}
        self._asked: Mailbox[_Opening] = Mailbox(SystemClock())

    async def serve(self) -> None:
        """Open the worlds that :meth:`open` asks for. To be started as a task, once.

        Cancellation: all worlds are closed, and so their instances are stopped.
        """
        async with AsyncExitStack() as stack:
            while (opening := await self._asked.take()) is not None:
                try:
                    world = AsyncWorld(opening.directory)
                    opening.world = await stack.enter_async_context(world)
                except Exception as error:  # noqa: BLE001 - raised where the world is asked for
                    opening.error = error
                    del self._openings[opening.directory]
                opening.is_settled.set()

    async def open(self, directory: Path | str) -> AsyncWorld:
        """Return a world, open.

        Args:
            directory: Its directory, or the address of a folder on GitHub.

        Raises:
            ClawbloxError: It cannot be opened.

        Cancellation: it may be opened nevertheless.
        """
        if directory not in self._openings:
            self._openings[directory] = opening = _Opening(directory)
            self._asked.put(opening)
        opening = self._openings[directory]
        await opening.is_settled.wait()
        if opening.world is None:
            assert opening.error is not None
            raise opening.error
        return opening.world
