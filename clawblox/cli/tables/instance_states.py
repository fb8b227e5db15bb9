"""Where the instances of an orchestrator stand, by the events that it tells; pure memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from clawblox.cli.tables.event_lines import words_of_end
from clawblox.errors import WorldExitedError
from clawblox.results import WorldEvent, WorldExit

__all__ = ["Roster"]

_OVER = ("exited", "halted", "failed")


class Roster:
    """Counts instances by state, and knows when the last of them has ended, and how.

    Args:
        planned: How many are going to be started.

    Attributes:
        states: By name of the instance a word of ``clawblox ps``.
        failures: What went wrong, by name of the instance: a start that failed, an end that
            nobody asked for.
    """

    def __init__(self, planned: int) -> None:
        self.states: dict[str, str] = {}
        self.failures: dict[str, Exception] = {}
        self._ends: dict[str, tuple[str, str]] = {}
        self._planned = planned
        self._is_settled = False

    @property
    def total(self) -> int:
        """How many instances there are or will be."""
        return max(self._planned, len(self.states))

    @property
    def is_over(self) -> bool:
        """Whether nothing runs, and nothing is going to."""
        return self._is_settled and all(state in _OVER for state in self.states.values())

    def runs(self, name: str) -> bool:
        """Say whether an instance has begun and not ended."""
        return self.states.get(name, "exited") not in _OVER

    def counts(self) -> dict[str, int]:
        """Return how many instances are in each state, ``waiting`` for their turn included.

        May be called in any thread.
        """
        states = tuple(self.states.values())
        waiting = 0 if self._is_settled else self._planned - len(states)
        return {**({"waiting": waiting} if waiting > 0 else {}), **Counter(states)}

    def settle(self, failed: Mapping[str, Exception], ready: Iterable[str]) -> None:
        """Take what the start of all of them came to.

        Args:
            failed: The errors, by name of the instance.
            ready: Names of those that were ready.
        """
        self._is_settled = True
        for name, error in failed.items():
            if self.states.get(name) not in _OVER:  # it failed before there was anything to tell
                self._fail(name, "failed", error)
        for name in ready:
            self.states.setdefault(name, "ready")

    def stop(self) -> None:
        """Take that everything that runs is being stopped now."""
        for name, state in self.states.items():
            if state not in _OVER:
                self.states[name] = "stopping"

    def take(self, event: WorldEvent) -> None:
        """Take the next event."""
        name, detail = event.instance, event.detail
        match event.kind:
            case "started":
                was_ready = self.states.get(name) == "restarting"
                self.states[name] = "restarting" if was_ready else "starting"
            case "ready" | "restarting":
                self.states[name] = event.kind
            case "start_failed" if self.states.get(name) != "restarting":
                self._fail(name, "failed", detail["error"])
            case "exited":
                self._take_end(name, detail)
            case "gave_up":
                state, words = self._ends[name]
                words = f"{words}, and stays dead: {detail['reason']}"
                self._fail(name, state, WorldExitedError(words, instance=name))
            case "stopped":
                self.states[name] = "exited"

    def _take_end(self, name: str, detail: Mapping[str, Any]) -> None:
        state = "exited" if detail.get("halt") is None else "halted"
        words = words_of_end(detail)
        self._ends[name] = state, words
        was_ended = state == "halted" or detail["unresponsive"]
        if detail["restart"] != "never":
            self.states[name] = "restarting"
        elif detail["exit"] == WorldExit(status=0) and not was_ended:
            self.states[name] = state
        else:
            self._fail(name, state, WorldExitedError(words, instance=name))

    def _fail(self, name: str, state: str, error: Exception) -> None:
        self.states[name] = state
        self.failures.setdefault(name, error)
