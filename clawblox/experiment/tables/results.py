"""The results of an experiment: its rows as tables of text, CSV, JSON, or data frames.

``rows`` computes the rows. The files ``results.csv`` and ``agents.csv`` are derived from the
journal, so they may be removed at any time.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.columns import Column, format_lines
from clawblox.config.arguments import mismatch
from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.tables.chain_set import all_chains
from clawblox.experiment.tables.rows import AgentRow, Row, make_chain_rows
from clawblox.extras import require_extra
from clawblox.spelling import nearest_name
from clawblox.system.files import publish_bytes, publish_changed

ROWS_NAME: Final = "results.csv"
AGENTS_NAME: Final = "agents.csv"
_PREFIXES: Final = {"labels": "label", "scores": "score", "score_versions": "score_version"}
KEPT: Final = "*"
"""Mark of a score of another version of its function, and of a mean with such a score."""
KEPT_NOTE: Final = (
    f"{KEPT} scores of another version of their function; the CSV has the versions, and rescore"
    " computes them again"
)
"""Line below a table that explains the mark."""
_MEANS: Final = ("active_s", "turns", "output_tokens", "cost_usd")
"""Columns of which a table shows the mean, besides the scores."""
_COUNT: Final = "n"
_LARGE: Final = 1000.0
_TABLE: Final = {
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
_AGENTS_TABLE: Final = {
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
_HEADINGS: Final = {"display": "AGENT", "generation": "GEN"}
_SHORTEST: Final = 16
"""Width to which texts may be cut."""


class _KeptScore(float):
    """A score of another version of its function, or a mean with such scores."""


@attrs.frozen
class Results:
    """Results of an experiment at one moment.

    Args:
        rows: A row for each generation.
        agents: A row for each agent and generation.
    """

    _rows: Sequence[Row]
    _agents: Sequence[AgentRow]

    def rows(self) -> list[Row]:
        """Return a row for each generation that has begun, chain by chain."""
        return list(self._rows)

    def agents(self) -> list[AgentRow]:
        """Return a row for each agent and generation that has begun, chain by chain."""
        return list(self._agents)

    def table(
        self,
        *,
        by: str | None = None,
        mean: Sequence[str] | None = None,
        agents: bool = False,
        width: int | None = None,
    ) -> str:
        """Return a table as text.

        Args:
            by: A column, label or score. The table shows means of the complete generations that
                have the same value. None shows each generation, or, with ``mean``, the means of all
                complete generations. Where a label of the chain and a column have the same name,
                it is the label, except for agents, of which it is their own column.
            mean: Columns or scores to show the mean of; None means all scores and some columns.
            agents: Whether to return a table of agents: a row is an agent in a generation, and
                means are those of agents. Agents have no scores.
            width: Characters of a line: long texts are cut, then columns are left out. None shows
                everything.

        Raises:
            ConfigError: There is no such column, or it does not contain numbers.
        """
        columns, flat = self._flat(agents=agents)
        if not agents:
            for facts, row in zip(flat, self._rows, strict=True):
                facts |= {f"score.{name}": _KeptScore(row.scores[name]) for name in row.kept_scores}
        scores = [column for column in columns if column.startswith("score.")]
        if by is None and mean is None:
            ranks = _AGENTS_TABLE if agents else _TABLE
            return _format_table({**ranks, **dict.fromkeys(scores, 1)}, flat, width)
        key = None if by is None else _find_column(by, columns, "by", agents=agents)
        wanted = [*scores, *(column for column in _MEANS if column in columns)]
        if mean is not None:
            wanted = [_find_column(name, columns, "mean", agents=agents) for name in mean]
        rows = self._agents if agents else self._rows
        complete = [facts for facts, row in zip(flat, rows, strict=True) if row.is_over]
        keys = [_COUNT] if key is None else [key, _COUNT]
        others = [name for name in wanted if name not in keys]
        ranks = dict.fromkeys(keys, 0) | {name: _TABLE.get(name, 1) for name in others}
        return _format_table(ranks, _compute_means(complete, key, wanted), width)

    def has_kept(self, score: str) -> bool:
        """Return whether complete generations have a score of another version of its function.

        Args:
            score: Name of the score.
        """
        return any(row.is_over and score in row.kept_scores for row in self._rows)

    def series(self, score: str, *, by: str = "chain") -> dict[str, dict[int, list[float]]]:
        """Return a score of the complete generations, by line and generation, for pictures.

        Args:
            score: Name of the score, or of another column of numbers.
            by: The column or label whose values are the lines.

        Raises:
            ConfigError: There is no such column, or the score does not consist of numbers.
        """
        columns, flat = self._flat(agents=False)
        key, wanted = _find_column(by, columns, "by"), _find_column(score, columns, "score")
        lines: dict[str, dict[int, list[float]]] = {}
        for facts, row in zip(flat, self._rows, strict=True):
            if row.is_over and _is_number(facts.get(wanted), score, "score"):
                points = lines.setdefault(_format_cell(facts.get(key)), {})
                points.setdefault(row.generation, []).append(facts[wanted])
        return lines

    def to_csv(self, *, agents: bool = False) -> str:
        """Return the rows as CSV, whose columns are always in the same order.

        Labels have the columns ``label.NAME``, scores ``score.NAME``, and the versions of their
        functions ``score_version.NAME``.

        Args:
            agents: Whether to return the rows of the agents instead.
        """
        text = io.StringIO()
        columns, flat = self._flat(agents=agents)
        table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows({key: _csv_cell(cell) for key, cell in facts.items()} for facts in flat)
        return text.getvalue()

    def write_csv(self, path: str | Path, *, agents: bool = False) -> None:
        """Write the rows to a file, complete or not at all; see :meth:`to_csv`. Blocks.

        Args:
            path: The file.
            agents: Whether to write the rows of the agents instead.

        Raises:
            OSError: It cannot be written.
        """
        publish_bytes(path, _encode(self.to_csv(agents=agents)))

    def to_json(self) -> str:
        """Return all rows as a JSON object with the members ``rows`` and ``agents``."""
        plain = {
            "rows": [attrs.asdict(row) for row in self._rows],
            "agents": [attrs.asdict(row) for row in self._agents],
        }
        return json.dumps(plain, indent=2, default=dict)

    def dataframe(self, *, agents: bool = False) -> Any:  # noqa: ANN401 - a pandas.DataFrame
        """Return the rows as a data frame, with the columns of :meth:`to_csv`.

        Args:
            agents: Whether to return the rows of the agents instead.

        Raises:
            ModuleNotFoundError: pandas is not installed; the message has the command to do so.
        """
        require_extra("pandas", "Results.dataframe")
        columns, flat = self._flat(agents=agents)
        return importlib.import_module("pandas").DataFrame(flat, columns=columns)

    def _flat(self, *, agents: bool) -> tuple[list[str], list[dict[str, Any]]]:
        flat = [_flatten(row) for row in (self._agents if agents else self._rows)]
        return _union(flat, AgentRow if agents else Row), flat


def make_results(
    plan: Plan, state: ExperimentState, *, forked_from: CheckpointRef | None = None
) -> Results:
    """Return the results of an experiment.

    Args:
        plan: The plan in force.
        state: The state of the experiment.
        forked_from: Only the branches that began at this checkpoint; None for all chains.
    """
    chains = [
        chain
        for name, chain in all_chains(plan, state).items()
        if forked_from is None or _find_source(state, name) == forked_from
    ]
    return _join(make_chain_rows(plan, state, chain) for chain in chains)


def _find_source(state: ExperimentState, chain: str) -> CheckpointRef | None:
    branch = state.chain(chain).branch
    return None if branch is None else branch.source


async def collect_results(plan: Plan, state: ExperimentState) -> Results:
    """Return the results of an experiment; other tasks of the event loop run between two chains.

    Args:
        plan: The plan in force.
        state: The state of the experiment.

    Cancellation: between two chains.
    """
    parts = []
    for chain in all_chains(plan, state).values():
        parts.append(make_chain_rows(plan, state, chain))
        await anyio.lowlevel.checkpoint()
    return _join(parts)


def _join(chains: Iterable[tuple[list[Row], list[AgentRow]]]) -> Results:
    rows: list[Row] = []
    agents: list[AgentRow] = []
    for of_generations, of_agents in chains:
        rows += of_generations
        agents += of_agents
    return Results(rows, agents)


def write_results(directory: Path, results: Results) -> None:
    """Write the tables in the directory of an experiment, where they differ. Blocks.

    Args:
        directory: The directory.
        results: All results.

    Raises:
        OSError: A table cannot be written; it has its old content.
    """
    for name, agents in ((ROWS_NAME, False), (AGENTS_NAME, True)):
        content = _encode(results.to_csv(agents=agents))
        publish_changed(directory / name, content, durable=False)


def _encode(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


# -- flat rows ----------------------------------------------------------------------------------


def _flatten(row: Row | AgentRow) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in attrs.asdict(row, recurse=False).items():
        if name in _PREFIXES:
            flat |= {f"{_PREFIXES[name]}.{key}": value[key] for key in value}
        else:
            flat[name] = " ".join(value) if isinstance(value, tuple) else value
    return flat


def _union(flat: Iterable[Mapping[str, Any]], kind: type[Row] | type[AgentRow]) -> list[str]:
    """Return the columns of rows: the fields in their order, labels and scores by name."""
    keys = sorted({key for facts in flat for key in facts})
    columns: list[str] = []
    for field in attrs.fields(kind):
        if field.name in _PREFIXES:
            columns += [key for key in keys if key.startswith(f"{_PREFIXES[field.name]}.")]
        else:
            columns.append(field.name)
    return columns


def _csv_cell(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _find_column(name: str, columns: Sequence[str], argument: str, *, agents: bool = False) -> str:
    """Return the column that a caller means: a score, a label, or another column, in this order.

    Args:
        name: The name that the caller has given.
        columns: The columns that there are.
        argument: The argument of the caller.
        agents: Whether the rows are agents, whose own columns precede the labels of their chains.
    """
    spellings = [f"score.{name}", f"label.{name}", name]
    for column in reversed(spellings) if agents else spellings:
        if column in columns:
            return column
    known = list(map(_strip, columns))
    nearest = nearest_name(name, known)
    hint = f"the columns are {', '.join(known)}" if nearest is None else f"did you mean {nearest}?"
    raise mismatch(argument, "a column", name, hint=hint)


def _strip(column: str) -> str:
    return column.removeprefix("score.").removeprefix("label.")


# -- tables of text -----------------------------------------------------------------------------


def _compute_means(
    flat: Iterable[Mapping[str, Any]], key: str | None, wanted: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a row for each value of a column: the value, a count, and means.

    Args:
        flat: The rows.
        key: The column; None makes a single row of them.
        wanted: The columns to compute the means of; values that are missing do not count.
    """
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for facts in flat:
        groups.setdefault(facts.get(key) if key is not None else None, []).append(facts)
    return [
        {
            **({} if key is None else {key: value}),
            _COUNT: len(group),
            **{column: _mean([facts.get(column) for facts in group], column) for column in wanted},
        }
        for value, group in groups.items()
    ]


