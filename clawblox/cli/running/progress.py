"""The progress line of a world that takes its time to come up."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Callable, Collection
from itertools import cycle
from pathlib import Path

import anyio

from clawblox.cli.terminal.output import format_seconds, note, printable
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import ReadyRule
from clawblox.instance.health import Probe, look_once
from clawblox.rundir.records import InstanceRecord
from clawblox.telemetry.logs import last_lines

__all__ = ["Progress"]

_FIRST_S = 0.5
_TERMINAL_INTERVAL_S = 0.2
_PLAIN_INTERVAL_S = 10.0
_PROBE_INTERVAL_S = 1.0
_PROBE_TIMEOUT_S = 0.5
_SPINNER = "|/-\\"
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Tells on standard error how far a start is: how long, what the world says, what is seen.

    On a terminal it is one line that is written over; elsewhere a line every ten seconds. It
    looks at the world as the readiness probe does, but never so often.

    Args:
        world: Name of the world.
        find: Returns the record of the instance, once there is one. Blocks.
        ready: When the world counts as ready.
        secrets: Values that are masked.
        plain_interval: Seconds between two lines where there is no terminal.
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
        """Tell until it is cancelled; it never fails.

        Cancellation: the terminal's line may still stand; :meth:`clear` removes it.
        """
        begun_at = anyio.current_time()
        await anyio.sleep(_FIRST_S if self._is_terminal else self._plain_interval)
        for mark in cycle(_SPINNER):
            with contextlib.suppress(OSError):
                await self._look()
            words = await self._describe(anyio.current_time() - begun_at)
            self._show(mark, words)
            await anyio.sleep(_TERMINAL_INTERVAL_S if self._is_terminal else self._plain_interval)

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._is_terminal:
            note(_CLEAR_LINE, ends_line=False)

    async def _look(self) -> None:
        if self._record is None:
            self._record = await run_blocking(self._find)
        if self._record is None or anyio.current_time() < self._probed_at + _PROBE_INTERVAL_S:
            return
        self._probe = self._probe or _probe_of(self._record, self._ready)
        await run_blocking(look_once, self._probe, _PROBE_TIMEOUT_S)
        self._probed_at = anyio.current_time()

    async def _describe(self, elapsed_s: float) -> list[str]:
        words = [f"Starting {self._world}, {format_seconds(elapsed_s)}"]
        if self._record is None or self._probe is None:
            return [*words, "waiting for the port"]
        lines = await run_blocking(self._last_lines, self._record)
        return [*words, self._probe.seen, *map(printable, lines)]

    def _last_lines(self, record: InstanceRecord) -> tuple[str, ...]:
        path = Path(record.log_file)
        return last_lines(path, start=record.log_start, count=1, secrets=self._secrets)

    def _show(self, mark: str, words: list[str]) -> None:
        text = " | ".join(words)
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            note(f"{_CLEAR_LINE}{f'{mark} {text}'[:width]}", ends_line=False)
        else:
            note(text)


def _probe_of(record: InstanceRecord, ready: ReadyRule) -> Probe:
    return Probe(
        host=record.host,
        port=record.port,
        path=record.base_path + ready.path if ready.log is None else None,
        log_pattern=re.compile(ready.log) if ready.log is not None else None,
        log_file=Path(record.log_file),
        log_start=record.log_start,
    )
