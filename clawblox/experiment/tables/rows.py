"""Generations, and agents in generations, as table rows computed from the journal. Pure.

``results`` presents them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from clawblox.agents.values import TOKEN_KINDS, Usage, sum_usage
from clawblox.experiment import layout
from clawblox.experiment.history.checkpoints import CheckpointRef
from clawblox.experiment.history.lines import read_usage
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.scores import Scores, is_same_version
from clawblox.experiment.history.state import (
    AttemptState,
    ChainState,
    ExperimentState,
    GenerationState,
)
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.spending import Cost, compute_cost, sum_costs
from clawblox.results import Labels
from clawblox.system.clock import parse_utc

_STATES: Final = {
    "opened": "preparing",
    "prepared": "starting",
    "working": "working",
    "closing": "saving",
    "saved": "scoring",
    "scored": "scoring",
}
_T = TypeVar("_T")
_PHASES: Final = {"work": "working", "save": "saving", "score": "scoring"}


@attrs.frozen(kw_only=True)
class CommonFacts:
    """The facts that the row of a generation and the row of an agent in it share.

    Tokens, turns and cost are those of the committed history: the committed attempt, and the
    attempts that it continued. ``spent_tokens`` and ``spent_usd`` also include lost attempts. All
    paths are relative to the directory of the experiment.

    Attributes:
        experiment: Name of the experiment; its directory if several experiments are joined.
        chain: Name of the chain.
        repeat: Number of its repeat or seed within its condition, from 1.
        seed: Seed of its worlds, or None.
        labels: Labels of the plan, the swept values, and the ``prompt`` of a branch.
        generation: Number of the generation, from 1.
        status: ``committed``, ``imported``, ``failed``, ``paused``, ``interrupted``, or the step of
            a running attempt: ``preparing``, ``starting``, ``working``, ``saving``, ``scoring``.
        turns: Number of turns, including answers to the save prompt, which no ``budget`` counts.
        input_tokens: Uncached prompt tokens. All tokens are None if a program has not reported the
            tokens of any turn.
        cached_tokens: Prompt tokens read from a cache.
        cache_write_tokens: Prompt tokens written to a cache.
        output_tokens: Answer tokens, reasoning included.
        reasoning_tokens: Reasoning tokens among the answer tokens.
        cost_usd: Cost in US dollars; None if any part is unknown.
        is_estimated: Whether part of the cost is computed from the prices of the plan.
        missing_costs: Number of times that a program was killed, so the cost of up to one turn may
            be missing from ``cost_usd``.
        spent_tokens: Tokens of all kinds in all ended attempts; None if unknown.
        spent_usd: Cost of all ended attempts; None if any part is unknown.
    """

    experiment: str
    chain: str
    repeat: int
    seed: int | None
    labels: Labels
    generation: int
    status: str
    turns: int
    input_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    is_estimated: bool
    missing_costs: int
    spent_tokens: int | None
    spent_usd: float | None

    @property
    def is_over(self) -> bool:
        """True if the generation is complete."""
        return self.status in ("committed", "imported")


@attrs.frozen(kw_only=True)
class Row(CommonFacts):
    """A generation of a chain: the facts of :class:`CommonFacts` for all its agents, and its own.

    Attributes:
        attempts: Number of its attempts.
        ended_by: Why it was closed, such as ``duration`` or ``budget``; empty before.
        started_at: UTC time at which its first attempt started; None if unknown.
        ended_at: UTC time at which its latest attempt ended; None before.
        active_s: Seconds in which world and agents worked.
        idle_s: Additional seconds in which all agents were waiting for their providers.
        paused_s: Seconds between pauses and the next attempts.
        world_time: Simulation time at the end; None if the world has none.
        scores: The scores, by name.
        score_versions: The version of the function that computed each score, by score name:
            ``scores:points@`` and the digest of its source; empty if not recorded.
        kept_scores: Names of the scores kept from another version of their function because the
            latest version has not computed them for this generation.
        error: Why the latest attempt failed or paused, or why a score could not be computed; else
            empty.
        script_errors: Latest number of script errors reported by the world of the latest attempt;
            None if it never reported any.
        last_script_error: Text of the latest script error, or empty.
        checkpoint: The archive of the end, else the latest archive, or empty.
        forked_from: The archive from which the chain started; empty for a chain of the plan.
        branch: Short name of the branch's first message; empty for a chain of the plan.
        mid_turn: Display names of agents that were in the middle of a turn in the archive from
            which the latest attempt continued.
        plan_revision: Revision of the plan of the latest attempt.
        run_dir: Run directory with the results, or that of the latest attempt, or empty.
        node: Node of a cluster that ran the latest attempt; empty for the experiment's machine.
        differs: Known differences between the machines on which the generation ran; empty if there
            are none.
    """

    attempts: int
    ended_by: str
    started_at: str | None
    ended_at: str | None
    active_s: float
    idle_s: float
    paused_s: float
    world_time: float | None
    scores: Mapping[str, float]
    score_versions: Mapping[str, str]
    kept_scores: tuple[str, ...]
    error: str
    script_errors: int | None
    last_script_error: str
    checkpoint: str
    forked_from: str
    branch: str
    mid_turn: tuple[str, ...]
    plan_revision: int
    run_dir: str
    node: str
    differs: str


@attrs.frozen(kw_only=True)
class AgentRow(CommonFacts):
    """An agent in a generation of a chain: the facts of :class:`CommonFacts`, and its own.

    Attributes:
        index: Index of the agent in its world, from 0.
        name: Its full name; empty before it has one.
        display: Its display name.
        driver: Driver of its program.
        model: Its model; None leaves the choice to the program.
        program_version: Version of its program; None if unknown.
        workspace_out: Its workspace at the end; empty before.
    """

    index: int
    name: str
    display: str
    driver: str
    model: str | None
    program_version: str | None
    workspace_out: str


def make_chain_rows(plans: Plans, chain: Chain) -> tuple[list[Row], list[AgentRow]]:
    """Return the rows of a chain, its generations in order.

    Args:
        plans: The plans of the experiment.
        chain: The chain.
    """
    begun = plans.state.chain(chain.name).generations.values()
    records = [_Record(plans, chain, generation) for generation in begun]
    agents = [row for record in records for row in record.agents()]
    return [record.row() for record in records], agents


def make_row(plans: Plans, chain: str, generation: int) -> Row:
    """Return the row of a generation.

    Args:
        plans: The plans of the experiment.
        chain: Name of the chain.
        generation: Number of the started generation.
    """
    begun = plans.state.chain(chain).generations[generation]
    return _Record(plans, plans.chains[chain], begun).row()


def describe_attempt(attempt: AttemptState) -> str:
    """Return how an attempt ended, or its step while it runs; see :class:`Row`."""
    if attempt.outcome is not None:
        return attempt.outcome
    return _PHASES[attempt.phase] if attempt.step == "working" else _STATES[attempt.step]


def committed_usage(generation: GenerationState) -> tuple[Usage, ...]:
    """Return the usage of each agent in the committed history of a generation; may be empty."""
    if (committed := generation.committed) is not None:
        return read_usage(committed.end_data.get("used"))
    latest = generation.latest_checkpoint
    return () if latest is None or generation.imported is not None else latest.usage


def find_world_time(generation: GenerationState) -> float | None:
    """Return the simulation time at its end or latest checkpoint; None if unknown."""
    attempt, point = generation.latest_attempt, generation.latest_checkpoint
    if generation.imported is not None or attempt is None:
        return None
    if attempt.scores is None and generation.committed is None:
        return None if point is None else point.world_time
    # Lost attempts may have reached a later time.
    origins = (p.world_time for p in generation.checkpoints() if p.ref == attempt.origin)
    times = (attempt.end_data.get("world_time"), attempt.world_time, *origins)
    return next((time for time in times if time is not None), None)


def find_kept(state: ExperimentState, scores: Scores) -> tuple[str, ...]:
    """Return the names of scores that the latest version of their function has not computed."""
    return tuple(
        name
        for name, version in scores.versions.items()
        if not is_same_version(version, state.score_versions[name])
    )


# -- one generation -----------------------------------------------------------------------------


@attrs.frozen(slots=False)
class _Record:
    """A generation with the data for its rows."""

    plans: Plans
    chain: Chain
    generation: GenerationState

    def row(self) -> Row:
        generation, latest = self.generation, self._latest_attempt
        branch = self._chain_state.branch
        scores = generation.scores
        return Row(
            **self._facts(range(len(self.chain.plan.agents))),
            **self._end_facts(),
            attempts=len(generation.attempts),
            started_at=self._started_at,
            paused_s=_sum_pauses(generation.attempts),
            scores=scores.values,
            score_versions=scores.versions,
            kept_scores=find_kept(self.plans.state, scores),
            error=_find_error(latest, generation),
            checkpoint=self._describe_checkpoint(),
            forked_from="" if branch is None else self._archive(branch.source),
            branch="" if branch is None else branch.label,
            mid_turn=self._find_mid_turn(),
            plan_revision=0 if latest is None else latest.revision,
            run_dir=self._run_dir(),
            node="" if latest is None else latest.node,
            differs="; ".join(
                str(attempt.opened.data["differs"])
                for attempt in generation.attempts
                if attempt.opened.data.get("differs")
            ),
        )

    def agents(self) -> Iterator[AgentRow]:
        for index, spec in enumerate(self.chain.plan.agents):
            yield AgentRow(
                **self._facts([index]),
                **self._agent_facts(index),
                index=index,
                display=spec.name or "",
                driver=spec.driver,
                model=spec.model,
            )

    def _facts(self, agents: Collection[int]) -> dict[str, Any]:
        """Return the members of :class:`CommonFacts` for agents, given by their indices."""
        latest = self._latest_attempt
        is_imported = latest is None
        used = [(index, _at(self._usage, index, Usage())) for index in agents]
        spent = [
            (index, usage)
            for attempt in self.generation.attempts
            for index, usage in enumerate(attempt.spent)
            if index in agents
        ]
        total = sum_usage(usage for _, usage in used)
        cost = Cost(None) if is_imported else self._cost(used)
        is_unknown = is_imported or total.is_unreported
        all_spent = sum_usage(usage for _, usage in spent)
        return {
            "experiment": self.plans.present.name,
            "chain": self.chain.name,
            "repeat": self.chain.repeat,
            "seed": self.chain.seed,
            "labels": self.chain.labels,
            "generation": self.generation.number,
            "status": "imported" if latest is None else describe_attempt(latest),
            "turns": total.turns,
            **{name: None if is_unknown else getattr(total, name) for name in TOKEN_KINDS},
            "cost_usd": cost.usd,
            "is_estimated": cost.is_estimated,
            "missing_costs": total.missing_costs,
            "spent_tokens": None if is_imported or all_spent.is_unreported else all_spent.tokens,
            "spent_usd": None if is_imported else self._cost(spent).usd,
        }

    def _cost(self, used: Iterable[tuple[int, Usage]]) -> Cost:
        """Return the cost of usage, given with the index of its agent."""
        models = [agent.model or "" for agent in self.chain.plan.agents]
        return sum_costs(
            compute_cost(usage, self.plans.present.prices.get(models[index]))
            for index, usage in used
        )

    @property
    def _chain_state(self) -> ChainState:
        return self.plans.state.chain(self.chain.name)

    @property
    def _latest_attempt(self) -> AttemptState | None:
        """The latest attempt; None if the generation was imported."""
        return None if self.generation.imported is not None else self.generation.latest_attempt

    @property
    def _end(self) -> Mapping[str, Any]:
        """Data of the line ``committed``; empty before."""
        committed = self.generation.committed
        return {} if committed is None else committed.end_data

    @property
    def _imported(self) -> Sequence[Mapping[str, str]]:
        return () if self.generation.imported is None else self.generation.imported["rows"]

    @cached_property
    def _usage(self) -> tuple[Usage, ...]:
        return committed_usage(self.generation)

    @property
    def _started_at(self) -> str | None:
        first = [attempt.opened.at for attempt in self.generation.attempts[:1]]
        return next(iter([*(row["start_utc"] for row in self._imported), *first]), None)

    def _end_facts(self) -> dict[str, Any]:
        """Return the members at the end, or else at the latest checkpoint."""
        end, latest = self._end, self._latest_attempt
        point = None if latest is None else self.generation.latest_checkpoint
        ended_at = None if latest is None or latest.ending is None else latest.ending.at
        imported = [row["end_utc"] for row in self._imported]
        errors = (None if latest is None else latest.end_data.get("script_errors")) or {}
        return {
            "ended_by": end.get("ended_by", ""),
            "ended_at": end.get("ended_at", ended_at or next(iter(imported), None)),
            "active_s": end.get("elapsed_s", 0.0 if point is None else point.active_s),
            "idle_s": end.get("idle_s", 0.0 if point is None else point.idle_s),
            "world_time": find_world_time(self.generation),
            "script_errors": errors.get("count"),
            "last_script_error": errors.get("last", ""),
        }

    def _agent_facts(self, index: int) -> dict[str, Any]:
        """Return the facts about one agent at the end, or else at the start."""
        if self.generation.imported is not None:
            names = [row["agent_name"] for row in self._imported]
            workspaces = [row["workspace_out"] for row in self._imported]
            versions: list[str | None] = []
        else:
            agents = self._end.get("agents", self._started_agents)
            names = [str(agent.get("name", "")) for agent in agents]
            workspaces = list(self._end.get("workspaces", ()))
            versions = [agent.get("version") for agent in self._started_agents]
        return {
            "name": _at(names, index, ""),
            "program_version": _at(versions, index, None),
            "workspace_out": "".join(str(self._chain_dir / w) for w in workspaces[index:][:1]),
        }

    @property
    def _started_agents(self) -> Sequence[Mapping[str, Any]]:
        """The agents at their latest start; an attempt that only scores does not start any."""
        starts = (attempt.working.get("agents") for attempt in reversed(self.generation.attempts))
        return next(filter(None, starts), ())

    # -- paths ----------------------------------------------------------------------------------

    @cached_property
    def _chain_dir(self) -> Path:
        return layout.chain_dir(Path(), self.chain.name, self.plans.present.layout)

    def _run_dir(self) -> str:
        latest = self._latest_attempt
        files = self._end.get("files", "" if latest is None else latest.dir_name)
        name = files or next((row["run_id"] for row in self._imported), "")
        return str(layout.attempt_dir(self._chain_dir, name)) if name else ""

    def _describe_checkpoint(self) -> str:
        points = list(self.generation.checkpoints()) if self._latest_attempt is not None else []
        ends = [point for point in points if point.kind == "end"]
        return self._archive((ends or points)[-1].ref) if points else ""

    def _archive(self, ref: CheckpointRef) -> str:
        attempt = self.plans.state.find_attempt(ref.chain, ref.generation, ref.attempt)
        name = ref.attempt if attempt is None else attempt.dir_name
        chain_dir = layout.chain_dir(Path(), ref.chain, self.plans.present.layout)
        return str(layout.archive_path(chain_dir, name, ref.file))

    def _find_mid_turn(self) -> tuple[str, ...]:
        latest = self._latest_attempt
        if latest is None or latest.origin is None:
            return ()
        origin = latest.origin
        source = self.plans.state.chain(origin.chain).generations.get(origin.generation)
        points = () if source is None else source.checkpoints()
        return next((point.mid_turn for point in points if point.ref == origin), ())


def _at(values: Sequence[_T], index: int, default: _T) -> _T:
    return values[index] if index < len(values) else default


def _find_error(latest: AttemptState | None, generation: GenerationState) -> str:
    if latest is not None and latest.outcome in ("failed", "paused"):
        return str(latest.end_data.get("text", ""))
    return generation.score_error


def _sum_pauses(attempts: Sequence[AttemptState]) -> float:
    """Return the total seconds between pauses and the attempts after them."""
    seconds = 0.0
    for attempt, following in pairwise(attempts):
        if attempt.ending is not None and attempt.outcome == "paused":
            begun, over = parse_utc(attempt.ending.at), parse_utc(following.opened.at)
            if begun is not None and over is not None:
                seconds += max(0.0, (over - begun).total_seconds())
    return seconds
