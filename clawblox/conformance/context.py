"""A world under test: its instances, the shared probe instance, and known facts."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import anyio

from clawblox.conformance.baseline import BaselineRun, record_baseline
from clawblox.conformance.comparison import RestoreComparison
from clawblox.conformance.input_timing import InputTiming, time_inputs
from clawblox.conformance.inputs import WorldInputs
from clawblox.conformance.instances import Instances
from clawblox.conformance.lockstep import Lockstep
from clawblox.conformance.once import Once
from clawblox.conformance.pace import has_moved
from clawblox.conformance.probe import ProbeInstance, Sights
from clawblox.conformance.realtime import Realtime
from clawblox.conformance.registry import NotApplicable

_LOOK_S: Final = 1.0
"""Seconds of real time in which a world that runs by itself ticks, even a slow one at 50 Hz."""
_LOOK_INTERVAL_S: Final = 0.05

_Comparison = TypeVar("_Comparison", bound=RestoreComparison[Any])


class CheckContext:
    """A world under test.

    Args:
        instances: Its instances.
        url: Address of the only instance, started by others; empty to start instances.

    Attributes:
        instances: The same as the argument.
        probe: The instance that most checks use.
        inputs: The inputs that checks may send.
        comparison: Returns the comparison of its runs for its clock.
        baseline: Returns the baseline run.
        input_timing: Returns runs of a running world in which the same input lands.
        sights: Returns the answers that agents get.
        runs_by_itself: Whether the world was observed to advance without inputs.
    """

    def __init__(self, instances: Instances, *, url: str = "") -> None:
        self.instances = instances
        self.probe = ProbeInstance(instances, url)
        self.inputs = WorldInputs(self.probe, instances.config)
        self.comparison: Once[RestoreComparison[Any]] = Once(self._choose_comparison)
        self.baseline: Once[BaselineRun] = Once(lambda: record_baseline(instances, self.inputs))
        self.input_timing: Once[InputTiming] = Once(self._time_inputs)
        self.sights: Once[Sights] = Once(self._look_around)
        self.runs_by_itself = False

    async def close(self) -> None:
        """Stop all running instances, and close the connections."""
        self.probe.close()
        await self.instances.stop_all()

    @property
    def slowness(self) -> float:
        """Real seconds per simulated second in the slowest run of a running world."""
        lives = self.instances.lives if self.runs_by_itself else []
        return max((live.pace.seen_slowness for live in lives), default=1.0)

    async def require(self, kind: type[_Comparison]) -> _Comparison:
        """Return the comparison, which must be for a given clock.

        Raises:
            CouldNotRun: No agent can join or observe.
            NotApplicable: The world has another clock.
        """
        comparison = await self.comparison()
        if not isinstance(comparison, kind):
            raise NotApplicable(comparison.manner)
        return comparison

    async def _choose_comparison(self) -> RestoreComparison[Any]:
        """Detect whether the world runs by itself or stands still between inputs.

        Raises:
            CouldNotRun: No agent can join or observe.
        """
        async with self.probe.playing() as players:
            first = await players[0].observe()
            deadline = anyio.current_time() + _LOOK_S
            while not self.runs_by_itself and anyio.current_time() <= deadline:
                await anyio.sleep(_LOOK_INTERVAL_S)
                self.runs_by_itself = has_moved(first, await players[0].observe())
        kind = Realtime if self.runs_by_itself else Lockstep
        return kind(self.instances, self.inputs)

    async def _time_inputs(self) -> InputTiming:
        return await time_inputs(await self.require(Realtime))

    async def _look_around(self) -> Sights:
        return await self.probe.look_around(await self.inputs.actions())
