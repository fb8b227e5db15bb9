"""Failed starts of worlds: the error, its message, and the cleanup.

Every failure goes through :func:`failed_start`, which checks the error completely and then starts
a working world in the same directory, with the same name and port.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import anyio
import pytest
import structlog

import clawblox.system.process
from clawblox import (
    AsyncWorld,
    PortInUseError,
    ProcessExit,
    SnapshotRefusedError,
    WorldCommandError,
    WorldError,
    WorldExitedBeforeReadyError,
    WorldIdentityError,
    WorldReadyTimeoutError,
    WorldStartError,
)
from clawblox.instance import launcher
from clawblox.instance.ramp import current_ramp
from tests.support.processes import marked_processes
from tests.support.running import next_event
from tests.support.sockets import free_port, is_listening, stranger_on
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import ask, make_world, world_command

pytestmark = pytest.mark.anyio


LONG_S = 3600.0
"""A health timeout too long for tests: the failure must be detected earlier."""

BOOT_S = 1.5
"""A health timeout within which a world has probably bound its port."""

RARELY = "[run.ready]\ninterval = 0.2"
"""Checks so far apart that a deadline rarely interrupts one."""

AnyWorldError = TypeVar("AnyWorldError", bound=WorldError)


def write_world(directory: Path, *command: str) -> None:
    """Write a ``world.toml`` with a given command."""
    directory.mkdir(exist_ok=True)
    text = f'name = "counter"\n[run]\ncommand = {json.dumps(command)}\n'
    (directory / "world.toml").write_text(text)


def world_that_runs(parent: Path, *command: str) -> Path:
    """Return a world directory whose command is given in full."""
    write_world(parent / "counter", *command)
    return parent / "counter"


async def failed_start(
    directory: Path, kind: type[AnyWorldError], *, phase: str, **arguments: Any
) -> AnyWorldError:
    """Start a world that fails with exactly ``kind``; check the error and the cleanup."""
    run = directory.parent / "run"
    async with AsyncWorld(dir=directory) as world:
        with anyio.fail_after(HANG_S), pytest.raises(kind) as caught:
            await world.start(**{"run_dir": run, **arguments})
        error = caught.value
        assert type(error) is kind
        assert world.instances == ()
        assert world.url is None
        assert (await world.stop()).rung == "not_running"
        assert not marked_processes()
    assert error.instance == "w000"
    assert error.world_dir == directory
    assert error.command_file == arguments.get("command_file", run / "runtime" / "w000.sh")
    assert error.log_file == arguments.get("log_file", run / "logs" / "w000.log")
    assert error.phase == phase
    assert error.elapsed_s is not None
    assert error.elapsed_s > 0
    assert error.port is not None
    assert_names_its_fields(error)
    await assert_a_sound_world_starts(directory, error.port)
    return error


async def failed_boot(directory: Path) -> WorldReadyTimeoutError:
    """Start a world that binds its port but is never ready, with more time on slow machines."""
    for health_timeout in (BOOT_S, 40 * BOOT_S):
        error = await failed_start(
            directory, WorldReadyTimeoutError, phase="probing", health_timeout=health_timeout
        )
        if error.log_lines:  # it prints its address after binding the port
            break
    return error


def assert_names_its_fields(error: WorldError) -> None:
    """Check that the message contains every known field."""
    text = str(error)
    assert f"world directory: {error.world_dir}\n" in text
    assert f"command_file: {error.command_file}\n" in text
    assert f"log_file: {error.log_file}\n" in text
    assert (f"url: {error.url}\n" if error.url else f"port: {error.port}\n") in text
    assert f"phase: {error.phase}\n" in text
    assert f"elapsed: {error.elapsed_s:.2f} s" in text
    assert error.exit is None or f"exit: {error.exit}\n" in f"{text}\n"
    assert all(f"  | {line}" in text for line in error.log_lines)
    assert str(pickle.loads(pickle.dumps(error))) == text


async def assert_a_sound_world_starts(directory: Path, port: int) -> None:
    """Check that name, port and directories are free again by using them."""
    write_world(directory, *world_command())
    async with AsyncWorld(dir=directory) as world:
        run = directory.parent / "run"
        started = await world.start(run_dir=run, port=port, name="w000", port_wait=HANG_S)
        assert ask(started.port, "GET", "/api.md").status == 200


# ---------------------------------------------------------------------- it ends too early


async def test_a_world_that_exits_is_reported_immediately_with_its_status(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--exit-at-once", "7")
    error = await failed_start(
        directory, WorldExitedBeforeReadyError, phase="probing", health_timeout=LONG_S
    )
    assert error.exit == ProcessExit(status=7)
    assert error.url == f"http://127.0.0.1:{error.port}"
    assert error.log_lines[-1] == "cannot go on, exiting with 7"
    assert "exit status 7" in error.message


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
async def test_world_killed_by_a_signal_is_reported_immediately_with_the_signal(
    tmp_path: Path, name: str
) -> None:
    directory = make_world(tmp_path, "--die-at-once", name)
    error = await failed_start(
        directory, WorldExitedBeforeReadyError, phase="probing", health_timeout=LONG_S
    )
    assert error.exit == ProcessExit(signal=name)
    assert f"killed by {name}" in error.message
    assert ("for lack of memory" in error.message) == (name == "SIGKILL")


async def test_a_world_that_exits_while_it_boots_is_reported_immediately(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--never-listen", "--exit-after", "0.1")
    error = await failed_start(
        directory, WorldExitedBeforeReadyError, phase="probing", health_timeout=LONG_S
    )
    assert error.exit == ProcessExit(status=9)


async def test_a_world_left_behind_by_its_shell_is_ended(
    tmp_path: Path,
) -> None:
    directory = make_world(tmp_path, wrapper="background")
    error = await failed_start(
        directory, WorldExitedBeforeReadyError, phase="probing", health_timeout=LONG_S
    )
    assert error.exit == ProcessExit(status=0)


@pytest.mark.thorough
async def test_error_has_the_last_lines_of_a_flood_of_output(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--flood-lines", "20000", "--exit-at-once", "7")
    error = await failed_start(directory, WorldExitedBeforeReadyError, phase="probing")
    assert len(error.log_lines) == 50
    assert error.log_lines[0].startswith("flood 19951 ")
    assert error.log_lines[-2:] == (
        f"flood 19999 {'x' * 80}",
        "cannot go on, exiting with 7",
    )


@pytest.mark.thorough
async def test_an_endless_last_line_is_cut_short_in_the_error(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--long-line", "5000000", "--exit-at-once", "7")
    error = await failed_start(directory, WorldExitedBeforeReadyError, phase="probing")
    assert error.log_lines == ("y" * 1000,)


@pytest.mark.thorough
async def test_error_has_only_log_lines_of_this_run(
    tmp_path: Path,
) -> None:
    log_file = tmp_path / "world.log"
    log_file.write_text("an older run\n")
    error = await failed_start(
        make_world(tmp_path, "--exit-at-once", "7"),
        WorldExitedBeforeReadyError,
        phase="probing",
        log_file=log_file,
    )
    assert error.log_lines[0].startswith("counter world, process ")


async def test_the_error_for_a_refused_snapshot_has_the_worlds_reason(tmp_path: Path) -> None:
    snapshot = tmp_path / "of-another-scene.json"
    snapshot.write_text('{"scene_hash": "scene-other"}')
    error = await failed_start(
        make_world(tmp_path),
        SnapshotRefusedError,
        phase="probing",
        health_timeout=LONG_S,
        resume=snapshot,
    )
    assert error.exit == ProcessExit(status=3)
    assert str(snapshot) in error.message
    reason = "its scene is scene-other, not scene-plain"
    assert error.log_lines[-1] == f"cannot restore {snapshot}: {reason}"
    assert snapshot.read_text() == '{"scene_hash": "scene-other"}'


# --------------------------------------------------------------------- it cannot be executed


def make_program(path: Path, content: str, mode: int) -> None:
    path.write_text(content)
    path.chmod(mode)


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, os.strerror(errno.ENOENT)),
        ("#!/bin/sh\n", 0o600, os.strerror(errno.EACCES)),
        ("neither a script nor a binary\n", 0o700, os.strerror(errno.ENOEXEC)),
        ("#!/no/such/interpreter\n", 0o700, os.strerror(errno.ENOENT)),
    ],
    ids=["missing", "not-executable", "bad-format", "no-interpreter"],
)
async def test_the_error_names_a_command_that_cannot_be_executed_and_why(
    tmp_path: Path, content: str | None, mode: int, reason: str
) -> None:
    directory = world_that_runs(tmp_path, "./program", "--flag")
    if content is not None:
        make_program(directory / "program", content, mode)
    error = await failed_start(directory, WorldCommandError, phase="spawning")
    assert "'./program'" in error.message
    assert reason in error.message
    assert error.exit is None


async def test_the_error_names_a_command_that_is_not_on_the_path(tmp_path: Path) -> None:
    directory = world_that_runs(tmp_path, "no-such-program-anywhere")
    error = await failed_start(directory, WorldCommandError, phase="spawning")
    assert "'no-such-program-anywhere'" in error.message


# ------------------------------------------------------------------------ it is not ready


@pytest.mark.thorough
async def test_a_world_that_never_listens_times_out(tmp_path: Path) -> None:
    error = await failed_start(
        make_world(tmp_path, "--never-listen"),
        WorldReadyTimeoutError,
        phase="probing",
        health_timeout=0.25,
    )
    assert "not ready within 0.25 s" in error.message
    assert "last probe: connection failed: Connection refused" in error.message
    assert isinstance(error, TimeoutError)


@pytest.mark.thorough
async def test_world_that_ignores_sigterm_is_killed_after_a_failed_start(
    tmp_path: Path,
) -> None:
    flags = ("--never-listen", "--ignore-sigterm", "--pid-file", str(tmp_path / "pid"))
    await failed_start(
        make_world(tmp_path, *flags), WorldReadyTimeoutError, phase="probing", health_timeout=0.25
    )


@pytest.mark.thorough
async def test_the_error_of_an_unavailable_world_has_its_last_answer(
    tmp_path: Path,
) -> None:
    error = await failed_boot(make_world(tmp_path, "--unavailable", "inf", toml_extra=RARELY))
    assert "last probe: GET /api.md answered 503" in error.message


@pytest.mark.thorough
async def test_a_world_that_accepts_but_never_answers_is_named_in_the_error(tmp_path: Path) -> None:
    error = await failed_boot(make_world(tmp_path, "--mute"))
    assert "last probe: connected, no answer to GET /api.md" in error.message


@pytest.mark.thorough
async def test_the_error_of_a_world_without_the_route_has_the_status(tmp_path: Path) -> None:
    error = await failed_boot(make_world(tmp_path, "--health", toml_extra=RARELY))
    assert "last probe: GET /api.md answered 404" in error.message


@pytest.mark.thorough
async def test_world_with_a_short_timeout_is_probed_in_time_despite_slow_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_ramp(), "fastest_s", 100.0)
    error = await failed_start(
        make_world(tmp_path, "--never-listen"),
        WorldReadyTimeoutError,
        phase="probing",
        health_timeout=0.1,
    )
    assert "last probe: connection failed: Connection refused" in error.message


@pytest.mark.thorough
async def test_the_error_names_the_log_pattern_that_never_matched(tmp_path: Path) -> None:
    directory = make_world(tmp_path, toml_extra='[run.ready]\nlog = "READY"')
    error = await failed_start(
        directory, WorldReadyTimeoutError, phase="probing", health_timeout=0.25
    )
    assert "last probe: no log line matches 'READY'" in error.message


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("bound", "seen"),
    [("::1", "[::1]"), pytest.param("127.0.0.2", "127.0.0.2", marks=pytest.mark.thorough)],
)
async def test_a_world_that_listens_on_another_address_is_named_in_the_error(
    tmp_path: Path, bound: str, seen: str
) -> None:
    error = await failed_boot(make_world(tmp_path, "--bind", bound))
    port = str(error.url).rpartition(":")[2]
    assert error.message.endswith(f" s; it listens on {seen}:{port} instead of 127.0.0.1:{port}")
    assert error.hint == "a world must bind WORLD_HOST (127.0.0.1)"
    assert error.hint in str(error)


@pytest.mark.parametrize("wrapper", [None, pytest.param("child", marks=pytest.mark.thorough)])
async def test_a_world_that_listens_on_another_port_is_named_in_the_error(
    tmp_path: Path, wrapper: str | None
) -> None:
    other = free_port()
    error = await failed_boot(make_world(tmp_path, "--bind-port", str(other), wrapper=wrapper))
    port = str(error.url).rpartition(":")[2]
    assert f"; it listens on 127.0.0.1:{other} instead of 127.0.0.1:{port}" in error.message
    assert error.hint == f"a world must bind WORLD_PORT ({port})"
    assert error.log_lines[-1] == f"Spectator frontend: http://127.0.0.1:{other}/"
    assert not is_listening(other)


@pytest.mark.thorough
async def test_port_of_a_sidecar_is_not_mistaken_for_the_worlds_port(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--never-listen")
    sidecar = [*world_command("--host", "127.0.0.1", "--bind-port", str(free_port()))]
    with (directory / "world.toml").open("a") as file:
        file.write(f'[[run.sidecar]]\nname = "viewer"\ncommand = {json.dumps(sidecar)}\n')
    error = await failed_boot(directory)
    assert "; last probe: connection failed: Connection refused" in error.message
    assert error.hint is None


@pytest.mark.thorough
async def test_the_error_names_another_process_on_another_address_of_the_port(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.2", 0)) as stranger:
        error = await failed_start(
            make_world(tmp_path, "--never-listen"),
            WorldReadyTimeoutError,
            phase="probing",
            health_timeout=0.25,
            port=stranger.getsockname()[1],
        )
    assert error.hint == "a process listens on 127.0.0.2; bind WORLD_HOST (127.0.0.1) instead"


@pytest.mark.thorough
async def test_slow_worlds_that_listen_elsewhere_are_reported_once_before_they_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_SLOW_S", 0.02)
    directory = make_world(tmp_path, "--bind", "127.0.0.2")
    with structlog.testing.capture_logs() as logs, anyio.fail_after(HANG_S):
        async with (
            AsyncWorld(directory) as world,
            world.events() as events,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(2):
                tasks.start_soon(partial(world.start, run_dir=tmp_path / "run"))
            ports = [(await next_event(events, "started")).data["port"] for _ in range(2)]
            await wait_until_async(lambda: logs)
            await wait_until_async(lambda: all(map(is_listening, ports)))
            await anyio.sleep(0.1)  # during which nothing more may be logged
            tasks.cancel_scope.cancel()
    (told,) = logs
    assert told["instance"] in ("w000", "w001")
    assert told["event"] in [
        f"the world is not ready: it listens on 127.0.0.2:{port} instead of 127.0.0.1:{port};"
        " a world must bind WORLD_HOST (127.0.0.1)"
        for port in ports
    ]


# ------------------------------------------------------------------------ the port is taken


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", *(pytest.param(host, marks=pytest.mark.thorough) for host in ("0.0.0.0", "::"))],
)
async def test_the_error_for_a_busy_port_names_its_owner(tmp_path: Path, host: str) -> None:
    port = free_port()
    with stranger_on(port, host):
        async with AsyncWorld(dir=make_world(tmp_path, "--pid-file", "pid")) as world:
            with pytest.raises(PortInUseError) as caught:
                await world.start(port=port, run_dir=tmp_path / "run")
    error = caught.value
    assert f"port {port} is in use by pid {os.getpid()} (" in error.message
    assert sys.argv[0] in error.message or "pytest" in error.message
    assert (error.port, error.url, error.phase) == (port, None, "leasing")
    assert error.log_lines == ()
    assert_names_its_fields(error)
    assert not (tmp_path / "counter" / "pid").exists()
    await assert_a_sound_world_starts(tmp_path / "counter", port)


async def test_the_error_for_a_port_of_another_instance_names_its_owner(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        with pytest.raises(PortInUseError, match=f"port {started.port} is in use by pid "):
            await world.start(port=started.port, run_dir=tmp_path / "run")
        assert world.instances == (started.name,)
        assert ask(started.port, "GET", "/api.md").status == 200


async def test_start_waits_for_a_busy_port(tmp_path: Path) -> None:
    port, outcome = free_port(), []

    async def start() -> None:
        outcome.append(await world.start(port=port, port_wait=LONG_S, run_dir=tmp_path / "run"))

    claimed = tmp_path / "run" / ".clawblox" / "instances" / "w000.lock"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            with stranger_on(port):
                tasks.start_soon(start)
                await wait_until_async(claimed.exists, what="the start has its name")
                await anyio.wait_all_tasks_blocked()
                assert not outcome
        assert outcome[0].port == port


async def test_start_fails_if_the_port_stays_busy(
    tmp_path: Path,
) -> None:
    port = free_port()
    with stranger_on(port):
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            with pytest.raises(PortInUseError) as caught:
                await world.start(port=port, port_wait=0.1, run_dir=tmp_path / "run")
    assert caught.value.elapsed_s is not None
    assert caught.value.elapsed_s >= 0.1


async def test_start_fails_if_the_host_is_not_an_address_of_this_machine(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(WorldStartError) as caught:
            await world.start(host="192.0.2.1", run_dir=tmp_path / "run")
    assert caught.value.phase == "leasing"
    assert os.strerror(errno.EADDRNOTAVAIL) in caught.value.message


# --------------------------------------------------------------- another process answers there

GATE = """
echo "$WORLD_PORT" > port.part && mv port.part port
until [ -e go ]; do sleep 0.01; done
exec "$@"
"""


@contextlib.contextmanager
def friendly_stranger(port: int) -> Iterator[None]:
    """Answer 200 to everything on a port, from a process that is not the world's."""

    class Friendly(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Friendly) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


