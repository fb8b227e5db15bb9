"""Finds a checkpoint of an experiment from its description. Pure.

``fable-r1/g003@20m`` is the checkpoint of generation 3 of the chain fable-r1 that was made after at
most 20 active minutes.
"""

from __future__ import annotations

import re
from typing import Final

from clawblox.config.arguments import check_duration, mismatch
from clawblox.errors import ConfigError
from clawblox.experiment.history.checkpoints import Checkpoint
from clawblox.experiment.history.state import ExperimentState, GenerationState
from clawblox.spelling import nearest_name

_PLACE: Final = re.compile(r"(?P<chain>[^/@]+)(/g?(?P<generation>[0-9]{1,6}))?(@(?P<at>.+))?")
_KINDS: Final = ("boundary", "end")


def find_checkpoint(
    state: ExperimentState, place: str, at: str | float | None = None
) -> Checkpoint:
    """Return a checkpoint.

    Args:
        state: The state of the experiment.
        place: Chain and generation, such as ``r2/g003``; the latest generation if it is left out.
            It may end with ``@`` and the moment.
        at: The moment: ``last``, ``boundary``, ``end``, or active seconds of the generation, also
            as text such as ``"20m"``, for the nearest checkpoint before; None means ``last``.

    Raises:
        ConfigError: There is none; the error names those that exist.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        raise mismatch("checkpoint", "a chain and a generation, such as r2/g003@20m", place)
    generation = _find_generation(state, match["chain"], match["generation"])
    moment = at if at is not None else match["at"] or "last"
    points = list(generation.checkpoints())
    chosen = _choose(points, moment)
    if chosen is None:
        moments = ", ".join(f"{point.second}s ({point.kind})" for point in points) or "none"
        raise ConfigError(
            f"there is no checkpoint at {moment} in generation {generation.number} of"
            f" {generation.chain}",
            key="checkpoint",
            value=place,
            hint=f"its checkpoints: {moments}",
        )
    return chosen


def _find_generation(state: ExperimentState, chain: str, number: str | None) -> GenerationState:
    known = state.chains.get(chain)
    if known is None:
        nearest = nearest_name(chain, state.chains)
        names = ", ".join(state.chains) or "none"
        hint = f"did you mean {nearest!r}?" if nearest else f"chains with checkpoints: {names}"
        raise ConfigError("there is no such chain", key="checkpoint", value=chain, hint=hint)
    if number is None:
        begun = [entry for entry in known.generations.values() if any(entry.checkpoints())]
        if begun:
            return begun[-1]
    elif int(number) in known.generations:
        return known.generations[int(number)]
    numbers = ", ".join(map(str, known.generations)) or "none"
    raise ConfigError(
        f"{chain} has no such generation",
        key="checkpoint",
        value=number,
        hint=f"its generations: {numbers}",
    )


def _choose(points: list[Checkpoint], moment: str | float) -> Checkpoint | None:
    if moment == "last":
        return points[-1] if points else None
    if moment in _KINDS:
        return next((point for point in reversed(points) if point.kind == moment), None)
    elapsed_s = check_duration(moment, "at", may_be_zero=True)
    before = [point for point in points if point.second <= elapsed_s]
    return max(before, key=lambda point: (point.elapsed_s, point.seq), default=None)
