"""What happens to instances, in words: from the events of an orchestrator, or from two looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import attrs

from clawblox.cli.terminal.output import format_bytes, format_exit, format_seconds, printable
from clawblox.results import EventKind, WorldEvent, WorldExit
from clawblox.rundir.status import InstanceStatus
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.logs import last_lines

__all__ = [
    "Chronicle",
    "Happening",
    "changes_between",
    "happening_of",
    "reason_of",
    "start_reason_of",
    "words_of_end",
]

_TROUBLE: Final[tuple[EventKind, ...]] = (
    "start_failed",
    "exited",
    "sidecar_exited",
    "unresponsive",
    "halted",
    "gave_up",
    "save_failed",
    "lagged",
)
_OF_THE_MACHINE: Final[tuple[EventKind, ...]] = ("ramp_slowed", "ramp_recovered", "lagged")


@attrs.frozen
class Happening:
    """Something that happened, for a person.

    Attributes:
        at: UTC time.
        instance: Name of the instance; empty for what concerns them all.
        text: What it was, one printable line.
        is_trouble: Whether somebody should look at it.
    """

    at: str
    instance: str
    text: str
    is_trouble: bool = False

    @property
    def line(self) -> str:
        """The whole line."""
        return " ".join(filter(None, (self.at, self.instance, self.text)))

    @property
    def local_time(self) -> str:
        """The time of the day here."""
        return datetime.fromisoformat(self.at).astimezone().strftime("%H:%M:%S")


def happening_of(event: WorldEvent) -> Happening:
    """Put an event into words."""
    return Happening(
        event.at,
        "" if event.kind in _OF_THE_MACHINE else event.instance,
        printable(_WORDS[event.kind](event.detail)),
        is_trouble=event.kind in _TROUBLE and event.detail.get("exit") != WorldExit(status=0),
    )


def reason_of(error: Exception) -> str:
    """Return what went wrong, in a line."""
    return printable(getattr(error, "message", None) or str(error) or type(error).__name__)


def start_reason_of(error: Exception) -> str:
    """Return why a start failed: a line, with the last one of the world's log."""
    return " | ".join((reason_of(error), *map(printable, getattr(error, "log_lines", ())[-1:])))


def words_of_end(detail: Mapping[str, Any]) -> str:
    """Say how an instance ended that nobody has stopped, by the detail of its ``exited`` event."""
    if detail.get("halt") is not None:
        return f"halted: {printable(detail['halt'])}"
    if detail["unresponsive"]:
        return "was ended, for it did not answer any more"
    return f"ended by itself: {detail['exit']}"


def _exited(detail: Mapping[str, Any]) -> str:
    if detail.get("halt") is not None:  # why was told when it halted
        return "was ended, for it had halted"
    return words_of_end(detail)


def _restarting(detail: Mapping[str, Any]) -> str:
    path, reason = detail["resume_path"], detail.get("reason")
    words = f"starts again {'afresh' if path is None else f'from {path.name}'}"
    return words if reason is None else f"{words}: {reason}"


def _slowed(detail: Mapping[str, Any]) -> str:
    pressure = detail["pressure"]
    busy = "" if pressure is None else f", CPU pressure {pressure:.0%}"
    return f"the machine is busy: {detail['limit']} starts at once{busy}"


_WORDS: Final[Mapping[EventKind, Callable[[Mapping[str, Any]], str]]] = {
    "started": lambda detail: f"started on port {detail['port']}",
    "ready": lambda detail: f"ready at {detail['url']} ({format_seconds(detail['ready_s'])})",
    "start_failed": lambda detail: f"failed: {start_reason_of(detail['error'])}",
    "exited": _exited,
    "sidecar_exited": lambda detail: f"sidecar {detail['sidecar']!r} ended: {detail['exit']}",
    "halted": lambda detail: f"halted: {detail['reason']}",
    "unresponsive": lambda detail: f"does not answer any more: {detail['seen']}",
    "restarting": _restarting,
    "gave_up": lambda detail: f"stays dead: {detail['reason']}",
    "saved": lambda detail: f"saved {detail['path'].name} ({format_bytes(detail['size_bytes'])})",
    "save_failed": lambda detail: f"not saved: {reason_of(detail['error'])}",
    "stopped": lambda detail: f"stopped: {detail['exit'] or 'it had not begun'}",
    "ramp_slowed": _slowed,
    "ramp_recovered": lambda detail: f"the machine has room: {detail['limit']} starts at once",
    "lagged": lambda detail: f"this process did not run for {format_seconds(detail['seconds'])}",
}


class Chronicle:
    """The last happenings: half of them troubles, which many others do not push out.

    Args:
        size: How many are kept at least.
    """

    def __init__(self, size: int) -> None:
        self._count = 0
        self._troubles: deque[tuple[int, Happening]] = deque(maxlen=size)
        self._others: deque[tuple[int, Happening]] = deque(maxlen=size)

    def add(self, happening: Happening) -> None:
        """Add the next one."""
        self._count += 1
        kept = self._troubles if happening.is_trouble else self._others
        kept.append((self._count, happening))

    def last(self, size: int) -> list[Happening]:
        """Return so many of them, in their order."""
        troubles = list(self._troubles)[-max(size - len(self._others), size // 2 + 1) :]
        others = list(self._others)[-max(size - len(troubles), 0) :] if size else []
        found = sorted(chain(troubles, others), key=lambda numbered: numbered[0])
        return [happening for _, happening in found][-size:] if size else []


def changes_between(
    before: Sequence[InstanceStatus], now: Sequence[InstanceStatus]
) -> Iterator[Happening]:
    """Yield what happened between two looks at a run directory. Blocks, for the logs' last lines.

    Args:
        before: The earlier look; an empty one has everything happen that is still to be seen.
        now: The later look.
    """
    known = {one.name: one for one in before}
    for status in now:
        last = known.get(status.name)
        if last is None or (last.state, last.restarts) != (status.state, status.restarts):
            yield Happening(
                status.ended_at or format_utc(utc_now()),
                status.name,
                printable(_words_for(status)),
                is_trouble=status.has_died or status.state == "restarting",
            )


def _words_for(status: InstanceStatus) -> str:
    words = " ".join(filter(None, (status.state, format_exit(status.exit))))
    if status.state == "ready":
        return f"{words} at {status.url}"
    if status.halt is not None:
        return f"{status.state}: {status.halt}"
    if not status.has_died:
        return words
    return " | ".join((words, *last_lines(status.log_file, count=1)))
