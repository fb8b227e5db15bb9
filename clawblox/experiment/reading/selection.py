"""Finds a checkpoint or a generation of an experiment from its description. Pure.

``fable-r1/g003@20m`` is the checkpoint of generation 3 of the chain fable-r1 that was made after at
most 20 active minutes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from clawblox.config.arguments import check_duration, mismatch
from clawblox.errors import ConfigError
from clawblox.experiment.history.checkpoints import Checkpoint
from clawblox.experiment.history.state import ExperimentState, GenerationState
from clawblox.printable import name_some
from clawblox.spelling import nearest_name

_PLACE: Final = re.compile(r"(?P<chain>[^/@]+)(/g?(?P<generation>[0-9]{1,6}))?(@(?P<at>.+))?")
_NAMED: Final = 20
"""Maximum number of chains that an error names."""
_KINDS: Final = ("boundary", "end")


def check_chains(names: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    """Return names of chains.

    Args:
        names: The names.
        known: The names of all chains.

    Raises:
        ConfigError: There is no such chain; the error names the nearest.
    """
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known)
            hint = f"did you mean {nearest!r}?" if nearest else f"there are: {', '.join(known)}"
            raise ConfigError("there is no such chain", key="chains", value=name, hint=hint)
    return tuple(names)


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


def find_generation(
    state: ExperimentState, chains: Collection[str], place: str, argument: str
) -> GenerationState:
    """Return a generation that has begun.

    Args:
        state: The state of the experiment.
        chains: Names of its chains.
        place: Chain and generation, such as ``r2/g003``; the latest generation if it is left out.
        argument: The argument of the caller.

    Raises:
        ConfigError: There is none; the error names similar ones, or those that exist.
    """
    match = _PLACE.fullmatch(place)
    if match is None or match["at"] is not None:
        raise mismatch(argument, "a chain and a generation, such as r2/g003", place)
    chain, number = match["chain"], match["generation"]
    if chain not in chains:
        raise _no_chain(chain, chains, argument, "the chains")
    begun = state.chain(chain).generations
    if not begun:
        hint = "clawblox experiment status shows why it waits"
        raise ConfigError("has not begun", key=argument, value=chain, hint=hint)
    if number is None:
        return begun[max(begun)]
    if int(number) not in begun:
        raise _no_generation(chain, number, begun, argument)
    return begun[int(number)]


def _no_chain(chain: str, known: Collection[str], argument: str, others: str) -> ConfigError:
    nearest = nearest_name(chain, known)
    names = name_some([*known], _NAMED) or "none"
    hint = f"did you mean {nearest!r}?" if nearest else f"{others}: {names}"
    return ConfigError("there is no such chain", key=argument, value=chain, hint=hint)


def _no_generation(
    chain: str, number: str | None, begun: Collection[int], argument: str
) -> ConfigError:
    numbers = ", ".join(map(str, begun)) or "none"
    message, hint = f"{chain} has no such generation", f"its generations: {numbers}"
    return ConfigError(message, key=argument, value=number, hint=hint)


def _find_generation(state: ExperimentState, chain: str, number: str | None) -> GenerationState:
    known = state.chains.get(chain)
    if known is None:
        raise _no_chain(chain, state.chains, "checkpoint", "chains with checkpoints")
    if number is None:
        begun = [entry for entry in known.generations.values() if any(entry.checkpoints())]
        if begun:
            return begun[-1]
    elif int(number) in known.generations:
        return known.generations[int(number)]
    raise _no_generation(chain, number, known.generations, "checkpoint")


def _choose(points: list[Checkpoint], moment: str | float) -> Checkpoint | None:
    if moment == "last":
        return points[-1] if points else None
    if moment in _KINDS:
        return next((point for point in reversed(points) if point.kind == moment), None)
    elapsed_s = check_duration(moment, "at", may_be_zero=True)
    before = [point for point in points if point.second <= elapsed_s]
    return max(before, key=lambda point: (point.elapsed_s, point.seq), default=None)
