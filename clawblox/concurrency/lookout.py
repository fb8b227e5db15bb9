"""One regular look for all who wait for a condition that only a blocking check can see."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking


@attrs.define(eq=False)
class _Watch:
    """Somebody who waits.

    Attributes:
        check: Returns whether the wait is over. Blocks.
        is_over: Whether it is.
        error: What the check raised, which ends the wait too.
        is_leader: Whether it looks for all who wait.
        is_called: Set when it has something to do: to lead, or to go on.
    """

    check: Callable[[], bool]
    is_over: bool = False
    error: Exception | None = None
    is_leader: bool = False
    is_called: anyio.Event = attrs.field(factory=anyio.Event)

    def look(self) -> None:
        """Make the check, and keep its outcome. Blocks."""
        try:
            self.is_over = self.check()
        except Exception as error:  # noqa: BLE001 - it belongs to who waits
            self.is_over, self.error = True, error


class Lookout:
    """Makes the checks of all who wait at the same moments, in one hop into a thread.

    The first who waits looks for the others too; when it leaves, the next one does.

    Args:
        interval_s: Seconds between two looks.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._watches: list[_Watch] = []

    async def wait(self, check: Callable[[], bool]) -> None:
        """Wait until a check returns true.

        Args:
            check: Returns whether the wait is over; called in a worker thread.

        Raises:
            Exception: What the check raises.

        Cancellation: waits for a look that is under way; the others go on waiting.
        """
        watch = _Watch(check, is_leader=not self._watches)
        self._watches.append(watch)
        try:
            if not watch.is_leader:
                await watch.is_called.wait()
            while not watch.is_over:
                await self._look()
        finally:
            self._watches.remove(watch)
            if watch.is_leader and self._watches:
                self._watches[0].is_leader = True
                self._watches[0].is_called.set()
        if watch.error is not None:
            raise watch.error

    async def _look(self) -> None:
        await anyio.sleep(self._interval_s)
        watches = tuple(self._watches)
        await run_blocking(_look_at, watches)
        for watch in watches:
            if watch.is_over:
                watch.is_called.set()


def _look_at(watches: Iterable[_Watch]) -> None:
    for watch in watches:
        watch.look()
