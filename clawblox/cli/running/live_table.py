"""A table that is redrawn in place on a terminal and reacts to keys."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic

import anyio
import attrs

from clawblox.cli.running.displays import FINISH_TIMEOUT_S, Display, LiveLines, Scene, Seen
from clawblox.cli.running.slow_work import SLOW_S, describe_archives
from clawblox.cli.terminal.keyboard import Keyboard
from clawblox.cli.terminal.output import Output, OutputGone
from clawblox.cli.terminal.screen import Screen
from clawblox.concurrency.tasks import Tasks
from clawblox.errors import ClawbloxError
from clawblox.printable import printable
from clawblox.views.board import BoardFrame
from clawblox.views.event_lines import EventLine, RecentEvents, describe_error
from clawblox.views.steering import UNSTEERED, Action, Steering, press

_RECENT_EVENTS = 16
_SHORT_REST_S, _LONG_REST_S = 0.25, 1.0
"""Seconds between two looks while the state changes, and while it does not."""
_MAX_SHARE = 0.05
"""Maximum share of the time for looking and drawing, for any number of instances."""
_LOOKS_KEPT = 8


@attrs.define(eq=False)
class LiveTable(Display, Generic[Seen]):
    """A table that is redrawn in place, with the latest events below it.

    Args:
        output: The terminal.
        scene: The run or the experiment.
        notice: The last line of the table.
        until: Called after each refresh; returns whether the work is over.
    """

    is_table: ClassVar[bool] = True

    _output: Output
    _scene: Scene[Seen]
    _notice: str = ""
    _until: Callable[[], bool] = lambda: False
    _screen: Screen = attrs.field(init=False)
    _looks: deque[Seen] = attrs.field(init=False, factory=lambda: deque(maxlen=_LOOKS_KEPT))
    _recent_events: RecentEvents = attrs.field(
        init=False, factory=lambda: RecentEvents(_RECENT_EVENTS)
    )
    _has_news: bool = attrs.field(init=False, default=False)
    _has_typed: bool = attrs.field(init=False, default=False)
    _woken: anyio.Event = attrs.field(init=False, factory=anyio.Event)
    _keys: TableKeys[Seen] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._screen = Screen(self._output)
        self._keys = TableKeys(self._scene, self._draw_soon)

    async def run(self) -> None:
        """Look and draw until cancelled, or until the work is over.

        Raises:
            OutputGone: The terminal is gone.
            OSError: The output is a file, and the disk is full.

        Cancellation: the last lines may be drawn in part; :meth:`finish` draws them again.
        """
        async with Tasks() as tasks:
            tasks.start_soon(self._watch_terminal)
            tasks.start_soon(self._keys.run)
            while True:
                self._has_news = False
                begun_at = time.monotonic()
                await self._refresh()
                if self._until():
                    return
                await self._rest((time.monotonic() - begun_at) / _MAX_SHARE)

    async def _rest(self, least_s: float) -> None:
        """Wait until the next refresh; draw changes that keys cause in the meantime."""
        begun_at, shortest_s = time.monotonic(), max(_SHORT_REST_S, least_s)
        while True:
            whole_s = shortest_s if self._has_news else shortest_s + _LONG_REST_S - _SHORT_REST_S
            rest_s = begun_at + whole_s - time.monotonic()
            if rest_s <= 0:
                return
            with anyio.move_on_after(rest_s) as scope:
                await self._woken.wait()
            if not scope.cancelled_caught:
                self._woken = anyio.Event()
            if self._has_typed:
                self._has_typed = False
                await self._draw()

    def _draw_soon(self) -> None:
        self._has_typed = True
        self._woken.set()

    def _wake(self) -> None:
        self._has_news = True
        self._woken.set()

    async def finish(self, summary: Sequence[str] = ()) -> None:
        """Draw the table for the last time, with the summary below it.

        Cancellation: part of this may be shown.
        """
        self._notice = ""
        self._keys.leave()
        try:
            with anyio.move_on_after(FINISH_TIMEOUT_S), contextlib.suppress(OutputGone):
                await self._refresh()
        finally:
            with anyio.move_on_after(FINISH_TIMEOUT_S), contextlib.suppress(OutputGone, OSError):
                for line in ["", *summary] if summary else []:
                    await self._output.write_line(line)

    async def clear(self) -> None:
        """Remove the table before an error message.

        Cancellation: the table may still be there.
        """
        with anyio.move_on_after(FINISH_TIMEOUT_S, shield=True), contextlib.suppress(OutputGone):
            await self._screen.draw(())

    async def leave(self) -> None:
        """Leave the table in its last state.

        Cancellation: typed characters may still be below it.
        """
        await self._screen.leave()

    def add(self, line: EventLine, *, is_in_rows: bool = False) -> None:
        """Show an event below the table, unless the rows show it."""
        if not is_in_rows:
            self._recent_events.add(line)
        self._wake()

    def report(self, text: str) -> None:
        """Show the current activity in the last line."""
        self._notice = text
        self._wake()

    async def _refresh(self) -> None:
        try:
            now = await self._scene.read_state()
        except OSError:  # for example a lack of descriptors, which must not end the orchestrator
            return
        self._keys.latest = now
        self._looks.append(now)
        for event in self._scene.take_news(now):
            self._recent_events.add(event)
        await self._draw()

    async def _draw(self) -> None:
        if not self._looks:
            return
        lines = self._screen.lines
        pane = await self._keys.read_pane(lines)
        frame = BoardFrame(
            self._screen.columns,
            lines,
            self._recent_events.last(_RECENT_EVENTS),
            self._keys.describe(
                " · ".join(filter(None, (describe_archives(SLOW_S), self._notice)))
            ),
            self._keys.steering,
            pane,
        )
        await self._screen.draw(self._scene.draw(self._earlier_look(), self._looks[-1], frame))

    def _earlier_look(self) -> Seen | None:
        """Return a look that is old enough to measure the CPU share since then."""
        *others, last = self._looks
        old = [look for look in others if look.at <= last.at - _LONG_REST_S]
        return old[-1] if old else next(iter(others), None)

    async def _watch_terminal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGCONT) as received:
            async for number in received:
                if number == signal.SIGCONT:  # the shell may have written below the table
                    self._screen.forget()
                    self._keys.resume()
                self._wake()


@attrs.define(eq=False)
class TableKeys(Generic[Seen]):
    """Reacts to the keys that a person types at a table.

    Args:
        scene: The run or the experiment.
        on_change: Called when the table needs to be redrawn.

    Attributes:
        latest: The latest look; None before the first.
        steering: The typed keys.
    """

    _scene: Scene[Seen]
    _on_change: Callable[[], None]
    latest: Seen | None = attrs.field(init=False, default=None)
    steering: Steering = attrs.field(init=False, default=UNSTEERED)
    _message: str = attrs.field(init=False, default="")
    """The result of the latest action, until the next key."""
    _keyboard: Keyboard | None = attrs.field(init=False, default=None)

    async def run(self) -> None:
        """React to keys until cancelled; return immediately without a keyboard.

        Cancellation: the terminal is restored; actions may be done in part.
        """
        if not sys.stdin.isatty():
            return
        with Keyboard() as self._keyboard:
            async with Tasks() as tasks:
                async for key in self._keyboard.keys():
                    if self.latest is not None:
                        self._take(key, self.latest, tasks)
                await anyio.sleep_forever()

    def _take(self, key: str, now: Seen, tasks: Tasks) -> None:
        self._message = ""
        rows = self._scene.rows(now)
        self.steering, action = press(self.steering, key, rows, self._scene.verbs)
        if action is not None:
            self._say(f"{action.target}: {action.verb} …")
            tasks.start_soon(self._act, action, now)
        self._on_change()

    async def _act(self, action: Action, now: Seen) -> None:
        try:
            self._say(await self._scene.act(action, now))
        except (ClawbloxError, OSError) as error:
            self._say(f"{action.target}: {action.verb} failed: {describe_error(error)}")

    def _say(self, text: str) -> None:
        self._message = printable(text.replace("\n", " "))
        self._on_change()

    def resume(self) -> None:
        """Read single keys again after another program had the terminal."""
        if self._keyboard is not None:
            self._keyboard.resume()

    def leave(self) -> None:
        """Reset the typed keys before the table is drawn for the last time."""
        self.steering, self._message, self._keyboard = UNSTEERED, "", None

    async def read_pane(self, lines: int) -> Sequence[str]:
        """Return the log lines of the selected row, or the reason why they cannot be read.

        Args:
            lines: Maximum number of lines.

        Cancellation: has no effect.
        """
        now, steering = self.latest, self.steering
        if now is None or not steering.pane or not steering.shows(steering.selected):
            return ()
        if steering.selected not in self._scene.rows(now):
            return ()
        try:
            return await self._scene.read_pane(now, steering, lines)
        except (ClawbloxError, OSError) as error:
            return [f"{steering.pane} of {steering.selected}", describe_error(error)]

    def describe(self, notice: str) -> str:
        """Return the last line of the table.

        Args:
            notice: The current activity, or a hint.
        """
        if line := self._message or self.steering.describe(self._scene.verbs):
            return line
        hint = "? shows the keys" if self._keyboard and self._keyboard.is_ours else ""
        return " · ".join(filter(None, (notice, hint)))


def make_display(
    output: Output,
    scene: Scene[Seen],
    notice: str = "",
    *,
    until: Callable[[], bool] = lambda: False,
) -> Display:
    """Return the display of a scene that is polled for events.

    Args:
        output: The output.
        scene: The run or the experiment.
        notice: The last line of a table.
        until: Called after each refresh; returns whether the work is over.
    """
    if output.is_terminal:
        return LiveTable(output, scene, notice, until)
    return LiveLines(output, scene, until)


async def watch(output: Output, scene: Scene[Seen], until: Callable[[], bool]) -> None:
    """Show a run or an experiment of another process.

    Args:
        output: The output.
        scene: The run or the experiment.
        until: Called after each refresh; returns whether the work is over.

    Raises:
        OutputGone: The reader is gone.
        OSError: The output is a file, and the disk is full.

    Cancellation: a table stays on the terminal in its last state.
    """
    notice = "Ctrl-C closes this table and stops nothing."
    display = make_display(output, scene, notice, until=until)
    try:
        await display.run()
    finally:
        await display.leave()
