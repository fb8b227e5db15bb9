"""Calls that need no instance, and calls out of order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawblox import AsyncWorld, UsageError
from tests.support.processes import is_alive
from tests.support.running import manifest_of, running
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------ the manifest


async def test_a_run_is_labelled_without_starting_anything(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        await world.record_run(id="of-the-world", index=3)
        assert world.instances == ()
        await world.start(run_dir=tmp_path / "run")
        await world.record_run(id="of-the-run", status="running")
        await world.record_run(id="elsewhere", run_dir=tmp_path / "third")
    assert manifest_of(directory)["run"] == {"id": "of-the-world", "index": 3}
    assert manifest_of(tmp_path / "run")["run"] == {"id": "of-the-run", "status": "running"}
    assert manifest_of(tmp_path / "third")["run"] == {"id": "elsewhere"}


# ----------------------------------------------------------------------------- out of order

CALLS: dict[str, Callable[[AsyncWorld], Any]] = {
    "start": lambda world: world.start(),
    "stop": lambda world: world.stop(),
    "connect": lambda world: world.connect("Rocky"),
    "leave": lambda world: world.leave({"headers": {}}),
    "save": lambda world: world.save(),
    "record_run": lambda world: world.record_run(id="r"),
    "logs": lambda world: world.logs(),
    "events": lambda world: world.events(),
}


async def make(call: Callable[[AsyncWorld], Any], world: AsyncWorld) -> None:
    result = call(world)
    if hasattr(result, "__await__"):
        await result


@pytest.mark.parametrize("name", CALLS)
async def test_the_error_of_a_closed_world_explains_how_to_open_it(
    tmp_path: Path, name: str
) -> None:
    world = AsyncWorld(dir=make_world(tmp_path))
    for _ in range(2):
        with pytest.raises(UsageError, match="this world is not open") as caught:
            await make(CALLS[name], world)
        assert "async with AsyncWorld(dir=" in str(caught.value)
        async with world:  # nor after it was left
            pass
    assert not (tmp_path / "counter" / ".clawblox").exists()


@pytest.mark.parametrize("name", ["connect", "leave", "save", "logs"])
async def test_a_call_without_an_instance_fails_with_advice(tmp_path: Path, name: str) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(UsageError, match=r"^nothing runs\n  hint: start the world first$"):
            await make(CALLS[name], world)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["connect", "leave", "save", "logs", "stop"])
async def test_a_call_that_names_no_instance_fails_if_there_are_several(
    tmp_path: Path, name: str
) -> None:
    async with running(tmp_path) as (world, _):
        await world.start(run_dir=tmp_path / "run", name="second")
        with pytest.raises(UsageError, match="no instance was named; there are: w000, second"):
            await make(CALLS[name], world)


async def test_the_error_for_an_unknown_instance_lists_the_known_ones(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, _):
        for call in (world.save, world.stop):
            with pytest.raises(UsageError, match="no instance 'third'; there are: w000"):
                await call(instance="third")
        assert world.instances == ("w000",)


async def test_an_open_world_cannot_be_opened_again(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        with pytest.raises(UsageError, match="already open"):
            await world.__aenter__()
        assert is_alive(started.pid)
        assert (await world.connect("Rocky"))["session"]


async def test_a_closed_world_can_be_opened_again(tmp_path: Path) -> None:
    world = AsyncWorld(dir=make_world(tmp_path))
    for _ in range(2):
        async with world:
            assert world.instances == ()
            started = await world.start(run_dir=tmp_path / "run")
            assert world.url == started.url
        assert not is_alive(started.pid)


async def test_an_error_in_the_block_propagates_unchanged_and_stops_the_world(
    tmp_path: Path,
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with running(tmp_path) as (_, started):
            raise ZeroDivisionError
    assert not is_alive(started.pid)
