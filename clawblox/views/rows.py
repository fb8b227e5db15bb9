"""Instances and agents as rows of tables, and how a run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.status import AgentStatus
from clawblox.agents.values import Usage, sum_usage
from clawblox.columns import Column, shorten
from clawblox.printable import printable
from clawblox.rundir.status import OVER, InstanceStatus
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import (
    count_words,
    describe_life,
    format_age,
    format_cost,
    format_count,
    format_facts,
    format_labels,
    format_seconds,
    shorten_path,
    suggest,
)

_STATES = (
    *("failed", "halted", "interrupted", "restarting", "starting", "waiting", "stopping"),
    *("ready", "exited", "unknown"),
)
"""States of an instance; those that need attention come first."""

_RANKS = {state: rank for rank, state in enumerate(_STATES)}
_MAX_STATE_CHARS = 48
_MAX_ERROR_CHARS = 200


@attrs.frozen
class InstanceRow:
    """A row of a table of instances.

    Attributes:
        name: Name of the instance.
        state: Its state.
        words: The state with the exit or the reason of the halt; empty for the state alone.
        is_bad: Whether the instance failed.
        run: Its run if the table shows several, else empty.
        status: Its record on disk; None if it has not started.
        cpu_share: Processors in use, 1.0 for a whole processor; None if unknown.
        note: Progress of a slow start, else empty.
    """

    name: str
    state: str
    words: str = ""
    is_bad: bool = False
    run: str = ""
    status: InstanceStatus | None = None
    cpu_share: float | None = None
    note: str = attrs.field(default="", converter=printable)

    @property
    def key(self) -> str:
        """Key for selecting the row, unique in the table."""
        return "/".join(filter(None, (self.run, self.name)))

    @property
    def rank(self) -> tuple[int, str, str]:
        """Sort key if not all rows fit; rows that need attention come first."""
        rank = 0 if self.is_bad else _RANKS.get(self.state, len(_RANKS))
        return rank, self.run, self.name


def make_row(
    status: InstanceStatus,
    state: str,
    cpu_share: float | None = None,
    *,
    run: str = "",
    note: str = "",
) -> InstanceRow:
    """Return the row of an instance.

    Args:
        status: The instance.
        state: Its state; the caller may know a later state than the disk has.
        cpu_share: Processors in use, 1.0 for a whole processor; None if unknown.
        run: Its run, if the table shows several.
        note: Progress of its start.
    """
    words = describe_life(state, status.exit, status.halt) if state in OVER else ""
    words, is_bad = shorten(words, _MAX_STATE_CHARS), state == status.state and status.has_died
    return InstanceRow(status.name, state, words, is_bad, run, status, cpu_share, note)


def order_states(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return states and their counts; states that need attention come first."""
    return sorted(counts.items(), key=lambda pair: _RANKS.get(pair[0], len(_RANKS)))


def name_runs(run_dirs: Sequence[Path]) -> dict[Path, str]:
    """Return a short name for each run: the name of its directory, or its path if two share it."""
    names = [path.name for path in run_dirs]
    return {
        path: path.name if names.count(path.name) == 1 else shorten_path(path) for path in run_dirs
    }


def instance_columns(rows: Sequence[InstanceRow], *, is_live: bool = False) -> list[Column]:
    """Return the columns that a table of instances may have, in the order of the table.

    Args:
        rows: The rows.
        is_live: Whether the table is redrawn, so that columns should stay in place.
    """

    def texts(cell: Callable[[InstanceStatus], str]) -> list[str]:
        return [cell(row.status) if row.status else "" for row in rows]

    def number(heading: str, rank: int, least: int, cells: list[str]) -> Column:
        return Column(heading, cells, rank, least if is_live else 0, is_number=True)

    shares = ["" if row.cpu_share is None else f"{row.cpu_share:.0%}" for row in rows]
    states = [row.words or row.state for row in rows]
    return [
        Column("RUN", [row.run for row in rows], 1, shortest=12, cut="middle"),
        Column("NAME", [row.name for row in rows], 0, shortest=12, cut="middle"),
        Column("STATE", states, 0, 10 if is_live else 0, shortest=24),
        Column("LABELS", texts(lambda one: format_labels(one.labels)), 2, shortest=12),
        number("PID", 9, 6, texts(lambda one: str(one.pid or ""))),
        number("UPTIME", 2, 6, texts(lambda one: format_seconds(one.uptime_s))),
        number("RSS", 6, 6, texts(lambda one: format_bytes(one.rss_bytes))),
        number("CPU", 7, 4, shares),
        number("CPU TIME", 10, 6, texts(lambda one: format_seconds(one.cpu_s))),
        number("SAVED", 3, 5, texts(lambda one: format_age(one.saved_at))),
        number("SIM TIME", 8, 8, texts(_format_sim_time)),
        number("RATE", 8, 5, texts(_format_rate)),
        number("ERRORS", 4, 6, texts(_count_errors)),
        number("RESTARTS", 5, 8, texts(lambda one: str(one.restarts or ""))),
        number("PORT", 4, 5, texts(lambda one: str(one.port or ""))),
        Column("URL", texts(lambda one: one.url), 11, replaces="PORT"),
    ]


