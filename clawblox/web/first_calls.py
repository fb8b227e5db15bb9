"""Two agents by their calls: where they first act otherwise, and get another result.

That is for branches without recordings. The n-th call of an agent is compared with the n-th call of
the other one, and so are results. Names and directories of the agents, ids, addresses and times
differ by design.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.agents.trajectory import TurnIndex, read_window
from clawblox.differences import ABSENT, find_differences
from clawblox.web.first_differences import ADDRESS, UTC_TIME

Kind: TypeAlias = Literal["action", "observation"]

_MAX_BYTES: Final = 16 << 20
"""How much of each log is read."""
_BORDERS: Final = " \t\n\"'`=(:,"
"""Characters before a path."""
_UUID: Final = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")


@attrs.frozen
class Call:
    """A tool call, or the result of one.

    Attributes:
        value: Tool and arguments, or the result.
        utc: When it arrived; None if that is not known.
        offset: Its place in the log.
    """

    value: Any
    utc: str | None
    offset: int


@attrs.frozen
class CallDifference:
    """The first call or result in which two agents differ.

    Attributes:
        kind: Which of the two.
        path: Where in it; empty for all of it.
        first: The value there for the first agent, as JSON; None where there is none.
        second: The value for the second.
        first_call: The whole call or result of the first.
        second_call: That of the second.
    """

    kind: Kind
    path: str
    first: Any
    second: Any
    first_call: Call
    second_call: Call


def find_call_differences(
    first: Path, second: Path, since: Sequence[str | None], names: Sequence[str]
) -> list[CallDifference]:
    """Return the first call and the first result that differ, as far as any does. Blocks.

    Args:
        first: Directory of an agent.
        second: Directory of the agent that is compared with it.
        since: The UTC time of the fork for the one of them that went on; None for one that began
            there. Times of saves are whole seconds.
        names: Names of both, and of their runs.

    Raises:
        OSError: A file of an agent cannot be read.
        ClawbloxError: No agent has run there, or a later version of clawblox wrote its files.
    """
    calls = [_read(path, at) for path, at in zip((first, second), since, strict=True)]
    found = (
        _compare("action", calls[0][0], calls[1][0], names),
        _compare("observation", calls[0][1], calls[1][1], names),
    )
    return [difference for difference in found if difference is not None]


def _read(directory: Path, since: str | None) -> tuple[list[Call], list[Call]]:
    """Return the calls and the results of an agent, without those that it was loaded with."""
    turns = TurnIndex(directory)
    turns.read_on()
    start = turns.first_start or 0
    if since is not None:
        found = turns.find_time(f"{since[:19]}.000Z")
        if found is None:  # it has done nothing since
            return [], []
        start = found
    actions: list[Call] = []
    observations: list[Call] = []
    for step in _read_steps(turns, start):
        at, offset = step.get("timestamp"), step.get("extra", {}).get("raw_offset", 0)
        for call in step.get("tool_calls", ()):
            value = {key: call.get(key) for key in ("function_name", "arguments")}
            actions.append(Call(value, at, offset))
        results = step.get("observation", {}).get("results", ())
        observations += [Call(result.get("content"), at, offset) for result in results]
    return actions, observations


def _read_steps(turns: TurnIndex, start: int) -> Iterator[dict[str, Any]]:
    window = read_window(turns, start)
    yield from window.steps
    while window.has_later and window.last - start < _MAX_BYTES:
        last = window.last
        window = read_window(turns, last)
        if window.last == last:
            return
        yield from window.steps


def _compare(
    kind: Kind, left: Sequence[Call], right: Sequence[Call], names: Sequence[str]
) -> CallDifference | None:
    for pair in zip(left, right, strict=False):
        values = [_plain(call.value, names) for call in pair]
        if found := find_differences(*values):
            sides = (found[0].before, found[0].after)
            first, second = (None if side is ABSENT else side for side in sides)
            return CallDifference(kind, found[0].path, first, second, *pair)
    return None


def _plain(value: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    """Return a value without what differs by design; the depth of records is bounded."""
    if isinstance(value, str):
        for name in sorted(filter(None, names), key=len, reverse=True):
            *parts, last = value.split(name)
            value = "".join(f"{_without_path(part)}NAME" for part in parts) + last
        return _UUID.sub("an id", UTC_TIME.sub("a time", ADDRESS.sub("an address", value)))
    if isinstance(value, dict):
        return {key: _plain(item, names) for key, item in value.items()}
    return [_plain(item, names) for item in value] if isinstance(value, list) else value


def _without_path(text: str) -> str:
    """Return a text without the path at its end, which leads to what follows."""
    start = max(map(text.rfind, _BORDERS)) + 1
    slash = text.find("/", start)
    return text if slash < 0 else text[:slash]
