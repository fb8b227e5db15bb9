"""A world under test: its instances, the one that most checks share, and its known facts."""

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
"""Real time in seconds in which a world that runs by itself ticks; at 50 Hz, also a slow one."""
_LOOK_INTERVAL_S: Final = 0.05

_Comparison = TypeVar("_Comparison", bound=RestoreComparison[Any])


class CheckContext:
    """A world under test.

    Args:
        instances: Its instances.
        url: Address of the only one, which others have started; empty to start some.

    Attributes:
        instances: The same as the argument.
        probe: The instance that most checks use.
        inputs: The inputs that checks may send.
        comparison: Returns the comparison of its lives by its clock.
        baseline: Returns the baseline run.
        input_timing: Returns lives of a running world in which the same input lands.
        sights: Returns what agents see.
        runs_by_itself: Whether the world was seen to run without inputs.
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
        """Stop every instance that still runs, and close the connections."""
        self.probe.close()
        await self.instances.stop_all()

    @property
    def slowness(self) -> float:
        """Real seconds for a simulated one in the slowest life of a world that runs by itself."""
        lives = self.instances.lives if self.runs_by_itself else []
        return max((live.pace.seen_slowness for live in lives), default=1.0)

    async def require(self, kind: type[_Comparison]) -> _Comparison:
        """Return the comparison of a world with a given clock.

        Raises:
            CouldNotRun: No agent can join, or observe.
            NotApplicable: The world has another clock.
        """
        comparison = await self.comparison()
        if not isinstance(comparison, kind):
            raise NotApplicable(comparison.manner)
        return comparison

    async def _choose_comparison(self) -> RestoreComparison[Any]:
        """Look whether the world runs by itself, or stands still between inputs.

        Raises:
            CouldNotRun: No agent can join, or observe.
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
