"""Experiments as a table, a line for each."""

from __future__ import annotations

from collections.abc import Sequence

from clawblox.columns import Column, format_lines
from clawblox.experiment.reading.overview import ExperimentOverview
from clawblox.printable import printable_name
from clawblox.views.experiments import describe_driver
from clawblox.views.formatting import format_age, format_cost, shorten_path


def describe_experiments(experiments: Sequence[ExperimentOverview], width: int | None) -> list[str]:
    """Return a table of experiments in their order, and below it why others cannot be read.

    Args:
        experiments: The experiments.
        width: Characters of a line of the table; None has no limit.
    """
    shown = [one for one in experiments if not one.error]
    columns = [
        Column("EXPERIMENT", [one.name for one in shown], 2, shortest=12, cut="middle"),
        Column("DIR", [shorten_path(one.directory) for one in shown], 0, shortest=16, cut="middle"),
        Column("STATUS", list(map(_describe_state, shown)), 0),
        Column("CHAINS", [str(one.chains) for one in shown], 4, is_number=True),
        Column("COMMITTED", list(map(_describe_progress, shown)), 1, is_number=True),
        Column("SPENT", list(map(_describe_cost, shown)), 3, is_number=True),
        Column("CHANGED", [_describe_change(one) for one in shown], 1, is_number=True),
    ]
    table = format_lines(columns, width) if shown else []
    broken = [one for one in experiments if one.error]
    lines = [printable_name(f"{shorten_path(one.directory)}: {one.error}") for one in broken]
    return [*table, *([""] if table and lines else []), *lines]


def _describe_state(experiment: ExperimentOverview) -> str:
    is_both = experiment.failed and experiment.state != "failed"
    state = f"{experiment.state}, {experiment.failed} failed" if is_both else experiment.state
    state = f"smoke run: {state}" if experiment.is_smoke else state
    return state if experiment.host is None else f"{state}, {describe_driver(experiment.host)}"


def _describe_progress(experiment: ExperimentOverview) -> str:
    return f"{experiment.committed} of {experiment.generations}"


def _describe_cost(experiment: ExperimentOverview) -> str:
    if experiment.spent_usd is None:
        return "unknown"
    about = "~" if experiment.is_estimated else ""
    return f"{about}{format_cost(experiment.spent_usd)}"


def _describe_change(experiment: ExperimentOverview) -> str:
    return f"{format_age(experiment.changed_at)} ago" if experiment.changed_at else ""
