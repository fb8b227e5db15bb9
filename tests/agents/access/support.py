"""Helpers for tests of agents' access: a served access, and bytes sent to it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.from_thread
import attrs

from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.grant import Grant, Policy
from clawblox.agents.access.proxy import ProxyLimits
from clawblox.agents.layout import AgentDir
from clawblox.config.world_toml import WorldConfig
from tests.support.waiting import HANG_S
from tests.support.worlds import RunningWorld

SESSION = "s-of-the-agent"
POLICY = Policy.from_api(WorldConfig(Path("/"), {"name": "x"}).api)
JSON = b"Content-Type: application/json\r\n"


class Got(NamedTuple):
    """An answer: the bytes received until the connection was closed."""

    status: int
    head: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@attrs.define
class Served:
    """An access served in a thread of its own."""

    access: AgentAccess
    port: int

    @property
    def host(self) -> bytes:
        return b"Host: 127.0.0.1:%d\r\n" % self.port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), HANG_S)

    def send(self, data: bytes, *, half_close: bool = False) -> Got:
        """Send bytes and return the answer."""
        with self.connect() as connection:
            with contextlib.suppress(OSError):  # refused before all bytes were sent
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            return receive(connection)

    def ask(self, line: str, *headers: str, body: bytes = b"", host: str | None = None) -> Got:
        """Send a request: its line, its headers besides Host, and its body."""
        lines = [line, f"Host: {host or f'127.0.0.1:{self.port}'}", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return self.send("".join(f"{each}\r\n" for each in [*lines, ""]).encode("latin-1") + body)

    def get(self, target: str, *headers: str, **options: Any) -> Got:
        return self.ask(f"GET {target} HTTP/1.1", *headers, **options)


def receive(connection: socket.socket) -> Got:
    """Receive an answer until the connection is closed; the status is 0 without an answer."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1]) if head else 0
    return Got(status, head.decode("latin-1"), body)


def make_grant(url: str | Callable[[], str | None] | None, **changes: Any) -> Grant:
    upstream = url if callable(url) else lambda: url
    return attrs.evolve(
        Grant(
            world="counter",
            headers={"X-Session": SESSION},
            policy=POLICY,
            upstream=upstream,
        ),
        **changes,
    )


def world_grant(world: RunningWorld, **changes: Any) -> Grant:
    """Return the grant of a world that an agent has joined."""
    return make_grant(f"http://127.0.0.1:{world.port}", headers=world.join(), **changes)


@contextlib.contextmanager
def serving(access: AgentAccess, backend: str = "asyncio") -> Iterator[None]:
    """Serve an access in a thread of its own, as its owner would."""
    with anyio.from_thread.start_blocking_portal(backend) as portal:
        scope = portal.call(anyio.CancelScope)

        async def run() -> None:
            with scope:
                await access.serve()

        task = portal.start_task_soon(run)
        try:
            yield
            assert not task.done(), task.result()
        finally:
            portal.call(scope.cancel)
            task.result(HANG_S)


@contextlib.contextmanager
def served(
    directory: Path, grant: Grant, *, backend: str = "asyncio", **limits: Any
) -> Iterator[Served]:
    """Give an agent access, and serve it."""
    access = AgentAccess(
        "Rocky-r001", AgentDir(directory), is_sandboxed=False, limits=ProxyLimits(**limits)
    )
    try:
        base_url = access.grant(grant)
        with serving(access, backend):
            yield Served(access, int(base_url.rpartition(":")[2]))
    finally:
        access.close()


def requests_of_agents(world: RunningWorld) -> list[dict[str, Any]]:
    """Return the requests that a world received from agents, without the tests' own."""
    received = world.ask("GET", "/__requests").json()
    return [one for one in received if one["path"] != "/join" and "/__" not in one["path"]]
