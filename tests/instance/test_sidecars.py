"""The logs of a running world and of its sidecars."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, WorldCommandError
from tests.support.processes import is_alive, marked_processes
from tests.support.running import next_event
from tests.support.starting import api_doc, read_json
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


async def test_sidecar_log_grows_while_the_world_is_running(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--say-ready", "0")) as world:
        started = await world.start(run_dir=tmp_path / "run")
        await wait_until_async(lambda: "READY to serve" in started.log_file.read_text())
        assert is_alive(started.pid)


async def read_line(path: Path) -> str:
    """Return the first line of a log as soon as it exists."""
    return (await wait_until_async(lambda: path.read_text().splitlines()))[0]


async def test_sidecars_share_the_environment_and_have_separate_logs(tmp_path: Path) -> None:
    sidecars = {
        "frontend": ["--dump", str(tmp_path / "frontend.json")],
        "feed": ["--dump", str(tmp_path / "feed.json"), "--say-ready", "0"],
    }
    directory = make_world(tmp_path, "--dump", str(tmp_path / "world.json"), sidecars=sidecars)
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(run_dir=tmp_path / "run")
        own = await read_json(tmp_path / "world.json")
        for name in sidecars:
            log_file = started.log_file.with_name(f"w000-{name}.log")
            sidecar = await read_json(tmp_path / f"{name}.json")
            assert sidecar["env"] == own["env"]
            assert sidecar["cwd"] == own["cwd"]
            assert sidecar["sid"] == sidecar["pid"] != own["sid"]
            assert sidecar["fds"]["1"] == sidecar["fds"]["2"] == str(log_file)
            assert f"counter world, process {sidecar['pid']}" in await read_line(log_file)
        assert started.log_file.read_text().count("counter world") == 1
        pids = {started.pid, *marked_processes(own["env"]["CLAWBLOX_INSTANCE"])}
        assert len(pids) == 3
        await world.stop()
        assert not any(is_alive(pid) for pid in pids)


async def test_end_of_a_sidecar_emits_an_event_and_the_world_continues(tmp_path: Path) -> None:
    directory = make_world(tmp_path, sidecars={"feed": ["--exit-at-once", "4"]})
    async with AsyncWorld(dir=directory) as world:
        async with world.events() as events:
            started = await world.start(run_dir=tmp_path / "run")
            with anyio.fail_after(HANG_S):
                event = await next_event(events, "sidecar_exited")
        assert event.data["sidecar"] == "feed"
        assert event.data["exit"].status == 4
        assert api_doc(started).status == 200


async def test_a_sidecar_that_cannot_be_executed_fails_the_start(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--pid-file", str(tmp_path / "pid"))
    text = '[[run.sidecar]]\nname = "feed"\ncommand = ["./no-such-program"]\n'
    with (directory / "world.toml").open("a") as file:
        file.write(text)
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(WorldCommandError, match=r"'\./no-such-program'"):
            await world.start(run_dir=tmp_path / "run")
        assert world.instances == ()
        assert not marked_processes()
