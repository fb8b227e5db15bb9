"""Requests, their events, and their answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.results import ProcessExit
from clawblox.rundir.control_client import request
from clawblox.rundir.control_server import SendEvent
from tests.rundir.control.conftest import RawClient, serving

pytestmark = pytest.mark.anyio


async def test_a_request_gets_its_answer(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        answer = await request(server.path, "echo", {"instance": "w000", "keep": 3})
    assert answer == {"asked": {"instance": "w000", "keep": 3}}


async def test_events_come_in_order_before_the_answer(run_dir: Path) -> None:
    events: list[dict[str, Any]] = []
    async with serving(run_dir) as server:
        answer = await request(server.path, "count", {"to": 3}, events.append)
        assert await request(server.path, "count", {"to": 3}) == {"count": 3}
    assert events == [{"number": number, "event": "counted"} for number in range(3)]
    assert answer == {"count": 3}


async def test_an_event_is_sent_before_the_handler_ends(run_dir: Path) -> None:
    is_seen = anyio.Event()

    async def patient(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        await send_event("begun")
        await is_seen.wait()
        return {}

    async with serving(run_dir, patient=patient) as server:
        answer = await request(server.path, "patient", {}, lambda event: is_seen.set())
    assert answer == {}


async def test_each_line_of_the_protocol_is_a_json_object(run_dir: Path) -> None:
    async with serving(run_dir) as server, RawClient(server.path) as client:
        await client.send(b'{"op": "count",')
        await client.send(b' "to": 2}\nwhat comes after the line is not looked at\n')
        answer = await client.answer()
    assert [json.loads(line) for line in answer.decode().splitlines()] == [
        {"event": "counted", "number": 0},
        {"event": "counted", "number": 1},
        {"ok": True, "count": 2},
    ]
    assert answer.endswith(b"\n")


async def test_values_of_clawblox_classes_are_sent_as_plain_values(run_dir: Path) -> None:
    async def status(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        return {"path": Path("/a/b"), "exit": ProcessExit(signal="SIGKILL")}

    async with serving(run_dir, status=status) as server:
        answer = await request(server.path, "status", {})
    assert answer == {"path": "/a/b", "exit": {"status": None, "signal": "SIGKILL"}}


async def test_a_large_answer_arrives_completely(run_dir: Path) -> None:
    async def large(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        return {"text": "x" * (4 << 20)}

    async with serving(run_dir, large=large) as server:
        assert len((await request(server.path, "large", {}))["text"]) == 4 << 20


@pytest.mark.thorough
async def test_many_clients_are_served_concurrently(run_dir: Path) -> None:
    waiting = 0
    everybody_came = anyio.Event()

    async def meet(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        nonlocal waiting
        waiting += 1
        if waiting == 60:
            everybody_came.set()
        await everybody_came.wait()
        return {}

    async with serving(run_dir, meet=meet) as server, anyio.create_task_group() as clients:
        for _ in range(60):
            clients.start_soon(request, server.path, "meet", {})
    assert waiting == 60


async def test_a_client_in_another_process_is_served(run_dir: Path) -> None:
    code = (
        "import anyio, json, sys\n"
        "from pathlib import Path\n"
        "from clawblox.rundir.control_client import find_sockets, request\n"
        "[path] = find_sockets(Path(sys.argv[1]))\n"
        "events = []\n"
        "answer = anyio.run(request, path, 'count', {'to': 2}, events.append)\n"
        "print(json.dumps([path.name, [e['number'] for e in events], answer]))\n"
    )
    async with serving(run_dir, "4711-1"):
        result = await anyio.run_process([sys.executable, "-c", code, str(run_dir)])
    assert json.loads(result.stdout) == ["4711-1.sock", [0, 1], {"count": 2}]


@pytest.mark.thorough
async def test_the_client_works_without_a_logging_library() -> None:
    code = "import clawblox.rundir.control_client, sys; assert 'structlog' not in sys.modules"
    await anyio.run_process([sys.executable, "-c", code])
