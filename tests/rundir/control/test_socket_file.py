"""The socket file: its mode, path and name, and its removal at the end."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.errors import ControlError
from clawblox.rundir import control_server
from clawblox.rundir.control_client import control_dir, request
from clawblox.rundir.control_server import ControlServer, Operation, SendEvent
from tests.rundir.control.conftest import Endless, RawClient, find, serving
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("umask", [0, 0o077])
async def test_socket_and_directory_are_private(run_dir: Path, umask: int) -> None:
    previous = os.umask(umask)
    try:
        async with serving(run_dir) as server:
            assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o700
    finally:
        os.umask(previous)


async def test_a_directory_that_was_open_to_others_is_made_private(run_dir: Path) -> None:
    control_dir(run_dir).mkdir(parents=True)
    control_dir(run_dir).chmod(0o777)
    async with serving(run_dir):
        assert stat.S_IMODE(control_dir(run_dir).stat().st_mode) == 0o700


async def test_a_link_in_place_of_the_directory_is_refused(run_dir: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    control_dir(run_dir).parent.mkdir(parents=True)
    control_dir(run_dir).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"directory|symbolic links"):
        await ControlServer(run_dir, "1-1", {}).open()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    assert list(elsewhere.iterdir()) == []


async def test_the_socket_file_is_removed_at_the_end(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        assert server.path == control_dir(run_dir) / "1-1.sock"
        assert list(control_dir(run_dir).iterdir()) == [server.path]
    assert list(control_dir(run_dir).iterdir()) == []
    with pytest.raises(ControlError, match="no orchestrator can be reached: No such file"):
        await request(server.path, "echo", {})


async def test_several_orchestrators_share_a_run_directory(run_dir: Path) -> None:
    async with serving(run_dir, "20-1") as one, serving(run_dir, "100-1") as other:
        assert await find(run_dir) == [other.path, one.path]
    assert await find(run_dir) == []


async def test_a_served_socket_name_is_not_reused(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        with pytest.raises(OSError, match="in use") as caught:
            await ControlServer(run_dir, "1-1", {}).open()
        assert caught.value.errno == errno.EADDRINUSE
        assert await request(server.path, "echo", {}) == {"asked": {}}
    assert list(control_dir(run_dir).iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 65, "a\n"])
def test_a_socket_name_that_is_not_a_file_name_is_refused(run_dir: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a control socket"):
        ControlServer(run_dir, name, {})


async def test_the_longest_name_can_be_bound_and_found(run_dir: Path) -> None:
    async with serving(run_dir, "x" * 64) as server:
        assert await find(run_dir) == [server.path]


async def test_closing_keeps_files_of_other_processes(run_dir: Path) -> None:
    async with serving(run_dir) as server:
        server.path.unlink()
        server.path.write_text("another's")
    assert server.path.read_text() == "another's"


@pytest.mark.thorough
async def test_a_server_can_be_closed_after_its_run_directory_vanished(run_dir: Path, logs) -> None:
    async with serving(run_dir) as server:
        server.path.unlink()
        server.path.parent.rmdir()
    assert logs == []


async def test_a_server_that_never_ran_can_be_closed(run_dir: Path) -> None:
    server = ControlServer(run_dir, "1-1", {})
    await server.aclose()
    await server.open()
    await server.aclose()
    await server.aclose()
    assert list(control_dir(run_dir).iterdir()) == []


async def test_closing_before_the_task_starts_ends_it_immediately(run_dir: Path) -> None:
    server = ControlServer(run_dir, "1-1", {})
    await server.open()
    await server.aclose()
    with anyio.fail_after(HANG_S):
        await server.run()


async def test_a_cancelled_server_cancels_its_handlers_and_removes_its_socket(
    run_dir: Path,
) -> None:
    endless = Endless()
    server = ControlServer(run_dir, "1-1", {"endless": Operation(endless)})
    await server.open()
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        async with RawClient(server.path) as client:
            await client.send(b'{"op": "endless"}\n')
            await endless.is_running.wait()
            group.cancel_scope.cancel()
    assert endless.is_cancelled.is_set()
    assert not server.path.exists()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_open_leaves_no_socket(run_dir: Path, monkeypatch) -> None:
    """Unlike a cancel scope, ``Task.cancel`` does not wait for the thread that binds."""
    is_binding, may_bind = threading.Event(), threading.Event()

    def pause(directory: Path) -> None:
        is_binding.set()
        assert may_bind.wait(HANG_S)

    monkeypatch.setattr(control_server, "remove_dead_sockets", pause)
    server = ControlServer(run_dir, "1-1", {})
    opening = asyncio.create_task(server.open())
    await wait_until_async(is_binding.is_set)
    opening.cancel()
    asyncio.get_running_loop().call_later(0.05, may_bind.set)
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not server.path.exists()


async def test_a_handler_that_is_about_to_end_can_answer_when_the_server_closes(
    run_dir: Path,
) -> None:
    is_running, is_closing = anyio.Event(), anyio.Event()

    async def stop(arguments: Mapping[str, Any], send_event: SendEvent) -> Mapping[str, Any]:
        is_running.set()
        await is_closing.wait()
        return {"stopped": 3}

    answers: list[dict[str, Any]] = []

    async def ask(path: Path) -> None:
        answers.append(await request(path, "stop", {}))

    async with serving(run_dir, stop=stop) as server, anyio.create_task_group() as group:
        group.start_soon(ask, server.path)
        await is_running.wait()
        group.start_soon(server.aclose)
        await wait_until_async(lambda: not server.path.exists())
        is_closing.set()
    assert answers == [{"stopped": 3}]


async def test_a_handler_that_does_not_end_is_cancelled_when_the_server_closes(
    run_dir: Path, monkeypatch
) -> None:
    monkeypatch.setattr(control_server, "_CLOSE_GRACE_S", 0.05)
    endless = Endless()
    failures: list[ControlError] = []

    async def ask(path: Path) -> None:
        try:
            await request(path, "endless", {})
        except ControlError as error:
            failures.append(error)

    async with serving(run_dir, endless=endless) as server, anyio.create_task_group() as group:
        group.start_soon(ask, server.path)
        await endless.is_running.wait()
        await server.aclose()
        assert endless.is_cancelled.is_set()
    assert [error.message for error in failures] == [
        "the orchestrator went away before it had answered"
    ]
