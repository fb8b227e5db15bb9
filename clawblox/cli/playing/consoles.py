"""Input and output of a session: a terminal, or pipes and files.

On a terminal, ``editor`` is used where prompt_toolkit is installed.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Protocol, Self

import anyio

from clawblox.cli.terminal.output import CLEAR_LINE, Output
from clawblox.views.observations import Kind, Paint, no_paint

Complete = Callable[[str], Sequence[str]]
"""Returns the lines that complete the typed text."""

_CHUNK_BYTES = 65536
_MAX_LINE_BYTES = 16 << 20
_RESET = "\x1b[0m"
_STYLES: dict[Kind, str] = {
    "key": "\x1b[36m",
    "string": "\x1b[32m",
    "literal": "\x1b[35m",
    "note": "\x1b[2m",
    "error": "\x1b[31m",
}


class Console(Protocol):
    """Input and output of a session."""

    is_interactive: bool
    """Whether a person types the lines."""

    paint: Paint
    """Colours text for the output."""

    @property
    def width(self) -> int:
        """Columns of a line."""

    async def read_line(self) -> str | None:
        """Return the next line that was typed; None at the end.

        Cancellation: the typed characters are lost.
        """

    async def show(self, lines: Sequence[str]) -> None:
        """Show lines on standard output.

        Cancellation: part of them may have been shown.
        """

    async def complain(self, text: str) -> None:
        """Show an error, or a note that is no result.

        Cancellation: part of it may have been shown.
        """


def colours(output: Output) -> Paint:
    """Return how text is coloured on an output: not at all unless it is a terminal."""
    return _paint if output.is_terminal and not os.environ.get("NO_COLOR") else no_paint


def _paint(kind: Kind, text: str) -> str:
    style = _STYLES.get(kind)
    return f"{style}{text}{_RESET}" if style and text else text


class StreamConsole:
    """Standard input, output and error as they are; a context manager.

    On a terminal it shows a prompt, and the kernel edits the line.

    Args:
        prompt: Text in front of the typed line.
    """

    def __init__(self, prompt: str) -> None:
        self.is_interactive = sys.stdin.isatty()
        self._prompt = prompt if self.is_interactive else ""
        self._fd = sys.stdin.fileno()
        self._readable = select.poll()
        self._readable.register(self._fd, select.POLLIN)
        self._read = b""
        self._has_ended = False
        self._is_reading = False
        self._output, self._errors = Output(sys.stdout), Output(sys.stderr)
        self.paint = colours(self._output)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            streams: list[AbstractContextManager[Output]] = [self._output, self._errors]
            for stream in streams:
                stack.enter_context(stream)
            self._streams = stack.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._streams.close()

    @property
    def width(self) -> int:
        """Columns of a line."""
        return self._output.size.columns

    async def read_line(self) -> str | None:
        """Return the next line; None at the end.

        Raises:
            OutputGone: The terminal is gone.

        Cancellation: the characters read so far stay for the next call.
        """
        await self._output.write(self._prompt)
        self._is_reading = True
        try:
            while b"\n" not in self._read and not self._has_ended:
                await self._read_more()
        finally:
            self._is_reading = False
        line, _, self._read = self._read.partition(b"\n")
        if not line and not self._read and self._has_ended:
            return None
        return line.decode(errors="replace")

    async def _read_more(self) -> None:
        if not self._readable.poll(0):
            await anyio.wait_readable(self._fd)
        chunk = os.read(self._fd, _CHUNK_BYTES)
        self._read += chunk
        self._has_ended = not chunk or len(self._read) > _MAX_LINE_BYTES

    async def show(self, lines: Sequence[str]) -> None:
        """Show lines on standard output, above a prompt that waits.

        Raises:
            OutputGone: The reader is gone.
        """
        await self._write(self._output, "".join(f"{line}\n" for line in lines))

    async def complain(self, text: str) -> None:
        """Show an error, or a note that is no result, on standard error.

        Raises:
            OutputGone: The reader is gone.
        """
        await self._write(self._errors, f"{text}\n")

    async def _write(self, output: Output, text: str) -> None:
        is_waiting = self._is_reading and bool(self._prompt)
        guarded = output.guard(text)
        await output.write_control(f"{CLEAR_LINE}{guarded}" if is_waiting else guarded)
        if is_waiting:
            await self._output.write(self._prompt)
