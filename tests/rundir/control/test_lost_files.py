"""A socket file that is removed, moved or replaced while its orchestrator runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from clawblox.rundir import control_server
from clawblox.rundir.control_client import control_dir, request
from tests.rundir.control.conftest import events_of, find, serving
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "_LOOK_INTERVAL_S", 0.02)


async def wait_until_made_again(logs) -> None:
    """Wait until a socket was created again and listens, which is later than its file."""
    await wait_until_async(
        lambda: "control socket lost and made again" in events_of(logs, "warning"),
        what="the socket is there again",
    )


@pytest.mark.parametrize("lost", ["socket", "directory", "state"])
async def test_a_removed_socket_file_is_created_again(run_dir: Path, logs, lost: str) -> None:
    async with serving(run_dir) as server:
        if lost == "socket":
            server.path.unlink()
        else:
            shutil.rmtree(server.path.parent if lost == "directory" else server.path.parents[1])
        await wait_until_made_again(logs)
        assert server.path.exists()
        assert await find(run_dir) == [server.path]
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert list(control_dir(run_dir).iterdir()) == []
    assert events_of(logs, "warning") == ["control socket lost and made again"]


async def test_a_request_in_progress_is_answered_after_its_socket_file_is_removed(
    run_dir: Path,
) -> None:
    is_asked, may_answer = anyio.Event(), anyio.Event()
    answers = []

    async def wait(arguments, send_event):
        is_asked.set()
        await may_answer.wait()
        return {"waited": True}

    async def ask(path: Path) -> None:
        answers.append(await request(path, "wait", {}))

    async with serving(run_dir, wait=wait) as server, anyio.create_task_group() as group:
        group.start_soon(ask, server.path)
        await is_asked.wait()
        for _ in range(3):  # the previous listeners have ended by then
            server.path.unlink()
            await wait_until_async(server.path.exists)
        may_answer.set()
    assert answers == [{"waited": True}]


async def test_a_moved_run_directory_is_served_in_its_new_place(run_dir: Path, logs) -> None:
    async with serving(run_dir):
        moved = run_dir.rename(run_dir.with_name("moved"))
        await anyio.sleep(0.1)  # a few looks
        assert await find(moved) == [control_dir(moved) / "1-1.sock"]
        assert await request(control_dir(moved) / "1-1.sock", "echo", {}) == {"asked": {}}
        assert not run_dir.exists()
        run_dir.mkdir()
        await wait_until_made_again(logs)
        for place in (run_dir, moved):
            assert await request(control_dir(place) / "1-1.sock", "echo", {}) == {"asked": {}}


async def test_a_directory_in_place_of_the_socket_stays_and_the_loss_is_reported_once(
    run_dir: Path, logs
) -> None:
    async with serving(run_dir, "2-1"), serving(run_dir) as server:
        server.path.unlink()
        server.path.mkdir()
        await wait_until_async(lambda: events_of(logs, "warning"))
        await anyio.sleep(0.1)  # a few looks
        server.path.rmdir()
        await wait_until_made_again(logs)
        await request(server.path, "echo", {})
    warnings = events_of(logs, "warning")
    assert warnings == ["control socket lost", "control socket lost and made again"]
