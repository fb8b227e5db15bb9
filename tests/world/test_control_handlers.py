"""Requests of another process to a running orchestrator: starts, logs, events, files."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.errors import ControlError
from clawblox.results import WorldEvent
from clawblox.rundir.control_client import request
from clawblox.rundir.requests import read_line
from tests.support.orchestrators import orchestrator
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world
from tests.world.many.conftest import CROWD_OF

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(tmp_path: Path, count: int = 1) -> AsyncIterator[tuple[Path, Path]]:
    """Run an orchestrator; yield its run directory and its control socket."""
    run = tmp_path / "run"
    with orchestrator(CROWD_OF, make_world(tmp_path), run, str(count)) as owner:
        await anyio.to_thread.run_sync(owner.hear)
        (control,) = (run / ".clawblox" / "control").glob("*.sock")
        with anyio.fail_after(HANG_S):
            yield run, control
        owner.tell("end")
        await anyio.to_thread.run_sync(owner.process.wait)


@pytest.mark.thorough
async def test_an_instance_is_started_saved_and_its_snapshot_fetched(tmp_path: Path) -> None:
    async with running(tmp_path) as (run, control):
        facts = await request(control, "start", {"name": "far", "labels": {"place": "far"}})
        assert facts["instance"] == "far"
        assert facts["url"] == f"http://127.0.0.1:{facts['port']}"
        events: list[Any] = []
        await request(control, "save", {"instances": ["far"]}, events.append)
        (saved,) = (event["value"] for event in events)
        path = str(Path(saved["path"]).relative_to(run))
        blob = await request(control, "describe_blob", {"path": path})
        assert blob == {"size_bytes": saved["size_bytes"], "sha256": saved["sha256"]}
        piece = await request(control, "read_blob", {"path": path, "offset": 0})
        sent = await request(control, "write_blob", {**blob, **piece, "offset": 0})
        again = await request(control, "start", {"name": "again", "resume": sent["path"]})
        assert again["resume_path"] == sent["path"]
        assert hashlib.sha256(Path(sent["path"]).read_bytes()).hexdigest() == saved["sha256"]


@pytest.mark.thorough
async def test_a_start_with_a_taken_name_or_forbidden_option_fails(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, control):
        with pytest.raises(ControlError, match=r"is held by|in use|already"):
            await request(control, "start", {"name": "w000"})
        with pytest.raises(ControlError, match="start takes no 'detach'"):
            await request(control, "start", {"detach": True})
        with pytest.raises(ControlError, match="start takes no 'run_dir'"):
            await request(control, "start", {"run_dir": "/tmp"})


@pytest.mark.thorough
async def test_logs_are_read_and_followed(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as (_, control):
        lines: list[Any] = []
        await request(control, "logs", {}, lines.append)
        assert {read_line(one).instance for one in lines} == {"w000", "w001"}
        last: list[Any] = []
        await request(control, "logs", {"instances": ["w000"], "tail": 1}, last.append)
        assert [read_line(one).text for one in last] == [
            [read_line(one).text for one in lines if read_line(one).instance == "w000"][-1]
        ]
        followed: list[Any] = []
        asked = {"instances": ["w001"], "follow": True}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request, control, "logs", asked, followed.append)
            await wait_until_async(lambda: followed)
            await request(control, "stop", {"instances": ["w001"]})
        assert read_line(followed[-1]).event == "stopped"


@pytest.mark.thorough
async def test_events_are_followed_until_the_client_leaves(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, control):
        messages: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request, control, "events", {}, messages.append)
            await wait_until_async(lambda: messages)
            await request(control, "save", {})
            await request(control, "stop", {"instances": ["w000"]})
            await wait_until_async(lambda: messages[-1].get("value", {}).get("kind") == "stopped")
            tasks.cancel_scope.cancel()
        events = [WorldEvent(**one["value"]) for one in messages if one["event"] == "event"]
        assert [event.kind for event in events] == ["saved", "stopped"]
        assert {event.subject for event in events} == {"w000"}
        assert events[0].data["path"].endswith(".json")
