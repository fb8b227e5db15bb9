"""The line that ``progress=True`` shows on standard error while an operation takes its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from clawblox.concurrency.batch import Advance
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking

_DELAY_S = 0.3
"""What is over sooner needs no line."""
_INTERVAL_S = 0.2


@asynccontextmanager
async def shown_progress(verb: str, total: int, *, is_wanted: bool) -> AsyncIterator[Advance]:
    """Show how many instances are done while the block runs, in a terminal or a notebook.

    Args:
        verb: What is being done, for example ``Starting``.
        total: Number of instances.
        is_wanted: Whether anything is shown at all.

    Yields:
        The function that counts.

    Cancellation: the line is finished.
    """
    if not is_wanted or not total:
        yield lambda _is_failed: None
        return
    line = await run_blocking(_Line, verb, total)
    try:
        async with Tasks() as tasks:
            tasks.start_soon(line.run)
            yield line.advance
    finally:
        with anyio.CancelScope(shield=True):
            await run_blocking(line.finish)


class _Line:
    def __init__(self, verb: str, total: int) -> None:
        # It takes long to load, and most programs show nothing.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(stderr=True)
        self._verb = verb
        self._failed = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            disable=not (console.is_terminal or console.is_jupyter),
        )
        self._task = self._bar.add_task(verb, total=total)
        self._is_shown = False

    def advance(self, is_failed: bool) -> None:
        self._failed += is_failed
        failures = f", {self._failed} failed" if self._failed else ""
        self._bar.update(self._task, advance=1, description=f"{self._verb}{failures}")

    async def run(self) -> None:
        await anyio.sleep(_DELAY_S)
        self._is_shown = True
        await run_blocking(self._bar.start)
        while True:
            await run_blocking(self._bar.refresh)
            await anyio.sleep(_INTERVAL_S)

    def finish(self) -> None:
        if self._is_shown:
            self._bar.stop()