async def test_the_error_names_a_process_that_answers_in_place_of_the_world(tmp_path: Path) -> None:
    directory, port = tmp_path / "counter", free_port()
    write_world(directory, "bash", "-c", GATE, "gate", *world_command("--never-listen"))
    errors: list[WorldIdentityError] = []

    async def start() -> None:
        with pytest.raises(WorldIdentityError) as caught:
            await world.start(port=port, run_dir=tmp_path / "run", health_timeout=LONG_S)
        errors.append(caught.value)

    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=directory) as world, anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await wait_until_async((directory / "port").exists, what="the world has its port")
            with friendly_stranger(port):
                (directory / "go").touch()
                await wait_until_async(lambda: errors, what="the start has failed")
    error = errors[0]
    assert f"port {port} is served by pid {os.getpid()} (" in error.message
    assert (error.phase, error.port) == ("probing", port)
    assert_names_its_fields(error)
    assert not marked_processes()
    await assert_a_sound_world_starts(directory, port)


ANSWERS_ONCE = """\
import os, socket
with socket.create_server(("127.0.0.1", int(os.environ["WORLD_PORT"]))) as server:
    client, _ = server.accept()
with client:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
os._exit(7)
"""


async def test_a_world_that_ends_right_after_its_first_answer_has_exited(tmp_path: Path) -> None:
    directory = tmp_path / "once"
    write_world(directory, sys.executable, "-I", "-S", "-c", ANSWERS_ONCE)
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(WorldExitedBeforeReadyError) as caught:
            await world.start(run_dir=tmp_path / "run", health_timeout=LONG_S)
    assert caught.value.exit == ProcessExit(status=7)


