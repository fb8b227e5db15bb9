"""Servers and clients when descriptors and places to wait are scarce."""

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

from clawblox import control, control_server
from clawblox.control import control_dir, request
from clawblox.control_server import ControlServer
from tests.control.conftest import echo, events_of, find, serving
from tests.support import open_fds, wait_until, wait_until_async

pytestmark = pytest.mark.anyio


async def test_it_waits_while_no_descriptor_is_left(run_dir: Path, logs, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_ACCEPT_PAUSE_S", 0.01)
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


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing more for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = next(fd for fd in range(soft) if fd not in open_fds())
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_client_waits_for_its_turn_when_too_many_wait(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_BACKLOG", 0)
    server = ControlServer(run_dir, "1-1", {"echo": echo})
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


def test_a_thousand_requests_leave_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as server:
            before = open_fds().keys()
            for _ in range(1000):
                await request(server.path, "echo", {})
            await wait_until_async(lambda: open_fds().keys() == before)

    anyio.run(main)
    wait_until(lambda: list(control_dir(tmp_path).iterdir()) == [])
