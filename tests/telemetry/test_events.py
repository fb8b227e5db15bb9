"""The events of an instance, for every listener, from its start to its end."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, ProcessExit, WorldError
from clawblox.telemetry.events import EventStream
from tests.support.running import next_event, running
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


async def test_the_events_of_a_run_arrive_in_order_and_end_with_the_world(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        events = world.events()
        started = await world.start(run_dir=tmp_path / "run")
        saved = await world.save()
        await world.stop()
    seen = [event async for event in events]
    assert [event.kind for event in seen] == ["started", "ready", "saved", "stopped"]
    assert {event.subject for event in seen} == {started.name}
    assert all(event.time.endswith("Z") for event in seen)
    details = [dict(event.data) for event in seen]
    assert details == [
        {"port": started.port},
        {"url": started.url, "ready_s": started.ready_s},
        {
            "path": saved["path"],
            "size_bytes": saved["size_bytes"],
            "elapsed_s": details[2]["elapsed_s"],
        },
        {"rung": "terminated", "exit": ProcessExit(status=0)},
    ]
    assert 0 < details[2]["elapsed_s"] < 60


async def test_leaving_the_world_is_an_event(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        events = world.events()
        await world.start(run_dir=tmp_path / "run")
    assert [event.kind async for event in events] == ["started", "ready", "stopped"]


async def test_a_failed_start_has_only_the_events_up_to_its_error(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--exit-at-once", "1")) as world:
        events = world.events()
        with pytest.raises(WorldError):
            await world.start(run_dir=tmp_path / "run")
    assert [event.kind async for event in events] == ["started", "start_failed"]


async def test_every_listener_gets_all_events_since_its_subscription(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        async with world.events() as early:
            await world.save()
            late = world.events()
            await world.stop()
            assert [(await next_event(early, kind)).kind for kind in ("saved", "stopped")]
        assert [event async for event in early] == []
    assert [event.kind async for event in late] == ["stopped"]


async def test_a_listener_waits_for_the_next_event(tmp_path: Path) -> None:
    heard: list[str] = []

    async def listen(events: EventStream) -> None:
        heard.extend([event.kind async for event in events])

    async with anyio.create_task_group() as tasks, running(tmp_path) as (world, _):
        tasks.start_soon(listen, world.events())
        await anyio.wait_all_tasks_blocked()
        await world.save()
    assert heard == ["saved", "stopped"]
