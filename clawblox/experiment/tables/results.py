"""The results of an experiment: its rows as text tables, CSV, JSON or data frames.

``rows`` computes the rows. The files ``results.csv`` and ``agents.csv`` are derived from the
journal, so they may be removed at any time.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import attrs

from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.tables.flat_rows import (
    LABEL,
    SCORE,
    csv_cell,
    find_column,
    flatten,
    is_number,
    mark_kept,
    strip,
    union,
)
from clawblox.experiment.tables.groups import (
    PROMPT,
    ChainKey,
    FlatRows,
    GroupDifference,
    GroupSummary,
    compare_branches,
    group_rows,
    summarise,
)
from clawblox.experiment.tables.rows import AgentRow, Row, make_chain_rows
from clawblox.experiment.tables.text_tables import (
    NO_PAIRS,
    format_cell,
    format_differences,
    format_groups,
    format_rows,
)
from clawblox.extras import require_extra
from clawblox.system.files import publish_bytes, publish_changed

ROWS_NAME: Final = "results.csv"
AGENTS_NAME: Final = "agents.csv"
MEANS: Final = ("active_s", "turns", "output_tokens", "cost_usd")
"""Columns whose means a table shows, besides the scores."""

Series: TypeAlias = Mapping[str, Mapping[int, float]]
"""Values by chain and generation."""

By: TypeAlias = str | Sequence[str]
"""The name of a column, or the names of several."""


@attrs.frozen
class Results:
    """Results of an experiment at one moment.

    Args:
        rows: A row for each generation.
        agents: A row for each agent and generation.
        branches: The branches among the chains.
    """

    _rows: Sequence[Row]
    _agents: Sequence[AgentRow]
    _branches: Mapping[ChainKey, Branch] = attrs.field(factory=dict)

    def rows(self) -> list[Row]:
        """Return a row for each started generation, chain by chain."""
        return list(self._rows)

    def agents(self) -> list[AgentRow]:
        """Return a row for each agent of each started generation, chain by chain."""
        return list(self._agents)

    def table(
        self,
        *,
        by: By | None = None,
        mean: Sequence[str] | None = None,
        agents: bool = False,
        width: int | None = None,
    ) -> str:
        """Return a table as text.

        Args:
            by: Columns, labels or scores to group by. Complete generations with the same values
                share a row with their number and means. None shows each generation, or, with
                ``mean``, all complete generations in one row. If a label of the chain and a column
                have the same name, the label is used, except for agents, whose own column is used.
                With the label ``prompt``, a second table compares branches with the control
                branches of the same checkpoint; see :meth:`differences`.
            mean: Columns or scores whose means are shown; None means all scores and some columns.
                Scores and explicitly given columns also have the standard error of the mean and the
                median; see :meth:`summary`.
            agents: Whether to return a table of agents, with one row per agent and generation, and
                means over agents. Agents have no scores.
            width: Characters per line; long texts are truncated, then columns are omitted. None
                shows everything.

        Raises:
            ConfigError: There is no such column, or it does not contain numbers.
        """
        columns, flat = self._flat(agents=agents)
        scores = [column for column in columns if column.startswith(SCORE)]
        if by is None and mean is None:
            labels = [column for column in columns if column.startswith(LABEL)]
            return format_rows(flat, labels, scores, width, agents=agents)
        keys = _find_columns(by or (), columns, agents=agents)
        wanted = dict.fromkeys(scores, True) | {name: False for name in MEANS if name in columns}
        if mean is not None:
            wanted = {find_column(name, columns, "mean", agents=agents): True for name in mean}
        complete = self._complete(flat, agents=agents)
        table = format_groups(complete, keys, wanted, width)
        compared = [name for name, is_full in wanted.items() if is_full]
        found = [] if agents else self._compare(complete, keys, compared)
        if found:
            return f"{table}\n\n{format_differences(found, width)}"
        are_branches = any(branch.prompt is not None for branch in self._branches.values())
        is_lacking = are_branches and compared and PROMPT in keys and not agents
        return f"{table}\n\n{NO_PAIRS}" if is_lacking else table

    def summary(self, column: str, *, by: By = (), agents: bool = False) -> list[GroupSummary]:
        """Return the estimates of a column in groups of the complete generations.

        Args:
            column: A score, or another column of numbers.
            by: The columns or labels that define the groups; none makes a single group.
            agents: Whether to summarise the rows of the agents instead.

        Raises:
            ConfigError: There is no such column, or it does not contain numbers.
        """
        columns, flat = self._flat(agents=agents)
        keys = _find_columns(by, columns, agents=agents)
        wanted = find_column(column, columns, "column", agents=agents)
        summaries = []
        for values, rows in group_rows(self._complete(flat, agents=agents), keys).items():
            found, has_kept = summarise(rows, wanted)
            group = dict(zip(map(strip, keys), values, strict=True))
            summaries.append(GroupSummary(by=group, estimate=found, has_kept=has_kept))
        return summaries

    def differences(self, column: str, *, by: By = ("prompt",)) -> list[GroupDifference]:
        """Return how branches differ from the control branches of the same checkpoint, in pairs.

        A control is a branch without its own message. Pairs are of the same generation; for
        branches with several generations, a pair has the means over the generations that both have.

        Args:
            column: A score, or another column of numbers.
            by: The columns or labels whose values are equal within a pair; also ``prompt``, in
                which they differ.

        Returns:
            A difference for each group and message; empty without complete branches and controls.

        Raises:
            ConfigError: There is no such column, or it does not contain numbers.
        """
        columns, flat = self._flat(agents=False)
        if PROMPT not in columns:
            return []
        wanted = find_column(column, columns, "column")
        keys = _find_columns(by, columns)
        return self._compare(self._complete(flat, agents=False), keys, [wanted])

    def has_kept(self, score: str) -> bool:
        """Return whether complete generations have a score of another version of its function.

        Args:
            score: Name of the score.
        """
        return any(row.is_over and score in row.kept_scores for row in self._rows)

    def series(self, score: str, *, by: By = "chain") -> dict[str, Series]:
        """Return a score of the complete generations, by group, for plots.

        Args:
            score: Name of the score, or of another column of numbers.
            by: The columns or labels that define the groups.

        Raises:
            ConfigError: There is no such column, or the score does not consist of numbers.
        """
        columns, flat = self._flat(agents=False)
        keys, wanted = _find_columns(by, columns), find_column(score, columns, "score")
        groups: dict[str, dict[str, dict[int, float]]] = {}
        is_joined = len({row.experiment for row in self._rows}) > 1
        names = ("experiment", "chain") if is_joined else ("chain",)
        for values, rows in group_rows(self._complete(flat, agents=False), keys).items():
            lines = groups.setdefault(" · ".join(map(format_cell, values)), {})
            for facts in rows:
                if is_number(facts.get(wanted), score, "score"):
                    name = " ".join(facts[column] for column in names)
                    lines.setdefault(name, {})[facts["generation"]] = facts[wanted]
        return {name: lines for name, lines in groups.items() if lines}

    def conditions(self) -> list[str]:
        """Return the names of the labels in which chains differ, for plots."""
        columns, flat = self._flat(agents=False)
        labels = [column for column in columns if column.startswith(LABEL)]
        return [strip(name) for name in labels if len({repr(row.get(name)) for row in flat}) > 1]

    def to_csv(self, *, agents: bool = False) -> str:
        """Return the rows as CSV with a fixed order of columns.

        Labels have the columns ``label.NAME``, scores ``score.NAME``, and the versions of their
        functions ``score_version.NAME``.

        Args:
            agents: Whether to return the rows of the agents instead.
        """
        text = io.StringIO()
        columns, flat = self._flat(agents=agents)
        table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows({key: csv_cell(cell) for key, cell in facts.items()} for facts in flat)
        return text.getvalue()

    def write_csv(self, path: str | Path, *, agents: bool = False) -> None:
        """Write the rows to a file, atomically; see :meth:`to_csv`. Blocks.

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
            ModuleNotFoundError: pandas is not installed; the message has the command to install it.
        """
        require_extra("pandas", "Results.dataframe")
        columns, flat = self._flat(agents=agents)
        return importlib.import_module("pandas").DataFrame(flat, columns=columns)

    def _flat(self, *, agents: bool) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the columns of the rows, and the rows with kept scores marked."""
        flat = [flatten(row) for row in (self._agents if agents else self._rows)]
        if not agents:
            for facts, row in zip(flat, self._rows, strict=True):
                mark_kept(facts, row)
        return union(flat, AgentRow if agents else Row), flat

    def _complete(self, flat: FlatRows, *, agents: bool) -> FlatRows:
        rows = self._agents if agents else self._rows
        return [facts for facts, row in zip(flat, rows, strict=True) if row.is_over]

    def _compare(
        self, complete: FlatRows, keys: Sequence[str], wanted: Iterable[str]
    ) -> list[GroupDifference]:
        if PROMPT not in keys:
            return []
        return [
            difference
            for column in wanted
            for difference in compare_branches(complete, self._branches, keys, column)
        ]


