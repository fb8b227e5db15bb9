"""Computes the cost of usage, and the spending of an experiment within its limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs

from clawblox.agents.values import Usage
from clawblox.errors import ClawbloxError
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import AttemptState
from clawblox.experiment.plan.parts import Price
from clawblox.experiment.plan.plan import Chain

_PER_MILLION = 1e-6


def price_usage(usage: Usage, price: Price | None) -> float:
    """Return the cost of usage in US dollars: as reported by the program, or computed from a price.

    Args:
        usage: The usage.
        price: Dollars per million tokens; None if unknown, so the cost counts as 0.
    """
    if usage.cost_usd is not None:
        return usage.cost_usd
    if price is None:
        return 0.0
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    return _PER_MILLION * (
        usage.input_tokens * price.input
        + usage.cached_tokens * cached
        + usage.cache_write_tokens * written
        + usage.output_tokens * price.output
    )


@attrs.frozen
class Cost:
    """A cost.

    Attributes:
        usd: US dollars; None if a part is unknown.
        is_estimated: Whether a part is computed from prices.
    """

    usd: float | None = 0.0
    is_estimated: bool = False

    def __add__(self, other: Cost) -> Cost:
        is_known = self.usd is not None and other.usd is not None
        return Cost(
            self.usd + other.usd if is_known else None,  # type: ignore[operator]
            self.is_estimated or other.is_estimated,
        )


def compute_cost(usage: Usage, price: Price | None) -> Cost:
    """Return the cost of usage: as reported by the program, or computed from a price.

    Args:
        usage: The usage.
        price: The price of the model; None if unknown.
    """
    if usage.cost_usd is None and not usage.tokens:
        return Cost(None if usage.is_unreported else 0.0)
    if usage.cost_usd is None and price is None:
        return Cost(None)
    return Cost(price_usage(usage, price), usage.cost_usd is None)


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return sum(costs, Cost())


def add_usage(before: Sequence[Usage], after: Sequence[Usage]) -> tuple[Usage, ...]:
    """Return the sums of two usages of agents, in their order; missing entries count as zero."""
    count = max(len(before), len(after))
    padded = ([*usage, *[Usage()] * (count - len(usage))] for usage in (before, after))
    return tuple(first.plus(second) for first, second in zip(*padded, strict=True))


class Spending:
    """The costs of all attempts of an experiment, including lost ones.

    Args:
        plans: The plans of the experiment.
    """

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._counted = 0
        self._ended_usd = 0.0
        self._left: dict[str, tuple[AttemptState, tuple[Usage, ...]]] = {}
        self._running: dict[str, float] = {}

    async def count_left(self, read: Callable[[str, str], Awaitable[Sequence[Usage]]]) -> None:
        """Count unfinished attempts of an earlier run, until their ends are recorded.

        Args:
            read: Returns the usage of an attempt, by its chain and its name.

        Cancellation: some attempts are counted.
        """
        for chain in list(self._plans.state.chains.values()):
            for attempt in chain.attempts:
                if attempt.ending is None:
                    with suppress(ClawbloxError):  # its chain reports the error
                        usage = await read(chain.name, attempt.attempt_id)
                        self._left[chain.name] = attempt, tuple(usage)

    def left(self, chain: str) -> tuple[Usage, ...]:
        """Return the usage of the agents in an unfinished attempt of an earlier run."""
        attempt, usage = self._left.get(chain, (None, ()))
        return () if attempt is None or attempt.ending is not None else usage

    @property
    def ended_usd(self) -> float:
        """Cost of ended attempts, and of unfinished attempts of earlier runs, in US dollars."""
        if self._counted != self._plans.state.endings:
            self._counted = self._plans.state.endings
            self._ended_usd = sum(
                self._cost(attempt.spent, attempt.working)
                for chain in self._plans.state.chains.values()
                for attempt in chain.attempts
            )
        left = ((self.left(chain), attempt) for chain, (attempt, _) in self._left.items())
        return self._ended_usd + sum(self._cost(usage, attempt.working) for usage, attempt in left)

    @property
    def usd(self) -> float:
        """Cost of all attempts so far, in US dollars."""
        return self.ended_usd + sum(self._running.values())

    def note(self, chain: Chain, usage: Sequence[Usage]) -> None:
        """Note the usage of the agents in a chain's running attempt, in their order."""
        self._running[chain.name] = self._sum(usage, [agent.model for agent in chain.plan.agents])

    def end(self, chain: str) -> None:
        """Note that the attempt of a chain has ended. Idempotent."""
        self._running.pop(chain, None)

    def affords(self, reserved_usd: float) -> bool:
        """Return whether the money suffices for the reserved budgets."""
        limit = self._plans.present.limits.dollars
        needed = max(reserved_usd, sum(self._running.values()))
        return limit is None or self.ended_usd + needed < limit

    def has_reached(self, share: float) -> bool:
        """Return whether a share of the plan's money is spent; False without a limit."""
        limit = self._plans.present.limits.dollars
        return limit is not None and self.usd >= share * limit

    def describe(self) -> str:
        """Return the spent part of the plan's money as text."""
        limit = self._plans.present.limits.dollars
        return f"${self.usd:.2f} has been spent; limits.dollars is ${limit:g}"

    def _cost(self, usage: Sequence[Usage], working: Mapping[str, Any]) -> float:
        models = [agent.get("model") for agent in working.get("agents", ())]
        return self._sum(usage, models or [None] * len(usage))

    def _sum(self, usage: Sequence[Usage], models: Sequence[str | None]) -> float:
        prices = self._plans.present.prices
        pairs = zip(usage, models, strict=False)
        return sum(price_usage(used, prices.get(model or "")) for used, model in pairs)
