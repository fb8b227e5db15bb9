"""When the next liveness probe of an instance is due: at its period, or at once on suspicion."""

from __future__ import annotations

import threading

import anyio


class ProbePacer:
    """Lets those who suspect that a world has halted hurry its next liveness probe."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._hurried = anyio.Event()
        self._probed = anyio.Event()
        self._is_probing = False
        self._begun = 0
        self._ended = 0

    def begin(self) -> None:
        """Note that the instance is probed from now on."""
        self._is_probing = True

    def end(self) -> None:
        """Note that it is probed no more, and wake those who wait."""
        self._is_probing = False
        self._wake()

    async def pause(self, seconds: float) -> None:
        """Wait until the next probe is due.

        Args:
            seconds: The longest wait.

        Cancellation: has no effect.
        """
        with anyio.move_on_after(seconds):
            await self._hurried.wait()
        self._hurried = anyio.Event()
        self._begun += 1

    def note_probe(self) -> None:
        """Note that the probe after the last `pause` has come to nothing new."""
        self._ended = self._begun
        self._wake()

    def hurry(self) -> None:
        """Let the next probe begin at once; from another thread, leave it at its period."""
        if threading.get_ident() == self._thread:
            self._hurried.set()

    async def probe_now(self) -> None:
        """Hurry, and wait for the result of a probe that begins after this call.

        Cancellation: the probe takes place all the same.
        """
        wanted = self._begun + 1
        self.hurry()
        while self._is_probing and self._ended < wanted:
            await self._probed.wait()

    def _wake(self) -> None:
        self._probed.set()
        self._probed = anyio.Event()
