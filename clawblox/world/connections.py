"""The connections to the instances of an open world."""

from __future__ import annotations

from clawblox.instance.supervisor import Supervisor
from clawblox.system.connection import Connections


class InstanceConnections:
    """The connections to each instance, made when they are first needed.

    They belong to one life of the instance; after each restart there are others.
    """

    def __init__(self) -> None:
        self._known: dict[Supervisor, tuple[int, Connections]] = {}

    def get(self, supervisor: Supervisor) -> Connections:
        """Return the connections to an instance as it runs now."""
        restarts = supervisor.instance.restarts
        life, connections = self._known.get(supervisor, (-1, None))
        if connections is None or life != restarts:
            self.close(supervisor)
            connections = Connections(supervisor.instance.url)
            self._known[supervisor] = restarts, connections
        return connections

    def close(self, supervisor: Supervisor) -> None:
        """Close the connections to an instance; a second call does nothing."""
        known = self._known.pop(supervisor, None)
        if known is not None:
            known[1].close()

    def close_all(self) -> None:
        """Close all connections."""
        for supervisor in tuple(self._known):
            self.close(supervisor)
