"""Engines: the protocol of a cluster, which places hosts on nodes and carries calls to them.

Threads of the engine complete all futures, so both event loops can wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from clawblox.experiment.plan.cluster import Cluster

_T = TypeVar("_T")


class CallLostError(Exception):
    """It is unknown whether a call reached its host; the same call may be repeated."""


class HostEndedError(Exception):
    """The engine reports that a host's process has ended; its agents may still be running."""


class HostHandle(Protocol):
    """A requested host; its first call is answered once a node has room for it."""

    def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Future[Any]:
        """Call a method of the host, :meth:`clawblox.experiment.cluster.host.AttemptHost.call`.

        Args:
            number: Number of the call, from 1; a repeated call has the same number.
            pending: Numbers of all unanswered calls, including this one. The host may forget all
                others up to the highest of these.
            name: The method.
            arguments: Its arguments, pickled on the way.

        Returns:
            Its result. It fails with :class:`CallLostError`, with :class:`HostEndedError`, or with
            the exception of the method.
        """

    def renew(self, token: float | None) -> Future[float]:
        """Renew the lease of the host, :meth:`clawblox.experiment.cluster.host.AttemptHost.renew`.

        The host answers even when it is busy with other calls.

        Args:
            token: The node's time in the answer before; None for the first renewal.

        Returns:
            The node's time. The future fails like that of :meth:`call`.
        """

    def end(self) -> None:
        """Kill the host, or withdraw the request while it waits for room. Idempotent."""


class Engine(Protocol):
    """A connection to a cluster. Every method returns without waiting for the cluster."""

    def start_host(self, cluster: Cluster, avoid: Collection[str] = ()) -> HostHandle:
        """Ask for a host on a node with the resources that a plan reserves for an attempt.

        Args:
            cluster: The table of the plan, with the reserved resources.
            avoid: Names of nodes to use only if no other node has room.
        """

    def ask_nodes(
        self, function: Callable[..., _T], *arguments: object
    ) -> Mapping[str, Future[_T]]:
        """Call a function once on each node.

        Args:
            function: A function of a module that the nodes have.
            *arguments: Its arguments.

        Returns:
            Futures of the results by node name; they fail like :meth:`HostHandle.call`.
        """

    def describe(self) -> Sequence[str]:
        """Return warnings about the cluster for the user, such as a missing token."""

    def count_rooms(self, cluster: Cluster) -> Mapping[str, int]:
        """Return how many attempts each idle node has resources for, by node name."""

    @property
    def has_token(self) -> bool:
        """True if each node requires a token from every client. Blocks."""

    @property
    def is_private(self) -> bool:
        """True if others cannot read the traffic: it is encrypted or stays local. Blocks."""

    def close(self) -> None:
        """End all hosts, and close the connection if the engine opened it."""
