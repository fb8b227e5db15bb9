"""When a tick happens: by real time, or by input. A tick begins by applying waiting inputs."""

from __future__ import annotations

from typing import Final, Protocol

import anyio

from clawblox.server.hosted_world import HostedWorld
from clawblox.server.sessions import Session
from clawblox.server.simulation import Clock, Halted, InputError

__all__ = ["LockstepClock", "RealtimeClock", "WorldClock", "make_clock"]

MAX_LAG_S: Final = 0.25
"""A late world catches up on this much real time. Beyond that, simulation time runs slower than
real time; no tick is ever skipped."""


class WorldClock(Protocol):
    """Decides when a world ticks."""

    async def submit(self, session: Session, action: str, data: object) -> None:
        """Queue an input and return after the tick that applied it.

        Raises:
            InputError: The simulation refused it.
            Halted: The world has stopped.

        Cancellation: the input stays queued and is applied.
        """

    async def run(self) -> None:
        """Tick until the world halts.

        Cancellation: ends between two ticks.
        """


def make_clock(world: HostedWorld, kind: Clock) -> WorldClock:
    """Return a clock of this kind for a world."""
    return LockstepClock(world) if kind is Clock.LOCKSTEP else RealtimeClock(world)


class LockstepClock:
    """Time passes only when an input is accepted."""

    def __init__(self, world: HostedWorld) -> None:
        self._world = world

    async def submit(self, session: Session, action: str, data: object) -> None:
        """Apply an input and tick at once; a refused input takes no time.

        Raises:
            InputError: The simulation refused it.
            Halted: The world has stopped.
        """
        pending = self._world.queue(session, action, data)
        self._world.apply_inputs()
        if pending.refusal is not None:
            raise InputError(pending.refusal)
        for _ in range(self._world.simulation.ticks_per_input):
            self._world.step()

    async def run(self) -> None:
        """Wait until cancelled: inputs make time pass."""
        await anyio.sleep_forever()


class RealtimeClock:
    """Time passes with real time, at the simulation's tick rate."""

    def __init__(self, world: HostedWorld) -> None:
        self._world = world
        self._waiting: list[anyio.Event] = []

    async def submit(self, session: Session, action: str, data: object) -> None:
        """Queue an input and return after the tick that applied it.

        Raises:
            InputError: The simulation refused it.
            Halted: The world has stopped.

        Cancellation: the input stays queued and is applied.
        """
        pending = self._world.queue(session, action, data)
        ticked = anyio.Event()
        self._waiting.append(ticked)
        await ticked.wait()
        if pending.refusal is not None:
            raise InputError(pending.refusal)

    async def run(self) -> None:
        """Tick at the simulation's rate until the world halts.

        Cancellation: ends between two ticks.
        """
        due = anyio.current_time()
        while self._tick():
            due = max(due + 1 / self._world.simulation.tick_rate, anyio.current_time() - MAX_LAG_S)
            await anyio.sleep_until(due)

    def _tick(self) -> bool:
        try:
            self._world.apply_inputs()
            self._world.step()
        except Halted:
            return False
        finally:
            waiting, self._waiting = self._waiting, []
            for ticked in waiting:
                ticked.set()
        return True
