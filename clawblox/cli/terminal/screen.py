"""The last lines of a terminal, drawn over again and again.

The cursor is never hidden and no mode is switched, so nothing has to be restored however the
program ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import anyio

from clawblox.cli.terminal.output import Output, OutputGone

_UP = "\x1b[{}A"
_CLEAR_REST_OF_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_CLEAR_ALL = "\x1b[H\x1b[2J"
_LEAVE_TIMEOUT_S = 1.0


class Screen:
    """The last lines of a terminal.

    Args:
        output: The terminal.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._drawn = 0
        self._size = output.size

    @property
    def columns(self) -> int:
        """The longest line; the last column stays empty because terminals wrap there."""
        return self._output.size.columns - 1

    @property
    def lines(self) -> int:
        """The number of lines that fit; the last one is the cursor's."""
        return self._output.size.lines - 1

    async def draw(self, lines: Sequence[str]) -> None:
        """Draw lines over those that were drawn before.

        Args:
            lines: No more and no longer than fit.

        Raises:
            OutputGone: The terminal is gone.
            OSError: It is a file, and the disk is full.

        Cancellation: a part of them may have been drawn; the next ones are drawn below it.
        """
        back = self._way_back()
        self._drawn = 0
        guarded = (self._output.guard(line).replace("\n", " ") for line in lines)
        text = "".join(f"{line}{_CLEAR_REST_OF_LINE}\n" for line in guarded)
        await self._output.write_control(f"{back}{text}{_CLEAR_BELOW}")
        self._drawn = len(lines)

    async def leave(self) -> None:
        """Leave the lines as they are, and clear what was typed below them.

        Cancellation: what was typed may still be there.
        """
        with anyio.move_on_after(_LEAVE_TIMEOUT_S, shield=True), contextlib.suppress(OutputGone):
            await self._output.write_control(f"\r{_CLEAR_BELOW}")

    @property
    def is_drawn(self) -> bool:
        """Whether lines are on the terminal."""
        return self._drawn > 0

    def forget(self) -> None:
        """Leave the lines where they are: another program has written below them."""
        self._drawn = 0

    def _way_back(self) -> str:
        """Return what moves the cursor to the first of the lines."""
        size, self._size = self._size, self._output.size
        if self._drawn and size != self._size:
            return _CLEAR_ALL  # the terminal has rewrapped the lines; where they are is unknown
        return f"\r{_UP.format(self._drawn)}" if self._drawn else "\r"
