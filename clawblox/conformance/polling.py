"""Polls a run of a world that runs by itself, until it was observed at enough simulated times.

If a world ticks more often than it answers, two runs are observed at the same times only by chance.
With several concurrent requests, a world answers more often at the same tick rate, so that two runs
have many more times in common.
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
"""Minimum number of common times of two runs; with fewer, the check could not run."""
WANTED_TIMES: Final = 60
"""Number of different times that suffice for a run."""
_EXPECTED: Final = 4 * LEAST_COMMON
"""Expected number of common times that suffices; chance and load may reduce it to a quarter."""
BETWEEN_S: Final = 0.002
"""Seconds between two requests to a world that has not ticked."""
_LEAST_EXPECTED: Final = LEAST_COMMON * 3 // 2
"""The same for a run with a long observation; one in 40 such runs gets less than two thirds."""
_DENSE: Final = 0.7
"""Share of observed ticks that suffices for a run."""
_SHORT_S, _ENOUGH_S, _LONGEST_S = 1.2, 5.0, 60.0
"""Seconds of real time: for documents without a time, for more than the minimum, and the maximum.

The values apply to a world in real time.
"""
_STILL_S: Final = 8.0
"""Seconds of real time after which a world without progress counts as stopped."""
_SIDE_BY_SIDE: Final = 8
"""Number of concurrent requests to a run that is observed at few of its ticks and answers fast."""
_ALONE_S: Final = 1.0
"""Initial seconds of real time with one request at a time."""
_LONGEST_ANSWER_S: Final = {True: CALL_TIMEOUT_S / _SIDE_BY_SIDE, False: CALL_TIMEOUT_S / 4}
"""Duration of an answer in seconds from which a run gets only one request at a time.

The key is whether the request was the only one. All concurrent answers have to be in time.
"""
_LARGEST_BYTES: Final = 1 << 20
"""Size of a document from which a run gets only one request at a time."""

Documents = dict[float, Exchange]
"""The answers of a run by simulated time; the first answer of each time."""


async def collect(
    ask: Callable[[], Awaitable[Exchange]],
    *,
    wanted: int = WANTED_TIMES,
    until: float = -math.inf,
    least: int = _LEAST_EXPECTED,
) -> Documents:
    """Request documents until there are enough to compare with another run, and return them.

    Two runs that are each observed at n of N ticks have n²/N ticks in common, on average.

    Args:
        ask: Requests a document.
        wanted: Minimum number of further times.
        until: Simulated time to reach; the other run was not observed later.
        least: Expected number of common times that suffices for a run with a long observation.

    Raises:
        Failed: An answer is an error.
    """
    return await _Poller(ask, wanted, until, least).poll()


class _Poller:
    """Requests documents; see :func:`collect`."""

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
        """Poll until the observations suffice and all requests are answered."""
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
                # The world has not ticked, and more requests would only slow it down.
                await anyio.sleep(BETWEEN_S)
            elif is_alone and now - self._begun > _ALONE_S and not self._seen.is_dense:
                for _ in range(self._most - 1):
                    self._add(tasks)
        self._polling -= 1
        if not self._polling:
            self._has_ended.set()

    def _note(self, exchange: Exchange, now: float) -> bool:
        """Record an answer, and whether it was the last; return whether the world has advanced."""
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
        # More times would hardly add common times with another run; a single wanted time is enough.
        is_enough = self._wanted == 1 or seen.is_dense or seen.expected() >= _EXPECTED
        has_all = seen.count >= self._wanted and is_reached and is_enough
        left = (self._until - seen.latest) * self._pace.slowness(now)
        is_past = is_reached and self._until > -math.inf
        has_seen = is_past or seen.expected() >= self._least
        is_met = is_reached or not has_time_for(left)
        has_least = is_met and lasted > _ENOUGH_S and has_seen
        # If a world ticks faster than it answers, common times are random, and further runs can add
        # them.
        is_late = not seen.is_dense and lasted > _LONGEST_S
        is_hopeless = self._pace.is_hopeless(now, still_s=_STILL_S, longest_s=_LONGEST_S)
        return has_all or has_least or is_timeless or is_late or is_hopeless


class _Seen:
    """The simulated times at which a run was observed."""

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
        """True if most of the ticks were observed."""
        return self.count >= _DENSE * self._ticks_passed()

    def expected(self) -> float:
        """Return the expected number of common times with another run observed as often."""
        return self.count**2 / max(self._ticks_passed(), self.count, 1)

    def _ticks_passed(self) -> float:
        """Return the number of ticks over which the times were observed."""
        if self.count < 2:
            return self.count
        length = self._tick_length()
        return (max(self._times) - min(self._times)) / length if length else self.count

    def add(self, exchange: Exchange) -> float | None:
        """Record a document, and return its time; None if it has none."""
        times = exchange.times
        if not times:
            return None
        self._times.add(times[0])
        if len(times) > 1:
            self._ticks[times[0]] = times[1]
        return times[0]

    def _tick_length(self) -> float:
        """Return the time between two ticks, by their numbers or the smallest observed step."""
        first, last = min(self._times), max(self._times)
        ticks = self._ticks.get(last, 0.0) - self._ticks.get(first, 0.0)
        if ticks > 0:
            return (last - first) / ticks
        return min(after - before for before, after in pairwise(sorted(self._times)))
