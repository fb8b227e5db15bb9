"""Checks that agents cannot see the host, its time, or that the world was restored.

The source of most checks is the world interface: "Agent-visible payloads expose simulation time
only, never host wall-clock time. Wall time both leaks the host and makes restores observable; the
save/load design keeps checkpoints invisible to agents."
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import anyio.lowlevel

from clawblox.conformance.context import CheckContext
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.host_traces import (
    Find,
    HostTrace,
    find_body_leaves,
    find_header_leaves,
    find_host_path,
    find_host_time,
    find_secret,
    find_trace,
)
from clawblox.conformance.live import is_missing
from clawblox.conformance.registry import AreaChecks, CouldNotRun, NotMet
from clawblox.differences import ABSENT, ValueDifference, find_differences
from clawblox.system.clock import utc_now

CHECKS: Final = AreaChecks("invisible")

_LEAST_PAIRS: Final = 3
_TIME_HEADERS: Final = frozenset({"date", "last-modified", "expires", "age", "server-timing"})
"""Headers that state times of the host, or durations on it."""
_FRAMING_HEADERS: Final = frozenset({"content-length", "connection", "keep-alive"})


async def _require_none(
    answers: Iterable[Exchange],
    find: Find,
    leaves: Callable[[Exchange], Iterable[tuple[str, Any]]],
) -> int:
    """Require that answers contain no forbidden value, and return the number of values.

    Raises:
        Failed: An answer contains a forbidden value.
    """
    count = 0
    for exchange in answers:
        await anyio.lowlevel.checkpoint()  # an answer may have a million values
        searched, trace = find_trace(leaves(exchange), find)
        count += searched
        if trace is not None:
            route = exchange.url.partition("://")[2].partition("/")[2]
            evidence = f"the answer to {exchange.method} /{route} has {trace.what}"
            difference = ValueDifference(trace.path, ABSENT, trace.value)
            raise NotMet(evidence, exchange=exchange, difference=difference)
    return count


def _body_leaves(exchange: Exchange) -> Iterator[tuple[str, Any]]:
    return find_body_leaves(exchange.content)


@CHECKS.must("host_time", "Agents get only simulated time, never the host's time.")
async def check_host_time(ctx: CheckContext) -> str:
    """Search every body that agents get for times near now."""
    seen = await ctx.sights()
    if not any(exchange.is_accepted for exchange in seen.answers):
        raise CouldNotRun(f"the world accepted nothing: {seen.answers[0].outcome}")
    answers = list(seen.everything)
    count = await _require_none(answers, partial(find_host_time, now=utc_now()), _body_leaves)
    return f"none of {count} values in {len(answers)} answers is a time within a day of now"


@CHECKS.must(
    "headers",
    "Headers of answers to agents contain no host time, and equal requests get equal headers: a"
    " date or a count would show agents that the world was restored.",
)
async def check_headers(ctx: CheckContext) -> str:
    """Check the headers of all answers, and compare the headers of equal requests."""
    seen = await ctx.sights()
    answers = list(seen.everything)
    count = await _require_none(
        answers, partial(_find_header_trace, now=utc_now()), find_header_leaves
    )
    if not count:
        raise CouldNotRun("no answer had a header")
    for first, second in seen.twice:
        before, after = dict(find_header_leaves(first)), dict(find_header_leaves(second))
        for path in before.keys() | after.keys():
            if before.get(path) != after.get(path):
                evidence = f"two equal requests got different values of {path.partition('.')[2]}"
                difference = ValueDifference(path, before.get(path), after.get(path))
                raise NotMet(evidence, exchange=second, difference=difference)
    return f"{count} headers of {len(answers)} answers contain neither a host time nor a count"


def _find_header_trace(
    path: str,
    value: Any,  # noqa: ANN401 - a header
    now: datetime,
) -> HostTrace | None:
    name = path.partition(".")[2]
    if name.lower() in _TIME_HEADERS:
        return HostTrace(path, f"a header {name}", value)
    return find_host_time(path, value, now)


@CHECKS.must(
    "operator",
    "Agents get no data of the operator: no token, no environment variable, no path of the host.",
)
async def check_operator(ctx: CheckContext) -> str:
    """Search all answers to agents for secrets and absolute paths."""
    seen = await ctx.sights()
    async with ctx.probe.use() as live:
        secrets = ctx.instances.find_secrets(live)
    answers = list(seen.everything)
    docs = {exchange.url for exchange in seen.docs}
    find = partial(find_secret, secrets=secrets)
    for leaves in (_body_leaves, find_header_leaves):
        count = await _require_none(answers, find, leaves)
    others = [exchange for exchange in answers if exchange.url not in docs]
    await _require_none(others, find_host_path, _body_leaves)
    return f"{count} headers and {len(answers)} bodies have none of {len(secrets)} secrets, no path"


@CHECKS.should(
    "process_ids",
    "After a restore, agents see no ids of the process: agents and chat messages get the same ids"
    " as without the restore, and no other value depends on the process.",
    needs_directory=True,
)
async def check_process_ids(ctx: CheckContext) -> str:
    """Compare ids in the original and in a restored world."""
    comparison = await ctx.comparison()
    pairs = await comparison.pair_observations()
    if len(pairs) < _LEAST_PAIRS:
        raise CouldNotRun(f"only {len(pairs)} observations have the same time in both worlds")
    for path, (before, after) in (await _find_constant_differences(pairs)).items():
        evidence = (
            f"in each of {len(pairs)} observations at the same times, the restored world had"
            " another value than the original: an id of the process"
        )
        difference = ValueDifference(path, before, after)
        raise NotMet(evidence, exchange=pairs[0][1], difference=difference)
    original, restored, _ = await comparison.require_late_joiners()
    ids = original.player.agent_id, restored.player.agent_id
    if ids[0] != ids[1]:
        evidence = "the next agent got another id in the restored world than in the original"
        raise NotMet(evidence, difference=ValueDifference("body.agent_id", *ids))
    if not ids[0]:
        raise CouldNotRun("a join answers no text as agent_id")
    if original.said is None or restored.said is None or is_missing(original.said):
        return f"the next agent got {ids[0]} in both worlds; there is no chat"
    for exchange in (original.said, restored.said):
        if not exchange.is_accepted:
            raise CouldNotRun(f"a chat message after the join was refused: {exchange.outcome}")
    said = original.said.fields.get("id"), restored.said.fields.get("id")
    if said[0] != said[1]:
        evidence = "the next chat message got another id in the restored world"
        difference = ValueDifference("body.id", *said)
        raise NotMet(evidence, exchange=restored.said, difference=difference)
    if said[0] is None:
        return f"the next agent got {ids[0]} in both worlds; chat messages have no ids"
    return f"in both worlds the next agent got {ids[0]}, the next chat message {said[0]}"


async def _find_constant_differences(
    pairs: Sequence[tuple[Exchange, Exchange]],
) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ in the same way in all pairs, by path."""
    differing: list[dict[str, tuple[Any, Any]]] = []
    for before, after in pairs:
        await anyio.lowlevel.checkpoint()
        differing.append(
            {
                difference.path: (difference.before, difference.after)
                for difference in find_differences(_show(before), _show(after))
                if _is_id(difference.before) and _is_id(difference.after)
            }
        )
    first, *others = differing
    return {
        path: sides
        for path, sides in first.items()
        if all(other.get(path) == sides for other in others)
    }


def _show(exchange: Exchange) -> dict[str, Any]:
    headers = {
        name.partition(".")[2]: value
        for name, value in find_header_leaves(exchange)
        if name.partition(".")[2].lower() not in _TIME_HEADERS | _FRAMING_HEADERS
    }
    return {"body": exchange.fields, "headers": headers}


def _is_id(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, int | str) and not isinstance(value, bool)
