"""A generation of an experiment with its attempts, its agents and its files. Blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import attrs

from clawblox.agents.narration import NarrationLine, narrate
from clawblox.agents.trajectory import read_activity
from clawblox.errors import ClawbloxError
from clawblox.experiment import layout
from clawblox.experiment.history.state import AttemptState
from clawblox.experiment.links import require_no_link
from clawblox.experiment.reading.record import ExperimentRecord
from clawblox.experiment.tables.rows import AgentRow, Row, describe_attempt, make_chain_rows


@attrs.frozen(kw_only=True)
class InspectedAttempt:
    """An attempt at a generation.

    Attributes:
        outcome: How it ended, or its step while it runs.
        reason: Why it failed or paused, or why the generation closes; may be empty.
        started_at: UTC time of its start.
        ended_at: UTC time of its end; None while it runs.
        active_s: Recorded active seconds of the generation at its end.
        run_dir: Its run directory, which may have been removed.
    """

    outcome: str
    reason: str
    started_at: str
    ended_at: str | None
    active_s: float
    run_dir: Path


@attrs.frozen(kw_only=True)
class InspectedAgent:
    """An agent in a generation.

    Attributes:
        row: Its row.
        directory: Its directory; None before it has one.
        activity: The latest lines of its activity.
        error: Why the activity cannot be read; empty if it can.
    """

    row: AgentRow
    directory: Path | None
    activity: Sequence[NarrationLine] = ()
    error: str = ""


@attrs.frozen(kw_only=True)
class InspectedGeneration:
    """A generation.

    Attributes:
        row: Its row.
        attempts: Its attempts, in order.
        agents: Its agents, in their order.
        run_dir: Run directory with the results, or that of the latest attempt, or None.
        checkpoint: The archive of the end, else the latest, or None.
    """

    row: Row
    attempts: Sequence[InspectedAttempt]
    agents: Sequence[InspectedAgent]
    run_dir: Path | None
    checkpoint: Path | None


def find_row(record: ExperimentRecord, place: str) -> tuple[Row, list[AgentRow]]:
    """Return the row of a generation and those of its agents.

    Args:
        record: The experiment.
        place: Chain and generation, such as ``r2/g003``; without a generation, the latest.

    Raises:
        ConfigError: There is no such generation.
    """
    generation = record.find_generation(place)
    rows, agents = make_chain_rows(record.plans, record.chains[generation.chain])
    row = next(row for row in rows if row.generation == generation.number)
    return row, [agent for agent in agents if agent.generation == generation.number]


def inspect_generation(record: ExperimentRecord, place: str, lines: int) -> InspectedGeneration:
    """Return a generation with its attempts, its agents and its files.

    Args:
        record: The experiment.
        place: As for :func:`find_row`.
        lines: Maximum number of latest lines of each agent's activity.

    Raises:
        ConfigError: There is no such generation.
        ClawbloxError: A directory of the experiment is a link.
        OSError: A directory cannot be read.
    """
    row, agents = find_row(record, place)
    record.require_no_links()
    root = record.dir
    chain_dir = layout.chain_dir(root, row.chain, record.plan.layout)
    attempts = record.state.chain(row.chain).generations[row.generation].attempts
    run_dir = root / row.run_dir if row.run_dir else None
    return InspectedGeneration(
        row=row,
        attempts=[_inspect_attempt(attempt, chain_dir) for attempt in attempts],
        agents=[_inspect_agent(agent, root, run_dir, lines) for agent in agents],
        run_dir=run_dir,
        checkpoint=root / row.checkpoint if row.checkpoint else None,
    )


def _inspect_attempt(attempt: AttemptState, chain_dir: Path) -> InspectedAttempt:
    words = (str(attempt.end_data.get(name) or "") for name in ("cause", "reason", "text"))
    reason = ": ".join(dict.fromkeys(filter(None, words))) or attempt.close_reason
    return InspectedAttempt(
        outcome=describe_attempt(attempt),
        reason=reason,
        started_at=attempt.opened.at,
        ended_at=None if attempt.ending is None else attempt.ending.at,
        active_s=attempt.active_s,
        run_dir=layout.attempt_dir(chain_dir, attempt.dir_name),
    )


def _inspect_agent(row: AgentRow, root: Path, run_dir: Path | None, lines: int) -> InspectedAgent:
    if row.workspace_out:
        directory = (root / row.workspace_out).parent
    elif row.name and run_dir is not None:
        directory = run_dir / "agents" / row.name
    else:
        return InspectedAgent(row=row, directory=None)
    latest: deque[NarrationLine] = deque(maxlen=lines)
    try:
        require_no_link(directory.parent, directory, directory / "logs")
        for report in read_activity(directory):
            latest.extend(narrate(report.type, report.data))
    except ClawbloxError as error:
        return InspectedAgent(row=row, directory=directory, error=error.headline)
    except OSError as error:
        return InspectedAgent(row=row, directory=directory, error=str(error))
    return InspectedAgent(row=row, directory=directory, activity=tuple(latest))
