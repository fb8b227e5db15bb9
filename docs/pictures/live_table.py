"""Draws ``live_table.svg``: what ``clawblox up`` shows on a terminal, from a real run.

    python -m docs.pictures.live_table

Eight worlds run on a terminal of our own. One of them is killed, so that the table also shows a
restart from a checkpoint. The last picture that the terminal got becomes the file.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

__all__ = ["PICTURE", "use_local_fonts"]

PICTURE: Final = Path(__file__).with_name("live_table.svg")
_ROOT: Final = Path(__file__).parent.parent.parent
_COLUMNS, _LINES = 100, 30
_COMMAND: Final = (
    "clawblox up examples/marbles -n 8 --run-dir runs/exp7 --restart checkpoint --autosave 3"
)
_TIMEOUT_S: Final = 60.0
_FRAME_END: Final = "\x1b[J"
_FRAME_BEGIN: Final = re.compile(r"^.*?\r(?:\x1b\[\d+A)?", re.DOTALL)
_WEB_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class Terminal:
    """A pseudo-terminal on which a command runs.

    Args:
        command: The command.
        directory: Where it runs.
    """

    def __init__(self, command: str, directory: Path) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        bin_dir = Path(sys.executable).parent
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            cwd=directory,
            env={**os.environ, "PATH": f"{bin_dir}:/usr/bin:/bin", "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._data = b""

    @property
    def frame(self) -> str:
        """The last complete picture, with the escapes that colour it."""
        frames = self._data.decode(errors="replace").split(_FRAME_END)
        last = _FRAME_BEGIN.sub("", frames[-2]) if len(frames) > 1 else ""
        return last.replace("\x1b[K", "").replace("\r\n", "\n")

    def wait_until(self, condition: Callable[[str], object]) -> None:
        """Read until the picture meets a condition.

        Raises:
            TimeoutError: It did not in time.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition(Text.from_ansi(self.frame).plain):
            if not select.select([self._fd], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"not seen within {_TIMEOUT_S:g} s:\n{self.frame}")
            self._data += os.read(self._fd, 1 << 16)

    def close(self) -> None:
        """Press Ctrl-C and wait for the end."""
        self.process.send_signal(signal.SIGINT)
        try:
            while os.read(self._fd, 1 << 16):
                pass
        except OSError:  # EIO: the other end is closed
            pass
        self.process.wait(_TIMEOUT_S)
        os.close(self._fd)


def take_frame() -> str:
    """Run worlds and return their table as the terminal shows it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "examples").symlink_to(_ROOT / "examples")
        terminal = Terminal(_COMMAND, directory)
        try:
            terminal.wait_until(lambda text: "8 ready" in text and "save" in text.lower())
            pid = re.search(r"w005 +\w+ +(\d+)", Text.from_ansi(terminal.frame).plain)
            time.sleep(4)  # so that there is something to see in the columns
            if pid:
                os.kill(int(pid[1]), signal.SIGKILL)
            terminal.wait_until(re.compile(r"^w005 +ready .* 1 +\S+$", re.MULTILINE).search)
            shown_at = time.monotonic()
            terminal.wait_until(lambda text: time.monotonic() > shown_at + 4)
            return terminal.frame
        finally:
            terminal.close()


def draw(frame: str) -> str:
    """Return a terminal's picture as SVG."""
    console = Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print(Text(f"$ {_COMMAND}\n", style="dim"), no_wrap=True, end="", overflow="crop")
    console.print(Text.from_ansi(frame.rstrip("\n")), no_wrap=True, overflow="crop")
    svg = console.export_svg(title="clawblox up", theme=DIMMED_MONOKAI, unique_id="live-table")
    return use_local_fonts(svg)


def use_local_fonts(svg: str) -> str:
    """Return a picture of rich that loads no font from the web."""
    svg = _WEB_FONT.sub("", svg)
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


if __name__ == "__main__":
    PICTURE.write_text(draw(take_frame()))
