"""An agent's access to a world: a frozen table of allowed routes.

The proxy refuses all other requests. The module also derives the host name of a world for sandboxed
agents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from clawblox import protocol
from clawblox.config.agent_routes import AgentRoute, is_reserved
from clawblox.errors import ConfigError
from clawblox.system.request import Answer

_MAX_LABEL_CHARS = 63
_NO_NAME = re.compile(r"|localhost|[0-9]+|0x[0-9a-f]*")
"""Labels that have another meaning as a host name: this machine, or a numeric address."""


@attrs.frozen(kw_only=True)
class Grant:
    """An agent's access to a world.

    Attributes:
        world: Name of the world.
        headers: Headers of each request to the world, naming the agent's session. The world
            replaces them when the agent gets another session.
        policy: The routes that the agent may use.
        upstream: Returns the address of the instance, including the base path; None while it does
            not serve. Called for each request, from any thread; must not block.
        suspect: Called when the world answers 503, as it does after halting. Called from any
            thread; must not block.
        note: Called with each request that the world may have received: method, path, body, and
            answer (None without a usable answer). Called from any thread; must neither block nor
            raise.
        sandbox: The table ``[sandbox]`` of the ``world.toml``, with absolute paths.
    """

    world: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    policy: Policy
    upstream: Callable[[], str | None] = attrs.field(repr=False)
    suspect: Callable[[], None] = attrs.field(default=lambda: None, repr=False)
    note: Callable[[str, str, bytes | None, Answer | None], None] = attrs.field(
        default=lambda *_: None, repr=False
    )
    sandbox: Mapping[str, Any] = attrs.field(factory=dict)


def host_name(world: str) -> str:
    """Return the host name of a world: its name as a DNS label."""
    ascii_name = unicodedata.normalize("NFKD", world).encode("ascii", "ignore").decode()
    label = re.sub(r"[^a-z0-9]+", "-", ascii_name.lower())[:_MAX_LABEL_CHARS].strip("-")
    return f"world-{label}".rstrip("-") if _NO_NAME.fullmatch(label) else label


_FIXED: Final = (
    ("GET", protocol.API_ROUTE),
    ("GET", protocol.API_ALIAS_ROUTE),
    ("POST", protocol.CHAT_ROUTE),
    ("GET", protocol.CHAT_MESSAGES_ROUTE),
)
_NAMED: Final = (("GET", "doc_url_path"), ("GET", "observe"), ("POST", "input"))
"""Method and metadata key of the routes whose path is in the world's ``api`` metadata."""


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
            ConfigError: A route cannot be allowed for agents; the error names the key.
        """
        named = [("allow", text) for text in api.get("allow", ())]
        named += [(key, f"{method} {api[key]}") for method, key in _NAMED if key in api]
        routes = [AgentRoute(method, path) for method, path in _FIXED]
        routes += [_parse(key, text, api.get("join", protocol.JOIN_ROUTE)) for key, text in named]
        return cls(routes)

    def allows(self, method: str, path: str) -> bool:
        """Return whether the agent may send a request.

        Args:
            method: The method.
            path: The path in its canonical form, without the query.
        """
        return any(route.matches(method, path) for route in self.routes)


def _parse(key: str, text: str, join: str) -> AgentRoute:
    try:
        route = AgentRoute.parse(text)
        if is_reserved(route.path, join):
            raise ValueError("agents have joined already; they never get the route to join")
    except ValueError as error:
        raise ConfigError(str(error), key=f"api.{key}", value=text) from error
    return route
