"""Events of an experiment as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from clawblox.agents.values import sum_usage
from clawblox.experiment.history.lines import read_usage
from clawblox.experiment.running.events import ExperimentEvent
from clawblox.results import WorldEvent
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import parse_utc
from clawblox.views.event_lines import EventLine, describe_event
from clawblox.views.formatting import format_cost, format_count, format_node

_WORLD: Final = "world."
_TROUBLE: Final = frozenset(
    {
        "account.limited",
        "budget.warning",
        "disk.low",
        "machine.changed",
        "node.lost",
        "generation.checkpoint.failed",
        "generation.failed",
        "generation.interrupted",
        "generation.paused",
        "hook.changed",
        "hook.failed",
    }
)


def describe_experiment_event(event: ExperimentEvent) -> EventLine | None:
    """Return an event of an experiment as a line of text; None for events that are not shown.

    Of the events of worlds, only problems are shown. The actions of agents are in their logs.
    """
    if event.kind.startswith(_WORLD):
        return _describe_world(event)
    describe = _TEXTS.get(event.kind)
    if describe is None:
        return None
    generation = "" if event.generation is None else f"generation {event.generation} "
    if not (text := describe(event.data)):
        return None
    needs_attention = event.kind in _TROUBLE or bool(event.data.get("differs"))
    return EventLine(event.time, event.subject, generation + text, needs_attention=needs_attention)


def _describe_world(event: ExperimentEvent) -> EventLine | None:
    kind: Any = event.kind.removeprefix(_WORLD)
    line = describe_event(WorldEvent(time=event.time, kind=kind, subject="", data=event.data))
    if not line.needs_attention:
        return None
    return EventLine(line.at, event.subject, line.text, needs_attention=True)


# -- texts --------------------------------------------------------------------------------------


def _opened(data: Mapping[str, Any]) -> str:
    """Return the node of an attempt; empty for this machine."""
    node = f"on node {data['host']['node']}" if data.get("host") else ""
    return format_node(node, data.get("differs", ""))


def _working(data: Mapping[str, Any]) -> str:
    names = ", ".join(str(agent.get("name", "")) for agent in data.get("agents", ()))
    return f"works: {names}" if names else "works"


def _until(data: Mapping[str, Any]) -> str:
    until = parse_utc(data.get("until"))
    return "" if until is None else f", until {until.astimezone():%H:%M}"


def _limited(data: Mapping[str, Any]) -> str:
    why = {"limit": "usage limit", "auth": "login expired"}.get(data["reason"], data["reason"])
    return f"account {data['account']}: {why}{_until(data)}"


def _checkpoint(data: Mapping[str, Any]) -> str:
    mid_turn = ", ".join(data.get("mid_turn", ()))
    note = f", in the middle of a turn of {mid_turn}" if mid_turn else ""
    return f"saved {data['file']} ({format_bytes(data.get('size_bytes'))}){note}"


def _scored(data: Mapping[str, Any]) -> str:
    scores = ", ".join(f"{name} {score:.4g}" for name, score in data.get("scores", {}).items())
    if "error" not in data:
        return f"scored: {scores}"
    return f"scored: {scores}; {data['error']}" if scores else f"has no scores: {data['error']}"


def _committed(data: Mapping[str, Any]) -> str:
    usage = sum_usage(read_usage(data.get("used")))
    tokens = f"{format_count(usage.output_tokens) or '0'} output tokens"
    facts = [
        str(data.get("ended_by", "")),
        "" if usage.is_unreported else tokens,
        format_cost(usage.cost_usd),
    ]
    return f"committed: {', '.join(filter(None, facts))}"


def _forked(data: Mapping[str, Any]) -> str:
    source, label = data["source"], data.get("label")
    prompt = f": {label}" if label else ""
    return f"forked from {source['chain']}, generation {source['generation']}{prompt}"


def _amended(data: Mapping[str, Any]) -> str:
    fields = ", ".join(str(change["field"]) for change in data.get("changes", ()))
    return f"plan amended: {fields}"


_TEXTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "experiment.started": lambda data: f"the experiment runs as process {data.get('pid')}",
    "experiment.finished": lambda data: f"the experiment ended: {data.get('reason')}",
    "plan.amended": _amended,
    "account.limited": _limited,
    "account.cleared": lambda data: f"account {data['account']} works again",
    "chain.forked": _forked,
    "chain.retried": lambda data: "will be tried again",
    "generation.opened": _opened,
    "generation.working": _working,
    "generation.checkpoint": _checkpoint,
    "generation.checkpoint.failed": lambda data: f"not saved: {data.get('error')}",
    "generation.closing": lambda data: f"closes: {data.get('reason')}",
    "generation.scored": _scored,
    "generation.rescored": _scored,
    "generation.committed": _committed,
    "generation.paused": lambda data: (
        f"paused: {data.get('text') or data.get('reason')}{_until(data)}"
    ),
    "generation.failed": lambda data: f"failed ({data.get('cause')}): {data.get('text')}",
    "generation.interrupted": lambda data: "was interrupted",
    "generation.imported": lambda data: "imported",
    "hook.called": lambda data: (
        f"hook {data.get('hook')} called" + (f": {data['reason']}" if data.get("reason") else "")
    ),
    "hook.failed": lambda data: f"hook {data.get('hook')} failed: {data.get('error')}",
    **dict.fromkeys(
        ("budget.warning", "disk.low", "hook.changed", "machine.changed", "node.lost"),
        lambda data: data["text"],
    ),
}
