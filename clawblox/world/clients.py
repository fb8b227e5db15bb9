"""The HTTP clients of the instances of an open world."""

from __future__ import annotations

import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.instance.supervisor import Supervisor
from clawblox.system.connection import Connections
from clawblox.system.http import InstanceClient

__all__ = ["InstanceClients"]


@attrs.frozen
class _Clients:
    """The clients of one life of an instance; each opens its first connection when needed."""

    life: int
    client: InstanceClient
    connections: Connections

    async def aclose(self) -> None:
        self.connections.close()
        await self.client.aclose()


class InstanceClients:
    """The clients of each instance, made when they are first needed.

    Args:
        tasks: Close clients that are no longer needed.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._clients: dict[Supervisor, _Clients] = {}

    def get(self, supervisor: Supervisor) -> InstanceClient:
        """Return the client for our own calls to an instance; after each restart another one."""
        return self._find(supervisor).client

    def connections(self, supervisor: Supervisor) -> Connections:
        """Return the connections for the agents of an instance; after each restart others."""
        return self._find(supervisor).connections

    def _find(self, supervisor: Supervisor) -> _Clients:
        instance = supervisor.instance
        known = self._clients.get(supervisor)
        if known is not None:
            if known.life == instance.restarts:
                return known
            self._tasks.start_soon(known.aclose)
        url = instance.url
        made = _Clients(instance.restarts, InstanceClient(url), Connections(url))
        self._clients[supervisor] = made
        return made

    async def close(self, supervisor: Supervisor) -> None:
        """Close the clients of an instance; a second call does nothing."""
        known = self._clients.pop(supervisor, None)
        if known is not None:
            await known.aclose()

    async def aclose(self) -> None:
        """Close all clients."""
        for supervisor in tuple(self._clients):
            await self.close(supervisor)
