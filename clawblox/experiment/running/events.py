"""Events of an experiment: lines of its journal, and reports of its worlds and agents.

Hooks of the caller are called here. An error in a hook is reported as an event, and ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from clawblox.agents.narration import narrate
from clawblox.agents.values import AgentEvent
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.schedule.callbacks import call_hook, check_hooks
from clawblox.experiment.tables.rows import Row
from clawblox.foreign_values import clean_text
from clawblox.results import Event
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.events import Hub
from clawblox.telemetry.own_log import OwnLog

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
_ACTIONS: Final = frozenset({"message", "tool.called", "retry", "limit", "error"})
"""Types of events that count as an agent's latest action."""

_log = OwnLog(__name__)


@attrs.frozen(kw_only=True)
class ExperimentEvent(Event):
    """An event of an experiment; see :class:`~clawblox.results.Event`.

    ``subject`` is the chain, or empty for the whole experiment; ``data`` has the members of the
    line in the journal. Events of worlds and agents have the kinds ``world.…`` and ``agent.…``.

    Attributes:
        generation: The generation concerned; None for other events.
        attempt: The attempt concerned; None for other events.
    """

    generation: int | None = None
    attempt: str | None = None


def describe_line(line: JournalLine) -> ExperimentEvent:
    """Return the event that a line of the journal reports."""
    return ExperimentEvent(
        time=line.at,
        kind=_KINDS.get(line.type, f"generation.{line.type}"),
        subject=line.chain or "",
        data=line.data,
        generation=line.generation,
        attempt=line.attempt,
    )


EventHook: TypeAlias = Callable[[ExperimentEvent], object]
"""Called with each event of an experiment, in a thread unless it is async."""

RowHook: TypeAlias = Callable[[Row], object]
"""Called with the row of each committed generation, in a thread unless it is async."""


class ExperimentEvents(Hub[ExperimentEvent]):
    """Passes the events and rows of an experiment to streams and hooks.

    Args:
        on_event: The hook for events; None for none.
        on_row: The hook for rows; None for none.

    Attributes:
        last_actions: The latest action of an agent, by chain.
    """

    def __init__(self, on_event: EventHook | None = None, on_row: RowHook | None = None) -> None:
        super().__init__()
        check_hooks(on_event=on_event, on_generation_end=on_row)
        self._on_event = on_event
        self._on_row = on_row
        self.last_actions: dict[str, str] = {}

    async def run(self) -> None:
        """Call the hook for events, until the streams end.

        Cancellation: the hook is cancelled.
        """
        if self._on_event is None:
            return
        async with self.subscribe() as events:
            async for event in events:
                is_known = (
                    event.kind == "hook.failed"
                )  # reported events must not cause other events
                await self._call("on_event", self._on_event, event, is_reported=not is_known)

    async def report_row(self, row: Row) -> None:
        """Call the hook for rows.

        Cancellation: the hook is cancelled.
        """
        if self._on_row is not None:
            await self._call("on_generation_end", self._on_row, row)

    def note(self, line: JournalLine) -> None:
        """Publish the event that a line of the journal reports."""
        self.publish(describe_line(line))

    def warn(self, kind: str, text: str) -> None:
        """Publish a warning about the whole experiment."""
        self._report(kind, text=text)

    def pass_on(self, order: AttemptOrder, event: Event) -> None:
        """Publish an event of a world or an agent, and remember the agent's action."""
        source = "agent" if isinstance(event, AgentEvent) else "world"
        if isinstance(event, AgentEvent) and event.kind in _ACTIONS:
            with _log.contain("action not described", kind=event.kind, agent=event.subject):
                for line in narrate(event.kind, event.data)[:1]:
                    self.last_actions[order.chain.name] = line.text
        if self.has_listeners:
            passed_on = ExperimentEvent(
                time=event.time,
                kind=f"{source}.{event.kind}",
                subject=order.chain.name,
                data={**event.data, "name": event.subject},
                generation=order.generation,
                attempt=order.attempt_id,
            )
            self.publish(passed_on)

    async def _call(
        self, name: str, hook: Callable[[Any], object], value: object, *, is_reported: bool = True
    ) -> None:
        try:
            await call_hook(hook, value, lambda _call: value)
        except Exception as error:  # noqa: BLE001 - a hook's error ends nothing
            text = clean_text(f"{type(error).__name__}: {error}")
            _log.warning("hook failed", hook=name, error=text)
            if is_reported:
                self._report("hook.failed", hook=name, error=text)

    def _report(self, kind: str, **data: Any) -> None:
        time = format_utc(utc_now())
        self.publish(ExperimentEvent(time=time, kind=kind, subject="", data=data))
