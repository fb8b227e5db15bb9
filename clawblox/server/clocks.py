"""The clocks that trigger ticks, by real time or by input. A tick first applies waiting inputs.

In real time, due ticks have priority: they run before each request is answered, so demanding
clients share the remaining time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import anyio

from clawblox.protocol import TickRate
from clawblox.server.hosted_world import HostedWorld, PendingInput
from clawblox.server.sessions import AgentSession
from clawblox.server.simulation import Clock, Halted, InputError

MAX_LAG_S: Final = 0.25
"""A late world catches up on this much real time. Beyond that, simulation time runs slower than
real time; no tick is ever skipped."""
CATCH_UP_S: Final = 0.025
"""Maximum seconds for which due ticks run without a pause, plus one tick. A world that cannot keep
up with real time still answers requests."""

Answer: TypeAlias = Callable[[], bytes]
"""Makes the answer to an input from the state after the tick that applied it; it may raise."""


def make_clock(world: HostedWorld, kind: Clock) -> WorldClock:
    """Return a clock of this kind for a world."""
    return LockstepClock(world) if kind is Clock.LOCKSTEP else RealtimeClock(world)


class LockstepClock:
    """Time passes only when an input is accepted."""

    def __init__(self, world: HostedWorld) -> None:
        self._world = world

    async def submit(
        self, session: AgentSession, action: str, data: object, answer: Answer
    ) -> bytes:
        """Apply an input, tick immediately, and answer it; a refused input takes no time.

        Raises:
            InputError: The simulation refused it.
            Halted: The world has stopped.
            Exception: ``answer`` raises it.
        """
        pending = self._world.queue(session, action, data)
        self._world.apply_inputs()
        _require_taken(pending)
        for _ in range(self._world.simulation.ticks_per_input):
            self._world.step()
        return answer()

    def catch_up(self) -> None:
        """Do nothing: no tick is ever due. Called before each request is answered."""

    def rate(self) -> None:
        """Return None, since time passes only with inputs."""

    async def run(self) -> None:
        """Wait until cancelled: inputs make time pass."""
        await anyio.sleep_forever()


class RealtimeClock:
    """Time passes with real time, at the simulation's tick rate."""

    def __init__(self, world: HostedWorld) -> None:
        self._world = world
        self._waiting: list[_WaitingInput] = []
        self._due = math.inf
        self._meter = RateMeter(world.simulation.tick_rate)

    async def submit(
        self, session: AgentSession, action: str, data: object, answer: Answer
    ) -> bytes:
        """Queue an input, and answer it right after the tick that applied it.

        A late world may tick again before the caller continues: the answer does not show that.

        Raises:
            InputError: The simulation refused it.
            Halted: The world has stopped.
            Exception: ``answer`` raises it.

        Cancellation: the input stays queued and is applied.
        """
        waiting = _WaitingInput(self._world.queue(session, action, data), answer)
        self._waiting.append(waiting)
        return await waiting.wait()

    async def run(self) -> None:
        """Tick at the simulation's rate until the world halts.

        Cancellation: ends between two ticks.
        """
        self._due = anyio.current_time()
        self._meter.begin(self._due)
        try:
            while True:
                self.catch_up()
                if self._due == math.inf:
                    return
                await anyio.sleep_until(self._due)
        finally:
            self._due = math.inf

    def catch_up(self) -> None:
        """Run the ticks that are due, at most for a moment; none is due before :meth:`run`."""
        now = anyio.current_time()
        deadline = now + CATCH_UP_S
        while self._due <= now < deadline:
            begun_at = time.thread_time()
            try:
                self._world.apply_inputs()
                self._world.step()
            except Halted:
                self._due = math.inf
                return
            finally:
                cost_s = time.thread_time() - begun_at
                waiting, self._waiting = self._waiting, []
                for item in waiting:
                    item.settle()
            now = anyio.current_time()
            self._meter.note_tick(now, cost_s)
            self._due = max(self._due + 1 / self._world.simulation.tick_rate, now - MAX_LAG_S)

    def rate(self) -> TickRate | None:
        """Return how fast the world runs; None in its first second."""
        return self._meter.read(anyio.current_time())


class _WaitingInput:
    """An input whose sender waits for the answer.

    Args:
        pending: The input.
        answer: Makes the answer.
    """

    def __init__(self, pending: PendingInput, answer: Answer) -> None:
        self._pending = pending
        self._answer = answer
        self._settled = anyio.Event()
        self._outcome: bytes | Exception = b""

    def settle(self) -> None:
        """Make the answer now, or keep the error for the sender."""
        try:
            _require_taken(self._pending)
            self._outcome = self._answer()
        except Exception as error:  # noqa: BLE001 - the sender gets it
            self._outcome = error
        self._settled.set()

    async def wait(self) -> bytes:
        """Return the answer, or raise its error, once there is one."""
        await self._settled.wait()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def _require_taken(pending: PendingInput) -> None:
    if pending.refusal is not None:
        raise InputError(pending.refusal)


WorldClock: TypeAlias = LockstepClock | RealtimeClock
WINDOW_S: Final = 10
"""Seconds of real time over which the rate is measured."""


class RateMeter:
    """Measures the rate at which a world ticks.

    Args:
        nominal_hz: Ticks per second of real time that it should reach.
    """

    def __init__(self, nominal_hz: float) -> None:
        self._nominal_hz = nominal_hz
        self._ticks = 0
        self._cost_s = 0.0
        # The time, ticks and cost at about each second; the oldest is the start of the window.
        self._marks: deque[tuple[float, int, float]] = deque(maxlen=WINDOW_S + 1)

    def begin(self, now: float) -> None:
        """Measure from this moment on.

        Args:
            now: The time, in seconds of a steady clock.
        """
        self._marks.clear()
        self._mark(now)

    def note_tick(self, now: float, cost_s: float) -> None:
        """Count a tick.

        Args:
            now: The time at its end, in seconds.
            cost_s: The processor time that it took, in seconds.
        """
        self._ticks += 1
        self._cost_s += cost_s
        if now - self._marks[-1][0] >= 1.0:
            self._mark(now)

    def _mark(self, now: float) -> None:
        self._marks.append((now, self._ticks, self._cost_s))

    def read(self, now: float) -> TickRate | None:
        """Return the rate; None within the first second.

        Args:
            now: The time, in seconds.
        """
        if not self._marks or now - self._marks[0][0] < 1.0:
            return None
        since, ticks, cost_s = self._marks[0]
        count = self._ticks - ticks
        return TickRate(
            nominal_hz=self._nominal_hz,
            achieved_hz=count / (now - since),
            tick_cost_s=(self._cost_s - cost_s) / count if count else None,
        )
