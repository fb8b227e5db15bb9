"""The death of a running instance: its event, its calls, and the next owner of its port."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import (
    AsyncWorld,
    ProcessExit,
    StartedWorld,
    WorldCallError,
    WorldError,
    WorldExitedError,
)
from tests.support.processes import is_alive
from tests.support.running import next_event, requests, running, switch
from tests.support.sockets import is_listening
from tests.support.waiting import wait_until_async
from tests.support.worlds import ask, running_world

pytestmark = pytest.mark.anyio


async def test_death_emits_an_event_even_without_a_call(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started), world.events() as events:
        os.kill(started.pid, signal.SIGSTOP)  # from here on it cannot answer calls
        os.kill(started.pid, signal.SIGKILL)
        event = await next_event(events, "exited")
        assert event.subject == started.name
        assert event.data["exit"] == ProcessExit(signal="SIGKILL")
        assert world.instances == ()


async def test_every_call_to_a_dead_world_reports_how_it_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect("Rocky")
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        for call in calls_with(access):
            with pytest.raises(WorldExitedError) as caught:
                await call(world)
            assert_exited(caught.value, started, ProcessExit(status=3))
        assert world.url == started.url
        assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def assert_exited(error: WorldExitedError, started: StartedWorld, exit_: ProcessExit) -> None:
    """Check that an error has all known facts about a dead instance."""
    assert error.exit == exit_
    assert error.log_lines[-1] == f"Spectator frontend: {started.url}/"
    assert error.elapsed_s is not None
    assert attrs.asdict(started, filter=lambda field, _: hasattr(error, field.name)) == {
        name: getattr(error, name) for name in ("url", "port", "command_file", "log_file")
    }
    for fact in (started.url, str(exit_), started.log_file, started.command_file, started.run_dir):
        assert str(fact) in str(error)
    assert error.instance == started.name
    assert f"world directory: {error.world_dir}\n" in str(error)


HANGING: dict[str, tuple[dict[str, str], str, Callable[[AsyncWorld], Awaitable[Any]]]] = {
    "join": ({"join": "hang"}, "/join", lambda world: world.connect("Rocky")),
    "snapshot-headers": ({"snapshot": "hang-before-headers"}, "/snapshot", AsyncWorld.save),
    "snapshot-body": ({"snapshot": "hang-in-body"}, "/snapshot", AsyncWorld.save),
}


@contextlib.asynccontextmanager
async def hanging_call(
    world: AsyncWorld, started: StartedWorld, name: str
) -> AsyncIterator[list[WorldError]]:
    """Keep a call running that the world does not answer; yield the errors that it raises."""
    faults, path, call = HANGING[name]
    errors: list[WorldError] = []

    async def run() -> None:
        try:
            await call(world)
        except WorldError as error:
            errors.append(error)

    switch(started, **faults)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await wait_until_async(lambda: requests(started, path), what="the call has arrived")
        await anyio.wait_all_tasks_blocked()
        assert not errors
        yield errors


@pytest.mark.thorough
@pytest.mark.parametrize("name", HANGING)
async def test_a_call_in_flight_ends_with_the_world(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as (world, started):
        async with hanging_call(world, started, name) as errors:
            ask(started.port, "POST", "/__die?signal=SIGKILL")
        assert isinstance(errors[0], WorldExitedError)
        assert_exited(errors[0], started, ProcessExit(signal="SIGKILL"))
        assert not list((tmp_path / "run" / "checkpoints").glob("*"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", HANGING)
async def test_a_call_in_flight_ends_when_the_world_is_stopped(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as (world, started):
        async with hanging_call(world, started, name) as errors:
            assert (await world.stop()).rung == "terminated"
        assert isinstance(errors[0], WorldExitedError)
        assert not list((tmp_path / "run" / "checkpoints").glob("*"))


def is_connected(port: int) -> bool:
    """Return whether any process has an open connection to a local port."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[2].endswith(f":{port:04X}") and row.split()[3] == "01" for row in rows)


async def test_a_call_does_not_wait_for_processes_that_outlive_the_world(tmp_path: Path) -> None:
    errors: list[WorldError] = []

    async def connect() -> None:
        with pytest.raises(WorldExitedError) as caught:
            await world.connect("Rocky")
        errors.append(caught.value)

    async with running(tmp_path, "--daemon") as (world, started):
        pid_file = tmp_path / "counter" / "daemon.pid"
        await wait_until_async(pid_file.exists, what="the daemon lives")
        os.kill(started.pid, signal.SIGSTOP)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await wait_until_async(lambda: is_connected(started.port))
            # Its daemon holds the port, and with it the connection that was never accepted.
            os.kill(started.pid, signal.SIGKILL)
        assert errors[0].exit == ProcessExit(signal="SIGKILL")
        assert is_alive(int(pid_file.read_text()))
        await world.stop(grace_seconds=0)
        assert not is_alive(int(pid_file.read_text()))


async def test_calls_to_a_dead_world_never_reach_the_next_owner_of_its_port(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect("Rocky")
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        env = {"WORLD_PORT": str(started.port)}
        with running_world(tmp_path, env=env, listens=False):
            await wait_until_async(lambda: is_listening(started.port))
            for call in calls_with(access):
                with pytest.raises(WorldExitedError):
                    await call(world)
            assert requests(started) == []


def calls_with(access: dict[str, Any]) -> list[Callable[[AsyncWorld], Awaitable[Any]]]:
    """Return all calls that are sent to the world itself."""
    return [AsyncWorld.save, lambda w: w.connect("Natasha"), lambda w: w.leave(access)]


async def test_a_world_that_died_can_be_stopped_and_started_again(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        async with world.events() as events:
            ask(started.port, "POST", "/__die?status=3")
            await next_event(events, "exited")
        result = await world.stop()
        assert (result.rung, result.exit) == ("already_exited", ProcessExit(status=3))
        assert (await world.stop()).rung == "not_running"
        again = await world.start(run_dir=tmp_path / "run", port=started.port)
        assert again.name == started.name
        assert (await world.connect("Rocky"))["agent_id"] == "agent-1"


async def test_the_death_of_one_instance_does_not_affect_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, first):
        second = await world.start(run_dir=tmp_path / "run")
        async with world.events() as events:
            ask(first.port, "POST", "/__die?status=3")
            assert (await next_event(events, "exited")).subject == first.name
        assert world.instances == (second.name,)
        access = await world.connect("Rocky", instance=second.name)
        assert access["base_url"] == second.url


async def test_a_world_that_stops_listening_is_not_reported_dead(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        ask(started.port, "POST", "/__close-listener")
        with pytest.raises(WorldCallError, match="POST /join failed") as caught:
            await world.connect("Rocky")
        assert caught.value.exit is None
        assert caught.value.url == started.url
        assert is_alive(started.pid)
