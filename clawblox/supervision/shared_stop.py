"""The stop of a supervised task, which all that ask for it share."""

from __future__ import annotations

import anyio

from clawblox.supervision.tree import Grace


class SharedStop:
    """Ends one supervised task, whose last act is to end its process tree.

    Attributes:
        scope: Encloses the work of the task; cancelled by the first request.
        grace: Time between TERM and KILL; None before the stop is requested or begun.
        is_over: Set when the task has ended and nothing of its tree is left.
    """

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.grace: Grace | None = None
        self.is_over = anyio.Event()

    async def request(self, grace_seconds: float) -> None:
        """Stop the task and wait until it is over.

        Args:
            grace_seconds: Seconds between TERM and KILL. A later request can only shorten them.

        Cancellation: the task is stopped all the same.
        """
        self.begin(grace_seconds).shorten(grace_seconds)
        self.scope.cancel()
        await self.is_over.wait()

    def begin(self, grace_seconds: float) -> Grace:
        """Return the grace of the stop, which is ``grace_seconds`` if none was requested."""
        if self.grace is None:
            self.grace = Grace(grace_seconds)
        return self.grace

    def kill_now(self) -> None:
        """End the grace of a stop that is under way."""
        if self.grace is not None:
            self.grace.shorten(0.0)
