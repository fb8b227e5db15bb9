"""Counters and histograms of one or more worlds, as plain values.

A :class:`MetricsRecorder` takes observations; :class:`Metrics` is a snapshot of its state.
``prometheus`` exports the values to a monitoring system. The suffix of a name is its unit: ``_s``
means seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final, Literal, Self, TypeAlias, get_args

import attrs

from clawblox.results import EventKind

DURATION_BOUNDS_S = tuple(
    float(f"{step}e{exponent}") for exponent in range(-3, 3) for step in (1, 2, 5)
)
"""Upper bounds of every histogram of durations, in seconds: 1 ms, 2 ms, 5 ms, … 500 s.

The bounds span all measured durations, from the start of a world that inherits its socket, about 2
ms, to the default timeout of a snapshot, 300 s. Neighbours differ by a factor of 2 or 2.5, which
limits the error of an estimated quantile. All histograms have the same bounds, so that they can be
compared.
"""

Counter: TypeAlias = Literal[
    "starts",
    "start_failures",
    "exits",
    "unresponsive",
    "halts",
    "restarts",
    "stops",
    "saves",
    "save_failures",
    "saved_bytes",
    "falls_behind",
]
"""Name of a counter in :class:`Metrics`."""

Timing: TypeAlias = Literal["ready_s", "save_s", "loop_lag_s"]
"""Name of a histogram in :class:`Metrics`."""


@attrs.frozen
class Histogram:
    """Numbers of observed values by size.

    Attributes:
        bounds: Upper bounds of the buckets, ascending and inclusive.
        counts: Number of observations in each bucket; the last bucket has no upper bound.
        sum: Sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...] = DURATION_BOUNDS_S) -> Self:
        """Return a histogram without observations."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Mean of the observations; NaN without observations."""
        return self.sum / self.count if self.count else math.nan

    def quantile(self, q: float) -> float:
        """Estimate a quantile of the observations.

        The estimate is interpolated within its bucket, as in PromQL's ``histogram_quantile``, so
        its error is at most the width of the bucket. Beyond the last bound, the estimate is that
        bound.

        Args:
            q: The share, from 0 to 1; 0.5 is the median.

        Returns:
            The estimate; NaN without observations.

        Raises:
            ValueError: ``q`` is not between 0 and 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is between 0 and 1, not {q}")
        if not self.count:
            return math.nan
        rank = q * self.count
        lowers, before_each = (0.0, *self.bounds), accumulate(self.counts, initial=0)
        buckets = zip(lowers, self.bounds, before_each, self.counts, strict=False)
        for lower, upper, before, count in buckets:  # the bounded buckets
            if count and rank <= before + count:
                return lower + (upper - lower) * (rank - before) / count
        return self.bounds[-1]

    def merged(self, other: Self) -> Self:
        """Return a histogram with the observations of both.

        Raises:
            ValueError: The buckets differ.
        """
        if self.bounds != other.bounds:
            raise ValueError("histograms with different buckets cannot be merged")
        counts = tuple(mine + its for mine, its in zip(self.counts, other.counts, strict=True))
        return attrs.evolve(self, counts=counts, sum=self.sum + other.sum)


@attrs.frozen
class Metrics:
    """A snapshot of counters and histograms; ``Metrics()`` is empty.

    Counters count all attempts and their failures; histograms contain only successful attempts.

    Attributes:
        starts: Starts, including restarts.
        start_failures: Starts that failed.
        exits: Ready instances that ended unexpectedly.
        unresponsive: Instances given up because they stopped answering.
        halts: Instances that were ended because they had halted or exceeded a limit.
        restarts: Restarts after any of these failures.
        stops: Stops.
        saves: Snapshots, including failed ones.
        save_failures: Snapshots that failed.
        saved_bytes: Total size of all complete snapshots.
        falls_behind: Times that a world fell below nine tenths of its rate.
        ready_s: Seconds from the call of a start until the instance was ready.
        save_s: Seconds taken by a complete snapshot.
        loop_lag_s: Delay of the event loop in seconds, observed twice a second.
    """

    starts: int = 0
    start_failures: int = 0
    exits: int = 0
    unresponsive: int = 0
    halts: int = 0
    restarts: int = 0
    stops: int = 0
    saves: int = 0
    save_failures: int = 0
    saved_bytes: int = 0
    falls_behind: int = 0
    ready_s: Histogram = attrs.field(factory=Histogram.empty)
    save_s: Histogram = attrs.field(factory=Histogram.empty)
    loop_lag_s: Histogram = attrs.field(factory=Histogram.empty)

    def merged(self, other: Metrics) -> Metrics:
        """Return the combined metrics, for example of two worlds in a process."""
        values: dict[str, Any] = {}
        for name in attrs.fields_dict(Metrics):
            mine, its = getattr(self, name), getattr(other, name)
            values[name] = mine.merged(its) if isinstance(mine, Histogram) else mine + its
        return Metrics(**values)


@attrs.frozen
class AgentMetrics:
    """Usage of an agent so far, without inherited usage.

    Attributes:
        name: Its name.
        driver: The driver of its program.
        state: Its state.
        tokens: Tokens by kind; each token has one kind.
        cost_usd: Cost reported by its program, in US dollars; None without a reported cost.
        turns: Finished turns.
        inherited_tokens: Tokens by kind inherited from an archive; empty without inherited tokens.
    """

    name: str
    driver: str
    state: str
    tokens: Mapping[str, int] = attrs.field(hash=False)
    cost_usd: float | None
    turns: int
    inherited_tokens: Mapping[str, int] = attrs.field(factory=dict, hash=False)


_EVENT_COUNTERS: Final[Mapping[EventKind, tuple[Counter, ...]]] = {
    "start_failed": ("start_failures",),
    "exited": ("exits",),
    "unresponsive": ("unresponsive",),
    "halted": ("halts",),
    "restarting": ("restarts", "starts"),
    "stopped": ("stops",),
    "save_failed": ("save_failures",),
    "fell_behind": ("falls_behind",),
}


class MetricsRecorder:
    """Records counts and durations; an observation takes less than a microsecond and never waits.

    Only one event loop writes. Any thread may take a snapshot, in which an observation may be in
    the counts of a histogram but not yet in its sum.
    """

    def __init__(self) -> None:
        self._counters: dict[str, int] = dict.fromkeys(get_args(Counter), 0)
        self._counts = {name: [0] * (len(DURATION_BOUNDS_S) + 1) for name in get_args(Timing)}
        self._sums = dict.fromkeys(get_args(Timing), 0.0)

    def add(self, counter: Counter, amount: int = 1) -> None:
        """Increase a counter by ``amount``."""
        self._counters[counter] += amount

    def count_event(self, kind: EventKind) -> None:
        """Increase the counters for a kind of event."""
        for counter in _EVENT_COUNTERS.get(kind, ()):
            self.add(counter)

    def observe(self, timing: Timing, seconds: float) -> None:
        """Add a duration to a histogram."""
        self._counts[timing][bisect_left(DURATION_BOUNDS_S, seconds)] += 1
        self._sums[timing] += seconds

    def snapshot(self) -> Metrics:
        """Return the current counters and histograms."""
        values: dict[str, Any] = dict(self._counters)
        for name, counts in self._counts.items():
            values[name] = Histogram(DURATION_BOUNDS_S, tuple(counts), self._sums[name])
        return Metrics(**values)
