"""Servers and clients with few descriptors and few connections."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.rundir import control_client as control
from clawblox.rundir import control_server
from clawblox.rundir.control_client import control_dir, request
from clawblox.rundir.control_server import ControlServer, Operation
from clawblox.system import sockets
from tests.rundir.control.conftest import Endless, RawClient, echo, events_of, find, serving
from tests.support.resources import open_fds
from tests.support.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.anyio


async def test_the_server_waits_while_no_descriptor_is_available(
    run_dir: Path, logs, monkeypatch
) -> None:
    monkeypatch.setattr(sockets, "_ACCEPT_PAUSE_S", 0.01)
    async with serving(run_dir) as server:
        path = "control/1-1.sock"
        monkeypatch.chdir(server.path.parent.parent)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            with no_descriptor_left():
                client.connect(path)
                client.sendall(b'{"op": "echo"}\n')
                while "control connection not accepted" not in events_of(logs, "warning"):
                    await anyio.sleep(0.005)
            answer = await anyio.to_thread.run_sync(client.recv, 1000)
    assert json.loads(answer) == {"ok": True, "asked": {}}


async def test_a_lasting_lack_of_descriptors_is_reported_once(
    run_dir: Path, logs, monkeypatch
) -> None:
    monkeypatch.setattr(sockets, "_ACCEPT_PAUSE_S", 0.01)
    failures = count_accept_failures(monkeypatch)
    async with serving(run_dir) as server:
        monkeypatch.chdir(server.path.parent.parent)
        with socket.socket(socket.AF_UNIX) as client, no_descriptor_left():
            client.connect("control/1-1.sock")
            while failures() < 5:
                await anyio.sleep(0.005)
    assert events_of(logs, "warning") == ["control connection not accepted"]


def count_accept_failures(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    real, failures = socket.socket.accept, []

    def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
        try:
            return real(listener)
        except BlockingIOError:
            raise
        except OSError as error:
            failures.append(error)
            raise

    monkeypatch.setattr(socket.socket, "accept", accept)
    return lambda: len(failures)


@pytest.mark.thorough
async def test_silent_clients_are_disconnected_to_make_room(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_MAX_UNASKED", 4)
    monkeypatch.setattr(control_server, "_REQUEST_TIMEOUT_S", 0.1)
    most = count_open_connections(monkeypatch)
    async with serving(run_dir) as server, contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            client = await stack.enter_async_context(RawClient(server.path))
            await client.send(b'{"op": "ec')
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert most() <= 5  # the fifth may be accepted while the task of another connection ends


def count_open_connections(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that returns the maximum number of open connections."""
    real = socket.socket.accept
    accepted: list[socket.socket] = []
    most = 0

    def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
        nonlocal most
        connection, address = real(listener)
        accepted.append(connection)
        most = max(most, sum(each.fileno() >= 0 for each in accepted))
        return connection, address

    monkeypatch.setattr(socket.socket, "accept", accept)
    return lambda: most


async def test_long_requests_do_not_use_up_the_connection_limit(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_MAX_UNASKED", 1)
    endless = [Endless() for _ in range(3)]
    handlers = {f"endless{number}": each for number, each in enumerate(endless)}
    async with serving(run_dir, **handlers) as server, anyio.create_task_group() as group:
        for number, each in enumerate(endless):
            group.start_soon(request, server.path, f"endless{number}", {})
            await each.is_running.wait()
        assert await request(server.path, "echo", {}) == {"asked": {}}
        group.cancel_scope.cancel()


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Keep this process from opening descriptors during the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = next(fd for fd in range(soft) if fd not in open_fds())
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_client_waits_if_too_many_connections_are_open(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_BACKLOG", 0)
    server = ControlServer(run_dir, "1-1", {"echo": Operation(echo)})
    await server.open()
    answers: list[dict[str, Any]] = []

    async def ask() -> None:
        answers.append(await request(server.path, "echo", {}))

    attempts = count_calls(monkeypatch, "_try_connect")
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
        await wait_until_async(lambda: attempts() > 3)
        assert await find(run_dir) == [server.path]
        group.start_soon(server.run)
        await wait_until_async(lambda: len(answers) == 3)
        await server.aclose()


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    real, calls = getattr(control, name), []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(control, name, counted)
    return lambda: len(calls)


@pytest.mark.thorough
def test_a_thousand_requests_leave_no_descriptor_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as server:
            before = open_fds().keys()
            for _ in range(1000):
                await request(server.path, "echo", {})
            await wait_until_async(lambda: open_fds().keys() == before)

    anyio.run(main)
    wait_until(lambda: list(control_dir(tmp_path).iterdir()) == [])
