"""The output of a world, and the report of its halt."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Final, TextIO

from clawblox.engine.errors import WorldHalted, to_text

_WARNING: Final = "[Lua WARN] "
_POSITION: Final = re.compile(r"^(?P<name>[^\n]*?):(?P<line>\d+): ")
_CONTEXT: Final = 2  # lines of source before and after an error
_TICK_LINES: Final = 10_000
_TICK_CHARACTERS: Final = 1 << 20


class Console:
    """The output of a world.

    The lines that scripts print and warn in a tick are limited; errors are not.

    Args:
        out: Called with the lines for standard output, without line ends; None to write them to
            standard output, with the tick before the lines of scripts.
        error: The same for standard error.

    Attributes:
        announce: Writes a line for the person who started the world.
        tick: Returns the tick for these lines; the world sets it.
    """

    def __init__(
        self,
        out: Callable[[str], None] | None = None,
        error: Callable[[str], None] | None = None,
    ) -> None:
        self.tick: Callable[[], int] = int
        self._room()
        self.announce = _write_plainly if out is None else out
        self.out = (lambda line: self._stamp(line, sys.stdout)) if out is None else out
        self.error = (lambda line: self._stamp(line, sys.stderr)) if error is None else error

    def _stamp(self, line: str, stream: TextIO) -> None:
        stream.write(f"[tick {self.tick()}] {line}\n")
        stream.flush()

    def print(self, text: str) -> None:
        """Write the output of a script; the text is a Luau string."""
        self._write_some(self.out, "[Lua] ", to_text(text))

    def warn(self, text: str) -> None:
        """Write the warning of a script."""
        self._write_some(self.error, _WARNING, text)

    def report(self, text: str) -> None:
        """Write a warning of the engine, or an error that ends only the thread of a script."""
        for line in text.split("\n"):  # each is marked, to distinguish it from the engine's lines
            self.error(f"{_WARNING}{line}")

    def end_tick(self) -> None:
        """Report the number of script lines omitted since the last call, and reset the limits."""
        if self._left_out:
            self.report(
                f"{self._left_out} more lines were left out: scripts may print {_TICK_LINES} lines "
                f"and {_TICK_CHARACTERS} characters in a tick"
            )
        if self._lines_left < _TICK_LINES:
            self._room()

    def _room(self) -> None:
        self._lines_left, self._characters_left, self._left_out = _TICK_LINES, _TICK_CHARACTERS, 0

    def _write_some(self, write: Callable[[str], None], mark: str, text: str) -> None:
        """Write lines up to the limits of this tick, and count the others."""
        lines = text.split("\n", self._lines_left)
        if len(lines) > self._lines_left:
            self._left_out += 1 + lines.pop().count("\n")
        for line in lines:
            if len(line) > self._characters_left:
                self._left_out += 1
                continue
            self._lines_left -= 1
            self._characters_left -= len(line)
            write(f"{mark}{line}")

    def fail(self, failure: WorldHalted, left_out: int, sources: Iterable[tuple[str, str]]) -> None:
        """Write an error that has ended a thread: the text, its place in the source, and the stack.

        Args:
            failure: The exception that would halt the world.
            left_out: Number of errors from the same place omitted since the last written error.
            sources: The names and texts of the scripts, as Luau strings.
        """
        for line in _error_lines(failure, sources):
            self.error(line)
        if left_out:
            self.error(f"  ({left_out} more since the last line about this place)")

    def halt(self, halted: WorldHalted, sources: Iterable[tuple[str, str]]) -> None:
        """Write the reason of a halt: the error, its place in the source, and the stack.

        Args:
            halted: The exception.
            sources: The names and texts of the scripts, as Luau strings.
        """
        self.end_tick()
        for line in halt_lines(halted, sources):
            self.error(line)


def _write_plainly(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def halt_lines(halted: WorldHalted, sources: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines that report a halt.

    Args:
        halted: The exception.
        sources: The names and texts of the scripts, as Luau strings.
    """
    return [
        *_error_lines(halted, sources),
        "[Halted] Instance stopped due to Lua error. Fix the script and restart.",
    ]


def _error_lines(error: WorldHalted, sources: Iterable[tuple[str, str]]) -> list[str]:
    return [
        *_continue(f"[Lua Error] {error}"),
        *quote(error.reason, sources),
        *(["Stack, newest call first:"] if error.traceback else []),
        *(f"  {line}" for line in error.traceback.splitlines()),
    ]


def _continue(text: str) -> list[str]:
    """Return the lines of a text, possibly from a script, indented except for the first."""
    first, *rest = text.split("\n")
    return [first, *(f"  {line}" for line in rest)]


def quote(reason: str, sources: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of source around the position at the start of an error text.

    Args:
        reason: The text of the error.
        sources: The names and texts of the scripts, as Luau strings.
    """
    position = _POSITION.match(reason)
    if position is None:
        return []
    name, at = position["name"], int(position["line"])
    source = next((text for path, text in sources if to_text(path).lstrip("=@") == name), None)
    if source is None:
        return []
    lines = to_text(source).split("\n")
    shown = range(max(1, at - _CONTEXT), min(len(lines), at + _CONTEXT) + 1)
    return [f"{'>' if line == at else ' '} {line:>5} | {lines[line - 1]}" for line in shown]
