"""A world under test: its instances, and what several checks learn from them only once."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import anyio

from clawblox.conformance.actions import KnownInputs, configured_actions
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import (
    Action,
    LiveWorld,
    Player,
    Step,
    make_script,
    run_script,
)
from clawblox.conformance.pace import has_moved
from clawblox.conformance.registry import CouldNotRun, NotApplicable
from clawblox.protocol import API_ROUTE
from clawblox.world.input_examples import find_examples

LOOK_S: Final = 1.0
"""Real time in seconds in which a world that runs by itself ticks; at 50 Hz, also a slow one."""
_LOOK_INTERVAL_S: Final = 0.05

ClockKind: TypeAlias = Literal["lockstep", "realtime"]


class Lab(Instances):
    """A world under test."""

    async def api_doc(self) -> str:
        """Return the documentation that agents read; empty if the world serves none."""

        async def read() -> str:
            async with self.probe() as live:
                exchange = await live.call("GET", API_ROUTE)
            return exchange.content.decode(errors="replace") if exchange.is_accepted else ""

        return await self.once("api_doc", read)

    async def inputs(self) -> KnownInputs:
        """Return the inputs that ``world.toml`` lists, else those that the documentation shows."""

        async def read() -> KnownInputs:
            listed = configured_actions(self.config)
            return KnownInputs(listed, () if listed else find_examples(await self.api_doc()))

        return await self.once("inputs", read)

    async def actions(self) -> tuple[Action, ...]:
        """Return the inputs that the checks may send; empty if none are known."""
        return (await self.inputs()).actions

    async def require_actions(self) -> tuple[Action, ...]:
        """Return the inputs that the checks may send.

        Raises:
            CouldNotRun: None are known.
        """
        inputs = await self.inputs()
        if not inputs.actions:
            raise CouldNotRun(f"no inputs are known: {inputs.advice}")
        return inputs.actions

    async def clock(self) -> ClockKind:
        """Return whether the world runs by itself or stands still without inputs.

        Raises:
            CouldNotRun: No agent can join, or observe.
        """

        async def look() -> ClockKind:
            async with self.playing() as players:
                first = await players[0].observe()
                deadline = anyio.current_time() + LOOK_S
                while True:
                    await anyio.sleep(_LOOK_INTERVAL_S)
                    second = await players[0].observe()
                    if has_moved(first, second):
                        self.runs_by_itself = True
                        return "realtime"
                    if anyio.current_time() > deadline:
                        return "lockstep"

        return await self.once("clock", look)

    async def require_clock(self, kind: ClockKind) -> None:
        """Require a clock.

        Raises:
            NotApplicable: The world has the other one.
        """
        if await self.clock() != kind:
            reason = {
                "lockstep": "the world runs by itself, so it is compared at equal simulated times",
                "realtime": "the world stands still between inputs, so its bytes are compared",
            }
            raise NotApplicable(reason[kind])

    async def join_two(self, live: LiveWorld) -> list[Player]:
        """Let two agents join; only one if the world has no place for a second."""
        return [await live.join(name) for name in self.names[: self.count_players()]]

    async def warm_up(self, live: LiveWorld, *, rounds: int) -> list[Player]:
        """Let agents join and play, so that the world has something to save.

        Args:
            live: A fresh instance.
            rounds: How often each of them acts.

        Raises:
            Failed: An agent cannot join.
        """
        players = await self.join_two(live)
        script = await self.warm_script(rounds=rounds)
        await run_script(players, script)
        return players

    async def warm_script(self, *, rounds: int) -> tuple[Step, ...]:
        """Return the script with which agents play before a save; see :meth:`warm_up`."""
        actions, count = await self.actions(), self.count_players()
        return make_script(self.random("warm"), actions, rounds=rounds, players=count)
