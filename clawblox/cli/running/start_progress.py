"""The progress line of a world that starts slowly."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Collection
from itertools import cycle
from pathlib import Path

import anyio

from clawblox.cli.tables.formatting import format_seconds, printable
from clawblox.cli.terminal.output import note
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import ReadyRule
from clawblox.instance.health import Probe, look_once
from clawblox.results import StartedWorld
from clawblox.rundir.records import InstanceRecord
from clawblox.telemetry.logs import last_lines

__all__ = ["StartProgress"]

_FIRST_S = 0.5
_TERMINAL_INTERVAL_S = 0.2
_PLAIN_INTERVAL_S = 10.0
_PROBE_INTERVAL_S = 1.0
_PROBE_TIMEOUT_S = 0.5
_SPINNER = "|/-\\"
_CLEAR_LINE = "\r\x1b[K"


class StartProgress:
    """Shows on standard error how a start is going: time, probe result, last line of the log.

    On a terminal one line is rewritten in place; elsewhere a line is printed every ten seconds. It
    probes the world as the readiness probe does, but less often.

    Args:
        world: Name of the world.
        find: Returns the record of the instance, or None before it has one. Blocks.
        ready: When the world counts as ready.
        secrets: Values to mask.
        plain_interval: Seconds between two lines without a terminal.
    """

    def __init__(
        self,
        world: str,
        find: Callable[[], InstanceRecord | None],
        ready: ReadyRule,
        secrets: Collection[str],
        *,
        plain_interval: float = _PLAIN_INTERVAL_S,
    ) -> None:
        self._world = world
        self._find = find
        self._ready = ready
        self._secrets = secrets
        self._plain_interval = plain_interval
        self._is_terminal = sys.stderr.isatty()
        self._record: InstanceRecord | None = None
        self._probe: Probe | None = None
        self._probed_at = 0.0

    async def run(self) -> None:
        """Show the progress until it is cancelled; it never fails.

        Cancellation: the line may still be there; :meth:`clear` removes it.
        """
        begun_at = anyio.current_time()
        await anyio.sleep(_FIRST_S if self._is_terminal else self._plain_interval)
        for mark in cycle(_SPINNER):
            with contextlib.suppress(OSError):
                await self._look()
            parts = await self._describe(anyio.current_time() - begun_at)
            self._show(mark, " | ".join(parts))
            await anyio.sleep(_TERMINAL_INTERVAL_S if self._is_terminal else self._plain_interval)

    async def accompany(self, start: Callable[[], Awaitable[StartedWorld]]) -> StartedWorld:
        """Start the instance and return it; show the progress meanwhile.

        Raises:
            ClawbloxError: What ``start`` raised.

        Cancellation: as that of ``start``.
        """
        try:
            async with Tasks() as tasks:
                tasks.start_soon(self.run)
                return await start()
        finally:
            self.clear()

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._is_terminal:
            note(_CLEAR_LINE, ends_line=False)

    async def _look(self) -> None:
        if self._record is None:
            self._record = await run_blocking(self._find)
        if self._record is None or anyio.current_time() < self._probed_at + _PROBE_INTERVAL_S:
            return
        self._probe = self._probe or _make_probe(self._record, self._ready)
        await run_blocking(look_once, self._probe, _PROBE_TIMEOUT_S)
        self._probed_at = anyio.current_time()

    async def _describe(self, elapsed_s: float) -> list[str]:
        parts = [f"Starting {self._world}, {format_seconds(elapsed_s)}"]
        if self._record is None or self._probe is None:
            return [*parts, "waiting for the port"]
        path, start = Path(self._record.log_file), self._record.log_start
        lines = await run_blocking(
            lambda: last_lines(path, start=start, count=1, secrets=self._secrets)
        )
        return [*parts, self._probe.seen, *map(printable, lines)]

    def _show(self, mark: str, text: str) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            note(f"{_CLEAR_LINE}{f'{mark} {text}'[:width]}", ends_line=False)
        else:
            note(text)


def _make_probe(record: InstanceRecord, ready: ReadyRule) -> Probe:
    return Probe(
        host=record.host,
        port=record.port,
        path=record.base_path + ready.path if ready.log is None else None,
        log_pattern=re.compile(ready.log) if ready.log is not None else None,
        log_file=Path(record.log_file),
        log_start=record.log_start,
    )
