"""The turns and steps of an agent in words for people, and their texts by name. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from clawblox.agents.narration import narrate
from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory import AgentTurn
from clawblox.agents.usage import Budget
from clawblox.agents.values import Usage
from clawblox.foreign_values import parse_json
from clawblox.system.clock import parse_utc
from clawblox.views.formatting import count_words, format_cost, format_count, format_seconds
from clawblox.views.observations import format_value

Step: TypeAlias = Mapping[str, Any]
"""A step as in ATIF."""

THEIR_WORDS: Final = "in the program's words: "
"""Prefix of a program's own words, whose times may differ from ours."""
_MAX_PARSED: Final = 1 << 20
_WIDTH: Final = 100
_MAX_REASON: Final = 500


def to_seconds(utc: str | None) -> float | None:
    """Return a UTC time in seconds since 1970; None if it is missing or malformed."""
    moment = parse_utc(utc)
    return None if moment is None else moment.timestamp()


def one_line(text: str, max_chars: int) -> str:
    """Return the start of a text on one line."""
    line = " ".join(text[: 4 * max_chars].split())
    is_cut = len(line) > max_chars or len(text) > 4 * max_chars
    return f"{line[:max_chars]}…" if is_cut else line


def pretty(text: str) -> str:
    """Return JSON indented, and any other text unchanged."""
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            return _indent(parse_json(text, max_bytes=_MAX_PARSED))
    return text


def _indent(value: object) -> str:
    return "\n".join(format_value(value, width=_WIDTH, is_shortened=False))


# -- agents --------------------------------------------------------------------------------------


def explain_state(agent: AgentStatus, last: AgentTurn | None) -> str:
    """Return why an agent is in its state, as text to follow the name of the state.

    Args:
        agent: The agent.
        last: Its last turn; None if unknown.
    """
    reason = agent.reason
    if last is not None:
        if last.last_limit not in reason:
            reason = "; ".join(filter(None, (reason, last.last_limit)))
        if last.last_error not in reason:
            reason = "; ".join(filter(None, (reason, f"{THEIR_WORDS}{last.last_error}")))
        if not reason and not agent.is_over and last.ended_at is None:
            reason = "a turn is under way"
    place = f" {'after' if agent.is_over else 'in'} turn {agent.turn}" if agent.turn else ""
    return f"{place}: {one_line(reason, _MAX_REASON)}" if reason else place


def describe_budget(budget: Budget, usage: Usage) -> str:
    """Return the used part of an agent's budget; empty if there is no limit."""
    tokens = format_count(usage.tokens) or "0"
    limits = (
        (budget.turns, f"{usage.turns} of {budget.turns} turns"),
        (budget.tokens, f"{tokens} of {format_count(budget.tokens or 0)} tokens"),
        (budget.usd, f"{format_cost(usage.cost_usd or 0)} of ${budget.usd}"),
        (budget.minutes, f"{budget.minutes} minutes"),
    )
    return ", ".join(words for limit, words in limits if limit)


# -- turns ---------------------------------------------------------------------------------------


def describe_turn(turn: AgentTurn) -> str:
    """Return the usage and the outcome of a turn, in a few words."""
    usage = turn.usage
    read = usage.tokens - usage.output_tokens
    words = (
        f"{format_count(usage.output_tokens)} out" if usage.output_tokens else "",
        f"{format_count(read)} in" if read else "",
        format_cost(usage.cost_usd),
        _describe_length(turn),
        "cut off" if turn.is_cut_off else "",
        f"{turn.retries} retried" if turn.retries else "",
        count_words(turn.limits, "limit") if turn.limits else "",
        count_words(turn.errors, "error") if turn.errors else "",
    )
    return " · ".join(filter(None, words))


def describe_turn_shortly(turn: AgentTurn) -> str:
    """Return the output, cost and length of a turn."""
    output, cost = format_count(turn.usage.output_tokens), format_cost(turn.usage.cost_usd)
    return " · ".join(filter(None, (output, cost, _describe_length(turn) or "under way")))


def _describe_length(turn: AgentTurn) -> str:
    """Return the duration of a turn; empty while the turn lasts."""
    begin, end = to_seconds(turn.started_at), to_seconds(turn.ended_at)
    return "" if begin is None or end is None else format_seconds(max(0.0, end - begin))


# -- steps ---------------------------------------------------------------------------------------


def read_offset(step: Step) -> int:
    """Return the byte offset in the log that is the address of a step; 0 if it has none."""
    offset = step.get("extra", {}).get("raw_offset")
    return offset if isinstance(offset, int) else 0


def read_calls(step: Step) -> Sequence[Mapping[str, Any]]:
    """Return the calls of a step."""
    calls: Sequence[Mapping[str, Any]] = step.get("tool_calls", ())
    return calls


def read_results(step: Step) -> Sequence[Mapping[str, Any]]:
    """Return the results of the calls of a step."""
    results: Sequence[Mapping[str, Any]] = step.get("observation", {}).get("results", ())
    return results


def describe_call(call: Mapping[str, Any]) -> str:
    """Return a call as one line."""
    data = {"name": call["function_name"], "arguments": call["arguments"]}
    return narrate("tool.called", data)[0].text


def call_text(call: Mapping[str, Any]) -> str:
    """Return the arguments of a call, or only the text if that is the single argument."""
    values = [*call["arguments"].values()]
    is_text = len(values) == 1 and isinstance(values[0], str)
    return str(values[0]) if is_text else _indent(call["arguments"])


def read_texts(step: Step) -> dict[str, str]:
    """Return the texts of a step by their names, such as ``message`` or ``call-0``."""
    texts = {"message": step["message"], "reasoning": step.get("reasoning_content", "")}
    texts |= {f"call-{n}": call_text(call) for n, call in enumerate(read_calls(step))}
    return texts | {f"result-{n}": one["content"] for n, one in enumerate(read_results(step))}
