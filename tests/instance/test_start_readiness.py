"""Starts until readiness: the signs of readiness, and a port lost meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld, StartedWorld, WorldError, WorldExitedBeforeReadyError
from tests.support.processes import descendants
from tests.support.running import next_event
from tests.support.sockets import free_port, is_listening, stranger_on
from tests.support.starting import api_doc, read_json, world_that_runs
from tests.support.waiting import HANG_S
from tests.support.worlds import ask, make_world, world_command

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------ readiness


async def test_readiness_can_be_probed_at_another_path(tmp_path: Path) -> None:
    directory = make_world(
        tmp_path, "--health", toml_extra='[run.ready]\npath = "/health"\ninterval = 0.01'
    )
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(run_dir=tmp_path / "run", base_path="/x")
        assert ask(started.port, "GET", "/x/health").status == 200
        assert ask(started.port, "GET", "/x/api.md").status == 404


@pytest.mark.parametrize(
    "pattern",
    [
        "^READY to \\\\w+$",
        *(
            pytest.param(text, marks=pytest.mark.thorough)
            for text in ("READY to serve", "(?i)ready TO")
        ),
    ],
)
async def test_readiness_can_be_a_log_line(tmp_path: Path, pattern: str) -> None:
    directory = make_world(
        tmp_path, "--say-ready", "0.1", toml_extra=f'[run.ready]\nlog = "{pattern}"'
    )
    async with AsyncWorld(dir=directory) as world:
        with anyio.fail_after(HANG_S):
            started = await world.start(run_dir=tmp_path / "run")
        assert "READY to serve\n" in started.log_file.read_text()


async def test_an_older_line_of_the_log_does_not_make_a_world_ready(tmp_path: Path) -> None:
    log_file = tmp_path / "world.log"
    log_file.write_text("READY to serve\n")
    directory = make_world(
        tmp_path, "--say-ready", "0.1", toml_extra='[run.ready]\nlog = "READY to serve"'
    )
    async with AsyncWorld(dir=directory) as world:
        await world.start(log_file=log_file, run_dir=tmp_path / "run")
        assert log_file.read_text().count("READY to serve") == 2


async def test_a_world_that_is_busy_at_first_becomes_ready(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--unavailable", "0.2")) as world:
        started = await world.start(run_dir=tmp_path / "run")
        assert api_doc(started).status == 200


@pytest.mark.parametrize("wrapper", ["child", "nohup"])
async def test_the_command_can_be_a_wrapper_around_the_world(tmp_path: Path, wrapper: str) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, wrapper=wrapper)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        assert len(descendants(started.pid)) == 1
        await world.stop()
        assert not is_listening(started.port)


# -------------------------------------------------------------------------------- lost port

GATE = """
echo "$WORLD_PORT" > port.part && mv port.part port
until [ -e go ]; do sleep 0.01; done
exec "$@"
"""


def gated_world(parent: Path, *flags: str) -> Path:
    """Return a world that records its port and runs when the file ``go`` exists."""
    return world_that_runs(parent, "bash", "-c", GATE, "gate", *world_command(*flags))


@pytest.mark.thorough
async def test_leased_port_taken_by_another_process_is_replaced(tmp_path: Path) -> None:
    directory = gated_world(tmp_path)
    started: list[StartedWorld] = []

    async def start() -> None:
        started.append(await world.start(run_dir=tmp_path / "run"))

    with contextlib.ExitStack() as stack, anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=directory) as world, world.events() as events:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start)
                lost = await read_json(directory / "port")
                stack.enter_context(stranger_on(lost))
                (directory / "go").touch()
            assert started[0].port != lost
            assert api_doc(started[0]).status == 200
            ports = [(await next_event(events, "started")).data["port"] for _ in range(2)]
            assert ports == [lost, started[0].port]
            assert (await world.save())["format"] == "counter-v1"


async def test_given_port_taken_by_another_process_is_not_replaced(tmp_path: Path) -> None:
    directory, port = gated_world(tmp_path), free_port()
    failures: list[WorldError] = []

    async def start() -> None:
        with pytest.raises(WorldExitedBeforeReadyError) as caught:
            await world.start(port=port, run_dir=tmp_path / "run")
        failures.append(caught.value)

    with contextlib.ExitStack() as stack, anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=directory) as world, anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await read_json(directory / "port")
            stack.enter_context(stranger_on(port))
            (directory / "go").touch()
    assert "Address already in use" in "\n".join(failures[0].log_lines)