def _find_columns(by: By, columns: Sequence[str], *, agents: bool = False) -> list[str]:
    """Return the distinct columns by which rows are grouped."""
    names = [by] if isinstance(by, str) else by
    return list(dict.fromkeys(find_column(name, columns, "by", agents=agents) for name in names))


def make_results(plans: Plans, *, forked_from: CheckpointRef | None = None) -> Results:
    """Return the results of an experiment.

    Args:
        plans: The plans of the experiment.
        forked_from: Only the branches that started from this checkpoint; None for all chains.
    """
    sources = {name: branch.source for name, branch in plans.state.branches.items()}
    chains = [
        chain
        for name, chain in plans.chains.items()
        if forked_from is None or forked_from == sources.get(name)
    ]
    return _gather(plans, (make_chain_rows(plans, chain) for chain in chains))


def join_results(parts: Mapping[str, Results]) -> Results:
    """Return the results of several experiments as those of one.

    Args:
        parts: The results by the experiment name to use in their rows.
    """
    rows: list[Row] = []
    agents: list[AgentRow] = []
    branches: dict[ChainKey, Branch] = {}
    for name, part in parts.items():
        rows += (attrs.evolve(row, experiment=name) for row in part._rows)
        agents += (attrs.evolve(row, experiment=name) for row in part._agents)
        branches |= {(name, chain): branch for (_, chain), branch in part._branches.items()}
    return Results(rows, agents, branches)


async def collect_results(plans: Plans) -> Results:
    """Return the results of an experiment, yielding to other tasks between chains.

    Args:
        plans: The plans of the experiment.

    Cancellation: takes effect between two chains.
    """
    parts = []
    for chain in plans.chains.values():
        parts.append(make_chain_rows(plans, chain))
        await anyio.lowlevel.checkpoint()
    return _gather(plans, parts)


def _gather(plans: Plans, chains: Iterable[tuple[list[Row], list[AgentRow]]]) -> Results:
    rows: list[Row] = []
    agents: list[AgentRow] = []
    for of_generations, of_agents in chains:
        rows += of_generations
        agents += of_agents
    name = plans.present.name
    branches = {(name, chain): branch for chain, branch in plans.state.branches.items()}
    return Results(rows, agents, branches)


def write_results(directory: Path, results: Results) -> None:
    """Write changed tables in the directory of an experiment. Blocks.

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