def _mean(values: Iterable[Any], column: str) -> float | None:
    present = [value for value in values if _is_number(value, column, "mean")]
    if not present:
        return None
    is_kept = any(isinstance(value, _KeptScore) for value in present)
    return (_KeptScore if is_kept else float)(statistics.fmean(present))


def _is_number(value: object, column: str, argument: str) -> bool:
    """Return whether there is a value, which must be a number."""
    if not isinstance(value, int | float | None):
        raise mismatch(argument, "a column of numbers", column)
    return value is not None


def _format_table(
    ranks: Mapping[str, int], flat: Sequence[Mapping[str, Any]], width: int | None
) -> str:
    """Return a table.

    Args:
        ranks: The names of the columns, each with its rank.
        flat: The rows.
        width: Characters of a line; None has no limit.
    """
    columns = [_make_column(name, rank, flat) for name, rank in ranks.items()]
    is_marked = any(isinstance(facts.get(name), _KeptScore) for facts in flat for name in ranks)
    return "\n".join([*format_lines(columns, width), *([KEPT_NOTE] if is_marked else [])])


def _make_column(name: str, rank: int, flat: Sequence[Mapping[str, Any]]) -> Column:
    values = [facts.get(name) for facts in flat]
    is_number = all(map(_is_numeric, values))
    return Column(
        _HEADINGS.get(name, _strip(name).upper().replace("_", " ")),
        [_format_cell(value) for value in values],
        rank,
        shortest=None if is_number else _SHORTEST,
        cut="middle",
        is_number=is_number,
    )


def _is_numeric(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _format_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        mark = KEPT if isinstance(value, _KeptScore) else ""
        return f"{value:.4g}{mark}" if abs(value) < _LARGE else f"{value:.0f}{mark}"
    return str(value)
