"""AgentClient: AsyncAgentClient without ``await``; see ``sync_world``."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from clawblox.concurrency.synchronous import run, synchronous
from clawblox.results import Access
from clawblox.world.agent_client import AsyncAgentClient

_SELF = f"{__name__}.AgentClient"


def _twin(agent: AgentClient) -> AsyncAgentClient:
    return agent._client


class AgentClient:
    """An agent that has joined an instance; what :meth:`World.join` returns.

    Several threads may use one client at the same time; see :class:`AsyncAgentClient`.

    Args:
        client: The client that does the work.
    """

    def __init__(self, client: AsyncAgentClient) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self.instance}>"

    @property
    def name(self) -> str:
        """See :attr:`AsyncAgentClient.name`."""
        return self._client.name

    @property
    def instance(self) -> str:
        """See :attr:`AsyncAgentClient.instance`."""
        return self._client.instance

    @property
    def rejoined(self) -> bool:
        """See :attr:`AsyncAgentClient.rejoined`."""
        return self._client.rejoined

    @property
    def access(self) -> Access:
        """See :attr:`AsyncAgentClient.access`."""
        return self._client.access

    def on(self, instance: str) -> AgentClient:
        """See :meth:`AsyncAgentClient.on`."""

        async def on() -> AgentClient:
            return AgentClient(self._client.on(instance))

        return run(on)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        async def leave() -> None:
            await self._client.__aexit__(exc_type, exc, traceback)

        run(leave)

    observe = synchronous(AsyncAgentClient.observe, _SELF, _twin)
    act = synchronous(AsyncAgentClient.act, _SELF, _twin)
    say = synchronous(AsyncAgentClient.say, _SELF, _twin)
    messages = synchronous(AsyncAgentClient.messages, _SELF, _twin)
    api = synchronous(AsyncAgentClient.api, _SELF, _twin)
    leave = synchronous(AsyncAgentClient.leave, _SELF, _twin)
