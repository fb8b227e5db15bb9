"""Agents as text: the columns of a table, a description of one, a line about the end of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from clawblox.agents.status import AgentStatus
from clawblox.agents.usage import add_usage
from clawblox.agents.values import Usage
from clawblox.cli.tables.columns import Column
from clawblox.cli.tables.formatting import (
    count_words,
    format_age,
    format_cost,
    format_count,
    shorten_path,
)
from clawblox.printable import printable

_STATES: Final = ("failed", "interrupted", "starting", "working", "idle", "stopped", "new")
"""The states, those that need attention first."""


def order_agents(agents: Iterable[AgentStatus]) -> list[AgentStatus]:
    """Return agents, those that need attention first."""
    return sorted(agents, key=lambda agent: (_STATES.index(agent.state), agent.name))


def agent_columns(agents: Sequence[AgentStatus], *, is_live: bool = False) -> list[Column]:
    """Return the columns that a table of agents may have, in the order of the table.

    Args:
        agents: The agents.
        is_live: Whether the table is drawn again and again, so that columns should stay in place.
    """

    def number(heading: str, cells: list[str], rank: int, least: int) -> Column:
        return Column(heading, cells, rank, least if is_live else 0, is_number=True)

    return [
        Column("AGENT", [printable(agent.name) for agent in agents], 0, shortest=12, cut="middle"),
        Column("STATE", [agent.state for agent in agents], 0, 11 if is_live else 0),
        Column("DRIVER", [printable(agent.driver) for agent in agents], 5),
        number("TURN", [str(agent.turn or "") for agent in agents], 2, 4),
        number("TOKENS", [format_count(agent.usage.tokens) for agent in agents], 1, 6),
        number("COST", [format_cost(agent.usage.cost_usd) for agent in agents], 3, 7),
        number("LATEST", [format_age(agent.time) for agent in agents], 6, 6),
        Column("WINDOW", [printable(agent.window or "") for agent in agents], 8),
        number("PID", [str(agent.pid or "") for agent in agents], 9, 6),
        Column("SANDBOX", [agent.sandbox for agent in agents], 7),
        Column("REASON", [printable(agent.reason) for agent in agents], 4, shortest=16),
    ]


def describe_agent(agent: AgentStatus) -> str:
    """Return what is known of one agent, a fact a line."""
    place = [f"pid {agent.pid}"] if agent.pid else []
    place += [f"window {agent.window}"] if agent.window else []
    facts = {
        "agent": agent.name,
        "state": f"{agent.state}: {agent.reason}" if agent.reason else agent.state,
        "driver": agent.driver,
        "session": agent.session_id or "not confirmed",
        "turn": str(agent.turn or ""),
        "usage": _describe_usage(agent.usage),
        "process": ", ".join(place),
        "sandbox": agent.sandbox,
        "latest": f"{format_age(agent.time)} ago",
        "dir": shorten_path(agent.dir),
    }
    width = max(map(len, facts))
    return "\n".join(
        f"{name:{width}}  {printable(value)}" for name, value in facts.items() if value
    )


def _describe_usage(usage: Usage) -> str:
    kinds = {
        "input": usage.input_tokens,
        "cached": usage.cached_tokens,
        "cache write": usage.cache_write_tokens,
        "output": usage.output_tokens,
    }
    parts = ", ".join(f"{format_count(count)} {kind}" for kind, count in kinds.items() if count)
    tokens = f"{_tokens(usage)} ({parts})" if parts else _tokens(usage)
    return ", ".join(filter(None, (tokens, format_cost(usage.cost_usd))))


def summarise_agents(agents: Sequence[AgentStatus]) -> list[str]:
    """Return how agents ended and what they have used, in one line; none without agents."""
    if not agents:
        return []
    counts = Counter(agent.state for agent in order_agents(agents))
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    turns = sum(agent.usage.turns for agent in agents)
    usage = reduce(add_usage, (agent.usage for agent in agents), Usage())
    parts = (count_words(turns, "turn"), _tokens(usage), format_cost(usage.cost_usd))
    return [f"{count_words(len(agents), 'agent')}: {states}; {', '.join(filter(None, parts))}."]


def _tokens(usage: Usage) -> str:
    return f"{format_count(usage.tokens) or '0'} tokens"
