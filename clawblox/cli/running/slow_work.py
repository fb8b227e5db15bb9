"""Shows slow starts, saves and loads: progress lines, and the notes of the live table."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

import anyio
import attrs

from clawblox.checkpoint.progress import ArchiveWork, archive_work
from clawblox.cli.terminal.output import note, redraw
from clawblox.cli.terminal.reports import DisplayContainment
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import ReadyRule, read_world_config
from clawblox.errors import ConfigError
from clawblox.instance.health import ReadinessProbe, look_once
from clawblox.instance.listening import find_elsewhere
from clawblox.printable import printable
from clawblox.results import StartedWorld
from clawblox.rundir.records import InstanceRecord, read_record
from clawblox.rundir.status import InstanceStatus, own_start
from clawblox.system.amounts import format_bytes
from clawblox.system.process_tree import all_processes
from clawblox.telemetry.logs import last_lines
from clawblox.views.formatting import format_seconds
from clawblox.world.async_world import AsyncWorld

SLOW_S: Final = 2.0
"""Seconds after which the live table marks a start, a save or a load as slow."""

_WAITING_FOR_PORT: Final = "waiting for the port"
_FIRST_S = 0.5
_TERMINAL_INTERVAL_S = 0.2
_PLAIN_INTERVAL_S = 10.0
_SPINNER = "|/-\\"


@attrs.define(eq=False)
class StartProgress:
    """Shows the progress of a start on standard error: time, probe result, last line of the log.

    On a terminal one line is rewritten in place; elsewhere a line is printed every ten seconds.

    Args:
        world: The world.
        run_dir: The run directory of the start.
        secrets: Values to mask.
    """

    _world: AsyncWorld
    _run_dir: Path
    _secrets: Collection[str] = ()
    _is_terminal: bool = attrs.field(init=False, factory=lambda: sys.stderr.isatty())
    _probe: StartProbe | None = attrs.field(init=False, default=None)

    async def run(self) -> None:
        """Show the progress until cancelled.

        Cancellation: the line may still be there.
        """
        begun_at = anyio.current_time()
        interval_s = _TERMINAL_INTERVAL_S if self._is_terminal else _PLAIN_INTERVAL_S
        await anyio.sleep(_FIRST_S if self._is_terminal else interval_s)
        for mark in cycle(_SPINNER):
            seen: list[str] = []
            with contextlib.suppress(OSError):
                seen = await run_blocking(self._look)
            elapsed = format_seconds(anyio.current_time() - begun_at)
            text = " | ".join((f"Starting {self._world.name}, {elapsed}", *seen))
            if self._is_terminal:
                redraw(f"{mark} {text}"[: shutil.get_terminal_size().columns - 1])
            else:
                note(text)
            await anyio.sleep(interval_s)

    async def accompany(self, start: Callable[[], Awaitable[StartedWorld]]) -> StartedWorld:
        """Start the instance while showing the progress, and return it.

        Raises:
            ClawbloxError: The error that ``start`` raised.

        Cancellation: as for ``start``.
        """
        try:
            async with Tasks() as tasks:
                tasks.start_soon(DisplayContainment().keep_showing, self.run)
                return await start()
        finally:
            if self._is_terminal:
                redraw("")

    def _look(self) -> list[str]:
        if self._probe is None and (record := own_start(self._run_dir)) is not None:
            ready = read_world_config(self._world.dir).ready
            self._probe = StartProbe(record, ready, self._secrets)
        return (
            self._probe.probe_lines() if self._probe else [describe_archives() or _WAITING_FOR_PORT]
        )


_PROBE_INTERVAL_S = 1.0
_PROBE_TIMEOUT_S = 0.5
_MAX_NOTES = 4
_NOTE_TIMEOUT_S = 0.05


@attrs.define(eq=False)
class StartProbe:
    """Probes an instance that is starting.

    Args:
        record: The instance.
        ready: Readiness condition of the world.
        secrets: Values to mask.
        timeout: Maximum time for a probe, in seconds.
    """

    _record: InstanceRecord
    _ready: ReadyRule
    _secrets: Collection[str] = ()
    _timeout: float = attrs.field(kw_only=True, default=_PROBE_TIMEOUT_S)
    _seen: str = attrs.field(init=False, default="")
    _probed_at: float = attrs.field(init=False, default=-math.inf)
    _probe: ReadinessProbe = attrs.field(init=False)

    @_probe.default
    def _make_probe(self) -> ReadinessProbe:
        record, log = self._record, self._ready.log
        return ReadinessProbe(
            host=record.host,
            port=record.port,
            path=record.base_path + self._ready.path if log is None else None,
            log_pattern=None if log is None else re.compile(log),
            log_file=Path(record.log_file),
            log_start=record.log_start,
        )

    def probe_lines(self) -> list[str]:
        """Probe once and return the result, followed by the last line of the log if there is one.

        Raises:
            OSError: This process lacks descriptors, or the log cannot be read.
        """
        if time.monotonic() >= self._probed_at + _PROBE_INTERVAL_S:
            self._seen = self._see()
            self._probed_at = time.monotonic()
        log, start = Path(self._record.log_file), self._record.log_start
        lines = last_lines(log, start=start, count=1, secrets=self._secrets)
        return [self._seen, *map(printable, lines)]

    def _see(self) -> str:
        """Probe once and return the result, or the other port that the world listens on."""
        if look_once(self._probe, self._timeout):
            return self._probe.seen
        record, processes = self._record, all_processes().values()
        elsewhere = find_elsewhere(record.host, record.port, record.pid, processes)
        return str(elsewhere or self._probe.seen)


@attrs.define
class _SlowStart:
    since: float
    probe: StartProbe | None = None


class SlowStarts:
    """Notes on slow starts; probes a few starts at a time."""

    def __init__(self) -> None:
        self._starts: dict[tuple[Path, str, str], _SlowStart] = {}

    def describe(self, statuses: Sequence[InstanceStatus]) -> dict[tuple[Path, str], str]:
        """Return the progress of slow starts, by run directory and name.

        Args:
            statuses: All instances.
        """
        now = time.monotonic()
        starting = {
            (status.run_dir, status.name, status.started_at): status
            for status in statuses
            if status.state in ("starting", "restarting") and status.pid is not None
        }
        starts = {key: self._starts.get(key) or _SlowStart(now) for key in starting}
        self._starts = starts
        slow = [
            (starting[key], start)
            for key, start in starts.items()
            if max(now - start.since, starting[key].uptime_s or 0.0) >= SLOW_S
        ]
        return {
            (status.run_dir, status.name): _describe_start(status, start)
            for status, start in slow[:_MAX_NOTES]
        }


def _describe_start(status: InstanceStatus, start: _SlowStart) -> str:
    try:
        if start.probe is None:
            record = read_record(status.run_dir, status.name)
            if record is None:
                return ""
            ready = read_world_config(status.world_dir).ready
            start.probe = StartProbe(record, ready, timeout=_NOTE_TIMEOUT_S)
        return " | ".join(start.probe.probe_lines())
    except (ConfigError, OSError):
        return ""


# -- archives -----------------------------------------------------------------------------------

_POLL_S: Final = 0.5
_REPEAT_S: Final = 10.0


def describe_archives(min_age_s: float = 0.0) -> str:
    """Return the progress of the longest save or load, and the number of others.

    Args:
        min_age_s: Seconds that a save or a load must have lasted to be counted.

    Returns:
        A line; empty if no save or load counts.
    """
    slow = [work for work in archive_work() if _age(work) >= min_age_s]
    if not slow:
        return ""
    others = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
    return f"{_describe(slow[0])}{others}"


async def note_slow_archives() -> None:
    """Print a note about slow saves and loads every ten seconds until cancelled.

    Cancellation: stops printing.
    """
    while True:
        if line := describe_archives(SLOW_S):
            note(line)
            await anyio.sleep(_REPEAT_S)
        else:
            await anyio.sleep(_POLL_S)


def _describe(work: ArchiveWork) -> str:
    amount = f": {format_bytes(work.done)} of {format_bytes(work.total)}" if work.total else ""
    return f"{work.verb} {printable(work.name)}{amount}, {format_seconds(_age(work))}"


def _age(work: ArchiveWork) -> float:
    return time.monotonic() - work.begun_at
