"""AgentClient: AsyncAgentClient without ``await``; see ``sync_world``."""

from __future__ import annotations

from types import TracebackType

from clawblox.concurrency.synchronous import Twin, run, synchronous
from clawblox.results import Access
from clawblox.world.agent_client import AsyncAgentClient


class AgentClient(Twin[AsyncAgentClient]):
    """An agent that has joined an instance; what :meth:`World.join` returns.

    Several threads may use one client at the same time; see :class:`AsyncAgentClient`.

    Args:
        target: The client that does the work.
    """

    @property
    def name(self) -> str:
        """See :attr:`AsyncAgentClient.name`."""
        return self._async.name

    @property
    def instance(self) -> str:
        """See :attr:`AsyncAgentClient.instance`."""
        return self._async.instance

    @property
    def rejoined(self) -> bool:
        """See :attr:`AsyncAgentClient.rejoined`."""
        return self._async.rejoined

    @property
    def access(self) -> Access:
        """See :attr:`AsyncAgentClient.access`."""
        return self._async.access

    def on(self, instance: str) -> AgentClient:
        """See :meth:`AsyncAgentClient.on`."""

        async def on() -> AgentClient:
            return AgentClient(self._async.on(instance))

        return run(on)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        async def leave() -> None:
            await self._async.__aexit__(exc_type, exc, traceback)

        run(leave)

    observe = synchronous(AsyncAgentClient.observe)
    act = synchronous(AsyncAgentClient.act)
    say = synchronous(AsyncAgentClient.say)
    messages = synchronous(AsyncAgentClient.messages)
    api = synchronous(AsyncAgentClient.api)
    leave = synchronous(AsyncAgentClient.leave)
