"""The live table: looks at a run directory again and again, and draws what it finds."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import attrs

from clawblox.agents.status import AgentStatus
from clawblox.cli.tables.board import View, render
from clawblox.cli.tables.instance_rows import Row, make_row, name_runs
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.cli.terminal.screen import Screen
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.ramp import read_stall_s
from clawblox.rundir.status import InstanceStatus

_SHORT_REST_S, _LONG_REST_S = 0.25, 1.0
"""Seconds between two looks when something happens, and when nothing does."""
_MAX_SHARE = 0.05
"""Largest share of the time to spend looking and drawing, however many instances there are."""
_LOOKS_KEPT = 8
_DRAW_TIMEOUT_S = 1.0


@attrs.frozen
class Look:
    """Instances and agents at one moment.

    Attributes:
        instances: The instances, running or not.
        notes: How slow starts are going, by run directory and name.
        agents: The agents.
        at: Monotonic time, in seconds.
        stall_s: Seconds in which some task waited for a processor, since an arbitrary beginning;
            None where the kernel does not tell.
    """

    instances: Sequence[InstanceStatus]
    notes: Mapping[tuple[Path, str], str] = attrs.field(factory=dict)
    agents: Sequence[AgentStatus] = ()
    at: float = attrs.field(factory=time.monotonic)
    stall_s: float | None = attrs.field(factory=read_stall_s)


def make_rows(
    before: Look | None, now: Look, states: Mapping[str, str], *, names_runs: bool = False
) -> list[Row]:
    """Return the rows of the table.

    Args:
        before: An earlier look, to measure the CPU share from; None leaves it out.
        now: The later look.
        states: States by name of the instance, which win over those on disk.
        names_runs: Whether the rows name the runs.
    """
    cpu_before = (
        {(old.run_dir, old.name, old.pid): old.cpu_s for old in before.instances}
        if (before)
        else {}
    )
    elapsed_s = now.at - before.at if before else 0.0
    runs = sorted({status.run_dir for status in now.instances}) if names_runs else []
    run_names = name_runs(runs)

    def cpu_share(status: InstanceStatus) -> float | None:
        earlier_s = cpu_before.get((status.run_dir, status.name, status.pid))
        if earlier_s is None or status.cpu_s is None or not elapsed_s:
            return None
        return max(0.0, status.cpu_s - earlier_s) / elapsed_s

    rows = [
        make_row(
            status,
            states.get(status.name, status.state),
            cpu_share(status),
            run=run_names.get(status.run_dir, ""),
            note=now.notes.get((status.run_dir, status.name), ""),
        )
        for status in now.instances
    ]
    known = {status.name for status in now.instances}
    return [*rows, *(Row(name, state) for name, state in states.items() if name not in known)]


def pressure_between(before: Look | None, now: Look) -> float | None:
    """Return the share of time in which some task waited for a processor; None if not known."""
    if before is None or before.stall_s is None or now.stall_s is None or now.at <= before.at:
        return None
    return min(1.0, (now.stall_s - before.stall_s) / (now.at - before.at))


class LiveTable:
    """Draws a run on a terminal until it is cancelled.

    Args:
        output: The terminal.
        look: Looks at the run directory. Blocks.
        compose: Returns what the table shows, given an earlier look and the last.
    """

    def __init__(
        self,
        output: Output,
        look: Callable[[], Look],
        compose: Callable[[Look | None, Look], View],
    ) -> None:
        self._screen = Screen(output)
        self._look = look
        self._compose = compose
        # Of its own: many starts may be waiting for the shared threads.
        self._limiter = anyio.CapacityLimiter(1)
        self._looks: deque[Look] = deque(maxlen=_LOOKS_KEPT)
        self._has_news = anyio.Event()

    def touch(self) -> None:
        """Look and draw soon: something happened."""
        self._has_news.set()

    async def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Look and draw until the terminal is gone.

        Args:
            until: Called after each look; returns whether it was the last one.

        Raises:
            OSError: The output is a file, and the disk is full.

        Cancellation: the last lines may be drawn in part; :meth:`finish` draws them anew.
        """
        async with Tasks() as tasks:
            tasks.start_soon(self._watch_terminal)
            with contextlib.suppress(OutputGone):
                while True:
                    self._has_news = anyio.Event()
                    begun_at = time.monotonic()
                    await self._refresh()
                    if until():
                        return
                    await self._rest((time.monotonic() - begun_at) / _MAX_SHARE)

    async def _rest(self, least_s: float) -> None:
        await anyio.sleep(max(_SHORT_REST_S, least_s))
        with anyio.move_on_after(_LONG_REST_S - _SHORT_REST_S):
            await self._has_news.wait()

    async def leave(self) -> None:
        """Leave the table as it was drawn last.

        Cancellation: what was typed may still be below it.
        """
        await self._screen.leave()

    async def finish(self) -> None:
        """Look and draw for the last time, for a second at most.

        Cancellation: the lines may be drawn in part.
        """
        with anyio.move_on_after(_DRAW_TIMEOUT_S), contextlib.suppress(OutputGone):
            await self._refresh()

    async def clear(self) -> None:
        """Remove the table.

        Cancellation: it may still be there.
        """
        with anyio.move_on_after(_DRAW_TIMEOUT_S, shield=True), contextlib.suppress(OutputGone):
            await self._screen.draw(())

    async def _refresh(self) -> None:
        try:
            self._looks.append(await run_blocking(self._look, limiter=self._limiter))
        except OSError:  # out of descriptors, say; that must not end the orchestrator
            return
        view = self._compose(self._earlier_look(), self._looks[-1])
        await self._screen.draw(render(view, self._screen.columns, self._screen.lines))

    def _earlier_look(self) -> Look | None:
        """Return a look from long enough ago to measure the CPU share from."""
        *others, last = self._looks
        old = [look for look in others if look.at <= last.at - _LONG_REST_S]
        return old[-1] if old else next(iter(others), None)

    async def _watch_terminal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGCONT) as received:
            async for number in received:
                if number == signal.SIGCONT:  # the shell has written below the table
                    self._screen.forget()
                self.touch()
