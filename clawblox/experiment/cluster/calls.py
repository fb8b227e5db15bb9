"""Numbered calls: each is made once, however often it is sent until its answer arrives.

The driver repeats a call until it knows that the host has received it, and gives up only when the
lease declares the host lost. The host keeps each answer until the driver no longer waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import anyio
import attrs
from anyio.lowlevel import current_token

from clawblox.experiment.cluster.engine import CallLostError, HostEndedError, HostHandle
from clawblox.experiment.cluster.lease import Renewer

_PAUSE_S: Final = 0.25
"""Seconds until a call is sent again."""


class HostLostError(Exception):
    """The lease of a host has expired, so neither it nor its agents are running."""


class HostCaller:
    """Makes calls to a host; several may wait at the same time. Create it in their event loop.

    Args:
        handle: The host.
        renewer: Its lease.
        pause_s: Seconds before a lost call is repeated.
    """

    def __init__(self, handle: HostHandle, renewer: Renewer, *, pause_s: float = _PAUSE_S) -> None:
        self._handle = handle
        self._renewer = renewer
        self._pause_s = pause_s
        self._latest = 0
        self._pending: set[int] = set()
        self._waits: set[anyio.Event] = set()
        self._run_in_loop = _find_way_into_loop()
        renewer.lost.add_done_callback(lambda _: self._run_in_loop(self._end_waits))

    async def call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - of any method
        """Call a method of the host once, and return its result.

        Args:
            name: The method.
            *arguments: Its arguments, pickled on the way.

        Raises:
            HostLostError: The host is lost; whether the call has happened is unknown.
            Exception: What the method raises.

        Cancellation: gives up the wait; the call may have run or may still run.
        """
        self._latest = number = self._latest + 1
        self._pending.add(number)
        try:
            if not self._renewer.granted.done():
                await self._wait(self._renewer.granted)
            while not self._renewer.lost.done():
                pending = tuple(sorted(self._pending))
                answer = self._handle.call(number, pending, name, arguments)
                await self._wait(answer)
                if self._renewer.is_lost or not answer.done():
                    break  # its messages are ignored from now on
                try:
                    return answer.result()
                except CallLostError:
                    await self._wait_until_lost(self._pause_s)
                except HostEndedError:
                    await self._wait_until_lost(math.inf)
            await self._wait_until_lost(math.inf)
            raise HostLostError(self._renewer.lost.result())
        finally:
            self._pending.remove(number)

    async def _wait_until_lost(self, longest_s: float) -> None:
        """Wait until the host is lost, or for some seconds."""
        with anyio.move_on_after(longest_s):
            await self._wait(self._renewer.lost)

    async def _wait(self, future: Future[Any]) -> None:
        """Wait until a future is done, or the host is lost.

        Cancellation: leaves the future alone.
        """
        is_over = anyio.Event()
        self._waits.add(is_over)
        try:
            if future is not self._renewer.lost:  # its callbacks would pile up
                future.add_done_callback(lambda _: self._run_in_loop(is_over.set))
            if not self._renewer.lost.done():
                await is_over.wait()
        finally:
            self._waits.remove(is_over)

    def _end_waits(self) -> None:
        for wait in self._waits:
            wait.set()


def _find_way_into_loop() -> Callable[[Callable[[], object]], None]:
    """Return a function that schedules a call in this event loop from any thread, without waiting.

    anyio's own function waits for the call, so it would block an engine's thread.
    """
    token: Any = current_token()
    token = getattr(token, "native_token", token)  # anyio wraps it from 4.11 on
    run_soon = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe

    def run(function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it all waits
            run_soon(function)

    return run


@attrs.define(eq=False)
class _RunningCall:
    """A running or finished call of the host, and its outcome."""

    has_ended: anyio.Event = attrs.field(factory=anyio.Event)
    value: Any = None
    error: Exception | None = None

    async def run(self, function: Callable[[], Awaitable[Any]]) -> None:
        try:
            self.error = HostEndedError("the host ended while it ran the call")
            self.value = await function()
            self.error = None
        except Exception as error:  # noqa: BLE001 - raised in those who wait for the answer
            self.error = error
        finally:
            self.has_ended.set()


class Answers:
    """The host's side of calls: runs each once, and keeps its answer while the driver waits for it.

    Args:
        start_soon: Starts a coroutine function in a task of the host, which no caller cancels.
    """

    def __init__(
        self, start_soon: Callable[[Callable[..., Coroutine[Any, Any, None]], Any, Any], object]
    ) -> None:
        self._start_soon = start_soon
        self._latest = 0
        self._pending: set[int] = set()
        self._runs: dict[int, _RunningCall] = {}

    async def answer(
        self, number: int, pending: tuple[int, ...], run: Callable[[], Awaitable[Any]]
    ) -> Any:  # noqa: ANN401 - of any method
        """Run a call that is new, or wait for its run, and return its result.

        Args:
            number: Number of the call.
            pending: The calls whose answers the driver awaited when it sent this one. All other
                calls up to the highest of these are finished for the driver.
            run: Runs the call.

        Raises:
            ValueError: The driver no longer waits for this call, so it is not run.
            HostEndedError: The host ends before the call has finished.
            Exception: What ``run`` raises.

        Cancellation: gives up the wait only; the call continues.
        """
        self._forget_others(pending)
        if number not in self._pending:
            raise ValueError(f"number: must belong to a pending call, not {number}")
        found = self._runs.get(number)
        if found is None:
            found = _RunningCall()
            self._start_soon(_RunningCall.run, found, run)
            self._runs[number] = found
        await found.has_ended.wait()
        if found.error is not None:
            raise found.error
        return found.value

    def _forget_others(self, pending: tuple[int, ...]) -> None:
        """Forget answers that the driver no longer awaits; messages may arrive out of order."""
        latest = max(pending)
        done = {number for number in self._pending if number <= latest} - set(pending)
        new = {number for number in pending if number > self._latest}
        self._pending = (self._pending - done) | new
        self._latest = max(self._latest, latest)
        for number in done & self._runs.keys():
            del self._runs[number]
