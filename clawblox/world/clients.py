"""The HTTP clients of the instances of an open world."""

from __future__ import annotations

from clawblox.concurrency.tasks import Tasks
from clawblox.instance.supervisor import Supervisor
from clawblox.system.http import InstanceClient

__all__ = ["InstanceClients"]


class InstanceClients:
    """One HTTP client for each instance, made when it is first needed.

    Args:
        tasks: Close clients that are no longer needed.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._clients: dict[Supervisor, tuple[int, InstanceClient]] = {}

    def get(self, supervisor: Supervisor) -> InstanceClient:
        """Return the client of an instance; after each restart it is another one."""
        instance = supervisor.instance
        life, client = self._clients.get(supervisor, (-1, None))
        if client is not None and life == instance.restarts:
            return client
        if client is not None:
            self._tasks.start_soon(client.aclose)
        client = InstanceClient(instance.url)
        self._clients[supervisor] = instance.restarts, client
        return client

    async def close(self, supervisor: Supervisor) -> None:
        """Close the client of an instance; a second call does nothing."""
        _, client = self._clients.pop(supervisor, (0, None))
        if client is not None:
            await client.aclose()

    async def aclose(self) -> None:
        """Close all clients."""
        for supervisor in tuple(self._clients):
            await self.close(supervisor)
