"""The engine that places hosts on the nodes of a Ray cluster. Only this module imports Ray.

All nodes must have the same version of Python and of Ray, at least 2.60.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from clawblox.errors import ConfigError
from clawblox.experiment.cluster.engine import CallLostError, HostEndedError
from clawblox.experiment.cluster.node import prepare_process, requires_token
from clawblox.experiment.plan.cluster import Cluster
from clawblox.extras import require_extra

require_extra("ray", __name__)

import ray
from ray import exceptions
from ray._private import worker
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_T = TypeVar("_T")

ANSWER_TIMEOUT_S = 5.0
"""Seconds to wait for the head of a cluster to accept a connection; Ray would try for minutes."""
TOKEN_TIMEOUT_S = 60.0
"""Seconds for each node to report whether it requires a token; mostly for starting a worker."""
_CALLS = 1000
"""Maximum concurrent calls to a host; more are never made."""
_OPTIONS: Mapping[str, Any] = {
    "max_restarts": 0, "max_task_retries": 0, "lifetime": "non_detached",
    "max_concurrency": _CALLS, "concurrency_groups": {"lease": _CALLS},
    "scheduling_strategy": "SPREAD",
}  # fmt: skip
_HINT = """\
start a cluster with 'ray start --head' and use the address that it prints, or set RAY_ADDRESS; \
if it requires a token, set RAY_AUTH_MODE=token and the token here too"""
_OPEN = """\
the cluster requires no token, so anyone who can reach it can run programs on its nodes: \
set RAY_AUTH_MODE=token before 'ray start' on each node, and here"""
_PLAIN = """\
the cluster's network traffic is not encrypted: \
set RAY_USE_TLS=1 and Ray's other variables for TLS before 'ray start' on each node, and here"""
_ENDED = (
    exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.NodeDiedError,
    exceptions.OutOfMemoryError, exceptions.RuntimeEnvSetupError,
    exceptions.ActorUnschedulableError, exceptions.TaskUnschedulableError,
)  # fmt: skip
"""Errors of an ended actor or task. After other errors, a call's outcome is unknown."""


class _Actor:
    """Runs a host in its own process on a node."""

    def __init__(self, host_class: Callable[[str], Any]) -> None:
        names, node = _name_nodes(), ray.get_runtime_context().get_node_id()
        prepare_process()
        self._host = host_class(names.get(node, node))

    async def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Any:  # noqa: ANN401
        return await self._host.call(number, pending, name, arguments)

    @ray.method(concurrency_group="lease")  # type: ignore[untyped-decorator]
    async def renew(self, token: float | None) -> float:
        return float(self._host.renew(token))


class RayHost:
    """A requested host; implements :class:`clawblox.experiment.cluster.engine.HostHandle`.

    Args:
        actor: Its actor, as soon as Ray knows it.
        control: Runs calls that may wait for the head of the cluster.
        hosts: The hosts that have not been ended.
    """

    def __init__(self, actor: Future[Any], control: Executor, hosts: set[RayHost]) -> None:
        self._actor = actor
        self._control = control
        self._hosts = hosts
        hosts.add(self)

    def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Future[Any]:
        """Call a method of the host."""
        return self._send("call", number, pending, name, arguments)

    def renew(self, token: float | None) -> Future[float]:
        """Renew the lease of the host."""
        return self._send("renew", token)

    def _send(self, method: str, *arguments: object) -> Future[Any]:
        outcome = _new_future()

        def send(actor: Future[Any]) -> None:
            with _failing(outcome):
                if self not in self._hosts:
                    raise HostEndedError("the host was ended")
                _forward(getattr(actor.result(), method).remote(*arguments), outcome)

        self._actor.add_done_callback(send)
        return outcome

    def end(self) -> None:
        """Kill the host, or withdraw the request while it waits for room. Idempotent."""
        if self in self._hosts:
            self._hosts.discard(self)
            self._control.submit(self._kill)

    def _kill(self) -> None:
        with contextlib.suppress(Exception):  # no actor or no connection
            ray.kill(self._actor.result())


