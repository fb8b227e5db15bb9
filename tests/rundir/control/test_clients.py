"""Clients that disconnect, and clients that read slowly or not at all."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox.rundir import control_server
from clawblox.rundir.control_client import request, short_path
from clawblox.rundir.control_server import SendEvent
from tests.rundir.control.conftest import Endless, RawClient, events_of, serving
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("how", ["close", "shutdown", "close unread"])
async def test_a_disconnected_client_cancels_its_handler(run_dir: Path, logs, how: str) -> None:
    endless = Endless(reports=how == "close unread")
    async with serving(run_dir, endless=endless) as server:
        async with RawClient(server.path) as client:
            await client.send(b'{"op": "endless"}\n')
            await endless.is_running.wait()
            assert not endless.is_cancelled.is_set()
            if how == "shutdown":
                client.socket.shutdown(socket.SHUT_WR)
                assert await client.answer() == b""
        with anyio.fail_after(HANG_S):
            await endless.is_cancelled.wait()
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert events_of(logs, "error") == []


async def test_a_request_cancelled_before_it_was_read_is_not_started(run_dir: Path) -> None:
    begun: list[object] = []

    async def begin(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        begun.append(arguments)
        return {}

    async with serving(run_dir, begin=begin) as server:
        with socket.socket(socket.AF_UNIX) as client, short_path(server.path) as address:
            client.connect(address)  # the loop is blocked here
            client.sendall(b'{"op": "begin"}\n')
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert begun == []


async def test_a_cancelled_request_cancels_only_its_own_handler(run_dir: Path) -> None:
    one, other = Endless(), Endless()
    async with (
        serving(run_dir, one=one, other=other) as server,
        anyio.create_task_group() as clients,
    ):
        clients.start_soon(request, server.path, "other", {})
        await other.is_running.wait()
        async with anyio.create_task_group() as caller:
            caller.start_soon(request, server.path, "one", {})
            await one.is_running.wait()
            caller.cancel_scope.cancel()
        with anyio.fail_after(HANG_S):
            await one.is_cancelled.wait()
        assert not other.is_cancelled.is_set()
        clients.cancel_scope.cancel()


async def test_an_event_to_a_disconnected_client_cancels_the_handler(
    run_dir: Path, monkeypatch
) -> None:
    """This holds even if only the event can notice the disconnect."""

    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(control_server, "_cancel_at_end", never)
    has_begun, is_gone, is_cancelled = anyio.Event(), anyio.Event(), anyio.Event()

    async def late(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        has_begun.set()
        try:
            await is_gone.wait()
            await send_event("too late")
        except BaseException:
            is_cancelled.set()
            raise
        return {}

    async with serving(run_dir, late=late) as server:
        async with RawClient(server.path) as client:
            await client.send(b'{"op": "late"}\n')
            await has_begun.wait()
        is_gone.set()
        with anyio.fail_after(HANG_S):
            await is_cancelled.wait()


@attrs.define
class Talker:
    """A handler whose events exceed any buffer."""

    reports: int = 0
    is_cancelled: bool = False

    async def __call__(
        self, arguments: Mapping[str, Any], send_event: SendEvent
    ) -> Mapping[str, Any]:
        try:
            for number in range(100):
                await send_event("chunk", number=number, text="x" * 100_000)
                self.reports += 1
        except BaseException:
            self.is_cancelled = True
            raise
        return {}


async def test_a_slow_reader_delays_only_its_own_handler(run_dir: Path) -> None:
    talker = Talker()
    async with serving(run_dir, talk=talker) as server, RawClient(server.path) as slow:
        await slow.send(b'{"op": "talk"}\n')
        await wait_until_async(lambda: talker.reports)
        for _ in range(10):  # the others are served while the buffer fills
            assert await request(server.path, "count", {"to": 1}) == {"count": 1}
        held_at = talker.reports
        assert held_at < 50
        lines = (await slow.answer()).splitlines()
    assert [json.loads(line).get("number") for line in lines] == [*range(100), None]
    assert json.loads(lines[-1]) == {"ok": True}


async def test_a_client_that_never_reads_is_disconnected(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_READER_PATIENCE_S", 0.05)
    talker = Talker()
    async with serving(run_dir, talk=talker) as server, RawClient(server.path) as slow:
        await slow.send(b'{"op": "talk"}\n')
        await wait_until_async(lambda: talker.is_cancelled)
        lines = (await slow.answer()).splitlines()
        assert len(lines) < 100
        assert b'"ok"' not in lines[-1]


async def test_an_answer_waits_for_a_slow_client_only_for_a_limited_time(
    run_dir: Path, logs, monkeypatch
) -> None:
    monkeypatch.setattr(control_server, "_READER_PATIENCE_S", 0.05)

    async def large(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        return {"text": "x" * (4 << 20)}

    async with serving(run_dir, large=large) as server, RawClient(server.path) as slow:
        await slow.send(b'{"op": "large"}\n')
        await wait_until_async(lambda: "control client gone" in events_of(logs, "debug"))
        assert len(await slow.answer()) < 4 << 20


async def test_events_of_many_tasks_do_not_mix(run_dir: Path) -> None:
    async def fan_out(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        async with anyio.create_task_group() as group:
            for number in range(30):
                text = str(number % 10) * 40_000
                group.start_soon(partial(send_event, "done", number=number, text=text))
        return {}

    events: list[dict[str, Any]] = []
    async with serving(run_dir, fan_out=fan_out) as server:
        await request(server.path, "fan_out", {}, events.append)
    assert sorted(event["number"] for event in events) == list(range(30))
    assert all(event["text"] == str(event["number"] % 10) * 40_000 for event in events)


async def test_partly_sent_events_are_completed_and_do_not_accumulate(
    run_dir: Path,
) -> None:
    is_cut = anyio.Event()

    async def hasty(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        for _ in range(3):
            with anyio.move_on_after(0.05) as scope:  # no client reads yet, so it has not finished
                await send_event("large", text="x" * (1 << 20))
            assert scope.cancelled_caught
        is_cut.set()
        await send_event("small")
        return {}

    async with serving(run_dir, hasty=hasty) as server, RawClient(server.path) as client:
        await client.send(b'{"op": "hasty"}\n')
        await is_cut.wait()
        lines = [json.loads(line) for line in (await client.answer()).splitlines()]
    assert [line.get("event") for line in lines] == ["large", "small", None]
    assert len(lines[0]["text"]) == 1 << 20
