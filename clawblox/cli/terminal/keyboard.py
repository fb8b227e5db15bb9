"""The keyboard of a terminal, read key by key while a table is shown.

Echo and line editing are restored at the end of the block, when a signal ends the process, and
while Ctrl-Z stops the process. Typed signals such as Ctrl-C keep their effect.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import signal
import sys
import termios
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final, Self

import anyio

_FATAL: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SEQUENCE_WAIT_S: Final = 0.05
"""Maximum seconds within a control sequence; a longer silence means the Escape key."""
_BACKGROUND_S: Final = 1.0
_CHUNK: Final = 1024
_ESCAPE: Final = "\x1b"
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)(?P<final>[@-~])")
"""A control sequence of ECMA-48, or its short form in the application mode."""
_BEGINNING: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_MAX_SEQUENCE: Final = 32
_ARROWS: Final = {"A": "up", "B": "down"}
_NAMES: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}


class Keyboard:
    """The keyboard of standard input; a context manager. Only the main thread may enter it."""

    _entered: ClassVar[Keyboard | None] = None

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._modes: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._modes = termios.tcgetattr(self._fd)
        Keyboard._entered = self
        for number in (*_FATAL, signal.SIGTSTP):
            # A signal with another handler ends the block regularly.
            if signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, self._pass_on)
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        Keyboard._entered = None

    def resume(self) -> None:
        """Switch to single keys, unless another job has the terminal."""
        modes = list(self._modes)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6] = [*modes[6]]
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        self._set(modes)

    def restore(self) -> None:
        """Let the terminal echo and edit lines again."""
        self._set(self._modes)

    def _set(self, modes: list[Any]) -> None:
        if self.is_ours:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSANOW, modes)

    @property
    def is_ours(self) -> bool:
        """True if this process is in the foreground; reading in the background would stop it."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def _pass_on(self, number: int, _frame: object) -> None:
        """Restore the terminal, then let a signal have its usual effect."""
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._pass_on)  # reached if the process was stopped and continues
        self.resume()

    async def keys(self) -> AsyncIterator[str]:
        """Yield keys until the terminal is gone; see :class:`KeyDecoder`.

        Cancellation: later keys stay unread.
        """
        decoder = KeyDecoder()
        while True:
            is_silent = True
            with anyio.move_on_after(_SEQUENCE_WAIT_S if decoder.is_waiting else None):
                await anyio.wait_readable(self._fd)
                is_silent = False
            if is_silent:
                keys = decoder.flush()
            elif not self.is_ours:  # the key is for another job
                await anyio.sleep(_BACKGROUND_S)
                continue
            else:
                try:
                    data = os.read(self._fd, _CHUNK)
                except OSError:
                    return
                if not data:
                    return
                keys = decoder.feed(data)
            for key in keys:
                yield key


def restore_terminal() -> None:
    """Restore the modes of the terminal before this process ends abruptly."""
    if Keyboard._entered is not None:
        Keyboard._entered.restore()


class KeyDecoder:
    """Turns bytes into keys.

    A key is a printable character, or ``up``, ``down``, ``enter``, ``backspace`` or ``escape``.
    Other keys, and bytes that are not UTF-8, are dropped.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """True if the last bytes are the start of a sequence or the Escape key."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that further bytes complete."""
        text, keys = self._rest + self._decoder.decode(data), list[str]()
        while text:
            if (sequence := _SEQUENCE.match(text)) is not None:
                keys += filter(None, [_ARROWS.get(sequence["final"])])
                text = text[sequence.end() :]
            elif _BEGINNING.fullmatch(text):
                text = text if len(text) < _MAX_SEQUENCE else text[:2]
                break
            elif text[0] != _ESCAPE:
                key = _NAMES.get(text[0], text[0])
                keys += [key] if key.isprintable() else []
                text = text[1:]
            else:  # the Escape key, immediately followed by another key
                keys.append("escape")
                text = text[1:]
        self._rest = text
        return keys

    def flush(self) -> list[str]:
        """Return the keys of the incomplete bytes, when no more bytes follow."""
        rest, self._rest = self._rest, ""
        return ["escape"] if rest == _ESCAPE else []
