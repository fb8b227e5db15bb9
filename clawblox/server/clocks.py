"""When a tick happens: by real time, or by input. Both apply inputs at the start of a tick."""

from __future__ import annotations

from typing import Final, Protocol

import anyio

from clawblox.server.instance import Halted, Instance
from clawblox.server.sessions import Session
from clawblox.server.simulation import Clock, InputError

__all__ = ["LockstepClock", "RealtimeClock", "WorldClock", "make_clock"]

MAX_ARREARS_S: Final = 0.25
"""Real time that a late world makes up for. What is beyond it is dropped: simulation time
then runs slower than real time, and no tick is ever skipped."""


class WorldClock(Protocol):
    """Drives an instance."""

    async def submit(self, session: Session, action: str, data: object) -> None:
        """Queue an input and return after the tick that took it.

        Raises:
            InputError: The simulation refused it.
            Halted: The world has stopped.

        Cancellation: the input stays queued, and is applied.
        """

    async def run(self) -> None:
        """Let time pass until the world halts.

        Cancellation: ends between two ticks.
        """


def make_clock(instance: Instance, kind: Clock) -> WorldClock:
    """Return the clock of that kind for an instance."""
    return LockstepClock(instance) if kind is Clock.LOCKSTEP else RealtimeClock(instance)


class LockstepClock:
    """Time passes only when an input is accepted."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def submit(self, session: Session, action: str, data: object) -> None:
        """See :class:`WorldClock`. A refused input takes no time."""
        pending = self._instance.queue(session, action, data)
        self._instance.apply_inputs()
        if pending.refusal is not None:
            raise InputError(pending.refusal)
        for _ in range(self._instance.simulation.ticks_per_input):
            self._instance.step()

    async def run(self) -> None:
        """See :class:`WorldClock`."""
        await anyio.sleep_forever()


class RealtimeClock:
    """Time passes with real time, at the simulation's tick rate."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._waiting: list[anyio.Event] = []

    async def submit(self, session: Session, action: str, data: object) -> None:
        """See :class:`WorldClock`."""
        pending = self._instance.queue(session, action, data)
        ticked = anyio.Event()
        self._waiting.append(ticked)
        await ticked.wait()
        if pending.refusal is not None:
            raise InputError(pending.refusal)

    async def run(self) -> None:
        """See :class:`WorldClock`."""
        due = anyio.current_time()
        while self._tick():
            due = max(due + 1 / self._instance.simulation.tick_rate, _arrears_limit())
            await anyio.sleep_until(due)

    def _tick(self) -> bool:
        try:
            self._instance.apply_inputs()
            self._instance.step()
        except Halted:
            return False
        finally:
            waiting, self._waiting = self._waiting, []
            for ticked in waiting:
                ticked.set()
        return True


def _arrears_limit() -> float:
    return anyio.current_time() - MAX_ARREARS_S
