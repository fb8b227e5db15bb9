"""Tables of results as text that fits a terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from clawblox.columns import Column, format_lines
from clawblox.experiment.tables.flat_rows import LABEL, KeptScore, strip
from clawblox.experiment.tables.groups import FlatRows, GroupDifference, group_rows, summarise

KEPT: Final = "*"
"""Mark of a score of another version of its function, and of a mean that includes one."""
KEPT_NOTE: Final = (
    f"{KEPT} scores of another version of their function; the CSV has the versions, and rescore"
    " computes them again"
)
"""Line below a table that explains the mark."""
_DIFFERENCES: Final = "Difference from the control branches of the same checkpoint, in pairs:"
NO_PAIRS: Final = (
    "No differences: no checkpoint has complete branches both without a message and with one."
)
"""Line below a table of branches without a control."""
_LARGE: Final = 1000.0
_COUNT: Final = "n"
_ERROR: Final = "se"
_MEDIAN: Final = "median"
_RANKS: Final = {
    "chain": 0,
    "generation": 0,
    "status": 2,
    "ended_by": 6,
    "active_s": 4,
    "turns": 5,
    "output_tokens": 4,
    "cost_usd": 3,
}
"""Columns of the table of generations, with their ranks; see :class:`~clawblox.columns.Column`."""
_AGENTS_RANKS: Final = {
    "chain": 0,
    "generation": 0,
    "display": 0,
    "driver": 6,
    "model": 1,
    "status": 5,
    "turns": 4,
    "output_tokens": 3,
    "cost_usd": 2,
}
_VARYING_RANK, _CONSTANT_RANK = 3, 7
"""Ranks of labels in which the chains differ, and of the other labels."""
_HEADINGS: Final = {"display": "AGENT", "generation": "GEN"}
_SHORTEST: Final = 16
"""Minimum width of a truncated text."""


@attrs.frozen
class _ShownTable:
    """A column of a table: its heading, its rank, and its values."""

    name: str
    rank: int
    values: Sequence[Any]

    def make_column(self) -> Column:
        is_number = all(map(_is_numeric, self.values))
        return Column(
            self.name.upper().replace("_", " "),
            list(map(format_cell, self.values)),
            self.rank,
            shortest=None if is_number else _SHORTEST,
            cut="middle",
            is_number=is_number,
        )


def format_rows(
    flat: FlatRows, labels: Sequence[str], scores: Sequence[str], width: int | None, *, agents: bool
) -> str:
    """Return a table of generations, or of agents in them.

    Args:
        flat: The rows.
        labels: The columns of labels. For agents, their own columns replace labels of the same
            names.
        scores: The columns of scores.
        width: Characters per line; None sets no limit.
        agents: Whether the rows are agents.
    """
    own = _AGENTS_RANKS if agents else _RANKS
    shown = [label for label in labels if not (agents and strip(label) in own)]
    is_joined = len({facts["experiment"] for facts in flat}) > 1
    first = {"experiment": 0, "chain": 0} if is_joined else {"chain": 0}
    ranks = {**first, **{label: _rank_label(label, flat) for label in shown}, **own}
    columns = [
        _ShownTable(_head(name, ranks), rank, [facts.get(name) for facts in flat])
        for name, rank in {**ranks, **dict.fromkeys(scores, 1)}.items()
    ]
    return _join(columns, width)


def _rank_label(label: str, flat: FlatRows) -> int:
    values = {repr(facts.get(label)) for facts in flat}
    return _VARYING_RANK if len(values) > 1 else _CONSTANT_RANK


def _head(name: str, others: Mapping[str, int]) -> str:
    """Return the heading of a column, with ``label.`` if the label has the name of a column."""
    is_taken = name.startswith(LABEL) and strip(name) in others
    return name.replace(".", " ") if is_taken else _HEADINGS.get(name, strip(name))


# -- groups --------------------------------------------------------------------------------------


def format_groups(
    flat: FlatRows,
    keys: Sequence[str],
    wanted: Mapping[str, bool],
    width: int | None,
) -> str:
    """Return a table of groups of rows: their values of some columns, a count, and estimates.

    Args:
        flat: The rows.
        keys: The columns to group by; none makes a single group.
        wanted: The columns to summarise, and whether to show their standard error and median as
            well as their mean.
        width: Characters per line; None sets no limit.
    """
    groups = group_rows(flat, keys) if keys else {(): flat}
    columns = [
        _ShownTable(_head(key, {}), 0, [values[place] for values in groups])
        for place, key in enumerate(keys)
    ]
    sizes = [len(rows) for rows in groups.values()]
    columns.append(_ShownTable(_COUNT, 0, sizes))
    for name, is_full in wanted.items():
        if name not in keys:
            columns += _estimate_columns(name, list(groups.values()), sizes, is_full=is_full)
    return _join(columns, width)


def _estimate_columns(
    name: str, groups: Sequence[FlatRows], sizes: Sequence[int], *, is_full: bool
) -> list[_ShownTable]:
    """Return the columns of one column's estimates, with a separate count if values are missing."""
    found = [summarise(rows, name) for rows in groups]
    means = [
        KeptScore(estimate.mean) if has_kept and estimate.mean is not None else estimate.mean
        for estimate, has_kept in found
    ]
    columns = [_ShownTable(_head(name, {}), _RANKS.get(name, 1), means)]
    if not is_full:
        return columns
    counts = [estimate.n for estimate, _ in found]
    if any(count not in (0, size) for count, size in zip(counts, sizes, strict=True)):
        columns.append(_ShownTable(_COUNT, 2, counts))
    errors = [estimate.standard_error for estimate, _ in found]
    medians = [estimate.median for estimate, _ in found]
    return [*columns, _ShownTable(_ERROR, 2, errors), _ShownTable(_MEDIAN, 2, medians)]


def format_differences(found: Sequence[GroupDifference], width: int | None) -> str:
    """Return a table of the differences of branches from their controls.

    Args:
        found: The differences, at least one; all have the same columns in common.
        width: Characters per line; None sets no limit.
    """
    intervals = [one.interval or (None, None) for one in found]
    cells: dict[str, tuple[int, Sequence[Any]]] = {
        **{key: (0, [one.by[key] for one in found]) for key in found[0].by},
        "column": (0, [one.column for one in found]),
        "pairs of": (5, [one.unit for one in found]),
        "pairs": (0, [one.estimate.n for one in found]),
        "control": (2, [one.control for one in found]),
        "difference": (0, [one.estimate.mean for one in found]),
        _ERROR: (4, [one.estimate.standard_error for one in found]),
        _MEDIAN: (4, [one.estimate.median for one in found]),
        "95% from": (1, [low for low, _ in intervals]),
        "95% to": (1, [high for _, high in intervals]),
    }
    columns = [_ShownTable(name, rank, values) for name, (rank, values) in cells.items()]
    return f"{_DIFFERENCES}\n{_join(columns, width)}"


# -- columns and cells ---------------------------------------------------------------------------


def _join(columns: Sequence[_ShownTable], width: int | None) -> str:
    is_marked = any(isinstance(value, KeptScore) for column in columns for value in column.values)
    lines = format_lines([column.make_column() for column in columns], width)
    return "\n".join([*lines, *([KEPT_NOTE] if is_marked else [])])


def _is_numeric(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def format_cell(value: object) -> str:
    """Return a value as text for a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        mark = KEPT if isinstance(value, KeptScore) else ""
        return f"{value:.4g}{mark}" if abs(value) < _LARGE else f"{value:.0f}{mark}"
    return str(value)
