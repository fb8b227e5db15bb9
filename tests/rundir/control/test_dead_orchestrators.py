"""Dead orchestrators and their sockets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from clawblox.errors import ControlError, OrchestratorSuspendedError
from clawblox.rundir import control_client as control
from clawblox.rundir import control_server
from clawblox.rundir.control_client import control_dir, find_sockets, request
from clawblox.rundir.control_server import ControlServer
from clawblox.system.locks import lock_file, unlock_file
from tests.rundir.control.conftest import find, serving
from tests.support.processes import is_alive, kill_processes
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.anyio

ORCHESTRATOR = """
import anyio, os, sys
from pathlib import Path
from clawblox.rundir.control_server import ControlServer, Operation

async def wait(arguments, send_event):
    await send_event("waiting", pid=os.getpid())
    await anyio.sleep_forever()

async def main():
    server = ControlServer(Path(sys.argv[1]), sys.argv[2], {"wait": Operation(wait)})
    await server.open()
    {extra}
    print("open", flush=True)
    await server.run()

anyio.run(main)
"""


@contextlib.contextmanager
def orchestrator(
    run_dir: Path, name: str, extra: str = "pass"
) -> Iterator[subprocess.Popen[bytes]]:
    """Run an orchestrator in another process, which is killed at the end at the latest."""
    words = [sys.executable, "-c", ORCHESTRATOR.replace("{extra}", extra), str(run_dir), name]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            yield process
        finally:
            process.kill()


def leave_dead_socket(run_dir: Path, name: str) -> Path:
    """Leave the socket of an orchestrator that was killed."""
    with orchestrator(run_dir, name):
        pass
    path = control_dir(run_dir) / f"{name}.sock"
    assert path.is_socket()
    return path


@pytest.mark.thorough
async def test_a_dead_socket_is_removed_by_the_next_client(run_dir: Path) -> None:
    dead = leave_dead_socket(run_dir, "7-1")
    async with serving(run_dir, "8-1") as server:
        pass
    assert not dead.exists()
    dead = leave_dead_socket(run_dir, "7-1")
    assert await find(run_dir) == []
    assert list(control_dir(run_dir).iterdir()) == []
    assert not server.path.exists()


async def test_the_socket_name_of_a_dead_orchestrator_can_be_reused(run_dir: Path) -> None:
    leave_dead_socket(run_dir, "7-1")
    async with serving(run_dir, "7-1") as server:
        assert await find(run_dir) == [server.path]
        assert await request(server.path, "echo", {}) == {"asked": {}}


async def test_a_request_to_a_dead_socket_fails_with_a_clear_error(run_dir: Path) -> None:
    dead = leave_dead_socket(run_dir, "7-1")
    with pytest.raises(ControlError, match="Connection refused") as caught:
        await request(dead, "echo", {})
    assert caught.value.path == dead


async def test_a_socket_that_is_not_listening_yet_does_not_count_as_dead(
    run_dir: Path,
) -> None:
    directory = control_dir(run_dir)
    directory.mkdir(parents=True)
    lock = await anyio.to_thread.run_sync(
        lock_file, directory / "lock"
    )  # like every server that binds
    assert lock is not None
    newborn = socket.socket(socket.AF_UNIX)
    with newborn, control.short_path(directory / "9-1.sock") as address:
        newborn.bind(address)
        assert await find(run_dir) == []
        assert (directory / "9-1.sock").exists()
        newborn.listen()
        await anyio.to_thread.run_sync(unlock_file, directory / "lock", lock)
        assert await find(run_dir) == [directory / "9-1.sock"]


async def test_a_lock_that_is_never_released_fails_the_opening(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setattr(control_server, "_LOCK_PATIENCE_S", 0.05)
    directory = control_dir(run_dir)
    directory.mkdir(parents=True)
    lock = await anyio.to_thread.run_sync(lock_file, directory / "lock")
    assert lock is not None
    with pytest.raises(TimeoutError, match="another process holds"):
        await ControlServer(run_dir, "1-1", {}).open()
    await anyio.to_thread.run_sync(unlock_file, directory / "lock", lock)
    assert list(directory.iterdir()) == []


async def test_a_run_directory_without_orchestrators_has_no_sockets(tmp_path: Path) -> None:
    assert await find(tmp_path / "nowhere") == []
    control_dir(tmp_path).mkdir(parents=True)
    (control_dir(tmp_path) / "plain.sock").write_text("no socket")
    assert await find(tmp_path) == []


async def test_a_request_fails_if_its_orchestrator_dies(run_dir: Path) -> None:
    with orchestrator(run_dir, "7-1"):
        [path] = await find(run_dir)
        with pytest.raises(ControlError, match="went away before it had answered"):
            await request(path, "wait", {}, lambda event: os.kill(event["pid"], signal.SIGKILL))


@pytest.mark.thorough
async def test_a_request_to_a_suspended_orchestrator_fails_with_advice(
    run_dir: Path,
) -> None:
    with orchestrator(run_dir, "7-1"):
        [path] = await find(run_dir)
        with pytest.raises(OrchestratorSuspendedError) as caught, anyio.fail_after(HANG_S):
            await request(path, "wait", {}, lambda event: os.kill(event["pid"], signal.SIGSTOP))
    assert "kill -CONT " in str(caught.value)


def test_a_forked_child_does_not_keep_the_socket_of_a_dead_orchestrator(run_dir: Path) -> None:
    fork = "child = os.fork()\n    if not child: import time; time.sleep(3600)\n    print(child)"
    words = ORCHESTRATOR.replace('print("open", flush=True)', "sys.stdout.flush()")
    script = words.replace("{extra}", fork)
    command = [sys.executable, "-W", "ignore", "-c", script, str(run_dir), "7-1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert find_sockets(run_dir) == [control_dir(run_dir) / "7-1.sock"]
            process.kill()
            process.wait()
            wait_until(lambda: not find_sockets(run_dir))
            assert is_alive(child)
        finally:
            process.kill()
            kill_processes(lambda: [child] if is_alive(child) else [])
