"""Scores committed generations again from their final checkpoints, without agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError
from clawblox.experiment.history.checkpoints import Checkpoint
from clawblox.experiment.history.lines import About, LineType
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import GenerationState
from clawblox.experiment.layout import format_stamp
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.ports import AttemptBackend, AttemptError
from clawblox.system.clock import TimeSource
from clawblox.telemetry.own_log import OwnLog

OnRescored: TypeAlias = Callable[[int, int], None]
"""Called with the number of scored generations, and of all that can be scored."""


def ignore_rescored(_done: int, _total: int) -> None:
    """Ignore the progress of a rescoring."""


_log = OwnLog(__name__)


def find_end(generation: GenerationState) -> Checkpoint | None:
    """Return the checkpoint at the end of a committed generation, or None."""
    ends = [point for point in generation.checkpoints() if point.kind == "end"]
    return ends[-1] if generation.committed is not None and ends else None


class ScoreSink(Protocol):
    """Receives the scores; a :class:`JournalRecorder` writes them to the journal."""

    async def write(self, type: LineType, data: Mapping[str, Any], about: About) -> object:  # noqa: A002
        """Write the scores of a generation, as data of a line ``rescored``."""


@attrs.define(eq=False)
class Rescoring:
    """Restores only the world of each committed generation, and scores it.

    Args:
        plans: The plans of the experiment.
        backend: Makes the attempts.
        recorder: Writes the lines.
        callbacks: The hooks, with the score.
        clock: The clock.
        wanted: Returns whether a generation is scored; by default all are.
        world_dir: Directory of the world, in place of all directories in the plan; None uses the
            plan's.
    """

    _plans: Plans
    _backend: AttemptBackend
    _recorder: ScoreSink
    _callbacks: Callbacks
    _clock: TimeSource
    _wanted: Callable[[GenerationState], bool] = attrs.field(
        default=lambda _generation: True, kw_only=True
    )
    _world_dir: Path | None = attrs.field(default=None, kw_only=True)
    _stamp: str = attrs.field(init=False)
    _places: anyio.CapacityLimiter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._stamp = format_stamp(self._clock.utc())
        self._places = anyio.CapacityLimiter(self._plans.present.limits.worlds)

    async def run(self, on_progress: OnRescored = ignore_rescored) -> None:
        """Score all generations that have a checkpoint at the end.

        Args:
            on_progress: Called at the start, and after each generation.

        Raises:
            ConfigError: There is no score, or it cannot be imported.

        Cancellation: scores that were recorded remain.
        """
        hooks = await run_blocking(self._callbacks.load, self._plans.present)
        if not self._callbacks.has_score:
            raise ConfigError("must be given, as the plan has none", key="score")
        found = list(self._find_ends())
        done = 0
        on_progress(done, len(found))

        async def score(generation: GenerationState, end: Checkpoint) -> None:
            nonlocal done
            await self._score(generation, end, hooks["score"])
            done += 1
            on_progress(done, len(found))

        async with anyio.create_task_group() as tasks:
            for generation, end in found:
                tasks.start_soon(score, generation, end)

    def _find_ends(self) -> Iterator[tuple[GenerationState, Checkpoint]]:
        """Yield the wanted generations that can be scored, each with its final checkpoint."""
        for chain in self._plans.state.chains.values():
            for generation in chain.generations.values():
                end = find_end(generation)
                if end is not None and self._wanted(generation):
                    yield generation, end

    async def _score(
        self, generation: GenerationState, end: Checkpoint, function: Mapping[str, str | None]
    ) -> None:
        chain = self._plans.chains[generation.chain]
        if self._world_dir is not None:
            world = attrs.evolve(chain.plan.world, dir=self._world_dir)
            chain = attrs.evolve(chain, plan=chain.plan.but(world=world))
        order = AttemptOrder(
            chain=chain,
            generation=generation.number,
            attempt_id=f"{end.ref.attempt}.rescored-{self._stamp}",
            phase="score",
            origin=end.ref,
            active_s=end.active_s,
        )
        async with self._places:
            try:
                await self._backend.prepare(order)
                async with (
                    self._backend.room(chain) as room,
                    self._backend.open(order, lambda _signal: None, room) as attempt,
                ):
                    await attempt.start()
                    scored = await self._callbacks.score(attempt)
            except AttemptError as error:
                scored = {"error": error.text}
            except OSError as error:
                scored = {"error": str(error)}
            except Exception as error:  # noqa: BLE001 - a defect ends this score and no other
                _log.defect("score failed", error, attempt=order.attempt_id)
                scored = {"error": f"{type(error).__name__}: {error}"}
            finally:
                with anyio.CancelScope(shield=True):
                    await self._backend.discard(order)
        facts = {**(scored or {}), "function": function}
        await self._recorder.write("rescored", facts, About(chain.name, generation.number))