def _format_sim_time(status: InstanceStatus) -> str:
    return "" if status.sim_time is None else f"{status.sim_time:.1f}"


def _count_errors(status: InstanceStatus) -> str:
    return str(status.script_errors.count) if status.script_errors else ""


def _format_rate(status: InstanceStatus) -> str:
    rate = status.rate
    return f"{rate.achieved_hz:.0f}/{rate.nominal_hz:.0f}" if rate else ""


_AGENT_STATES: Final = ("failed", "interrupted", "starting", "working", "idle", "stopped", "new")
"""States of an agent; those that need attention come first."""


def order_agents(agents: Iterable[AgentStatus]) -> list[AgentStatus]:
    """Return agents sorted by state; agents that need attention come first."""
    return sorted(agents, key=lambda agent: (_AGENT_STATES.index(agent.state), agent.name))


def agent_columns(agents: Sequence[AgentStatus], *, is_live: bool = False) -> list[Column]:
    """Return the columns that a table of agents may have, in the order of the table.

    Args:
        agents: The agents.
        is_live: Whether the table is redrawn, so that columns should stay in place.
    """

    def number(heading: str, cells: list[str], rank: int, least: int) -> Column:
        return Column(heading, cells, rank, least if is_live else 0, is_number=True)

    return [
        Column("AGENT", [printable(agent.name) for agent in agents], 0, shortest=12, cut="middle"),
        Column("STATE", [agent.state for agent in agents], 0, 11 if is_live else 0),
        Column("DRIVER", [printable(agent.driver) for agent in agents], 5),
        number("TURN", [str(agent.turn or "") for agent in agents], 2, 4),
        number("TOKENS", [format_count(agent.own_usage.tokens) for agent in agents], 1, 6),
        number("COST", [format_cost(agent.own_usage.cost_usd) for agent in agents], 3, 7),
        number("INHERITED", [format_count(agent.inherited.tokens) for agent in agents], 5, 0),
        number("LATEST", [format_age(agent.time) for agent in agents], 6, 6),
        Column("WINDOW", [printable(agent.window or "") for agent in agents], 8),
        number("PID", [str(agent.pid or "") for agent in agents], 9, 6),
        Column("SANDBOX", [agent.sandbox for agent in agents], 7),
        Column("REASON", [printable(agent.reason) for agent in agents], 4, shortest=16),
    ]


def describe_agent(agent: AgentStatus) -> str:
    """Describe an agent, with a fact on each line."""
    place = [f"pid {agent.pid}"] if agent.pid else []
    place += [f"window {agent.window}"] if agent.window else []
    facts = {
        "agent": agent.name,
        "state": f"{agent.state}: {agent.reason}" if agent.reason else agent.state,
        "driver": agent.driver,
        "session": agent.session_id or "not confirmed",
        "turn": str(agent.turn or ""),
        "usage": _describe_usage(agent.own_usage),
        "inherited": _describe_usage(agent.inherited) if agent.inherited != Usage() else "",
        "process": ", ".join(place),
        "sandbox": agent.sandbox,
        "latest": f"{format_age(agent.time)} ago",
        "dir": shorten_path(agent.dir),
    }
    return format_facts({name: printable(value) for name, value in facts.items()})


def _describe_usage(usage: Usage) -> str:
    kinds = ((kind.replace("_", " "), count) for kind, count in usage.tokens_by_kind.items())
    parts = ", ".join(f"{format_count(count)} {kind}" for kind, count in kinds if count)
    tokens = f"{_tokens(usage)} ({parts})" if parts else _tokens(usage)
    return ", ".join(filter(None, (tokens, format_cost(usage.cost_usd))))


