"""Names and paths of the files of an experiment. Pure; reads and creates nothing.

The directory of a chain has the layout of the experiments of the public generation scripts: a table
of the generations, a pointer to the latest archive, and below ``runs`` an ordinary run directory
for each attempt. So these scripts can resume a chain, and tools that read their files work
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Container
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

from clawblox.experiment.plan.naming import numbered, safe_name
from clawblox.experiment.plan.plan import Layout
from clawblox.team.pointer import POINTER_NAME

CHAINS_DIR: Final = "chains"
INPUTS_DIR: Final = "inputs"
"""Copies of prompts and templates."""
TABLE_NAME: Final = "generation_chain.csv"
RUN_DIRS: Final = ("runtime", "recordings", "logs", "agents", "checkpoints")
"""The directories in every run directory."""

_GENERATION: Final = re.compile(r"-g[0-9]{3}\Z")
_INDEX: Final = re.compile(r"-a([0-9]{1,9})\Z")
_STAMP: Final = "%Y%m%dT%H%M%SZ"


# -- names ---------------------------------------------------------------------------------------


def format_stamp(at: datetime) -> str:
    """Return a UTC time as it appears in names: ``20260622T185925Z``."""
    return at.strftime(_STAMP)


def experiment_prefix(experiment: str, *, given: str | None = None) -> str:
    """Return the prefix of all runs of an experiment.

    Args:
        experiment: The name of the experiment.
        given: The prefix to use in place of that name; None uses the name.
    """
    return safe_name(experiment if given is None else given)


def run_prefix(experiment: str, chain: str, layout: Layout, *, given: str | None = None) -> str:
    """Return the prefix of a chain's runs, unique in the experiment.

    Args:
        experiment: The name of the experiment.
        chain: The name of the chain.
        layout: The layout of the experiment.
        given: As for :func:`experiment_prefix`.
    """
    prefix = experiment_prefix(experiment, given=given)
    return prefix if layout == "flat" else safe_name(f"{prefix}-{chain}")


def attempt_name(prefix: str, generation: int, *, stamp: str | None = None) -> str:
    """Return the name of an attempt, and of its run directory.

    Args:
        prefix: The prefix of the chain's runs.
        generation: The number of the generation, from 1.
        stamp: The time of the attempt, if the name without a time is taken; else None.
    """
    suffix = "" if stamp is None else f"-r{stamp}"
    return safe_name(f"{prefix}-g{generation:03d}{suffix}")


def free_attempt_name(prefix: str, generation: int, at: datetime, taken: Container[str]) -> str:
    """Return an unused name for a new attempt.

    Args:
        prefix: The prefix of the chain's runs.
        generation: The number of the generation, from 1.
        at: The time of the attempt, in UTC.
        taken: The names of all attempts so far.
    """
    stamps = numbered(format_stamp(at))
    stamped = (attempt_name(prefix, generation, stamp=stamp) for stamp in stamps)
    names = chain([attempt_name(prefix, generation)], stamped)
    return next(name for name in names if name not in taken)


def next_prefix(name: str) -> str:
    """Return the prefix that the public scripts use after an attempt.

    They remove the generation only from the end, so a name with a stamp is used whole.

    Args:
        name: The name of the attempt, or of its tmux session.
    """
    return _GENERATION.sub("", name)


def tmux_session(prefix: str | None, attempt_id: str, runs: str) -> str:
    """Return the name of an attempt's tmux session, unique to the attempt.

    Args:
        prefix: The prefix of the experiment's sessions; None if it uses no tmux.
        attempt_id: The name of the attempt.
        runs: The prefix of all runs of the experiment, which is replaced.

    Returns:
        The name; empty without a prefix.
    """
    return "" if prefix is None else safe_name(prefix + attempt_id.removeprefix(runs))


def full_name(display: str, attempt_id: str, index: int) -> str:
    """Return the full name of an agent, which is also the name of its directory.

    Args:
        display: The agent's name in the world.
        attempt_id: The name of the attempt.
        index: The agent's place in its world, from 0.
    """
    return safe_name(f"{display}-r{attempt_id}-w0-a{index}")


def agent_index(name: str) -> int:
    """Return the index of an agent in its world, from its full name; 0 if the name has none."""
    match = _INDEX.search(name)
    return int(match[1]) if match else 0


def failed_name(attempt_id: str, at: datetime) -> str:
    """Return the name of a failed attempt's run directory.

    Args:
        attempt_id: The name of the attempt.
        at: The time of the failure, in UTC.
    """
    return f"{attempt_id}.failed-{format_stamp(at)}"


def partial_name(attempt_id: str) -> str:
    """Return the name of an incomplete run directory."""
    return f".{attempt_id}.partial"


# -- paths ---------------------------------------------------------------------------------------


def chain_dir(experiment_dir: Path, chain: str, layout: Layout) -> Path:
    """Return the directory of a chain.

    Args:
        experiment_dir: The directory of the experiment.
        chain: The name of the chain.
        layout: The layout of the experiment.
    """
    return experiment_dir if layout == "flat" else experiment_dir / CHAINS_DIR / chain


def table_path(chain_dir: Path) -> Path:
    """Return the path of the table of a chain's committed generations."""
    return chain_dir / TABLE_NAME


def pointer_path(chain_dir: Path) -> Path:
    """Return the path of the file that names a chain's latest archive."""
    return chain_dir / POINTER_NAME


def runs_dir(chain_dir: Path) -> Path:
    """Return the parent directory of a chain's run directories."""
    return chain_dir / "runs"


def attempt_dir(chain_dir: Path, attempt_id: str) -> Path:
    """Return the run directory of an attempt."""
    return runs_dir(chain_dir) / attempt_id


def archive_path(chain_dir: Path, attempt_id: str, file: str) -> Path:
    """Return the path of an archive of an attempt.

    Args:
        chain_dir: The directory of the chain.
        attempt_id: The name of the attempt, or of its directory after a failure.
        file: The name of the archive.
    """
    return attempt_dir(chain_dir, attempt_id) / "checkpoints" / file


def workspace_path(attempt_id: str, agent: str) -> str:
    """Return the path of an agent's workspace, relative to the directory of the chain.

    Args:
        attempt_id: The name of the attempt.
        agent: The full name of the agent.
    """
    return f"runs/{attempt_id}/agents/{agent}/workspace"
