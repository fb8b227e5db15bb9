"""An engine without a cluster: each host is a process of this machine, behind a socket.

Calls, trees and leases work as in a cluster. As with Ray, the event loop of a host does not run
in the main thread of its process, and ending a host first kills its direct children.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from clawblox.experiment.cluster.engine import HostEndedError, HostHandle
from clawblox.experiment.cluster.host import AttemptHost
from clawblox.experiment.plan.cluster import Cluster
from clawblox.system.process_tree import all_processes

_T = TypeVar("_T")
_ROOT: Final = str(Path(__file__).parents[3])
_BOOT: Final = (
    f"import sys; sys.path.insert(0, {_ROOT!r});"
    " from tests.experiment.cluster.local_engine import main; main()"
)


class LocalHost:
    """A host of this machine; see :class:`~clawblox.experiment.cluster.engine.HostHandle`.

    Args:
        lease_s: Seconds that it keeps running after a renewal of its lease.
        on_end: Called when its process has ended, or could not be started.
        avoid: Names of nodes that host it only if no other node has room.

    Attributes:
        avoid: The same as the argument.
        node: Name of its node; empty before it has room.
        pid: Its process; 0 before it has room.
    """

    def __init__(
        self, lease_s: float, on_end: Callable[[LocalHost], object], avoid: Collection[str]
    ) -> None:
        self.avoid = avoid
        self.node = ""
        self.pid = 0
        self._lease_s = lease_s
        self._on_end = on_end
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._outgoing: SimpleQueue[object] = SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def start(self, node: str) -> None:
        """Start its process, which answers the waiting calls. Blocks briefly."""
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(self._lease_s), node]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.node, self.pid = node, self._process.pid
        connection = Connection(ours.detach())
        for function in (self._send, self._receive):
            threading.Thread(target=function, args=(connection,), daemon=True).start()

    def call(
        self, number: int, pending: tuple[int, ...], name: str, arguments: tuple[Any, ...]
    ) -> Future[Any]:
        """Call a method of the host."""
        return self._submit("call", number, pending, name, arguments)

    def renew(self, token: float | None) -> Future[float]:
        """Renew the lease of the host."""
        return self._submit("renew", token)

    def _submit(self, kind: str, *arguments: object) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._is_over:
                future.set_exception(HostEndedError("the host has ended"))
                return future
            number = next(self._numbers)
            self._pending[number] = future
            self._outgoing.put((number, kind, arguments))
        return future

    def _send(self, connection: Connection) -> None:
        while (message := self._outgoing.get()) is not None:
            with contextlib.suppress(OSError):  # `_receive` sees the end
                connection.send(message)

    def _receive(self, connection: Connection) -> None:
        assert self._process is not None
        with contextlib.suppress(EOFError, OSError):
            while True:
                number, error, value = connection.recv()
                with self._lock:
                    future = self._pending.pop(number)
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)
        self._process.wait()
        self._fail()
        connection.close()

    def _fail(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            pending = list(self._pending.values())
        self._outgoing.put(None)
        for future in pending:
            future.set_exception(HostEndedError(f"the host on {self.node or 'no node'} has ended"))
        self._on_end(self)

    def end(self) -> None:
        """Kill the host after its direct children, or withdraw it before it starts."""
        process = self._process
        if process is None:
            self._fail()
            return
        with contextlib.suppress(OSError):
            children = [proc.pid for proc in all_processes().values() if proc.ppid == process.pid]
            for pid in children if process.poll() is None else ():
                os.kill(pid, signal.SIGKILL)
        process.kill()


class LocalEngine:
    """Places hosts on nodes that are all on this machine; see ``cluster.engine.Engine``.

    Args:
        nodes: Number of hosts that fit on each node, by node name.

    Attributes:
        hosts: The running hosts.
    """

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self._nodes = dict(nodes)
        self._lock = threading.RLock()
        self._waiting: deque[LocalHost] = deque()
        self.hosts: list[LocalHost] = []

    def start_host(self, cluster: Cluster, avoid: Collection[str] = ()) -> HostHandle:
        """Request a host on the node with the most room."""
        host = LocalHost(cluster.lease, self._remove, avoid)
        with self._lock:
            self._waiting.append(host)
            self._place()
        return host

    def _place(self) -> None:
        while self._waiting:
            taken = Counter(host.node for host in self.hosts)
            room = {name: self._nodes[name] - taken[name] for name in self._nodes}
            host = self._waiting[0]
            node = max(room, key=lambda name: (room[name] > 0, name not in host.avoid, room[name]))
            if room[node] <= 0:
                return
            self._waiting.popleft()
            self.hosts.append(host)
            host.start(node)

    def _remove(self, host: LocalHost) -> None:
        with self._lock:
            for hosts in (self.hosts, self._waiting):
                if host in hosts:
                    hosts.remove(host)
            self._place()

    def ask_nodes(
        self, function: Callable[..., _T], *arguments: object
    ) -> Mapping[str, Future[_T]]:
        """Call a function in this process once for each node."""
        futures: dict[str, Future[_T]] = {}
        for node in self._nodes:
            futures[node] = Future()
            try:
                futures[node].set_result(function(*arguments))
            except Exception as error:
                futures[node].set_exception(error)
        return futures

    def describe(self) -> Sequence[str]:
        """Return no warnings."""
        return ()

    def count_rooms(self, cluster: Cluster) -> Mapping[str, int]:
        """Return the number of hosts that still fit on each node."""
        return self._nodes

    @property
    def has_token(self) -> bool:
        """True: nobody else can connect."""
        return True

    @property
    def is_private(self) -> bool:
        """True: everything stays on this machine."""
        return True

    def close(self) -> None:
        """End all hosts."""
        with self._lock:
            hosts = [*self.hosts, *self._waiting]
        for host in hosts:
            host.end()


def main() -> None:
    """Run a host that receives its calls through a socket, until the socket is closed."""
    descriptor, lease_s, node = sys.argv[1:]
    connection = Connection(int(descriptor))
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    host = AttemptHost(float(lease_s), node)
    lock = threading.Lock()

    def answer(number: int, error: Exception | None, value: object) -> None:
        with lock, contextlib.suppress(OSError):
            connection.send((number, error, value))

    async def call(number: int, arguments: tuple[Any, ...]) -> None:
        reply = await host.call(*arguments)
        await asyncio.to_thread(answer, number, None, reply)

    with contextlib.suppress(EOFError, OSError):
        while True:
            number, kind, arguments = connection.recv()
            if kind == "call":
                asyncio.run_coroutine_threadsafe(call(number, arguments), loop)
                continue
            try:
                answer(number, None, host.renew(*arguments))
            except ValueError as error:
                answer(number, error, None)
    os._exit(0)
