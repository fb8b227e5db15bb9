"""Events of an experiment, made from the lines of its journal."""

from __future__ import annotations

from typing import Final

import attrs

from clawblox.agents.values import AgentEvent
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.orders import Order
from clawblox.results import Event

_KINDS: Final = {
    "experiment.begun": "experiment.begun",
    "session.begun": "experiment.started",
    "session.ended": "experiment.finished",
    "plan.amended": "plan.amended",
    "account.limited": "account.limited",
    "account.cleared": "account.cleared",
    "chain.forked": "chain.forked",
    "chain.retried": "chain.retried",
    "hook.called": "hook.called",
    "hook.failed": "hook.failed",
}


@attrs.frozen(kw_only=True)
class ExperimentEvent(Event):
    """An event of an experiment; see :class:`~clawblox.results.Event`.

    ``subject`` is the chain, or empty for the experiment as a whole; ``data`` has the members of
    the line in the journal. Events of worlds and agents have the kinds ``world.…`` and ``agent.…``.

    Attributes:
        generation: The generation that it is about; None for others.
        attempt: The attempt that it is about; None for others.
    """

    generation: int | None = None
    attempt: str | None = None


def describe_event(order: Order, event: Event) -> ExperimentEvent:
    """Return the event of an experiment that passes on one of a world or an agent."""
    source = "agent" if isinstance(event, AgentEvent) else "world"
    return ExperimentEvent(
        time=event.time,
        kind=f"{source}.{event.kind}",
        subject=order.chain.name,
        data={**event.data, "name": event.subject},
        generation=order.generation,
        attempt=order.run_id,
    )


def describe_line(line: Line) -> ExperimentEvent:
    """Return the event that a line of the journal reports."""
    return ExperimentEvent(
        time=line.at,
        kind=_KINDS.get(line.type, f"generation.{line.type}"),
        subject=line.chain or "",
        data=line.data,
        generation=line.generation,
        attempt=line.attempt,
    )