class RayEngine:
    """A connection to a Ray cluster; implements :class:`clawblox.experiment.cluster.engine.Engine`.

    An existing connection of this process, such as in Ray's tasks and actors, is used and never
    shut down. Starting, calling and ending hosts never waits for the cluster; ``ask_nodes``,
    ``describe``, ``close`` and the properties wait for its head.

    Args:
        address: Address of the cluster: ``"host:port"``, or ``"auto"`` for the address in
            ``RAY_ADDRESS``, the cluster of this machine or the existing connection.
        host_class: Class of the hosts, which is called with the name of the node.

    Raises:
        ConfigError: No cluster answers there, it refuses this process, or the existing connection
            is to another cluster.
    """

    def __init__(self, address: str, host_class: Callable[[str], Any]) -> None:
        self._host_class = host_class
        self._hosts: set[RayHost] = set()
        # Ray replaces the handler of SIGTERM when it connects in the main thread, so this thread
        # connects. It also makes the calls that would block an event loop while the head is
        # unreachable.
        self._control = ThreadPoolExecutor(1, thread_name_prefix="clawblox-ray")
        try:
            self._is_own = self._control.submit(_connect, address).result()
        except Exception:
            self._control.shutdown()
            raise
        self._actor_class = ray.remote(**_OPTIONS)(_Actor)

    def start_host(self, cluster: Cluster, avoid: Collection[str] = ()) -> RayHost:
        """Ask for a host on a node with the resources that a plan reserves for an attempt."""
        actor = self._control.submit(self._start_actor, cluster, avoid)
        return RayHost(actor, self._control, self._hosts)

    def _start_actor(self, cluster: Cluster, avoid: Collection[str]) -> Any:  # noqa: ANN401
        lost = [node for node, name in _name_nodes().items() if name in avoid] if avoid else []
        actor_class = self._actor_class.options(
            num_cpus=cluster.cpus,
            num_gpus=cluster.gpus,
            memory=cluster.memory,
            resources=dict(cluster.resources),
            label_selector={"ray.io/node-id": f"!in({','.join(lost)})"} if lost else None,
            fallback_strategy=[{"label_selector": {}}] if lost else None,  # on any node
        )
        return actor_class.remote(self._host_class)

    def ask_nodes(
        self, function: Callable[..., _T], *arguments: object
    ) -> Mapping[str, Future[_T]]:
        """Call a function of a module once on each node; the keys are node names."""
        return self._control.submit(self._ask, function, arguments).result()

    def _ask(self, function: Callable[..., Any], arguments: Iterable[Any]) -> dict[str, Any]:
        answers = {}
        for node, name in _name_nodes().items():
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=where)(function)
            answers[name] = _new_future()
            with _failing(answers[name]):
                _forward(task.remote(*arguments), answers[name])
        return answers

    def count_rooms(self, cluster: Cluster) -> Mapping[str, int]:
        """Return how many attempts each idle node has resources for, by node name."""
        return self._control.submit(_count_rooms, cluster).result()

    @property
    def is_private(self) -> bool:
        """True if traffic is encrypted or stays on this machine."""
        return self.is_encrypted or self.is_loopback

    @property
    def is_encrypted(self) -> bool:
        """True if the connection is encrypted; the cluster then refuses unencrypted connections."""
        return os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")

    @property
    def is_loopback(self) -> bool:
        """True if all nodes have addresses of this machine."""
        nodes = self._control.submit(_live_nodes).result()
        return all(_is_of_this_machine(node["NodeManagerAddress"]) for node in nodes)

    @functools.cached_property
    def has_token(self) -> bool:
        """True if each node requires a token from every client.

        The nodes are asked, since a driver with a token may join a cluster that requires none.
        """
        answers = self.ask_nodes(requires_token).values()
        with contextlib.suppress(CallLostError, HostEndedError, TimeoutError):
            return all(answer.result(TOKEN_TIMEOUT_S) for answer in answers)
        return False

    def describe(self) -> Sequence[str]:
        """Return warnings about the cluster for the user."""
        warnings = [] if self.has_token else [_OPEN]
        return warnings if self.is_private else [*warnings, _PLAIN]

    def close(self) -> None:
        """End all hosts, and close the connection if this engine opened it. Idempotent."""
        for host in [*self._hosts]:
            host.end()
        self._control.shutdown()
        if self._is_own:
            self._is_own = False
            ray.shutdown()
            worker._worker_logs_enabled = True


def _connect(address: str) -> bool:
    """Connect to a cluster unless this process is connected; return whether this call connected."""
    if ray.is_initialized():
        existing = ray.get_runtime_context().gcs_address
        if address != "auto" and canonicalize_bootstrap_address(address) != existing:
            text = f"must be auto or {existing}, since this process is connected to that cluster"
            raise ConfigError(text, key="cluster.address", value=address)
        return False
    try:
        host, _, port = (canonicalize_bootstrap_address(address) or address).rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_TIMEOUT_S).close()
        ray.init(address=address, log_to_driver=False, logging_level="error")
        worker._worker_logs_enabled = False  # it would write its own messages to stdout
    except (OSError, RuntimeError, ValueError, RayError) as error:
        text = f"must be the address of a running Ray cluster: {error}"
        raise ConfigError(text, key="cluster.address", value=address, hint=_HINT) from error
    return True


def _is_of_this_machine(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family) as probe:
        probe.bind((address, 0))
        return True
    return False


def _live_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _name_nodes() -> dict[str, str]:
    """Return the names of the live nodes by id, with duplicate names made unique.

    A node's name in Ray is its address unless ``ray start --node-name`` gave another.
    """
    names = {node["NodeID"]: node["NodeName"] for node in _live_nodes()}
    count = Counter(names.values())
    return {node: f"{name}-{node[:8]}" if count[name] > 1 else name for node, name in names.items()}


def _count_rooms(cluster: Cluster) -> dict[str, int]:
    own = {"CPU": cluster.cpus, "GPU": cluster.gpus, "memory": cluster.memory or 0}
    needed = {name: amount for name, amount in {**own, **cluster.resources}.items() if amount}
    names, rooms = _name_nodes(), {}
    for node in _live_nodes():
        given = node["Resources"]
        fits = (int(given.get(name, 0) // amount) for name, amount in needed.items())
        rooms[names[node["NodeID"]]] = min(fits, default=_CALLS)
    return rooms


def _new_future() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # it can no longer be cancelled; only a call ends a call
    return future


@contextlib.contextmanager
def _failing(outcome: Future[Any]) -> Iterator[None]:
    """Fail the outcome with an exception of the block."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whoever waits for the outcome gets it
        outcome.set_exception(translate(error))


def _forward(answer: ray.ObjectRef[Any], outcome: Future[Any]) -> None:
    """Complete an outcome with the answer to a call."""

    def complete(source: Future[Any]) -> None:
        with _failing(outcome):
            outcome.set_result(source.result())

    answer.future().add_done_callback(complete)


def translate(error: Exception) -> Exception:
    """Return the engine's error for an error of a call."""
    match error:
        case exceptions.RayTaskError(cause=Exception() as cause) if not isinstance(cause, RayError):
            return cause
        case exceptions.RayTaskError() | exceptions.UnserializableException():
            return RuntimeError(str(error))  # it cannot be pickled
        case RayError():
            is_ended = isinstance(error, _ENDED) and not isinstance(error, ActorUnavailableError)
            return HostEndedError(str(error)) if is_ended else CallLostError(str(error))
    return error
