"""What an agent does in its world, as its tool calls and their results show it. Pure.

A call is one of the world if it makes exactly one request to the agent's own address of it. What
the answer changes is found by comparing it with the observation before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from clawblox.differences import Difference, find_differences
from clawblox.foreign_values import parse_json
from clawblox.protocol import (
    API_ALIAS_ROUTE,
    API_ROUTE,
    CHAT_MESSAGES_ROUTE,
    CHAT_ROUTE,
    INPUT_ROUTE,
    JOIN_ROUTE,
    LEAVE_ROUTE,
    OBSERVE_ROUTE,
    WORLD_URL_ENV,
)
from clawblox.views.agent_words import one_line
from clawblox.views.changes import format_difference
from clawblox.views.observations import format_inline
from clawblox.world.shell_words import take_curl_bodies

_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    OBSERVE_ROUTE: ("looks", ""),
    API_ROUTE: ("reads", "api.md"),
    API_ALIAS_ROUTE: ("reads", "skill.md"),
    CHAT_MESSAGES_ROUTE: ("listens", ""),
    JOIN_ROUTE: ("joins", ""),
    LEAVE_ROUTE: ("leaves", ""),
}
_COMMANDS: Final = ("command", "cmd", "url", "input")
"""Arguments with a command line or an address."""
_BODIES: Final = ("body", "data", "json")
"""Arguments with what is sent to an address."""
_REQUEST: Final = re.compile(r"https?://[^\s'\"<>|;)]+", re.IGNORECASE)
_OWN_NAMES: Final = (f"${WORLD_URL_ENV}", f"${{{WORLD_URL_ENV}}}")
_SEVERAL: Final = re.compile(r"&&|\|\||;|`|\$\(|(?<!\\)\n|\b(?:for|while|xargs)\b")
"""Signs of a command that does more than one request."""
_MAX_CHARS: Final = 1 << 16
_MAX_WORDS: Final = 300
_MAX_CHANGES: Final = 8
_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_NAMES: Final = 1000
_CLOCKS: Final = ("time", "tick")


@attrs.frozen
class WorldCall:
    """A request of an agent to its world.

    Attributes:
        verb: What it does, such as ``acts`` or ``looks``.
        words: With what, such as ``Steer {"direction": [1, 0]}``; empty for nothing.
    """

    verb: str
    words: str = ""


def read_world_call(arguments: Mapping[str, Any], address: str) -> WorldCall | None:
    """Return the request that a tool call makes to the agent's world; None if it is another call.

    Args:
        arguments: The arguments of the call.
        address: The agent's address of its world; empty if it has none.
    """
    command = _find_command(arguments)
    if not address or len(command) > _MAX_CHARS:
        return None
    for name in _OWN_NAMES:
        command = command.replace(name, address)
    bodies, rest = take_curl_bodies(command)
    requests = _REQUEST.findall(rest)
    if len(requests) != 1 or _SEVERAL.search(rest.strip()):
        return None
    route = requests[0].removeprefix(address.rstrip("/")).partition("?")[0]
    if route in _VERBS:
        return WorldCall(*_VERBS[route])
    if route not in (INPUT_ROUTE, CHAT_ROUTE):
        return None
    bodies += [body for name in _BODIES if (body := _as_text(arguments.get(name)))]
    body = bodies[0] if len(bodies) == 1 else ""
    if route == CHAT_ROUTE:
        return WorldCall("says", one_line(_find_member(_parse(body), "content", body), _MAX_WORDS))
    return WorldCall("acts", one_line(_describe_input(body), _MAX_WORDS))


def _find_command(arguments: Mapping[str, Any]) -> str:
    given = next((arguments[name] for name in _COMMANDS if arguments.get(name)), "")
    if isinstance(given, list) and given:  # bash -lc COMMAND
        given = given[-1]
    return given if isinstance(given, str) else ""


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value) if value else ""


def _parse(text: str) -> object:
    try:
        return parse_json(text, max_bytes=_MAX_ANSWER_BYTES)
    except ValueError:
        return None


def _find_member(value: object, name: str, default: str) -> str:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else default


def _describe_input(body: str) -> str:
    parsed = _parse(body)
    kind = _find_member(parsed, "type", "")
    if not isinstance(parsed, Mapping) or not kind:
        return body
    data = {name: value for name, value in parsed.items() if name != "type"}
    shown = data["data"] if data.keys() == {"data"} else data
    return f"{kind} {json.dumps(shown, ensure_ascii=False)}" if shown else kind


# -- answers -------------------------------------------------------------------------------------


class Observed:
    """What an agent has seen last, so that the next answer is told by what it changes."""

    def __init__(self) -> None:
        self._last: Mapping[str, Any] | None = None

    def describe(self, answer: str) -> str:
        """Return an answer to a look or an input on one line: what has changed, or all of it.

        Args:
            answer: The result of the tool call; text before the JSON is passed over.
        """
        seen = _parse(answer[max(answer.find("{"), 0) :])
        if not isinstance(seen, Mapping):
            return ""
        last, is_observation = self._last, any(name in seen for name in _CLOCKS)
        if is_observation:
            self._last = seen
        if last is None or not is_observation:
            return format_inline(seen, max_chars=_MAX_WORDS)
        return _describe_changes(last, seen)


def _describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    names = dict(_find_names(after, depth=0))
    found = [one for one in find_differences(before, after) if not _repeats_time(one, after)]
    found.sort(key=lambda one: (one.path != "time", isinstance(one.after, list | Mapping)))
    shown = [
        format_difference(_named(one, names)).replace(": ", " ", 1).replace(" -> ", " → ", 1)
        for one in found[:_MAX_CHANGES]
    ]
    if len(found) > _MAX_CHANGES:
        shown.append(f"and {len(found) - _MAX_CHANGES} more")
    return " · ".join(shown) or "nothing has changed"


def _repeats_time(difference: Difference, after: Mapping[str, Any]) -> bool:
    return difference.path == "tick" and "time" in after


def _find_names(value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the ids of objects that have a name, with it."""
    if isinstance(value, Mapping) and depth < 4:
        if isinstance(value.get("id"), str) and isinstance(value.get("name"), str):
            yield value["id"], value["name"]
        for member in value.values():
            yield from _find_names(member, depth + 1)
    elif isinstance(value, list) and depth < 4:
        for item in value[:_MAX_NAMES]:
            yield from _find_names(item, depth + 1)


def _named(difference: Difference, names: Mapping[str, str]) -> Difference:
    path = difference.path
    for ident in _mentioned(path, names):
        path = path.replace(ident, names[ident])
    before, after = (
        names.get(value, value) if isinstance(value, str) else value
        for value in (difference.before, difference.after)
    )
    return attrs.evolve(difference, path=path, before=before, after=after)


def _mentioned(path: str, names: Mapping[str, str]) -> Collection[str]:
    return [part for part in re.findall(r"\[([^\[\]\"]+)\]", path) if part in names]