# ------------------------------------------------------------------- files and descriptors


async def test_a_log_that_cannot_be_written_fails_before_the_world_is_spawned(
    tmp_path: Path,
) -> None:
    log_file = tmp_path / "a-directory"
    log_file.mkdir()
    directory = make_world(tmp_path, "--pid-file", "pid")
    error = await failed_start(directory, WorldStartError, phase="spawning", log_file=log_file)
    assert f"{os.strerror(errno.EISDIR)}: {log_file}" in error.message
    assert not (directory / "pid").exists()


async def test_a_command_file_that_cannot_be_written_fails_before_the_world_is_spawned(
    tmp_path: Path,
) -> None:
    command_file = tmp_path / "a-directory"
    command_file.mkdir()
    directory = make_world(tmp_path, "--pid-file", "pid")
    error = await failed_start(
        directory, WorldStartError, phase="spawning", command_file=command_file
    )
    assert str(command_file) in error.message
    assert not (directory / "pid").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"a-directory", "counter", "run"}


async def test_start_fails_if_the_record_dir_cannot_be_created(
    tmp_path: Path,
) -> None:
    (tmp_path / "a-file").touch()
    error = await failed_start(
        make_world(tmp_path),
        WorldStartError,
        phase="spawning",
        record=True,
        record_dir=tmp_path / "a-file" / "recordings",
    )
    assert str(tmp_path / "a-file") in error.message


