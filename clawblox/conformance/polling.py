"""Polls a life of a world that runs by itself, until it was seen at enough simulated times.

Two lives are seen at the same times by chance where a world ticks more often than it answers. A
world that has several requests at once answers more of them while it ticks as often, so that many
more times are common.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Final

import anyio

from clawblox.concurrency.tasks import Tasks
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.live import CALL_TIMEOUT_S
from clawblox.conformance.pace import SimulationPace, has_time_for
from clawblox.conformance.registry import NotMet

LEAST_COMMON: Final = 20
"""Equal times that two lives must have in common, or the check could not run."""
WANTED_TIMES: Final = 60
"""Different times after which enough has been seen of a life."""
_EXPECTED: Final = 4 * LEAST_COMMON
"""Expected common times after which enough has been seen; luck and load may quarter them."""
BETWEEN_S: Final = 0.002
"""Real time in seconds between two requests to a world that has not ticked."""
_LEAST_EXPECTED: Final = LEAST_COMMON * 3 // 2
"""The same for a life that takes long to be seen; luck brings less than two thirds to one in 40."""
_DENSE: Final = 0.7
"""Share of the ticks that is seen of a life after which it needs no more time."""
_SHORT_S, _ENOUGH_S, _LONGEST_S = 1.2, 5.0, 60.0
"""Real time in seconds for which documents without a time are asked for, for which more than the
necessary is seen, and for which documents are asked for at most, of a world in real time."""
_STILL_S: Final = 8.0
"""Real time in seconds after which a world that has not moved does not move any more."""
_SIDE_BY_SIDE: Final = 8
"""Requests at once to a life that is seen at few of its ticks, if it answers all of them soon."""
_ALONE_S: Final = 1.0
"""Real time in seconds for which a life has one request at a time, whatever is observed."""
_LONGEST_ANSWER_S: Final = {True: CALL_TIMEOUT_S / _SIDE_BY_SIDE, False: CALL_TIMEOUT_S / 4}
"""Seconds for the answer to the only request, and to one of several, from which a life has one
request at once: all have to be in time."""
_LARGEST_BYTES: Final = 1 << 20
"""Size of a document from which a life has one request at once."""

Documents = dict[float, Exchange]
"""The answers of a life by their simulated time; the first of each time."""


async def collect(
    ask: Callable[[], Awaitable[Exchange]],
    *,
    wanted: int = WANTED_TIMES,
    until: float = -math.inf,
    least: int = _LEAST_EXPECTED,
) -> Documents:
    """Ask again and again, until enough has been seen to meet another life; return the answers.

    Two lives that are each seen at n of N ticks have n²/N ticks in common, on average.

    Args:
        ask: Asks for a document.
        wanted: Least number of further times.
        until: Simulated time that has to be reached; later ones are not seen in the other life.
        least: Expected common times that are enough for a life that takes long to be seen.

    Raises:
        Failed: An answer is an error.
    """
    return await _Poller(ask, wanted, until, least).poll()


class _Poller:
    """Asks for documents; see :func:`collect`."""

    def __init__(
        self, ask: Callable[[], Awaitable[Exchange]], wanted: int, until: float, least: int
    ) -> None:
        self._ask = ask
        self._documents: Documents = {}
        self._wanted = wanted
        self._until = until
        self._least = least
        self._begun = anyio.current_time()
        self._pace = SimulationPace(self._begun)
        self._seen = _Seen()
        self._most = _SIDE_BY_SIDE
        self._polling = 0
        self._is_over = False
        self._has_ended = anyio.Event()

    async def poll(self) -> Documents:
        """Ask until enough has been seen; every request has its answer then."""
        async with Tasks() as tasks:
            self._add(tasks)
            await self._has_ended.wait()
        return self._documents

    def _add(self, tasks: Tasks) -> None:
        self._polling += 1
        tasks.start_soon(self._poll_on, tasks)

    async def _poll_on(self, tasks: Tasks) -> None:
        while not self._is_over:
            is_alone = self._polling == 1
            asked = anyio.current_time()
            exchange = await self._ask()
            now = anyio.current_time()
            if not exchange.is_accepted and is_alone:
                raise NotMet(f"the world did not answer: {exchange.outcome}", exchange=exchange)
            is_slow = now - asked > _LONGEST_ANSWER_S[is_alone]
            is_large = len(exchange.content) > _LARGEST_BYTES
            if not exchange.is_accepted or is_slow or is_large:
                self._most = 1
            has_moved = exchange.is_accepted and self._note(exchange, now)
            if self._polling > self._most:
                break
            if not has_moved:
                # The world has not ticked: asking on would only slow it down.
                await anyio.sleep(BETWEEN_S)
            elif is_alone and now - self._begun > _ALONE_S and not self._seen.is_dense:
                for _ in range(self._most - 1):
                    self._add(tasks)
        self._polling -= 1
        if not self._polling:
            self._has_ended.set()

    def _note(self, exchange: Exchange, now: float) -> bool:
        """Note an answer, and whether it was the last one; return whether the world has moved."""
        time = self._seen.add(exchange)
        if time is not None:
            self._documents.setdefault(time, exchange)
        has_moved = time is not None and self._pace.note(time, now)
        self._is_over |= self._has_enough(now)
        return has_moved

    def _has_enough(self, now: float) -> bool:
        seen, lasted = self._seen, now - self._begun
        is_reached = seen.latest >= self._until
        is_timeless = seen.count == 0 and lasted > _SHORT_S
        # More times would help little to meet another life; the only one that is wanted is enough.
        is_enough = self._wanted == 1 or seen.is_dense or seen.expected() >= _EXPECTED
        has_all = seen.count >= self._wanted and is_reached and is_enough
        left = (self._until - seen.latest) * self._pace.slowness(now)
        is_past = is_reached and self._until > -math.inf
        has_seen = is_past or seen.expected() >= self._least
        is_met = is_reached or not has_time_for(left)
        has_least = is_met and lasted > _ENOUGH_S and has_seen
        # A world that ticks faster than it answers is met by luck, which further lives bring too.
        is_late = not seen.is_dense and lasted > _LONGEST_S
        is_hopeless = self._pace.is_hopeless(now, still_s=_STILL_S, longest_s=_LONGEST_S)
        return has_all or has_least or is_timeless or is_late or is_hopeless


class _Seen:
    """The simulated times at which a life was seen."""

    def __init__(self) -> None:
        self._times = set[float]()
        self._ticks: dict[float, float] = {}

    @property
    def count(self) -> int:
        """Number of different times."""
        return len(self._times)

    @property
    def latest(self) -> float:
        """The latest time."""
        return max(self._times, default=-math.inf)

    @property
    def is_dense(self) -> bool:
        """True if most of the ticks were seen."""
        return self.count >= _DENSE * self._ticks_passed()

    def expected(self) -> float:
        """Return how many times another life, seen as often, has in common, on average."""
        return self.count**2 / max(self._ticks_passed(), self.count, 1)

    def _ticks_passed(self) -> float:
        """Return the number of ticks in which the times were seen."""
        if self.count < 2:
            return self.count
        length = self._tick_length()
        return (max(self._times) - min(self._times)) / length if length else self.count

    def add(self, exchange: Exchange) -> float | None:
        """Note a document, and return its time; None if it has none."""
        times = exchange.times
        if not times:
            return None
        self._times.add(times[0])
        if len(times) > 1:
            self._ticks[times[0]] = times[1]
        return times[0]

    def _tick_length(self) -> float:
        """Return the time between two ticks: by their numbers, else the smallest step seen."""
        first, last = min(self._times), max(self._times)
        ticks = self._ticks.get(last, 0.0) - self._ticks.get(first, 0.0)
        if ticks > 0:
            return (last - first) / ticks
        return min(after - before for before, after in pairwise(sorted(self._times)))
