"""httpx clients for agents; closed with the world.

The clients that ``join`` returns are the usual way; these are for code that is written for httpx,
an optional dependency. httpx is imported at the first call, because it loads slowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import anyio
import attrs
from anyio.lowlevel import current_token

from clawblox.errors import UsageError

if TYPE_CHECKING:
    import httpx

AsyncHttpClient: TypeAlias = "httpx.AsyncClient"
HttpClient: TypeAlias = "httpx.Client"

_CLOSED_HINT: Final = "call http() while the world is open and the agent is in it"


@attrs.frozen
class ClientRequests:
    """The settings for the requests of a client.

    Attributes:
        base_url: Address of the instance.
        session: The session of the agent; None for requests without a session.
        headers: The headers of each request.
        timeout: Seconds for each step of a request, as httpx counts them.
    """

    base_url: str
    session: str | None
    headers: tuple[tuple[str, str], ...] = attrs.field(repr=False)
    timeout: float

    def options(self) -> dict[str, Any]:
        """Return the arguments of a client that uses no proxy, redirect or other host.

        The address does not use TLS, so no certificates are loaded.
        """
        return {
            "base_url": self.base_url,
            "headers": dict(self.headers),
            "timeout": self.timeout,
            "follow_redirects": False,
            "trust_env": False,
            "verify": False,
        }

    def require_own(self, request: httpx.Request, base: httpx.URL) -> None:
        """Refuse a request to another host, because it would receive the session.

        Raises:
            UsageError: The request goes to another host.
        """
        place, own = request.url, (base.scheme, base.host, base.port)
        if (place.scheme, place.host, place.port) != own:
            raise UsageError(
                f"this client sends a session, so it is only for {self.base_url}, not for {place}",
                hint="use your own client for other addresses",
            )


class HttpClients:
    """The clients handed out while a world is open; an async context manager.

    Async clients belong to the event loop of the world. Blocking clients may be used in any thread
    that httpx supports.
    """

    def __init__(self) -> None:
        self._loop: object = None
        self._async: dict[ClientRequests, httpx.AsyncClient] = {}
        self._blocking: dict[ClientRequests, httpx.Client] = {}

    async def __aenter__(self) -> Self:
        self._loop = current_token()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        await self.close(*self._async, *self._blocking)

    def give(self, caller: ClientRequests) -> httpx.AsyncClient:
        """Return the async client for the given settings, in the event loop of the world.

        Raises:
            UsageError: The world is not open, or is open in another event loop.
        """
        self._require_open()
        self._require_loop()
        client = self._async.get(caller)
        if client is None or client.is_closed:
            import httpx

            async def check(request: httpx.Request) -> None:
                self._require_loop()
                caller.require_own(request, made.base_url)

            made = httpx.AsyncClient(**caller.options(), event_hooks={"request": [check]})
            client = self._async[caller] = made
        return client

    def give_blocking(self, caller: ClientRequests) -> httpx.Client:
        """Return the blocking client for the given settings; may be called in any thread.

        Raises:
            UsageError: The world is not open.
        """
        self._require_open()
        client = self._blocking.get(caller)
        if client is None or client.is_closed:
            import httpx

            def check(request: httpx.Request) -> None:
                caller.require_own(request, made.base_url)

            made = httpx.Client(**caller.options(), event_hooks={"request": [check]})
            client = self._blocking[caller] = made
        return client

    def _require_open(self) -> None:
        if self._loop is None:
            raise UsageError("this world is not open", hint=_CLOSED_HINT)

    def _require_loop(self) -> None:
        if current_token() != self._loop:
            raise UsageError(
                "this client belongs to another event loop, in which its world is open",
                hint="call http() of an AsyncWorld that is open in this loop",
            )

    async def close_session(self, session: str) -> None:
        """Close the clients of a session whose agent has left.

        Cancellation: the clients are still closed.
        """
        given = {*self._async, *self._blocking}
        await self.close(*(caller for caller in given if caller.session == session))

    async def close(self, *callers: ClientRequests) -> None:
        """Close the clients with the given settings.

        Cancellation: the clients are still closed.
        """
        with anyio.CancelScope(shield=True):
            for caller in callers:
                if (client := self._async.pop(caller, None)) is not None:
                    await client.aclose()
                if (blocking := self._blocking.pop(caller, None)) is not None:
                    blocking.close()
