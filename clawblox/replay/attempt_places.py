"""Attempts of an experiment as values, and whether a directory is one.

This imports nothing of experiments, which takes longer than a short replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from clawblox.rundir.experiments import find_experiment_part


@attrs.frozen
class AttemptPlace:
    """An attempt in its experiment.

    Attributes:
        chain: Its chain.
        generation: Its generation, from 1.
        number: Its number among the attempts at the generation, from 1.
        name: Its name.
        outcome: How it ended, such as ``committed`` or ``failed``; empty while it is under way.
    """

    chain: str
    generation: int
    number: int
    name: str
    outcome: str = ""


@attrs.frozen
class RecordedAttempt:
    """An attempt whose world has run.

    Attributes:
        place: Its place in the experiment.
        run_dir: Its run directory; None if it is gone.
        origin: Name of the attempt from whose checkpoint it began; empty for a fresh world.
        env: Values of the environment variables that the plan gives to its world; none if another
            user or an agent can have written the plan.
    """

    place: AttemptPlace
    run_dir: Path | None
    origin: str = ""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)


def is_experiment(directory: Path) -> bool:
    """Return whether a directory is that of an experiment, and no run directory of one."""
    part = find_experiment_part(directory)
    return part is not None and part.experiment == directory.resolve()
