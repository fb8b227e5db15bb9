"""The progress line of a world that starts slowly."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Awaitable, Callable, Collection
from itertools import cycle

import anyio

from clawblox.cli.running.start_probe import StartProbe
from clawblox.cli.tables.formatting import format_seconds
from clawblox.cli.terminal.output import note, redraw
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import ReadyRule
from clawblox.results import StartedWorld
from clawblox.rundir.records import InstanceRecord

_FIRST_S = 0.5
_TERMINAL_INTERVAL_S = 0.2
_PLAIN_INTERVAL_S = 10.0
_SPINNER = "|/-\\"


class StartProgress:
    """Shows on standard error how a start is going: time, probe result, last line of the log.

    On a terminal one line is rewritten in place; elsewhere a line is printed every ten seconds.

    Args:
        world: Name of the world.
        find: Returns the record of the instance, or None before it has one. Blocks.
        ready: When the world counts as ready.
        secrets: Values to mask.
        waiting: Returns what it waits for as long as there is no record. Blocks.
        plain_interval: Seconds between two lines without a terminal.
    """

    def __init__(
        self,
        world: str,
        find: Callable[[], InstanceRecord | None],
        ready: ReadyRule,
        secrets: Collection[str],
        *,
        waiting: Callable[[], str] = lambda: "waiting for the port",
        plain_interval: float = _PLAIN_INTERVAL_S,
    ) -> None:
        self._world = world
        self._find = find
        self._ready = ready
        self._secrets = secrets
        self._waiting = waiting
        self._plain_interval = plain_interval
        self._is_terminal = sys.stderr.isatty()
        self._probe: StartProbe | None = None

    async def run(self) -> None:
        """Show the progress until it is cancelled; it never fails.

        Cancellation: the line may still be there; :meth:`clear` removes it.
        """
        begun_at = anyio.current_time()
        await anyio.sleep(_FIRST_S if self._is_terminal else self._plain_interval)
        for mark in cycle(_SPINNER):
            seen: list[str] = []
            with contextlib.suppress(OSError):
                seen = await run_blocking(self._look)
            elapsed = format_seconds(anyio.current_time() - begun_at)
            self._show(mark, " | ".join((f"Starting {self._world}, {elapsed}", *seen)))
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
            redraw("")

    def _look(self) -> list[str]:
        if self._probe is None and (record := self._find()) is not None:
            self._probe = StartProbe(record, self._ready, self._secrets)
        return self._probe.look() if self._probe else [self._waiting()]

    def _show(self, mark: str, text: str) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            redraw(f"{mark} {text}"[:width])
        else:
            note(text)
