"""Preview of a fork of an experiment, as text and as JSON values. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from clawblox.errors.general import shorten
from clawblox.experiment.history.checkpoints import Branch
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.running.forking import ForkRequest
from clawblox.experiment.tables.status import ExperimentStatus
from clawblox.printable import printable
from clawblox.views.formatting import count_words, format_cost, format_rough_seconds

_MAX_BRANCHES = 100
_MAX_PROMPT_CHARS = 60


@attrs.frozen(kw_only=True)
class ForkPreview:
    """A planned fork that has not been made.

    Attributes:
        fork: The fork.
        branches: Its branches, with their names.
        chain: The chain of its checkpoint.
        status: The status of the experiment.
        source_usd: Cost of the generation of the checkpoint in US dollars; None if unknown.
    """

    fork: ForkRequest
    branches: Sequence[tuple[str, Branch]]
    chain: Chain
    status: ExperimentStatus
    source_usd: float | None

    @property
    def active_s(self) -> float:
        """Active time of each branch over all its generations, in seconds."""
        first = self.fork.duration
        later = self.chain.plan.duration if first is None else first
        if first is None:
            first = max(0.0, self.chain.plan.duration - self.fork.source.active_s)
        return first + (self.fork.generations - 1) * later

    @property
    def at_a_time(self) -> int:
        """Maximum number of branches that run at the same time."""
        limits, agents = self.chain.plan.limits, len(self.chain.plan.agents)
        slots = limits.worlds if limits.agents is None else limits.agents // agents
        return min(len(self.branches), slots, limits.worlds, self.fork.parallel or slots)

    @property
    def forecast_s(self) -> float:
        """Minimum time for all branches, in seconds."""
        return math.ceil(len(self.branches) / self.at_a_time) * self.active_s

    def facts(self) -> dict[str, Any]:
        """Return the preview as JSON values."""
        return {
            "source": attrs.asdict(self.fork.source.ref),
            "elapsed_s": self.fork.source.active_s,
            "branches": [
                {
                    "name": name,
                    "label": branch.label,
                    "prompt": branch.prompt,
                    "reseed": branch.reseed,
                    "generations": branch.generations,
                    "active_s": self.active_s,
                }
                for name, branch in self.branches
            ],
            "at_a_time": self.at_a_time,
            "forecast_s": self.forecast_s,
            "spent_usd": self.status.spent_usd,
            "limit_usd": self.status.limit_usd,
            "source_usd": self.source_usd,
            "pid": self.status.pid,
        }


def describe_fork(preview: ForkPreview) -> list[str]:
    """Describe the branches that a fork would make, as lines of text."""
    return [printable(line) for line in _describe(preview)]


def _describe(preview: ForkPreview) -> Iterator[str]:
    source, count = preview.fork.source, len(preview.branches)
    place = f"{source.ref.chain}/g{source.ref.generation:03d}"
    branches = "1 branch" if count == 1 else f"{count} branches"
    yield (
        f"{branches} of {place} after {format_rough_seconds(source.active_s)} of its time"
        f" ({source.ref.file})."
    )
    yield (
        f"Each: {count_words(preview.fork.generations, 'generation')},"
        f" {format_rough_seconds(preview.active_s)}. {preview.at_a_time} at a time: at least"
        f" {format_rough_seconds(preview.forecast_s)}."
    )
    yield " ".join(_describe_money(preview))
    if preview.status.pid is not None:
        yield f"The process {preview.status.pid}, which runs the experiment, would run them."
    yield ""
    yield from _describe_branches(preview)


def _describe_money(preview: ForkPreview) -> Iterator[str]:
    status, cost = preview.status, preview.source_usd
    limit = "" if status.limit_usd is None else f" of ${status.limit_usd:g}"
    spent = "an unknown sum" if status.spent_usd is None else format_cost(status.spent_usd)
    yield f"The experiment has spent {spent or '$0'}{limit}."
    if cost is None:
        yield "The cost of the checkpoint's generation is unknown."
    else:
        yield f"The generation of the checkpoint has cost {format_cost(cost) or '$0'} so far."


def _describe_branches(preview: ForkPreview) -> Iterator[str]:
    shown = preview.branches[:_MAX_BRANCHES]
    width = max(len(name) for name, _ in shown)
    for name, branch in shown:
        seed = "" if branch.reseed is None else f"seed {branch.reseed}, "
        message = "" if branch.prompt is None else f": {' '.join(branch.prompt.split())}"
        yield f"{name:{width}}  {seed}{shorten(f'{branch.label}{message}', _MAX_PROMPT_CHARS)}"
    if hidden := len(preview.branches) - len(shown):
        yield f"… and {hidden} more (--json has all)"
