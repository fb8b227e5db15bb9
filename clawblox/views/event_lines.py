"""Events of instances as lines: sent by an orchestrator, or derived from two states."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from clawblox.printable import printable
from clawblox.protocol import ScriptErrors
from clawblox.results import (
    EventKind,
    ProcessExit,
    SavedSnapshot,
    StopResult,
    WorldEvent,
    describe_ending,
)
from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.requests import Restarted
from clawblox.rundir.status import InstanceStatus
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.logs import last_lines
from clawblox.views.formatting import describe_life, format_seconds, shorten_path

_TROUBLE: Final[tuple[EventKind, ...]] = (
    "start_failed",
    "exited",
    "sidecar_exited",
    "unresponsive",
    "halted",
    "gave_up",
    "save_failed",
    "autosave_paused",
    "lagged",
    "fell_behind",
    "overcommitted",
    "script_error",
)
_RUNG_TEXTS = {
    "not_running": "was not running",
    "already_exited": "had already ended",
    "terminated": "stopped",
    "killed": "killed",
}
_WITHOUT_INSTANCE: Final[tuple[EventKind, ...]] = (
    "ramp_slowed",
    "ramp_recovered",
    "overcommitted",
)


@attrs.frozen
class EventLine:
    """An event as a line of text.

    Attributes:
        at: UTC time.
        instance: Name of the instance; empty for an event that concerns all instances.
        text: The event, as a printable line.
        needs_attention: Whether the event needs attention.
    """

    at: str
    instance: str = attrs.field(converter=printable)
    text: str = attrs.field(converter=printable)
    needs_attention: bool = False

    def __str__(self) -> str:
        return " ".join(filter(None, (self.at, self.instance, self.text)))

    @property
    def local_time(self) -> str:
        """The local time of day."""
        return datetime.fromisoformat(self.at).astimezone().strftime("%H:%M:%S")


def describe_event(event: WorldEvent) -> EventLine:
    """Return an event as a line of text."""
    return EventLine(
        event.time,
        "" if event.kind in _WITHOUT_INSTANCE else event.subject,
        printable(_TEXTS[event.kind](event.data)),
        needs_attention=event.kind in _TROUBLE and event.data.get("exit") != ProcessExit(status=0),
    )


def describe_error(error: Exception) -> str:
    """Return the message of an error as one line."""
    return printable(getattr(error, "message", None) or str(error) or type(error).__name__)


def describe_start_error(error: Exception) -> str:
    """Return why a start failed, with the last line of the world's log."""
    last_line = getattr(error, "log_lines", ())[-1:]
    return " | ".join((describe_error(error), *map(printable, last_line)))


def describe_saved(saved: SavedSnapshot) -> str:
    """Return the path and the size of a snapshot."""
    time = "" if saved.time is None else f", sim time {saved.time:.1f}"
    size = format_bytes(saved.size_bytes)
    return f"{saved.instance}: saved {shorten_path(saved.path)} ({size}{time})"


def describe_stopped(result: StopResult) -> str:
    """Return how an instance was stopped, with a further line for each killed process."""
    text = f"{result.instance}: {_RUNG_TEXTS[result.rung]}"
    if result.rung in ("not_running", "already_exited"):
        return text
    exit_text = f", {result.exit}" if result.exit else ""
    line = f"{text} in {format_seconds(result.elapsed_s)}{exit_text}"
    return "\n".join((line, *(f"  killed: {process}" for process in result.killed)))


def describe_restarted(instance: str, done: Restarted) -> str:
    """Return the save from which an instance was restarted, and its address."""
    source = "fresh" if done.resume_path is None else f"from {shorten_path(done.resume_path)}"
    return f"{instance}: restarted {source}, ready at {done.url} ({format_seconds(done.ready_s)})"


def _exited(detail: Mapping[str, Any]) -> str:
    if detail.get("halt") is not None:  # the previous event gave the reason
        return "was stopped because it had halted"
    return describe_ending(detail)


def _restarting(detail: Mapping[str, Any], fresh: str = "restarting fresh") -> str:
    path, reason = detail["resume_path"], detail.get("reason")
    text = fresh if path is None else f"{fresh.split()[0]} from {path.name}"
    return text if reason is None else f"{text}: {reason}"


def _ramp_slowed(detail: Mapping[str, Any]) -> str:
    pressure = detail["pressure"]
    busy = "" if pressure is None else f" (CPU pressure {pressure:.0%})"
    return f"machine is busy: {detail['limit']} starts at a time{busy}"


def _autosave_paused(detail: Mapping[str, Any]) -> str:
    free, least = format_bytes(detail["free_bytes"]), format_bytes(detail["min_free_bytes"])
    return f"autosaves paused: {free} free in {detail['path']}, below the limit of {least}"


def _rate(detail: Mapping[str, Any]) -> str:
    return f"{detail['achieved_hz']:.1f} of {detail['nominal_hz']:g} ticks a second"


