"""Counters and histograms of one or more worlds, as plain values.

A :class:`MetricsRecorder` takes observations; :class:`Metrics` is its state at a moment. The
callers decide what to observe and when; ``prometheus`` exports the values to a monitoring system.
Names have their unit as suffix: ``_s`` is seconds.
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

They span all measured durations, from the start of a world that inherits its socket, about 2 ms, to
the default timeout of a snapshot, 300 s. Neighbours differ by a factor of 2 or 2.5, so the error of
an estimated quantile is bounded. All histograms share them, so that they can be compared.
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
"""The name of a counter of :class:`Metrics`."""

Timing: TypeAlias = Literal["ready_s", "save_s", "loop_lag_s"]
"""The name of a histogram of :class:`Metrics`."""


@attrs.frozen
class Histogram:
    """The number of observed values by their size.

    Attributes:
        bounds: Upper bounds of the buckets, ascending and inclusive.
        counts: Number of observations in each bucket; the last bucket, beyond ``bounds``, has no
            upper bound.
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
        """Mean of the observations; NaN without any."""
        return self.sum / self.count if self.count else math.nan

    def quantile(self, q: float) -> float:
        """Estimate the value below which a share of the observations lies.

        It is interpolated within its bucket, as PromQL's ``histogram_quantile`` does, so its error
        is at most the width of that bucket. Beyond the last bound, the estimate is that bound.

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
        for lower, upper, before, count in buckets:  # the bounded ones
            if count and rank <= before + count:
                return lower + (upper - lower) * (rank - before) / count
        return self.bounds[-1]

    def merged(self, other: Self) -> Self:
        """Return the histogram of the observations of both.

        Raises:
            ValueError: The buckets differ.
        """
        if self.bounds != other.bounds:
            raise ValueError("histograms with different buckets cannot be merged")
        counts = tuple(mine + its for mine, its in zip(self.counts, other.counts, strict=True))
        return attrs.evolve(self, counts=counts, sum=self.sum + other.sum)


@attrs.frozen
class Metrics:
    """Counters and histograms at a moment; ``Metrics()`` is empty.

    Counters count all attempts and their failures; histograms contain successful attempts only.

    Attributes:
        starts: Starts begun, including restarts.
        start_failures: Starts that failed.
        exits: Ready instances that ended unasked.
        unresponsive: Instances given up because they stopped answering.
        halts: Instances that were ended because they had halted or exceeded a limit.
        restarts: Restarts begun after any of these.
        stops: Stops begun.
        saves: Snapshots begun.
        save_failures: Snapshots that failed.
        saved_bytes: Total size of all complete snapshots.
        falls_behind: Times that a world fell below nine tenths of its rate.
        ready_s: Seconds from the call of a start until the instance was ready.
        save_s: Seconds that a complete snapshot took.
        loop_lag_s: Seconds by which the event loop was late, observed twice a second.
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
        """Return the metrics of both, for example of two worlds in a process."""
        values: dict[str, Any] = {}
        for name in attrs.fields_dict(Metrics):
            mine, its = getattr(self, name), getattr(other, name)
            values[name] = mine.merged(its) if isinstance(mine, Histogram) else mine + its
        return Metrics(**values)


@attrs.frozen
class AgentMetrics:
    """Own usage of an agent so far, without what it inherited.

    Attributes:
        name: Its name.
        driver: The driver of its program.
        state: Its state.
        tokens: Tokens by kind; no token is of two kinds.
        cost_usd: What its program reported as cost, in US dollars; None if it reports none.
        turns: Turns that have ended.
        inherited_tokens: Tokens by kind that it inherited from an archive; empty without any.
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
    """Counts and measures; an observation costs less than a microsecond and never waits.

    One event loop writes. Any thread may take a snapshot, which may contain an observation in the
    counts of a histogram and not yet in its sum.
    """

    def __init__(self) -> None:
        self._counters: dict[str, int] = dict.fromkeys(get_args(Counter), 0)
        self._counts = {name: [0] * (len(DURATION_BOUNDS_S) + 1) for name in get_args(Timing)}
        self._sums = dict.fromkeys(get_args(Timing), 0.0)

    def add(self, counter: Counter, amount: int = 1) -> None:
        """Raise a counter by ``amount``."""
        self._counters[counter] += amount

    def count_event(self, kind: EventKind) -> None:
        """Raise the counters of a kind of event."""
        for counter in _EVENT_COUNTERS.get(kind, ()):
            self.add(counter)

    def observe(self, timing: Timing, seconds: float) -> None:
        """Put a duration into a histogram."""
        self._counts[timing][bisect_left(DURATION_BOUNDS_S, seconds)] += 1
        self._sums[timing] += seconds

    def snapshot(self) -> Metrics:
        """Return the current counters and histograms."""
        values: dict[str, Any] = dict(self._counters)
        for name, counts in self._counts.items():
            values[name] = Histogram(DURATION_BOUNDS_S, tuple(counts), self._sums[name])
        return Metrics(**values)
