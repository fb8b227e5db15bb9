"""Requests for unknown instances fail, and list the known ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from clawblox import (
    AsyncWorld,
    ClawbloxError,
    ControlError,
    StopResult,
    UsageError,
    World,
    WorldStartError,
)
from clawblox.instance.ramp import Ramp
from clawblox.rundir.control_client import find_sockets, request
from tests.support.processes import marked_processes
from tests.support.sockets import is_listening
from tests.support.waiting import wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


# ------------------------------------------------------------------------------- in a program


async def test_a_stop_of_an_unknown_name_lists_the_known_names(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for name in ("a", "b"):
            await world.start(run_dir=run, name=name)
        with pytest.raises(UsageError, match=r"no instance 'typo'; there are: a, b\n"):
            await world.stop(instance="typo")
        assert world.instances == ("a", "b")
        await world.stop(instance="a")
        with pytest.raises(UsageError, match="no instance 'typo'; there are: b, and there were: a"):
            await world.stop(instance="typo")
        assert await world.stop(instance="a") == StopResult("a", "not_running")
        await world.stop_all()
        assert await world.stop(instance="b") == StopResult("b", "not_running")
        assert await world.stop() == StopResult("", "not_running")
        with pytest.raises(
            UsageError, match="no instance 'typo'; nothing runs, and there were: a, b"
        ):
            await world.stop(instance="typo")


async def test_a_stop_is_safe_without_a_start(tmp_path: Path, run: Path) -> None:
    directory = make_world(tmp_path, "--exit-at-once", "3")
    async with AsyncWorld(dir=directory) as world:
        assert (await world.stop(instance="w000")).rung == "not_running"
        for name in (None, "red"):
            with pytest.raises(WorldStartError):
                await world.start(run_dir=run, name=name)
            for stopped in (None, "w000", "red", "anything"):
                assert (await world.stop(instance=stopped)).rung == "not_running"


async def test_a_stop_is_safe_after_one_of_several_starts_failed(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(run_dir=run)
        with pytest.raises(WorldStartError):
            await world.start(run_dir=run, name="red", host="192.0.2.1")
        assert (await world.stop(instance="red")).rung == "not_running"
        with pytest.raises(UsageError):
            await world.stop(instance="green")


@pytest.mark.thorough
async def test_an_instance_that_is_starting_is_known(tmp_path: Path, run: Path) -> None:
    async with (
        AsyncWorld(dir=make_world(tmp_path, "--slow-boot", "0.5")) as world,
        anyio.create_task_group() as starts,
    ):
        await world.start(run_dir=run, name="a")
        for name in (None, "late"):
            starts.start_soon(partial(world.start, run_dir=run, name=name))
        await wait_until_async(lambda: len(marked_processes()) == 3)
        for name in ("w000", "late"):
            assert (await world.stop(instance=name)).rung == "not_running"
        assert world.instances == ("a",)


def test_a_reopened_world_forgets_names(tmp_path: Path, run: Path) -> None:
    world = World(dir=make_world(tmp_path))
    world.start(run_dir=run, name="a")
    world.close()
    assert world.stop(instance="a").rung == "not_running"
    world.start(run_dir=run, name="b")
    with pytest.raises(UsageError, match=r"no instance 'a'; there are: b\n"):
        world.stop(instance="a")
    world.close()


# ---------------------------------------------------------------------- through the control socket

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "stop a name": ("stop", {"instances": ["w000", "typo"]}, "no instance 'typo' in .*: w000\n"),
    "save a name": ("save", {"instances": ["w000", "typo"]}, "no instance 'typo' in .*: w000\n"),
    "stop a text": ("stop", {"instances": "w000"}, "instances: must be a list of names"),
    "save a text": ("save", {"instances": "w000"}, "instances: must be a list of names"),
    "stop another member": ("stop", {"instance": "w000"}, "stop takes no 'instance'; it takes: "),
    "save another member": ("save", {"instance": "w000"}, "save takes no 'instance'; it takes: "),
    "fork another member": (
        "fork",
        {"checkpoint": {"path": "/none.json"}, "count": 1, "instances": []},
        "fork takes no 'instances'; it takes: ",
    ),
    "stop with a grace that is not a number": ("stop", {"grace_seconds": "soon"}, "grace_seconds"),
    "save with a negative timeout": ("save", {"timeout": -1}, "timeout"),
    "save without a byte": ("save", {"max_bytes": 0}, "max_bytes"),
    "fork nothing": ("fork", {"count": 1}, "fork needs 'checkpoint'"),
    "fork a missing instance": (
        "fork",
        {"checkpoint": {"path": "/none.json"}, "count": 1},
        "the snapshot does not exist",
    ),
}


async def test_a_request_for_an_unknown_instance_fails_without_effects(
    tmp_path: Path, run: Path
) -> None:
    events: list[Any] = []
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        (started,) = await world.start_many(1, run_dir=run)
        (path,) = await run_sync(find_sockets, run)
        for case, (op, arguments, complaint) in WRONG.items():
            with pytest.raises(ControlError, match=complaint):
                await request(path, op, arguments, events.append)
            assert is_listening(started.port), case
            assert world.instances == ("w000",), case
            assert not (started.instance_dir / "checkpoints").exists(), case
    assert events == []


async def test_a_request_for_an_ended_instance_succeeds(tmp_path: Path, run: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start_many(2, run_dir=run)
        await world.stop(instance="w001")
        (path,) = await run_sync(find_sockets, run)
        assert await request(path, "stop", {"instances": ["w001"]}) == {"done": 0, "failed": 0}
        events: list[dict[str, Any]] = []
        await request(path, "save", {"instances": ["w000", "w001"]}, events.append)
        assert {one["instance"]: one["event"] for one in events} == {
            "w000": "saved",
            "w001": "failed",
        }


async def test_a_stop_cancels_every_start_without_a_name_yet(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = []

    async def start(world: AsyncWorld) -> None:
        try:
            await world.start(run_dir=run)
        except ClawbloxError as error:
            failures.append(error)

    async with AsyncWorld(dir=make_world(tmp_path)) as world, anyio.create_task_group() as others:
        await world.start(run_dir=run)
        monkeypatch.setattr(Ramp, "begin", lambda *_: False)  # no queued start begins
        for _ in range(3):
            others.start_soon(start, world)
        await wait_until_async(lambda: world.metrics.starts == 4)
        (path,) = await run_sync(find_sockets, run)
        assert await request(path, "stop", {}) == {"done": 4, "failed": 0}
        await wait_until_async(lambda: len(failures) == 3)
        others.cancel_scope.cancel()