def summarise_agents(agents: Sequence[AgentStatus]) -> list[str]:
    """Summarise the ends and the usage of agents in a line; empty without agents."""
    if not agents:
        return []
    counts = Counter(agent.state for agent in order_agents(agents))
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    turns = sum(agent.own_usage.turns for agent in agents)
    usage = sum_usage(agent.own_usage for agent in agents)
    inherited = format_count(sum(agent.inherited.tokens for agent in agents))
    tokens = f"{_tokens(usage)} (+ {inherited} inherited)" if inherited else _tokens(usage)
    parts = (count_words(turns, "turn"), tokens, format_cost(usage.cost_usd))
    return [f"{count_words(len(agents), 'agent')}: {states}; {', '.join(filter(None, parts))}."]


def plain_facts(status: Any) -> dict[str, Any]:  # noqa: ANN401 - an instance of any attrs class
    """Return the members of a status for JSON; tokens that were never reported are None."""
    facts = attrs.asdict(status, value_serializer=_hide_unreported)
    if isinstance(status, AgentStatus):
        facts["own_usage"] = attrs.asdict(status.own_usage, value_serializer=_hide_unreported)
    return facts


def _hide_unreported(owner: Any, member: attrs.Attribute[Any], value: object) -> object:  # noqa: ANN401
    is_count = isinstance(owner, Usage) and member.name.endswith("_tokens")
    return None if is_count and owner.is_unreported else value


def _tokens(usage: Usage) -> str:
    return "" if usage.is_unreported else f"{format_count(usage.tokens) or '0'} tokens"


def summarise(
    run_dir: Path,
    statuses: Sequence[InstanceStatus],
    *,
    agents: Sequence[AgentStatus] = (),
    stopped: Collection[str] = (),
    may_resume: bool = False,
    can_resume: bool = True,
    names_logs: bool = True,
) -> list[str]:
    """Return how the instances and agents of a run ended, the saves, and the commands to type next.

    Args:
        run_dir: The run directory.
        statuses: The instances.
        agents: The agents.
        stopped: Names of the instances that were stopped.
        may_resume: Whether the end of the orchestrator stopped them, so that they can be resumed.
        can_resume: Whether a resume would continue any of the instances.
        names_logs: Whether to suggest the log of an instance that failed.
    """
    bad = [status for status in statuses if status.has_died and status.name not in stopped]
    is_resumable = can_resume and (bool(bad) or (may_resume and bool(stopped)))
    lines = [*_ends(statuses, stopped), *summarise_agents(agents), *_script_errors(statuses)]
    lines += _saves(statuses)
    if is_resumable:
        lines.append(f"resume:  {suggest('resume', run_dir)}")
    if bad and names_logs:
        lines.append(f"logs:    {suggest('logs', run_dir, bad[0].name)}")
    return lines


def _ends(statuses: Sequence[InstanceStatus], stopped: Collection[str]) -> Iterator[str]:
    def rank(status: InstanceStatus) -> tuple[bool, tuple[int, str, str]]:
        return status.name in stopped, make_row(status, status.state).rank

    ends = Counter[str]()
    for status in sorted(statuses, key=rank):
        end = describe_life(status.state, status.exit)
        ends["stopped" if status.name in stopped else end] += 1
    if ends:
        counts = ", ".join(f"{count} {words}" for words, count in ends.items())
        yield f"{count_words(len(statuses), 'instance')}: {counts}."


def _script_errors(statuses: Sequence[InstanceStatus]) -> Iterator[str]:
    counted = [(status.script_errors, status.name) for status in statuses if status.script_errors]
    if counted:
        errors, name = max(counted, key=lambda pair: pair[0].count)
        text = shorten(printable(str(errors)), _MAX_ERROR_CHARS)
        yield f"Script errors in {len(counted)} of {len(statuses)}, most in {name}: {text}"


def _saves(statuses: Sequence[InstanceStatus]) -> Iterator[str]:
    saved = [status for status in statuses if status.saved_at is not None]
    if saved:
        times = [status.sim_time for status in saved if status.sim_time is not None]
        stamps = sorted(str(status.saved_at) for status in saved)
        ages = _range(format_age(stamps[-1]), format_age(stamps[0]))
        sim = _range(f"{min(times):.1f}", f"{max(times):.1f}") if times else ""
        sim_time = f", sim time {sim}" if sim else ""
        yield f"Last saves: {len(saved)} of {len(statuses)}, {ages} old{sim_time}."


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"
