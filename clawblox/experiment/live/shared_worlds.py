"""The worlds of an experiment, each open once, whatever the number of its instances."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.world.async_world import AsyncWorld


@attrs.define
class _Opening:
    """A world that is open, or about to be."""

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
        self._tasks: Tasks
        self._is_served = anyio.Event()

    async def serve(self) -> None:
        """Keep the worlds open that :meth:`open` returns. To be started as a task, once.

        Cancellation: all worlds are closed, and so their instances are stopped.
        """
        async with Tasks() as self._tasks:
            self._is_served.set()
            await anyio.sleep_forever()

    async def _keep(self, directory: Path | str, opening: _Opening) -> None:
        async with AsyncExitStack() as stack:
            try:
                opening.world = await stack.enter_async_context(AsyncWorld(directory))
            except Exception as error:  # noqa: BLE001 - raised where the world is asked for
                opening.error = error
                del self._openings[directory]
            opening.is_settled.set()
            if opening.world is not None:
                await anyio.sleep_forever()

    async def open(self, directory: Path | str) -> AsyncWorld:
        """Return a world, open.

        Args:
            directory: Its directory, or the address of a folder on GitHub.

        Raises:
            ClawbloxError: It cannot be opened.

        Cancellation: it may be opened nevertheless.
        """
        await self._is_served.wait()
        if directory not in self._openings:
            self._openings[directory] = opening = _Opening()
            self._tasks.start_soon(self._keep, directory, opening)
        opening = self._openings[directory]
        await opening.is_settled.wait()
        if opening.world is None:
            assert opening.error is not None
            raise opening.error
        return opening.world
