"""The progress line of a slow start, on a terminal and elsewhere."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from clawblox import AsyncWorld
from clawblox.checkpoint.progress import listed
from clawblox.cli.running.slow_work import StartProgress
from clawblox.concurrency.tasks import Tasks
from tests.cli.conftest import Start
from tests.support.sockets import free_port
from tests.support.terminals import COLUMNS, terminal
from tests.support.waiting import wait_until
from tests.support.worlds import make_world

CLEAR = "\r\x1b[K"


@pytest.mark.thorough
def test_a_slow_start_is_shown_on_a_line_of_the_terminal(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--slow-boot", "1.2", "--tell-token")
    env = {"WORLD_OPERATOR_TOKEN": "s3cret"}
    with terminal("run", str(world), "--port", "0", env=env) as one:
        wait_until(lambda: one.shows("is ready at"), what="the world is up")
    first, _, written = one.written.replace("\r\n", "\n").partition("\n")
    assert first.startswith("Run directory: runs/counter-")
    *progress, rest = written.split(CLEAR)
    told = [text for text in progress if text]
    assert len(told) >= 2
    assert all("\n" not in text and len(text) < COLUMNS for text in told)
    assert "Starting counter, 0." in told[0]
    expected = "| connection failed: Connection refused | my token is ***"
    assert any(text.endswith(expected) for text in told)
    assert rest.startswith("World 'counter' is ready at http://")


@pytest.mark.thorough
def test_the_line_shows_the_result_of_the_probe(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--unavailable", "1.2")
    with terminal("run", str(world), "--port", "0") as one:
        wait_until(lambda: one.shows("GET /api.md answered 503 | Spectator frontend: "))


@pytest.mark.thorough
def test_start_line_shows_another_port_that_the_world_listens_on(tmp_path: Path) -> None:
    other = free_port()
    world = make_world(tmp_path, "--bind-port", str(other))
    with terminal("run", str(world), "--port", "0") as one:
        wait_until(lambda: one.shows(f"| it listens on 127.0.0.1:{other} instead of 127.0.0.1:"))


@pytest.mark.thorough
def test_a_wait_for_the_port_is_shown(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        with terminal("run", str(world), "--port", port, "--port-wait", "600") as one:
            wait_until(lambda: one.shows("| waiting for the port"))
    assert one.process.returncode == 129


def test_the_load_of_an_archive_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    loading = ExitStack()
    count = loading.enter_context(listed("Loading", tmp_path / "gen1.ckpt", None))
    count(2_000_000, 4_000_000)

    def show(text: str, **_: object) -> None:
        lines.append(text)
        loading.close()

    monkeypatch.setattr("clawblox.cli.running.slow_work.note", show)
    monkeypatch.setattr("clawblox.cli.running.slow_work._PLAIN_INTERVAL_S", 0.01)
    world = AsyncWorld(make_world(tmp_path))
    progress = StartProgress(world, tmp_path)

    async def run() -> None:
        async with Tasks() as tasks:
            tasks.start_soon(progress.run)
            while len(lines) < 2:
                await anyio.sleep(0.001)

    anyio.run(run)
    assert " | Loading gen1.ckpt: 2.0 MB of 4.0 MB, " in lines[0]
    assert lines[1].endswith(" | waiting for the port")


@pytest.mark.thorough
def test_a_fast_start_shows_no_progress(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with terminal("run", str(world), "--port", "0") as one:
        wait_until(lambda: one.shows("is ready at"), what="the world is up")
    assert "Starting" not in one.written


@pytest.mark.thorough
def test_a_closed_terminal_stops_the_world(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--flood-rate", "50")
    with terminal("run", str(world), "--port", "0") as one:
        wait_until(lambda: one.shows("is ready at"), what="the world is up")
    assert one.process.returncode in (1, 129)  # the lost output may be seen before the signal


@pytest.mark.thorough
def test_without_a_terminal_a_short_start_shows_no_progress(start: Start, tmp_path: Path) -> None:
    command = start("run", str(make_world(tmp_path, "--slow-boot", "0.6")), "--port", "0")
    command.wait_for("Spectator frontend")
    assert command.err == ""
    assert command.interrupt() == 130


@pytest.mark.thorough
@pytest.mark.anyio
async def test_without_a_terminal_the_progress_is_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_world(tmp_path, "--slow-boot", "0.6")
    monkeypatch.setattr("clawblox.cli.running.slow_work._PLAIN_INTERVAL_S", 0.1)
    async with AsyncWorld(directory) as world, Tasks() as tasks:
        tasks.start_soon(StartProgress(world, directory).run)
        await world.start()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert lines[0].startswith("Starting counter, 0.")
    expected = " | connection failed: Connection refused | counter world, process "
    assert any(expected in line for line in lines)
