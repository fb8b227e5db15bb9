"""The keys of a live table: they select a row, and show or do something with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Generic

import anyio
import attrs

from clawblox.cli.running.displays import Scene, Seen
from clawblox.cli.terminal.keyboard import Keyboard
from clawblox.concurrency.tasks import Tasks
from clawblox.errors import ClawbloxError
from clawblox.printable import printable
from clawblox.views.event_lines import describe_error
from clawblox.views.steering import UNSTEERED, Action, Steering, press


@attrs.define(eq=False)
class TableKeys(Generic[Seen]):
    """Obeys the keys that a person types at a table.

    Args:
        scene: The run or the experiment.
        on_change: Called after each change of what the table shows.

    Attributes:
        latest: The latest look; None before the first.
        steering: What was typed.
    """

    _scene: Scene[Seen]
    _on_change: Callable[[], None]
    latest: Seen | None = attrs.field(init=False, default=None)
    steering: Steering = attrs.field(init=False, default=UNSTEERED)
    _message: str = attrs.field(init=False, default="")
    """The result of the latest action, until the next key."""
    _keyboard: Keyboard | None = attrs.field(init=False, default=None)

    async def run(self) -> None:
        """Obey keys until this is cancelled; return at once where nobody can type.

        Cancellation: the terminal is as before; actions may be done in part.
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
        """Read keys one by one again: another program had the terminal."""
        if self._keyboard is not None:
            self._keyboard.resume()

    def leave(self) -> None:
        """Forget what was typed: the table is drawn for the last time."""
        self.steering, self._message, self._keyboard = UNSTEERED, "", None

    async def read_pane(self, lines: int) -> Sequence[str]:
        """Return what is shown of the selected row, or why it cannot be read.

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
            notice: The present activity, or a hint.
        """
        if line := self._message or self.steering.describe(self._scene.verbs):
            return line
        hint = "? shows the keys" if self._keyboard and self._keyboard.is_ours else ""
        return " · ".join(filter(None, (notice, hint)))
