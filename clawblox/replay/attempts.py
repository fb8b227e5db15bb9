"""The attempts of an experiment whose recordings are verified, in the order of its journal. Blocks.

A journal may come from a stranger: names in it were checked when it was read, and it names no
program. Values of environment variables come from its plan, which is used only if neither another
user nor an agent can have written it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from clawblox.replay.results import AttemptPlace
from clawblox.rundir.experiments import find_experiment_part
from clawblox.world.recorded_worlds import find_forger

if TYPE_CHECKING:
    from clawblox.experiment.reading.record import ExperimentRecord


@attrs.frozen
class RecordedAttempt:
    """An attempt whose world has run.

    Attributes:
        place: Its place in the experiment.
        run_dir: Its run directory; None if it is gone.
        origin: Name of the attempt from whose checkpoint it started; empty for a fresh world.
        env: Values of the environment variables that the plan gives to its world; none if another
            user or an agent can have written the plan.
    """

    place: AttemptPlace
    run_dir: Path | None
    origin: str = ""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)


def is_experiment(directory: Path) -> bool:
    """Return whether a directory is that of an experiment, not one of its run directories."""
    part = find_experiment_part(directory)
    return part is not None and part.experiment == directory.resolve()


def list_attempts(directory: Path) -> Sequence[RecordedAttempt]:
    """Return the attempts of an experiment whose worlds have run; each follows its origin.

    Args:
        directory: The directory of the experiment, resolved.

    Raises:
        ClawbloxError: Its journal or a plan cannot be read or is invalid, or one of its directories
            is a link.
        OSError: A directory cannot be read.
    """
    # Imported here, because runs do not need experiments, which are slow to import.
    from clawblox.experiment import layout
    from clawblox.experiment.live.preparing import find_attempt
    from clawblox.experiment.reading.record import read_experiment

    record = read_experiment(directory)
    record.require_no_links()
    begun = sorted(_list_begun(record), key=lambda attempt: attempt[0])
    chains, origins = record.chains, _find_origins(record)
    is_own = find_forger(directory, directory / record.state.plan_file) is None
    return [
        RecordedAttempt(
            place,
            find_attempt(layout.chain_dir(directory, place.chain, record.plan.layout), place.name),
            origins.get(place.name, ""),
            chains[place.chain].plan.world.env if is_own else {},
        )
        for _seq, place in begun
    ]


def _list_begun(record: ExperimentRecord) -> Iterator[tuple[int, AttemptPlace]]:
    """Yield the attempts whose worlds have run, each with the number of its first line."""
    for chain in record.state.chains.values():
        for generation in chain.generations.values():
            place = partial(AttemptPlace, generation.chain, generation.number)
            if generation.imported is not None:
                yield 0, place(1, str(generation.imported["run_id"]), "imported")
            for number, attempt in enumerate(generation.attempts, 1):
                if attempt.working:
                    yield (
                        attempt.opened.seq,
                        place(number, attempt.attempt_id, attempt.outcome or ""),
                    )


def _find_origins(record: ExperimentRecord) -> Mapping[str, str]:
    """Return the attempt from whose checkpoint or world each attempt started, by attempt."""
    makers: dict[str, str] = {}
    origins: dict[str, str] = {}
    for line in record.lines:
        name, data = str(line.attempt), line.data
        if line.type == "checkpoint":
            makers[data["sha256"]] = name
        elif line.type == "opened" and data.get("origin") is not None:
            origins[name] = str(data["origin"]["attempt"])
        elif line.type == "prepared" and (world := data.get("digests", {}).get("world")):
            origins[name] = makers.get(str(world), "")
    return origins
