"""A terminal for a command: its output, its screen, and typed input."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.cli.conftest import environment
from tests.support.waiting import HANG_S, wait_until

COLUMNS, LINES = 100, 30
CTRL_C, CTRL_S = "\x03", "\x13"

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


class Terminal:
    """A ``clawblox`` command on its own terminal.

    Attributes:
        process: The command.
        written: The output so far.
    """

    def __init__(
        self,
        *words: str,
        env: dict[str, str],
        columns: int = COLUMNS,
        lines: int = LINES,
        program: Sequence[str] = (sys.executable, "-m", "clawblox"),
    ) -> None:
        self._master, self._slave = os.openpty()
        self.resize(columns, lines)
        self.modes_before = termios.tcgetattr(self._slave)
        # The parent of the tests may ignore HUP, which a child inherits.
        prefix = ["env", "--default-signal=HUP", "setsid", "--ctty"]
        self.process = subprocess.Popen(
            [*prefix, *program, *words],
            env=environment({"TERM": "xterm-256color", **env}),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
        )
        os.set_blocking(self._master, False)
        self.written = ""

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self._columns, self._lines = columns, lines

    def read(self) -> str:
        """Return the output so far."""
        with contextlib.suppress(BlockingIOError, OSError):
            while chunk := os.read(self._master, 65536):
                self.written += chunk.decode(errors="replace")
        return self.written

    def shows(self, text: str) -> bool:
        """Return whether a text has ever been written."""
        return text in self.read().replace("\r\n", "\n")

    @property
    def screen(self) -> list[str]:
        """The lines on the screen now, up to the cursor's."""
        return _lines_of(self.read())

    def displays(self, text: str) -> bool:
        """Return whether a text is on the screen now."""
        return any(text in line for line in self.screen)

    def wait_for(self, text: str) -> None:
        """Wait until a text is on the screen."""
        wait_until(
            lambda: self.displays(text) or self.process.poll() is not None,
            HANG_S,
            what=f"{text!r} on the terminal",
        )
        assert self.displays(text), "\n".join(self.screen)

    def wait_for_question(self, text: str) -> None:
        """Wait until a question is on the screen and the command sleeps until it is answered.

        Python does not see an interrupt that comes between the question and its read of the
        terminal before the next key.
        """
        self.wait_for(text)
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self) -> int:
        """Return the exit status, reading output like a terminal in the meantime."""
        wait_until(
            lambda: (self.read() is None) or self.process.poll() is not None,
            HANG_S,
            what="the command has ended",
        )
        self.read()
        return self.process.returncode

    @property
    def echoes(self) -> bool:
        """True if the terminal echoes and edits lines, as for a shell."""
        modes = termios.tcgetattr(self._slave)[3]
        return bool(modes & termios.ECHO) and bool(modes & termios.ICANON)

    @property
    def modes_are_restored(self) -> bool:
        """True if the terminal is in its original mode."""
        return termios.tcgetattr(self._slave) == self.modes_before

    def assert_left_clean(self) -> None:
        """Fail unless the terminal is restored: cursor shown, original modes, on a new line."""
        assert "\x1b[?" not in self.written
        assert self.modes_are_restored
        assert self.screen[-1] == ""

    def close(self) -> None:
        os.close(self._slave)
        os.close(self._master)  # the terminal hangs up
        self.process.wait(HANG_S)


@contextlib.contextmanager
def terminal(*words: str, env: dict[str, str] | None = None, **options: Any) -> Iterator[Terminal]:
    """Run a command on a terminal, which is closed at the end."""
    one = Terminal(*words, env=env or {}, **options)
    try:
        yield one
    finally:
        one.close()


def _lines_of(written: str) -> list[str]:
    """Return the lines that a terminal shows, interpreting the ECMA-48 sequences used here."""
    lines, row, column = [""], 0, 0
    for match in _TOKEN.finditer(written):
        arguments, command, is_return, is_feed, text = match.groups()
        line = lines[row]
        if text is not None:
            lines[row] = line[:column].ljust(column) + text + line[column + len(text) :]
            column += len(text)
        elif is_return:
            column = 0
        elif is_feed:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif command == "A":
            row = max(0, row - int(arguments or 1))
        elif command == "B":
            row = min(len(lines) - 1, row + int(arguments or 1))
        elif command == "C":
            column += int(arguments or 1)
        elif command == "D":
            column = max(0, column - int(arguments or 1))
        elif command == "K":
            lines[row] = line[:column]
        elif command == "J":
            lines = ["", ""][:1] if arguments == "2" else [*lines[:row], line[:column]]
            row = 0 if arguments == "2" else row
        elif command == "H":
            row = column = 0
    return [line.rstrip() for line in lines]
