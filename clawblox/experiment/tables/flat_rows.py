"""Rows as flat mappings: a column for each field, label and score. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import attrs

from clawblox.config.arguments import mismatch
from clawblox.experiment.tables.rows import AgentRow, Row
from clawblox.spelling import suggest_nearest

LABEL: Final = "label."
"""Precedes the name of a label in the name of its column."""
SCORE: Final = "score."
"""Precedes the name of a score in the name of its column."""
_PREFIXES: Final = {"labels": LABEL, "scores": SCORE, "score_versions": "score_version."}


class KeptScore(float):
    """A score of another version of its function, or a mean that includes such scores."""


def flatten(row: Row | AgentRow) -> dict[str, Any]:
    """Return the values of a row by column name."""
    flat: dict[str, Any] = {}
    for name, value in attrs.asdict(row, recurse=False).items():
        if name in _PREFIXES:
            flat |= {f"{_PREFIXES[name]}{key}": value[key] for key in value}
        else:
            flat[name] = " ".join(value) if isinstance(value, tuple) else value
    return flat


def mark_kept(facts: dict[str, Any], row: Row) -> None:
    """Mark the scores of a flat row that are of another version of their function."""
    facts |= {f"{SCORE}{name}": KeptScore(row.scores[name]) for name in row.kept_scores}


def union(flat: Iterable[Mapping[str, Any]], kind: type[Row] | type[AgentRow]) -> list[str]:
    """Return the columns of rows: the fields in their order, labels and scores by name."""
    keys = sorted({key for facts in flat for key in facts})
    columns: list[str] = []
    for field in attrs.fields(kind):
        if field.name in _PREFIXES:
            columns += [key for key in keys if key.startswith(_PREFIXES[field.name])]
        else:
            columns.append(field.name)
    return columns


def csv_cell(value: object) -> object:
    """Return a value in the form of a CSV file."""
    return str(value).lower() if isinstance(value, bool) else value


def find_column(name: str, columns: Sequence[str], argument: str, *, agents: bool = False) -> str:
    """Return the column for a name: a score, a label, or another column, in this order.

    Args:
        name: The name given by the caller.
        columns: The existing columns.
        argument: The argument of the caller.
        agents: Whether the rows are agents, whose own columns precede the labels of their chains.

    Raises:
        ConfigError: There is no such column.
    """
    spellings = [f"{SCORE}{name}", f"{LABEL}{name}", name]
    for column in reversed(spellings) if agents else spellings:
        if column in columns:
            return column
    known = list(map(strip, columns))
    hint = suggest_nearest(name, known) or f"the columns are {', '.join(known)}"
    raise mismatch(argument, "a column", name, hint=hint)


def strip(column: str) -> str:
    """Return the name of a column without its prefix."""
    return column.removeprefix(SCORE).removeprefix(LABEL)


def is_number(value: object, column: str, argument: str) -> TypeGuard[float]:
    """Return whether there is a value, which must be a number.

    Raises:
        ConfigError: The value is not a number.
    """
    if not isinstance(value, int | float | None):
        raise mismatch(argument, "a column of numbers", strip(column))
    return value is not None
