"""What an experiment reports while it runs: its events, the latest actions of agents, and its rows.

Hooks of the caller are called here; their errors are events, and end nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from clawblox.agents.narration import narrate
from clawblox.agents.values import AgentEvent
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.orders import Order
from clawblox.experiment.schedule.callbacks import check_hooks
from clawblox.experiment.session.events import ExperimentEvent, describe_event, describe_line
from clawblox.experiment.tables.rows import Row
from clawblox.foreign_values import clean_text
from clawblox.results import Event
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.events import Hub, Subscription
from clawblox.telemetry.own_log import OwnLog

EventHook: TypeAlias = Callable[[ExperimentEvent], Awaitable[object]]
"""Called with each event of an experiment."""

RowHook: TypeAlias = Callable[[Row], Awaitable[object]]
"""Called with the row of each generation that is committed."""

_ACTIONS: Final = frozenset({"message", "tool.called", "retry", "limit", "error"})
"""Types of an agent's events that are its latest action."""

_log = OwnLog(__name__)


class Reporter:
    """Hands the events and rows of an experiment to streams and hooks.

    Args:
        on_event: The hook for events; None for none.
        on_row: The hook for rows; None for none.

    Attributes:
        last_actions: The latest action of an agent, by chain.
    """

    def __init__(self, on_event: EventHook | None, on_row: RowHook | None) -> None:
        check_hooks(on_event=on_event, on_generation_end=on_row)
        self._on_event = on_event
        self._on_row = on_row
        self._hub: Hub[ExperimentEvent] = Hub()
        self.last_actions: dict[str, str] = {}

    def subscribe(self) -> Subscription[ExperimentEvent]:
        """Return a stream of the events from now on."""
        return self._hub.subscribe()

    def close(self) -> None:
        """End all streams."""
        self._hub.close()

    async def run(self) -> None:
        """Call the hook for events, until the streams end.

        Cancellation: the hook is cancelled.
        """
        if self._on_event is None:
            return
        async with self._hub.subscribe() as events:
            async for event in events:
                is_known = event.kind == "hook.failed"  # reported events must not cause others
                await self._call("on_event", self._on_event(event), is_reported=not is_known)

    async def report_row(self, row: Row) -> None:
        """Call the hook for rows.

        Cancellation: the hook is cancelled.
        """
        if self._on_row is not None:
            await self._call("on_generation_end", self._on_row(row))

    def note(self, line: Line) -> None:
        """Publish the event that a line of the journal reports."""
        self._hub.publish(describe_line(line))

    def warn(self, kind: str, text: str) -> None:
        """Publish a warning about the experiment as a whole."""
        self._publish(kind, {"text": text})

    def pass_on(self, order: Order, event: Event) -> None:
        """Publish an event of a world or an agent, and remember what an agent did."""
        if isinstance(event, AgentEvent) and event.kind in _ACTIONS:
            with _log.contain("action not described", kind=event.kind, agent=event.subject):
                for line in narrate(event.kind, event.data)[:1]:
                    self.last_actions[order.chain.name] = line.text
        if self._hub.has_listeners:
            self._hub.publish(describe_event(order, event))

    async def _call(self, hook: str, call: Awaitable[object], *, is_reported: bool = True) -> None:
        try:
            await call
        except Exception as error:  # noqa: BLE001 - a hook's error ends nothing
            text = clean_text(f"{type(error).__name__}: {error}")
            _log.warning("hook failed", hook=hook, error=text)
            if is_reported:
                self._publish("hook.failed", {"hook": hook, "error": text})

    def _publish(self, kind: str, data: Mapping[str, Any]) -> None:
        time = format_utc(utc_now())
        self._hub.publish(ExperimentEvent(time=time, kind=kind, subject="", data=data))
