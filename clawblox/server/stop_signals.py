"""SIGTERM and SIGINT for a server that does not run on the main thread.

Python delivers signals to the main thread only.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeAlias

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop a world."""

_Receiver: TypeAlias = Callable[[int, FrameType | None], None]


class StopSignals:
    """A context in which the main thread receives the signals that stop a world.

    Enter it on the main thread; that thread must then only wait. Until :attr:`receiver` is set, a
    signal ends the process, as it does by default.

    Attributes:
        receiver: Called with each signal, on the main thread; None without a server.
        has_received: Whether a signal has come.
    """

    def __init__(self) -> None:
        self.receiver: _Receiver | None = None
        self.has_received = False
        self._original: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        assert threading.current_thread() is threading.main_thread()
        for number in SIGNALS:
            self._original[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._original.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.has_received = True
        if self.receiver is not None:
            self.receiver(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