def _overcommitted(detail: Mapping[str, Any]) -> str:
    cores, needed = detail["cores"], detail["needed"]
    there = "is 1" if cores == 1 else f"are {cores}"
    worlds = "1 world" if detail["worlds"] == 1 else f"{detail['worlds']} worlds"
    return (
        f"the ticks of {worlds} need {needed:.1f} cores and there {there}: "
        "they will run slower than real time"
    )


_TEXTS: Final[Mapping[EventKind, Callable[[Mapping[str, Any]], str]]] = {
    "started": lambda detail: f"started on port {detail['port']}",
    "ready": lambda detail: f"ready at {detail['url']} ({format_seconds(detail['ready_s'])})",
    "start_failed": lambda detail: f"failed: {describe_start_error(detail['error'])}",
    "exited": _exited,
    "sidecar_exited": lambda detail: f"sidecar {detail['sidecar']!r} ended: {detail['exit']}",
    "halted": lambda detail: f"halted: {detail['reason']}",
    "unresponsive": lambda detail: f"does not respond: {detail['seen']}",
    "restarting": _restarting,
    "resuming": lambda detail: _restarting(detail, "resuming from the start of its run"),
    "gave_up": lambda detail: f"will not be restarted: {detail['reason']}",
    "saved": lambda detail: f"saved {detail['path'].name} ({format_bytes(detail['size_bytes'])})",
    "save_failed": lambda detail: f"not saved: {describe_error(detail['error'])}",
    "rows_shared": lambda detail: (
        f"shares the rows of its data stores, in Postgres, with the origin of {detail['path'].name}"
    ),
    "autosave_paused": _autosave_paused,
    "autosave_resumed": lambda detail: (
        f"autosaves resumed: {format_bytes(detail['free_bytes'])} free in {detail['path']}"
    ),
    "stopped": lambda detail: (
        f"stopped: {detail['exit']}" if detail["exit"] else "stopped before it started"
    ),
    "rejoined": lambda detail: f"{detail['agent']} joined again, since its session was lost",
    "session_lost": lambda detail: f"the session of {detail['agent']} is lost: {detail['reason']}",
    "ramp_slowed": _ramp_slowed,
    "ramp_recovered": lambda detail: f"machine has room: {detail['limit']} starts at a time",
    "fell_behind": lambda detail: f"runs slower than real time: {_rate(detail)}",
    "caught_up": lambda detail: f"runs in real time again: {_rate(detail)}",
    "overcommitted": _overcommitted,
    "script_error": lambda detail: str(ScriptErrors(**detail)),
    "lagged": lambda detail: f"clawblox was held up for {format_seconds(detail['seconds'])}",
}


class RecentEvents:
    """The most recent event lines; ordinary events never displace problems.

    Args:
        size: Number of problems, and number of other events, to keep.
    """

    def __init__(self, size: int) -> None:
        self._count = 0
        self._troubles: deque[tuple[int, EventLine]] = deque(maxlen=size)
        self._others: deque[tuple[int, EventLine]] = deque(maxlen=size)

    def add(self, line: EventLine) -> None:
        """Add the next line."""
        self._count += 1
        kept = self._troubles if line.needs_attention else self._others
        kept.append((self._count, line))

    def last(self, size: int) -> list[EventLine]:
        """Return the last lines in order; see :func:`select_events`."""
        numbered = sorted(chain(self._troubles, self._others), key=lambda pair: pair[0])
        return select_events([line for _, line in numbered], size)


def select_events(lines: Sequence[EventLine], size: int) -> list[EventLine]:
    """Return the last ``size`` lines in order, with more than half reserved for problems."""
    faults = [place for place, line in enumerate(lines) if line.needs_attention]
    others = [place for place, line in enumerate(lines) if not line.needs_attention]
    least = min(len(faults), max(size - len(others), size // 2 + 1 if size else 0))
    chosen = {*faults[len(faults) - least :], *others[max(len(others) - size + least, 0) :]}
    return [lines[place] for place in sorted(chosen)]


def changes_between(
    before: Sequence[InstanceStatus],
    now: Sequence[InstanceStatus],
    run_names: Mapping[Path, str] = MappingProxyType({}),
) -> Iterator[EventLine]:
    """Yield the changes between two states of run directories. Blocks: it reads logs.

    Args:
        before: The earlier state; if it is empty, every instance is a change.
        now: The later state.
        run_names: Names of the runs in the lines; empty if there is only one run.
    """
    earlier = {(status.run_dir, status.name): status for status in before}
    for status in now:
        last = earlier.get((status.run_dir, status.name))
        if last is None or (last.state, last.restarts) != (status.state, status.restarts):
            yield EventLine(
                status.ended_at or format_utc(utc_now()),
                " ".join(filter(None, (run_names.get(status.run_dir), status.name))),
                printable(_describe_status(status)),
                needs_attention=status.has_died or status.state == "restarting",
            )


def _describe_status(status: InstanceStatus) -> str:
    text = describe_life(status.state, status.exit, status.halt)
    if status.state == "ready":
        return f"{text} at {status.url}"
    if status.halt is not None or not status.has_died:
        return text
    log = shown_log(status.run_dir, status.log_file)
    return " | ".join((text, *(last_lines(log, count=1) if log else ())))
