"""A control server with test handlers, and a client without clawblox code."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import structlog

from clawblox.rundir.control_client import find_sockets
from clawblox.rundir.control_server import ControlServer, Handler, Operation, SendEvent


@pytest.fixture(
    params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)], scope="module"
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def echo(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
    """Return the request as the answer."""
    return {"asked": dict(arguments)}


async def count(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
    """Send the numbers below ``to``."""
    for number in range(arguments["to"]):
        await send_event("counted", number=number)
    return {"count": arguments["to"]}


@attrs.define
class Endless:
    """A handler that runs until it is cancelled, and notes how it ended."""

    reports: bool = False
    is_running: anyio.Event = attrs.field(factory=anyio.Event)
    is_cancelled: anyio.Event = attrs.field(factory=anyio.Event)

    async def __call__(
        self, arguments: Mapping[str, Any], send_event: SendEvent
    ) -> Mapping[str, Any]:
        if self.reports:
            await send_event("running")
        self.is_running.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            self.is_cancelled.set()
            raise
        raise AssertionError("unreachable")


class Anything(tuple[str, ...]):
    """A container that contains every member name."""

    def __contains__(self, name: object) -> bool:
        return True


def with_any_members(**handlers: Handler) -> dict[str, Operation]:
    """Return operations that take any members."""
    return {op: Operation(handler, takes=Anything()) for op, handler in handlers.items()}


@contextlib.asynccontextmanager
async def serving(
    run_dir: Path, name: str = "1-1", **handlers: Handler
) -> AsyncIterator[ControlServer]:
    """Serve, and close at the end."""
    server = ControlServer(run_dir, name, with_any_members(echo=echo, count=count, **handlers))
    await server.open()
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        try:
            yield server
        finally:
            with anyio.CancelScope(shield=True):
                await server.aclose()


class RawClient:
    """A client without clawblox code; every call waits in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)

    async def __aenter__(self) -> RawClient:
        directory = os.open(self._path.parent, os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    async def send(self, data: bytes) -> None:
        await anyio.to_thread.run_sync(self.socket.sendall, data)

    async def answer(self) -> bytes:
        """Return everything until the end of the stream."""
        return await anyio.to_thread.run_sync(self._read_all)

    def _read_all(self) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionResetError):  # it closed before it read everything
            while chunk := self.socket.recv(1 << 16):
                data += chunk
        return data


async def find(run_dir: Path) -> list[Path]:
    return await anyio.to_thread.run_sync(find_sockets, run_dir)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory whose path is too long for a socket address."""
    deep = tmp_path.joinpath(*["run-directory-of-an-experiment"] * 5)
    assert len(str(deep)) > 140
    return deep


@pytest.fixture
def logs() -> Iterator[list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def events_of(logs: list[dict[str, Any]], level: str) -> list[str]:
    return [entry["event"] for entry in logs if entry["log_level"] == level]
