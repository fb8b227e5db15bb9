"""A generation of an experiment as text: its end, attempts and files, and its agents' actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from clawblox.columns import Column, format_lines
from clawblox.experiment.reading.inspection import InspectedAgent, InspectedGeneration
from clawblox.experiment.tables.rows import CommonFacts, Row
from clawblox.printable import printable, printable_name
from clawblox.protocol import parse_errors
from clawblox.views.formatting import (
    count_words,
    format_cost,
    format_count,
    format_facts,
    format_labels,
    format_node,
    format_rough_seconds,
    shorten_path,
)

_PARTS = ("logs", "recordings", "checkpoints")
"""Subdirectories of a run directory with files for people."""


def describe_generation(found: InspectedGeneration, width: int | None) -> list[str]:
    """Return a generation as lines.

    Args:
        found: The generation.
        width: Maximum width of the table of attempts, in characters; None for no limit.
    """
    row = found.row
    lines = format_facts(
        {
            "generation": f"{printable(row.chain)}, generation {row.generation}",
            "labels": printable(format_labels(row.labels)),
            "status": printable(": ".join(filter(None, (row.status, row.ended_by or row.error)))),
            "scores": printable(_describe_scores(found)),
            "error": printable(row.error) if row.ended_by else "",
            "scripts": printable(_describe_errors(row)),
            "time": _describe_time(found),
            "used": _describe_usage(row),
            "node": printable(format_node(row.node, row.differs)),
            "from": printable(row.forked_from),
            "run": "" if found.run_dir is None else _place(found.run_dir),
            "archive": "" if found.checkpoint is None else _place(found.checkpoint),
            **_find_parts(found),
        }
    ).splitlines()
    if len(found.attempts) > 1:
        lines += ["", *_describe_attempts(found, width)]
    for agent in found.agents:
        lines += ["", *_describe_agent(agent)]
    return lines


def describe_agents(found: InspectedGeneration) -> list[str]:
    """Return the agents of a generation as lines, each with its latest actions."""
    return [line for agent in found.agents for line in _describe_agent(agent)]


def generation_document(found: InspectedGeneration) -> Mapping[str, Any]:
    """Return a generation as values for JSON."""
    document = attrs.asdict(found)
    for agent, plain in zip(found.agents, document["agents"], strict=True):
        plain["activity"] = [line.text for line in agent.activity]
    return document


def _place(path: Path) -> str:
    return printable_name(shorten_path(path))


def _describe_scores(found: InspectedGeneration) -> str:
    row = found.row
    return ", ".join(
        f"{name} {value:g}{' (another version)' if name in row.kept_scores else ''}"
        for name, value in row.scores.items()
    )


def _describe_errors(row: Row) -> str:
    errors = parse_errors(row.script_errors, row.last_script_error)
    return "" if errors is None else str(errors)


def _describe_time(found: InspectedGeneration) -> str:
    row = found.row
    parts = (
        f"{format_rough_seconds(row.active_s)} active" if row.active_s else "",
        f"world at {row.world_time:.0f} s" if row.world_time is not None else "",
        f"from {row.started_at}" if row.started_at else "",
        f"to {row.ended_at}" if row.ended_at else "",
    )
    return printable(", ".join(filter(None, parts)))


def _describe_usage(facts: CommonFacts) -> str:
    tokens = "" if facts.output_tokens is None else format_count(facts.output_tokens)
    about = "about " if facts.is_estimated else ""
    parts = (
        count_words(facts.turns, "turn"),
        f"{tokens} output tokens" if tokens else "",
        f"{about}{format_cost(facts.cost_usd)}" if facts.cost_usd else "",
    )
    return ", ".join(filter(None, parts))


def _find_parts(found: InspectedGeneration) -> dict[str, str]:
    """Return the directories of the run that exist."""
    places = {} if found.run_dir is None else {name: found.run_dir / name for name in _PARTS}
    return {name: _place(place) for name, place in places.items() if place.is_dir()}


def _describe_attempts(found: InspectedGeneration, width: int | None) -> list[str]:
    attempts = found.attempts
    columns = [
        Column("ATTEMPT", [str(number) for number, _ in enumerate(attempts, 1)], 0, is_number=True),
        Column("OUTCOME", [one.outcome for one in attempts], 0),
        Column("ACTIVE", [format_rough_seconds(one.active_s) for one in attempts], 2),
        Column("REASON", [printable(one.reason) for one in attempts], 1, shortest=16),
        Column("RUN", [_place(one.run_dir) for one in attempts], 3),
    ]
    return format_lines(columns, width)


def _describe_agent(agent: InspectedAgent) -> Iterator[str]:
    row = agent.row
    program = " ".join(filter(None, (row.driver, row.model, row.program_version)))
    yield printable(f"{row.display} ({program}): {_describe_usage(row)}")
    if agent.directory is not None:
        yield f"  in {_place(agent.directory)}"
    if agent.error:
        yield printable(f"  its actions cannot be read: {agent.error}")
    yield from (f"  {line.text}" for line in agent.activity)
