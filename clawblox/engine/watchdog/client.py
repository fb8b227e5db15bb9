"""The watchdog in the world's process: it records the running call, and stops it when asked."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from clawblox.engine.errors import to_text
from clawblox.engine.watchdog.watcher import ASK_SIGNAL, CAUSES, Slot, open_slot_file
from clawblox.luau import Places
from clawblox.protocol import WATCHDOG_MARK, WATCHDOG_STATUS
from clawblox.system.helper import HelperProcess

WATCHDOG_NAME: Final = "clawblox-watchdog"
"""Word in the command line of the helper that identifies it in a process list."""

_NOT_REPEATABLE: Final = "another run may not stop here"


class Watchdog:
    """A context in which a world can be watched.

    Enter it on the main thread, where Python handles signals. The main thread must then only wait.
    """

    def __init__(self) -> None:
        self._causes: list[str] = []
        self._slot: Slot | None = None
        self._interrupt: Callable[[str], None] | None = None
        self._reason: str | None = None
        self._places = Places()
        self._call = 0
        self._helper: HelperProcess | None = None

    def __enter__(self) -> Watchdog:
        assert threading.current_thread() is threading.main_thread()
        signal.signal(ASK_SIGNAL, self._answer)
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        # As a handler, `_exit` uses the number of the signal as the status. It runs on the main
        # thread without Python, even if another thread holds the interpreter lock for a long time.
        libc.signal(WATCHDOG_STATUS, ctypes.cast(libc._exit, ctypes.c_void_p))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self,
        *,
        cpu_s: float,
        memory_bytes: int,
        patience_s: float = 2.0,
        interval_s: float = 1.0,
    ) -> None:
        """Start the helper process.

        Args:
            cpu_s: Maximum CPU time of a tick or call, in seconds.
            memory_bytes: Maximum resident memory of the process.
            patience_s: CPU time between asking the script to stop and ending the world, in seconds.
            interval_s: Seconds between two checks.

        Raises:
            OSError: The helper process cannot be started.
        """
        limits = {"cpu_s": cpu_s, "memory_mib": memory_bytes / 2**20}
        self._causes = [cause.format(**limits) for cause in CAUSES]
        descriptor = open_slot_file()
        try:
            self._slot = Slot(descriptor)
            self._helper = HelperProcess(
                WATCHDOG_NAME,
                "clawblox.engine.watchdog.watcher:main",
                *(str(WATCHDOG_STATUS), WATCHDOG_MARK),
                *map(str, (cpu_s, memory_bytes, patience_s, interval_s)),
                paths=[str(Path(__file__).parents[3])],
                output=descriptor,
                errors=2,
            )
        finally:
            os.close(descriptor)

    def guard(self, interrupt: Callable[[str], None]) -> None:
        """Set the function that stops the running script, called with the reason."""
        self._interrupt = interrupt
        if self._reason is not None:
            interrupt(self._reason)  # the helper has asked already

    def begin_call(self) -> None:
        """Record the start of a call of the world that may run scripts."""
        if self._slot is not None:
            self._call += 1
            self._slot.call = self._call

    def end_call(self) -> None:
        """Record the end of the call; idempotent."""
        if self._slot is not None and self._call % 2:
            self._call += 1
            self._slot.call = self._call

    def note_place(self, frame: FrameType) -> None:
        """Record the place in the script of a frame or of its nearest caller in a script."""
        place = self._places.find(frame)
        if place is not None and self._slot is not None:
            self._slot.place = to_text(place)

    @property
    def place(self) -> str:
        """The last known place in a script, ``name:line``; empty if unknown."""
        return "" if self._slot is None else self._slot.place

    def close(self) -> None:
        """End the helper process and with it the watch; idempotent."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.end()

    def _answer(self, number: int, frame: FrameType | None) -> None:
        """Stop the call named by the helper, if it is still running."""
        if self._slot is None:
            return
        asked, cause = self._slot.asked
        if asked == self._slot.call:
            text = self._causes[cause]
            self._reason = f"the watchdog stopped the script: {text}; {_NOT_REPEATABLE}"
            if self._interrupt is not None:
                self._interrupt(self._reason)
