"""What an agent may ask of its world: a frozen table of routes. Everything else is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from clawblox import protocol
from clawblox.config.agent_routes import AgentRoute, is_reserved
from clawblox.errors import ConfigError

_FIXED: Final = (
    ("GET", protocol.API_ROUTE),
    ("GET", protocol.API_ALIAS_ROUTE),
    ("POST", protocol.CHAT_ROUTE),
    ("GET", protocol.CHAT_MESSAGES_ROUTE),
)
_NAMED: Final = (("GET", "doc_url_path"), ("GET", "observe"), ("POST", "input"))
"""Those whose path stands in the world's ``api`` metadata, by their key there."""


def _sorted(routes: Iterable[AgentRoute]) -> tuple[AgentRoute, ...]:
    return tuple(sorted({*routes}))


@attrs.frozen
class Policy:
    """The routes that one agent may use.

    Attributes:
        routes: The routes, each once.
    """

    routes: tuple[AgentRoute, ...] = attrs.field(converter=_sorted)

    @classmethod
    def from_api(cls, api: Mapping[str, Any]) -> Policy:
        """Return the policy for a world.

        Args:
            api: The world's ``api`` metadata; its key ``allow`` lists further routes.

        Raises:
            ConfigError: A route in it cannot be given to agents; names the key.
        """
        named = [("allow", text) for text in api.get("allow", ())]
        named += [(key, f"{method} {api[key]}") for method, key in _NAMED if key in api]
        routes = [AgentRoute(method, path) for method, path in _FIXED]
        routes += [_parse(key, text, api.get("join", protocol.JOIN_ROUTE)) for key, text in named]
        return cls(routes)

    def allows(self, method: str, path: str) -> bool:
        """Return whether the agent may send such a request.

        Args:
            method: The method.
            path: The path in its only spelling, without the query.
        """
        return any(route.matches(method, path) for route in self.routes)

    def __iter__(self) -> Iterator[AgentRoute]:
        return iter(self.routes)


def _parse(key: str, text: str, join: str) -> AgentRoute:
    try:
        route = AgentRoute.parse(text)
        if is_reserved(route.path, join):
            raise ValueError("agents have joined already; they never get the route to join")
    except ValueError as error:
        raise ConfigError(str(error), key=f"api.{key}", value=text) from error
    return route
