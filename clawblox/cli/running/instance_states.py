"""The state of each instance of an orchestrator, derived from events and kept in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from clawblox.errors import WorldExitedError
from clawblox.results import ProcessExit, WorldEvent, describe_ending
from clawblox.views.event_lines import describe_event, describe_start_error

_OVER = ("exited", "halted", "failed")


@attrs.define(eq=False)
class InstanceStates:
    """States of the instances, and the outcome once the last instance has ended.

    Args:
        planned: Number of instances to start.

    Attributes:
        by_name: The state of each instance, in the words of ``clawblox ps``.
        failures: The error of each instance whose start failed or that ended unexpectedly.
        stopped: Names of the instances that were stopped.
        ramp: Reason why starts are held back; empty if they are not.
    """

    _planned: int
    by_name: dict[str, str] = attrs.field(init=False, factory=dict)
    failures: dict[str, Exception] = attrs.field(init=False, factory=dict)
    stopped: set[str] = attrs.field(init=False, factory=set)
    ramp: str = attrs.field(init=False, default="")
    _ends: dict[str, tuple[str, str]] = attrs.field(init=False, factory=dict)
    """State and reason of each end after which a restart is possible, by name."""
    _is_start_done: bool = attrs.field(init=False, default=False)

    @property
    def total(self) -> int:
        """Number of instances that exist or will exist."""
        return max(self._planned, len(self.by_name))

    @property
    def is_over(self) -> bool:
        """True if no instance is running or waiting to start."""
        return self._is_start_done and all(state in _OVER for state in self.by_name.values())

    def runs(self, name: str) -> bool:
        """Return whether an instance has started and not ended."""
        return self.by_name.get(name, "exited") not in _OVER

    def counts(self) -> dict[str, int]:
        """Return the number of instances in each state, including ``waiting`` for the start.

        May be called from any thread.
        """
        states = tuple(self.by_name.values())
        waiting = 0 if self._is_start_done else self._planned - len(states)
        return {**({"waiting": waiting} if waiting > 0 else {}), **Counter(states)}

    def finish_start(self, failed: Mapping[str, Exception], ready: Iterable[str]) -> None:
        """Record that every instance has started or failed to start.

        Args:
            failed: The errors, by name of the instance.
            ready: Names of the instances that became ready.
        """
        self._is_start_done = True
        for name, error in failed.items():
            if self.by_name.get(name) not in _OVER:  # the start failed before its first event
                self._fail(name, "failed", error)
        for name in ready:
            self.by_name.setdefault(name, "ready")

    def stop(self) -> None:
        """Record that all running instances are being stopped."""
        self.by_name |= {name: "stopping" for name in self.by_name if self.runs(name)}

    def take(self, event: WorldEvent) -> None:
        """Update the states with the next event."""
        name, data = event.subject, event.data
        match event.kind:
            case "started":
                was_ready = self.by_name.get(name) == "restarting"
                self.by_name[name] = "restarting" if was_ready else "starting"
                self.stopped.discard(name)
            case "restarting":
                self.by_name[name] = "restarting"
            case "ready":
                self.by_name[name] = "ready"
                self._ends.pop(name, None)
            case "start_failed" if self.by_name.get(name) != "restarting":
                self._fail(name, "failed", data["error"])
            case "start_failed":  # of a restart; the end of the old process may be recorded already
                self._ends.setdefault(name, ("exited", describe_start_error(data["error"])))
            case "exited":
                self._take_end(name, data)
            case "gave_up":
                state, *texts = self._ends.pop(name, ("exited",))
                text = "; ".join((*texts, f"not restarted: {data['reason']}"))
                self._fail(name, state, WorldExitedError(text, instance=name))
            case "ramp_slowed" | "ramp_recovered":
                self.ramp = describe_event(event).text if event.kind == "ramp_slowed" else ""
            case "stopped":
                self.by_name[name] = "exited"
                self.stopped.add(name)

    def _take_end(self, name: str, data: Mapping[str, Any]) -> None:
        state = "exited" if data.get("halt") is None else "halted"
        text = describe_ending(data)
        self._ends[name] = state, text
        was_ended = state == "halted" or data["unresponsive"]
        if data["restart"] != "never":
            self.by_name[name] = "restarting"
        elif data["exit"] == ProcessExit(status=0) and not was_ended:
            self.by_name[name] = state
        else:
            self._fail(name, state, WorldExitedError(text, instance=name))

    def _fail(self, name: str, state: str, error: Exception) -> None:
        self.by_name[name] = state
        self.failures.setdefault(name, error)
