"""Costs of usage for tables: reported, estimated from prices, or unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from clawblox.agents.values import Usage
from clawblox.experiment.plan.parts import Price
from clawblox.experiment.schedule.spending import price_usage


@attrs.frozen
class Cost:
    """A cost.

    Attributes:
        usd: US dollars; None if a part of it is not known.
        is_estimated: Whether a part of it is computed from prices.
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
    """Return the cost of some usage: as its program reports it, else by a price.

    Args:
        usage: The usage.
        price: The price of the model; None if it is not known.
    """
    if usage.cost_usd is None and not usage.tokens:
        return Cost(None if usage.is_unreported else 0.0)
    if usage.cost_usd is None and price is None:
        return Cost(None)
    return Cost(price_usage(usage, price), usage.cost_usd is None)


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return sum(costs, Cost())
