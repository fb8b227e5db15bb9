"""Input and output of a session: a terminal, or pipes and files.

On a terminal, ``editor`` is used if prompt_toolkit is installed.
"""

from __future__ import annotations

import os
import select
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import anyio

from clawblox.cli.terminal.output import CLEAR_LINE, Output
from clawblox.views.observations import Kind, Paint, no_paint

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


def _paint(kind: Kind, text: str) -> str:
    style = _STYLES.get(kind)
    return f"{style}{text}{_RESET}" if style and text else text


class PlayConsole(ABC):
    """Input and output of a session; a context manager.

    Args:
        prompt: Text in front of the typed line.

    Attributes:
        is_interactive: Whether a person types the lines.
        paint: Colours text for the output; without a terminal the text stays plain.
    """

    is_interactive = True

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._output = Output(sys.stdout)
        has_colours = self._output.is_terminal and not os.environ.get("NO_COLOR")
        self.paint: Paint = _paint if has_colours else no_paint

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._output.close()

    @property
    def width(self) -> int:
        """Width of a line, in columns."""
        return self._output.size.columns

    @abstractmethod
    async def read_line(self) -> str | None:
        """Return the next typed line; None at the end of the input.

        Cancellation: the typed characters are lost.
        """

    @abstractmethod
    async def show(self, lines: Sequence[str]) -> None:
        """Show lines on standard output.

        Cancellation: part of them may have been shown.
        """

    async def complain(self, text: str) -> None:
        """Show an error, or a note that is not part of the results.

        Cancellation: part of it may have been shown.
        """
        await self.show([text])


class StreamConsole(PlayConsole):
    """The standard streams without a line editor.

    On a terminal this console shows a prompt, and the kernel edits the line.

    Args:
        prompt: Text in front of the typed line.
    """

    def __init__(self, prompt: str) -> None:
        self.is_interactive = sys.stdin.isatty()
        super().__init__(prompt if self.is_interactive else "")
        self._fd = sys.stdin.fileno()
        self._readable = select.poll()
        self._readable.register(self._fd, select.POLLIN)
        self._read = b""
        self._has_ended = False
        self._is_reading = False
        self._errors = Output(sys.stderr)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._errors.close()

    async def read_line(self) -> str | None:
        """Return the next line; None at the end of the input.

        Raises:
            OutputGone: The terminal is gone.

        Cancellation: characters that were already read remain for the next call.
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
        """Show an error, or a note that is not part of the results, on standard error.

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