async def test_world_that_cannot_be_watched_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, *, is_child: bool) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(clawblox.system.process, "_open", refuse)
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            with pytest.raises(WorldStartError, match=os.strerror(errno.EMFILE)) as caught:
                await world.start(run_dir=tmp_path / "run")
    assert caught.value.port is not None
    await assert_a_sound_world_starts(tmp_path / "counter", caught.value.port)


EXHAUST = """
import json, os, resource, sys
import anyio
from clawblox import AsyncWorld, ClawbloxError
from tests.support.resources import open_fds
from tests.support.waiting import wait_until_async

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
kinds = []

def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()

async def start_with(world, spare):
    files, processes = open_fds(), children()
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(files) + spare, hard))
    try:
        await world.start(run_dir=sys.argv[2], health_timeout=20)
        kinds.append("started")
    except ClawbloxError as error:
        kinds.append(type(error).__name__)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await world.stop()
    # Waits, for a thread that samples may have a file open at any one moment.
    await wait_until_async(
        lambda: (len(open_fds()), children()) == (len(files), processes),
        what=f"{spare} {kinds} {files} {processes} are open again",
    )

async def main():
    async with AsyncWorld(dir=sys.argv[1]) as world:
        await world.start(run_dir=sys.argv[2])  # what a process opens once, it has open now
        await world.connect("Rocky")
        await world.stop()
        for spare in range(int(sys.argv[3])):
            await start_with(world, spare)

anyio.run(main)
print(json.dumps(kinds))
"""


