"""An agent's actions in its world, derived from its tool calls and their results. Pure.

A tool call counts as a call to the world if it makes exactly one request to the agent's own
address. Changes are found by comparing the answer with the previous observation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import attrs

from clawblox.differences import find_differences
from clawblox.foreign_values import finite_number, parse_json
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
from clawblox.views.observations import format_difference, format_inline
from clawblox.world.shell_words import take_curl_bodies

_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    OBSERVE_ROUTE: ("looks", ""),
    API_ROUTE: ("reads", "api.md"),
    API_ALIAS_ROUTE: ("reads", "skill.md"),
    CHAT_MESSAGES_ROUTE: ("listens", ""),
    JOIN_ROUTE: ("joins", ""),
    LEAVE_ROUTE: ("leaves", ""),
}
_BODY_VERBS: Final = {INPUT_ROUTE: "acts", CHAT_ROUTE: "says"}
_COMMANDS: Final = ("command", "cmd", "url", "input")
"""Arguments with a command line or an address."""
_BODIES: Final = ("body", "data", "json")
"""Arguments whose value is the body of a request."""
_REQUEST: Final = re.compile(r"https?://[^\s'\"<>|;)]+", re.IGNORECASE)
_OWN_NAMES: Final = (f"${WORLD_URL_ENV}", f"${{{WORLD_URL_ENV}}}")
_SEVERAL: Final = re.compile(r"&&|\|\||;|`|\$\(|(?<!\\)\n|\b(?:for|while|xargs)\b")
"""Signs of a command that makes several requests."""
_QUOTED: Final = re.compile(r"(?<=[\[\"])[^\[\]\"]+(?=[\]\"])")
"""An id in a path, or a quoted text."""
_MAX_CHARS: Final = 1 << 16
_MAX_WORDS: Final = 300
_MAX_CHANGES: Final = 8
_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_NAMES: Final = 1000
_CLOCKS: Final = {"time", "tick"}


@attrs.frozen
class WorldCall:
    """A request of an agent to its world.

    Attributes:
        verb: Verb of the request, such as ``acts`` or ``looks``.
        words: Object of the verb, such as ``Steer {"direction": [1, 0]}``; may be empty.
    """

    verb: str
    words: str = ""


def read_world_call(arguments: Mapping[str, Any], address: str) -> WorldCall | None:
    """Return the request that a tool call makes to the agent's world; None for other calls.

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
    if route not in _BODY_VERBS:
        return None
    given = [arguments[name] for name in _BODIES if arguments.get(name)]
    bodies += [body if isinstance(body, str) else json.dumps(body) for body in given]
    words = bodies[0] if len(bodies) == 1 else ""
    match _parse(words):
        case {"content": str(content)} if route == CHAT_ROUTE:
            words = content
        case {"type": str(kind), **more} if route == INPUT_ROUTE:
            return WorldCall("acts", describe_sent(kind, more.get("data", more)))
    return WorldCall(_BODY_VERBS[route], describe_sent(words))


def describe_sent(words: str, data: object = None) -> str:
    """Return a message, or an action and its data, on one line."""
    if data:
        words = f"{words} {json.dumps(data, ensure_ascii=False)}"
    return one_line(words, _MAX_WORDS)


def _find_command(arguments: Mapping[str, Any]) -> str:
    given = next((arguments[name] for name in _COMMANDS if arguments.get(name)), "")
    if isinstance(given, list) and given:  # for example bash -lc COMMAND
        given = given[-1]
    return given if isinstance(given, str) else ""


def _parse(text: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty object for other texts."""
    with suppress(ValueError):
        value = parse_json(text, max_bytes=_MAX_ANSWER_BYTES)
        return value if isinstance(value, dict) else {}
    return {}


def read_time(answer: str) -> float | None:
    """Return the simulated time in an answer to an observation or an input, or None."""
    return finite_number(_parse_answer(answer).get("time"))


def _parse_answer(answer: str) -> dict[str, Any]:
    """Return the object in an answer, ignoring text before it."""
    return _parse(answer[max(answer.find("{"), 0) :])


# -- answers -------------------------------------------------------------------------------------


class Observed:
    """An agent's latest observation, for showing the next answer as changes."""

    _last: Mapping[str, Any] | None = None

    def describe(self, answer: str) -> str:
        """Return the answer to an observation or an input on one line, as changes or in full."""
        seen, last = _parse_answer(answer), self._last
        if not seen.keys() & _CLOCKS:
            return format_inline(seen, max_chars=_MAX_WORDS) if seen else ""
        self._last = seen
        return _describe_changes(last, seen) if last else format_inline(seen, max_chars=_MAX_WORDS)


def _describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    names = dict(_find_names(after, depth=0))
    found = [*find_differences(before, after)]
    if "time" in after:  # the time has the same information as the tick
        found = [one for one in found if one.path != "tick"]
    found.sort(key=lambda one: (one.path != "time", isinstance(one.after, list | Mapping)))
    shown = [
        _QUOTED.sub(lambda ident: names.get(ident[0], ident[0]), format_difference(one))
        .replace(": ", " ", 1)
        .replace(" -> ", " → ", 1)
        for one in found[:_MAX_CHANGES]
    ]
    if len(found) > _MAX_CHANGES:
        shown.append(f"and {len(found) - _MAX_CHANGES} more")
    return " · ".join(shown) or "no changes"


def _find_names(value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the id and the name of each object that has a name."""
    if isinstance(value, Mapping):
        if isinstance(value.get("id"), str) and isinstance(value.get("name"), str):
            yield value["id"], value["name"]
        value = [*value.values()]
    if isinstance(value, list) and depth < 4:
        for item in value[:_MAX_NAMES]:
            yield from _find_names(item, depth + 1)
