"""Records that the world of an instance has halted, before anything else happens."""

from __future__ import annotations

import anyio

from clawblox.concurrency.threads import current_batcher
from clawblox.instance.bookkeeping import Bookkeeping
from clawblox.instance.health import find_halt
from clawblox.instance.instance import Instance
from clawblox.instance.startup import Tell
from clawblox.supervision.tree import Grace

_LOOK_S = 1.0
"""Longest time that a stop waits for the answer whether the world has halted, in seconds."""


class Halts:
    """Notes that the world of one instance has halted.

    Args:
        instance: The instance.
        books: Its bookkeeping.
        tell: Called with each event.
    """

    def __init__(self, instance: Instance, books: Bookkeeping, tell: Tell) -> None:
        self._instance = instance
        self._books = books
        self._tell = tell

    def announce(self, reason: str) -> None:
        """Keep why the world has halted, and send the event."""
        self._instance.halt = self._instance.masked(reason)
        self._tell("halted", reason=self._instance.halt)

    async def note(self, reason: str) -> None:
        """Note why the world has halted: in an event, and in its record.

        Cancellation: the event is sent; the record is written.
        """
        self.announce(reason)
        await current_batcher().run(self._books.note_halt)

    async def look(self, grace: Grace) -> None:
        """Ask a world that is about to be stopped whether it has halted, and note that.

        Args:
            grace: The time of the stop; without any, the world is not asked.

        Cancellation: leaves no connection open.
        """
        instance, rule = self._instance, self._instance.launch.liveness
        if rule is None or instance.is_over or instance.halt is not None:
            return
        left = grace.scope.deadline - anyio.current_time()
        seconds = min(rule.timeout, _LOOK_S, left)
        if seconds > 0:
            reason = await find_halt(instance.running.liveness_probe(rule), seconds)
            if reason is not None:
                await self.note(reason)
