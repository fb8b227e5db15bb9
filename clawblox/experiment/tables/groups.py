"""Rows in groups: the estimates of each group, and branches compared with their controls. Pure.

A control is a branch that continues undisturbed, without its own message. Only branches of the same
checkpoint are compared, since they share its world and its agents' conversations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.plan.naming import BRANCH_LABEL
from clawblox.experiment.tables.estimates import Estimate, estimate, find_interval
from clawblox.experiment.tables.flat_rows import LABEL, KeptScore, is_number, strip

PROMPT: Final = f"{LABEL}{BRANCH_LABEL}"
"""The column that distinguishes the branches of a checkpoint."""
FlatRows: TypeAlias = Sequence[Mapping[str, Any]]
ChainKey: TypeAlias = tuple[str, str]
"""The experiment of a chain, and its name."""
_Values: TypeAlias = Mapping[int, float]
"""Values of a branch by generation."""


@attrs.frozen(kw_only=True)
class GroupSummary:
    """The summary of a column in a group of complete generations, or of their agents.

    Attributes:
        by: The common values of the group, by column name.
        estimate: The summary of the column; missing values do not count.
        has_kept: Whether some of its values are scores of another version of their function.
    """

    by: Mapping[str, Any]
    estimate: Estimate
    has_kept: bool = False


@attrs.frozen(kw_only=True)
class GroupDifference:
    """Difference between branches with a message and control branches of the same checkpoint.

    Attributes:
        by: The common values of the branches, by column name, including the ``prompt``.
        column: The compared column.
        unit: The kind of pairs. ``checkpoint``: the mean of a checkpoint's branches with the
            message and the mean of its control branches. ``branch``, for branches of a single
            checkpoint: the first branch with the message and the first control, then the second,
            and so on.
        control: The mean of the controls in the pairs.
        estimate: The summary of the differences; ``n`` is the number of pairs.
        interval: Ends of the 95% confidence interval of the mean difference, by the t distribution;
            None for fewer than two pairs.
    """

    by: Mapping[str, Any]
    column: str
    unit: Literal["checkpoint", "branch"]
    control: float | None
    estimate: Estimate
    interval: tuple[float, float] | None


def group_rows(flat: FlatRows, keys: Sequence[str]) -> dict[tuple[Any, ...], FlatRows]:
    """Return rows grouped by their values in some columns, in the order of first occurrence."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for facts in flat:
        groups.setdefault(tuple(facts.get(key) for key in keys), []).append(facts)
    return dict(groups)


def summarise(rows: FlatRows, column: str) -> tuple[Estimate, bool]:
    """Return the summary of a column, and whether it includes scores of another version.

    Raises:
        ConfigError: The column does not contain numbers.
    """
    present = [facts.get(column) for facts in rows]
    values = [value for value in present if is_number(value, column, "mean")]
    return estimate(values), any(isinstance(value, KeptScore) for value in values)


# -- branches and their controls -----------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Pair:
    control: float
    treated: float


def compare_branches(
    flat: FlatRows, branches: Mapping[ChainKey, Branch], keys: Sequence[str], column: str
) -> Iterator[GroupDifference]:
    """Yield the differences of branches from the controls of the same checkpoint, by message.

    Args:
        flat: The rows of complete generations.
        branches: The branches.
        keys: The columns whose values are equal within a pair, with :data:`PROMPT`.
        column: The column to compare.

    Raises:
        ConfigError: The column does not contain numbers.
    """
    shared = [key for key in keys if key != PROMPT]
    for values, rows in group_rows(flat, shared).items():
        by_label = _collect(rows, branches, column)
        common = {strip(key): value for key, value in zip(shared, values, strict=True)}
        controls = by_label.pop(None, {})
        for label, treated in by_label.items():
            pairs, unit = _find_pairs(controls, treated)
            if not pairs:
                continue
            found = estimate([pair.treated - pair.control for pair in pairs])
            yield GroupDifference(
                by={**common, strip(PROMPT): label},
                column=strip(column),
                unit=unit,
                control=estimate([pair.control for pair in pairs]).mean,
                estimate=found,
                interval=find_interval(found),
            )


_Origins: TypeAlias = dict[CheckpointRef, dict[ChainKey, dict[int, float]]]
"""Values by checkpoint, branch and generation."""


def _collect(
    rows: FlatRows, branches: Mapping[ChainKey, Branch], column: str
) -> dict[str | None, _Origins]:
    """Return the values of branches by the label of their message; None for controls."""
    found: dict[str | None, _Origins] = {}
    for facts in rows:
        key = (facts["experiment"], facts["chain"])
        branch, value = branches.get(key), facts.get(column)
        if branch is not None and is_number(value, column, "column"):
            origins = found.setdefault(None if branch.prompt is None else branch.label, {})
            of_branch = origins.setdefault(branch.source, {}).setdefault(key, {})
            of_branch[facts["generation"]] = value
    order = {name: (branch.group, branch.number) for name, branch in branches.items()}
    for origins in found.values():
        for source, values in origins.items():
            origins[source] = dict(sorted(values.items(), key=lambda item: order[item[0]]))
    return found


def _find_pairs(
    controls: _Origins, treated: _Origins
) -> tuple[list[_Pair], Literal["checkpoint", "branch"]]:
    """Return the pairs: one for each checkpoint, or those of a single checkpoint's branches."""
    sources = [source for source in treated if source in controls]
    if len(sources) == 1:
        (source,) = sources
        both = zip(controls[source].values(), treated[source].values(), strict=False)
        return [pair for one, other in both for pair in _pair([one], [other])], "branch"
    pairs = [(controls[source].values(), treated[source].values()) for source in sources]
    return [pair for some, others in pairs for pair in _pair(some, others)], "checkpoint"


def _pair(controls: Iterable[_Values], treated: Iterable[_Values]) -> Iterator[_Pair]:
    """Yield the means over the generations that both sides have, if there are any."""
    ours, theirs = _by_generation(controls), _by_generation(treated)
    common = ours.keys() & theirs.keys()
    if common:
        yield _Pair(
            control=fmean(fmean(ours[number]) for number in common),
            treated=fmean(fmean(theirs[number]) for number in common),
        )


def _by_generation(branches: Iterable[_Values]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for values in branches:
        for number, value in values.items():
            found.setdefault(number, []).append(value)
    return found