@pytest.mark.thorough
def test_start_without_free_descriptors_fails_and_leaves_nothing_behind(tmp_path: Path) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXHAUST, str(directory), str(run), "16"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    kinds = json.loads(done.stdout.splitlines()[-1])
    assert kinds[0] != "started"
    assert kinds[-1] == "started"


# ------------------------------------------------------------------------- a sleeping machine


@pytest.mark.thorough
def test_sleep_of_the_orchestrator_does_not_make_a_start_late(tmp_path: Path) -> None:
    """Stop the orchestrator, like closing a laptop, until long after its deadline."""
    directory = make_world(tmp_path, "--slow-boot", "0.4", "--pid-file", str(tmp_path / "pid"))
    script = "\n".join(
        [
            "from clawblox import World",
            f"world = World(dir={str(directory)!r})",
            f"started = world.start(run_dir={str(tmp_path / 'run')!r}, health_timeout=0.8)",
            "print(started.port, flush=True)",
        ]
    )
    orchestrator = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    with orchestrator:
        wait_until((tmp_path / "pid").exists)
        os.kill(orchestrator.pid, signal.SIGSTOP)
        over_at = time.monotonic() + 1.5
        wait_until(lambda: time.monotonic() > over_at)
        os.kill(orchestrator.pid, signal.SIGCONT)
        output, _ = orchestrator.communicate(timeout=HANG_S)
    assert orchestrator.returncode == 0
    assert output.strip().isdigit()
