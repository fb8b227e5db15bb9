"""The status of an experiment at one moment, computed from the journal and live facts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from clawblox.agents.values import Usage, sum_usage
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.machine import Finished, Next, next_step
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.scores import Scores
from clawblox.experiment.history.state import (
    AttemptState,
    ChainState,
    GenerationState,
)
from clawblox.experiment.plan.parts import Limits
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.ports import AgentActivity
from clawblox.experiment.schedule.spending import Cost, compute_cost, sum_costs
from clawblox.experiment.tables.rows import (
    committed_usage,
    describe_attempt,
    find_kept,
    find_world_time,
)
from clawblox.system.clock import parse_utc
from clawblox.typed_values import converter

ChainActivity: TypeAlias = Literal[
    "failed",
    "paused",
    "saving",
    "scoring",
    "working",
    "starting",
    "preparing",
    "waiting",
    "done",
]
"""Activity of a chain; activities that need a person come first."""

RUNNING: Final = frozenset({"preparing", "starting", "working", "saving", "scoring"})
"""States of a chain with a running attempt."""


@attrs.frozen(kw_only=True)
class LiveChain:
    """Facts of a chain that only the process running it knows.

    Attributes:
        reason: The node, or the end of a host, for which the chain waits; may be empty.
        active_s: Active seconds of the generation; None without an attempt.
        world_time: Simulation time; None if unknown.
        agents: Activity of the agents.
        used: Usage of each agent in the committed history of the generation up to now.
        spent: Usage of each agent since the start of the attempt.
        last: The latest action, in a few words.
        mirror_age_s: Seconds since files of its node were last copied here; None without a node.
    """

    reason: str = ""
    active_s: float | None = None
    world_time: float | None = None
    agents: tuple[AgentActivity, ...] = ()
    used: tuple[Usage, ...] = ()
    spent: tuple[Usage, ...] = ()
    last: str = ""
    mirror_age_s: float | None = None


def encode_live(live: Mapping[str, LiveChain]) -> dict[str, Any]:
    """Return live facts as JSON values, for another process."""
    return {chain: msgspec.to_builtins(facts) for chain, facts in live.items()}


_to_live: Final = converter(dict[str, LiveChain])


def decode_live(data: object) -> dict[str, LiveChain]:
    """Return the live facts that another process sent.

    Raises:
        ValueError: The facts are invalid.
    """
    return _to_live(data)


@attrs.frozen(kw_only=True)
class ChainStatus:
    """The status of a chain.

    Attributes:
        name: Its name.
        generation: The running or next generation; the last one if the chain is done.
        generations: Number of its last generation.
        state: Its activity.
        cause: Kind of a pause or failure, such as ``limit`` or ``world``; ``node`` if it waits for
            a node or for the end of a host there; otherwise empty.
        reason: Why it waits, is paused or has failed; may be empty.
        until: UTC time at which a pause should end; None if unknown.
        attempts: Number of attempts at the generation.
        active_s: Active seconds of the generation.
        duration_s: Active seconds after which it ends.
        world_time: Simulation time; None if unknown.
        agents: Activity of the agents; empty unless live facts are available.
        usage: Usage of all agents in the generation, without lost attempts; None for an imported
            generation, where it is unknown.
        cost_usd: Its cost in US dollars; None if any part is unknown.
        is_estimated: Whether part of the cost is computed from prices.
        last_checkpoint_age_s: Seconds since the latest checkpoint of the generation, or None.
        scores: The latest scores of the chain.
        kept_scores: Names of the scores kept from another version of their function.
        last: The latest action; empty if unknown.
        node: Node of the latest attempt at the generation; empty for the machine of the experiment.
        mirror_age_s: Seconds since files of the node were last copied here; None if unknown.
    """

    name: str
    generation: int
    generations: int
    state: ChainActivity
    cause: str = ""
    reason: str = ""
    until: str | None = None
    attempts: int = 0
    active_s: float = 0.0
    duration_s: float
    world_time: float | None = None
    agents: tuple[AgentActivity, ...] = ()
    usage: Usage | None = attrs.field(factory=Usage)
    cost_usd: float | None = 0.0
    is_estimated: bool = False
    last_checkpoint_age_s: float | None = None
    scores: Mapping[str, float] = attrs.field(factory=dict)
    kept_scores: tuple[str, ...] = ()
    last: str = ""
    node: str = ""
    mirror_age_s: float | None = None

    @property
    def remaining_s(self) -> float:
        """Active seconds until the end of the chain."""
        if self.state in ("done", "failed"):
            return 0.0
        whole = (self.generations - self.generation) * self.duration_s
        return whole + max(0.0, self.duration_s - self.active_s)


@attrs.frozen(kw_only=True)
class LimitedAccount:
    """A limited account of a provider.

    Attributes:
        name: Its name.
        reason: ``limit`` or ``auth``.
        until: UTC time at which the limit lifts; None if unknown.
    """

    name: str
    reason: str
    until: str | None


@attrs.frozen(kw_only=True)
class ExperimentStatus:
    """The status of an experiment.

    Attributes:
        name: Its name.
        dir: Its directory.
        pid: The process that runs it, or None.
        chains: Its chains, in the order of the plan; branches last.
        counts: Number of generations by state: ``committed``, ``running``, ``paused``, ``failed``,
            ``waiting``, and ``blocked`` after a failure.
        generations: Number of all generations.
        failed_scores: The complete generations whose latest score failed, such as ``r2/g003``.
        lost: Number of attempts lost with each node.
        spent_usd: Cost of all attempts, in US dollars; None if any part is unknown.
        is_estimated: Whether part of the cost is computed from prices.
        limit_usd: Limit of the cost, or None.
        elapsed_s: Seconds for which the experiment has run.
        forecast_s: Minimum seconds for the rest of the experiment.
        accounts: The limited accounts.
        host: Another machine on which its process runs or was killed, or None.
    """

    name: str
    dir: Path
    pid: int | None
    chains: tuple[ChainStatus, ...]
    counts: Mapping[str, int]
    generations: int
    failed_scores: tuple[str, ...] = ()
    lost: Mapping[str, int] = attrs.field(factory=dict)
    spent_usd: float | None
    is_estimated: bool
    limit_usd: float | None
    elapsed_s: float
    forecast_s: float
    accounts: tuple[LimitedAccount, ...] = ()
    host: str | None = None


def make_status(
    directory: Path,
    plans: Plans,
    *,
    now: datetime,
    pid: int | None = None,
    live: Mapping[str, LiveChain] | None = None,
) -> ExperimentStatus:
    """Return the status of an experiment.

    Args:
        directory: Its directory.
        plans: Its plans.
        now: The UTC time.
        pid: The process that runs it, or None.
        live: Live facts by chain; None if they are unavailable.
    """
    facts, plan, state = live or {}, plans.present, plans.state
    run = state.current_run if pid is not None else None
    views = [
        _StatusView(plans, chain, facts.get(name, LiveChain()), now, pid is not None)
        for name, chain in plans.chains.items()
    ]
    chains = tuple(view.status() for view in views)
    spent = sum_costs(view.spent() for view in views)
    counts = _count(views, chains)
    begun_at = None if run is None else parse_utc(run.at)
    run_s = 0.0 if begun_at is None else max(0.0, (now - begun_at).total_seconds())
    return ExperimentStatus(
        name=plan.name,
        dir=directory,
        pid=pid,
        chains=chains,
        counts=counts,
        generations=counts.total(),
        failed_scores=tuple(place for view in views for place in view.failed_scores()),
        lost=Counter(
            attempt.node for view in views for attempt in view.own.attempts if attempt.is_lost
        ),
        spent_usd=spent.usd,
        is_estimated=spent.is_estimated,
        limit_usd=plan.limits.dollars,
        elapsed_s=state.wall_s + run_s,
        forecast_s=forecast(chains, plan.limits, len(plan.agents)),
        accounts=tuple(
            LimitedAccount(name=name, reason=str(data.get("reason")), until=data.get("until"))
            for name, data in state.accounts.items()
        ),
    )


def forecast(chains: Iterable[ChainStatus], limits: Limits, agents: int) -> float:
    """Return the minimum number of seconds that some chains will take.

    Args:
        chains: The chains.
        limits: The limits of concurrent worlds and agents.
        agents: Number of agents in each world.
    """
    remaining = [chain.remaining_s for chain in chains]
    slots = limits.worlds if limits.agents is None else min(limits.worlds, limits.agents // agents)
    return max(sum(remaining) / max(1, slots), max(remaining, default=0.0))


def _count(views: Iterable[_StatusView], chains: Iterable[ChainStatus]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for view, chain in zip(views, chains, strict=True):
        over = sum(generation.is_over for generation in view.own.generations.values())
        counts["committed"] += over
        rest = view.generations - view.first_generation + 1 - over
        if rest > 0:
            counts["running" if chain.state in RUNNING else chain.state] += 1
            counts["blocked" if chain.state == "failed" else "waiting"] += rest - 1
    return +counts


# -- one chain ----------------------------------------------------------------------------------


@attrs.frozen
class _StatusView:
    """A chain with the data for its status."""

    plans: Plans
    chain: Chain
    live: LiveChain
    now: datetime
    is_run: bool

    @property
    def own(self) -> ChainState:
        return self.plans.state.chain(self.chain.name)

    @property
    def generations(self) -> int:
        return self.plans.last_generation(self.chain)

    @property
    def first_generation(self) -> int:
        first = 1 if self.own.branch is None else self.own.branch.source.generation
        return next(iter(self.own.generations), first)

    def status(self) -> ChainStatus:
        following = next_step(self.plans, self.chain)
        number = (
            following.generation if isinstance(following, AttemptOrder) else self._latest_number
        )
        generation = self.own.generations.get(number) or GenerationState(
            chain=self.chain.name, number=number
        )
        latest, point = generation.latest_attempt, generation.latest_checkpoint
        usage = self.live.used or committed_usage(generation)
        is_imported = generation.imported is not None
        cost = Cost(None) if is_imported else self._cost(usage)
        saved_at = None if point is None else parse_utc(point.at)
        scores = self._latest_scores()
        return ChainStatus(
            name=self.chain.name,
            generation=number,
            generations=self.generations,
            **self._judge(following, generation),
            attempts=len(generation.attempts),
            active_s=self._active_s(generation),
            duration_s=self.chain.plan.duration,
            world_time=self._world_time(generation),
            agents=self.live.agents,
            usage=None if is_imported else sum_usage(usage),
            cost_usd=cost.usd,
            is_estimated=cost.is_estimated,
            last_checkpoint_age_s=(
                None if saved_at is None else max(0.0, (self.now - saved_at).total_seconds())
            ),
            scores=scores.values,
            kept_scores=find_kept(self.plans.state, scores),
            last=self.live.last,
            node="" if latest is None else latest.node,
            mirror_age_s=self.live.mirror_age_s,
        )

    def spent(self) -> Cost:
        """Return the cost of all attempts, including the running one."""
        ended = [self._cost(attempt.spent) for attempt in self.own.attempts]
        return sum_costs([*ended, self._cost(self.live.spent)])

    def failed_scores(self) -> Iterator[str]:
        """Yield the complete generations whose latest score failed."""
        for generation in self.own.generations.values():
            if generation.score_error:
                yield f"{generation.chain}/g{generation.number:03d}"

    @property
    def _latest_number(self) -> int:
        latest = self.own.latest
        return self.first_generation if latest is None else latest.number

    def _judge(self, following: Next, generation: GenerationState) -> dict[str, Any]:
        """Return the state of the chain, with its reason."""
        attempt = generation.latest_attempt
        ending = None if attempt is None else attempt.ending
        if isinstance(following, Finished):
            facts = {}
            if following.status == "failed" and ending is not None:
                facts = _find_ending(ending.data)
            return {"state": following.status, **facts}
        if self.live.reason:
            return {"state": "waiting", "cause": "node", "reason": self.live.reason}
        if attempt is not None and attempt.ending is None and self._is_of_run(attempt.opened):
            return {"state": describe_attempt(attempt)}
        is_news = not self.is_run or (ending is not None and self._is_of_run(ending))
        if ending is not None and ending.type == "paused" and is_news:
            return {"state": "paused", **_find_ending(ending.data)}
        wait = None if self.is_run else self.plans.state.waits.get(self.chain.name)
        if wait is not None:
            return {"state": "waiting" if attempt is None else "paused", **_find_ending(wait)}
        return {"state": "waiting", "reason": _describe_wait(attempt)}

    def _is_of_run(self, line: JournalLine) -> bool:
        """Return whether the process that runs the experiment wrote a line."""
        return self.is_run and self.plans.state.is_of_run(line)

    def _active_s(self, generation: GenerationState) -> float:
        if self.live.active_s is not None:
            return self.live.active_s
        committed, point = generation.committed, generation.latest_checkpoint
        if committed is not None:
            return float(committed.end_data.get("elapsed_s", 0.0))
        return 0.0 if point is None else point.active_s

    def _world_time(self, generation: GenerationState) -> float | None:
        is_known = self.live.world_time is not None
        return self.live.world_time if is_known else find_world_time(generation)

    def _latest_scores(self) -> Scores:
        every = (generation.scores for generation in reversed(self.own.generations.values()))
        return next((scores for scores in every if scores.values), Scores())

    def _cost(self, usage: Iterable[Usage]) -> Cost:
        agents = self.chain.plan.agents
        prices = [self.plans.present.prices.get(agent.model or "") for agent in agents]
        return sum_costs(map(compute_cost, usage, prices))


def _find_ending(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reason for a wait or failure, from the line that ended the attempt or run."""
    return {
        "cause": str(data.get("cause", data.get("reason", ""))),
        "reason": str(data.get("text", "")),
        "until": data.get("until"),
    }


def _describe_wait(attempt: AttemptState | None) -> str:
    if attempt is None or attempt.outcome == "committed":
        return ""
    if attempt.outcome == "failed":
        return f"to try again: {attempt.end_data.get('text', '')}"
    return "to be resumed"
