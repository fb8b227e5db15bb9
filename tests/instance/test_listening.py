"""Wrappers that do not exec a world with an inherited socket are reported immediately."""

from __future__ import annotations

import os
import socket
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest
import structlog

from clawblox import (
    AsyncWorld,
    WorldExitedBeforeReadyError,
    WorldReadyTimeoutError,
    WorldStartError,
)
from clawblox.instance import launcher
from clawblox.instance.listening import EXEC_HINT, find_in_use, find_kept_socket
from clawblox.system.process_tree import waits_for_child
from tests.instance.test_start_failures import LONG_S, failed_start
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


def make_inheriting_world(parent: Path, *flags: str, wrapper: str) -> Path:
    flags = ("--listen", "inherit", *flags)
    return make_world(parent, *flags, wrapper=wrapper, toml_extra='listen = "inherit"')


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_SLOW_S", 0.02)


@pytest.mark.usefixtures("_soon")
async def test_wrapper_that_restarts_its_world_fails_the_start(
    tmp_path: Path,
) -> None:
    directory = make_inheriting_world(tmp_path, wrapper="again")
    error = await failed_start(directory, WorldStartError, phase="probing", health_timeout=LONG_S)
    assert "cannot become ready: its socket was handed to pid " in error.message
    assert "wrapper.sh again" in error.message
    assert "and a program failed to bind the port" in error.message
    assert error.hint == EXEC_HINT
    assert any("ddress already in use" in line for line in error.log_lines)


@pytest.mark.parametrize("wrapper", ["child", "nohup"])
async def test_wrapper_that_ends_with_its_world_is_started_once_with_a_hint_to_exec(
    tmp_path: Path, wrapper: str
) -> None:
    directory = make_inheriting_world(tmp_path, wrapper=wrapper)
    with structlog.testing.capture_logs() as logs:
        error = await failed_start(directory, WorldExitedBeforeReadyError, phase="probing")
    assert error.hint == EXEC_HINT
    assert logs == []


@pytest.mark.usefixtures("_soon")
@pytest.mark.thorough
async def test_wrapper_that_waits_for_a_silent_world_causes_a_warning_and_then_an_error(
    tmp_path: Path,
) -> None:
    directory = make_inheriting_world(tmp_path, "--never-listen", wrapper="child")
    with structlog.testing.capture_logs() as logs:
        error = await failed_start(
            directory, WorldReadyTimeoutError, phase="probing", health_timeout=1.0
        )
    (told,) = logs
    assert told["event"].startswith("the world is not ready: its socket was handed to pid ")
    assert told["event"].endswith(EXEC_HINT)
    assert "; its socket was handed to pid " in error.message
    assert error.hint == EXEC_HINT


@pytest.mark.usefixtures("_soon")
async def test_wrapper_that_execs_after_preparations_does_not_fail(
    tmp_path: Path,
) -> None:
    directory = make_inheriting_world(tmp_path, wrapper="prepare")
    async with AsyncWorld(dir=directory) as world:
        with anyio.fail_after(HANG_S):
            await world.start(run_dir=tmp_path / "run", health_timeout=LONG_S)


def test_busy_wrapper_is_detected_by_the_port_in_the_log() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        find = partial(find_kept_socket, "127.0.0.1", port)
        lines = ["booting", f"listen tcp 127.0.0.1:{port}: bind: address already in use"]
        kept = find(os.getpid(), (), lines)
        assert kept is not None
        assert kept.is_final
        assert kept.text.startswith(f"its socket was handed to pid {os.getpid()} (")
        assert kept.text.endswith(", and a program failed to bind the port")
        assert find(os.getpid(), (), ["metrics: address already in use"]) is None
        assert find(os.getppid(), (), lines) is None  # it has no socket on this port


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("OSError: [Errno 98] Address already in use", True),
        ("2026-11-29 02:47:32,123 [22384] ERROR bind: Address already in use", True),
        ("listen tcp 127.0.0.1:20000: bind: address already in use", True),
        ("Error: listen EADDRINUSE: address already in use 127.0.0.1:20000", True),
        ("attempting to bind on address ('127.0.0.1', 20000): address already in use", True),
        ("the name is already in use", False),
        ("listening socket *:6379: bind: Address already in use", False),
        ("attempting to bind on address ('0.0.0.0', 6379): address already in use", False),
        ("port 6379: Address already in use", False),
    ],
)
def test_bind_error_in_the_log_is_detected_unless_it_names_another_port(
    line: str, is_one: bool
) -> None:
    assert find_in_use(20000, ["one", line]) == ([line] if is_one else [])


def test_process_that_waits_for_its_child_is_detected() -> None:
    command = ["/bin/sh", "-c", "read line; exit 0", "sh"]
    waiting = ["/bin/sh", "-c", '"$@"; exit', "sh", *command]
    with (
        subprocess.Popen(waiting, stdin=subprocess.PIPE) as parent,
        subprocess.Popen(command, stdin=subprocess.PIPE) as other,
    ):
        wait_until(lambda: waits_for_child(parent.pid))
        assert not waits_for_child(other.pid)
        for process in (parent, other):
            assert process.stdin is not None
            process.stdin.close()
    assert not waits_for_child(parent.pid)
    assert not waits_for_child(os.getpid())
