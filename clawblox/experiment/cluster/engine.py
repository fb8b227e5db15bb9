"""Engines: the protocol of a cluster, which places hosts on nodes and carries calls to them.

All futures are completed by threads of the engine, so that both event loops can wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from clawblox.experiment.plan.cluster import Cluster

_T = TypeVar("_T")


class CallLostError(Exception):
    """It is unknown whether a call has reached its host: the same call may be made again."""


class HostEndedError(Exception):
    """The process of a host has ended, as far as the engine knows; its agents may still live."""


class HostHandle(Protocol):
    """A host that was asked for; its first call is answered when it has room on a node."""

    def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Future[Any]:
        """Call a method of the host, :meth:`clawblox.experiment.cluster.host.AttemptHost.call`.

        Args:
            number: Number of the call, from 1; a repeated call has the same number.
            pending: Numbers of all calls that wait for their answers, this one among them. The host
                may forget all others up to the highest of these.
            name: The method.
            arguments: Its arguments, pickled on the way.

        Returns:
            Its result. It fails with :class:`CallLostError`, with :class:`HostEndedError`, or with
            the exception of the method.
        """

    def renew(self, token: float | None) -> Future[float]:
        """Renew the lease of the host, :meth:`clawblox.experiment.cluster.host.AttemptHost.renew`.

        It is answered although the host is busy with other calls.

        Args:
            token: The node's time in the answer before; None for the first renewal.

        Returns:
            The node's time. It fails like :meth:`call`.
        """

    def end(self) -> None:
        """End the host with force, or withdraw it while it waits for room. Idempotent."""


class Engine(Protocol):
    """A connection to a cluster. Every method returns without waiting for the cluster."""

    def start_host(self, cluster: Cluster, avoid: Collection[str] = ()) -> HostHandle:
        """Ask for a host on a node with the resources that a plan reserves for an attempt.

        Args:
            cluster: What it reserves.
            avoid: Names of nodes that get it only if no other node has room.
        """

    def ask_nodes(
        self, function: Callable[..., _T], *arguments: object
    ) -> Mapping[str, Future[_T]]:
        """Call a function once on each node.

        Args:
            function: A function of a module that the nodes have.
            *arguments: Its arguments.

        Returns:
            Its results by the name of the node; they fail like :meth:`HostHandle.call`.
        """

    def describe(self) -> Sequence[str]:
        """Return warnings about the cluster, for people: no token, for example."""

    def count_rooms(self, cluster: Cluster) -> Mapping[str, int]:
        """Return how many attempts each node has resources for, by its name, if nothing runs."""

    @property
    def has_token(self) -> bool:
        """True if each node requires a token of all who connect. Blocks."""

    @property
    def is_private(self) -> bool:
        """True if others cannot read what travels: it is encrypted, or stays here. Blocks."""

    def close(self) -> None:
        """End all hosts, and the connection if the engine has made it."""
