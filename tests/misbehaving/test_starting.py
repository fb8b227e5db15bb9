"""Starts of the misbehaving world that fail, are late, or use another port."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.misbehaving.support import run_world
from tests.support.processes import is_alive
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import wait_until
from tests.support.worlds import running_world

pytestmark = pytest.mark.thorough
"""By default, tests of the package show that these faults match their names."""


def test_world_exits_immediately(tmp_path: Path) -> None:
    ended = run_world(tmp_path, "--exit-at-once", "7")
    assert (ended.returncode, "exiting with 7" in ended.stdout) == (7, True)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGABRT"])
def test_world_dies_by_a_signal_before_it_is_ready(tmp_path: Path, name: str) -> None:
    ended = run_world(tmp_path, "--die-at-once", name)
    assert ended.returncode == -signal.Signals[name]


def test_world_exits_after_a_while(tmp_path: Path) -> None:
    with running_world(tmp_path, "--exit-after", "0.1") as world:
        assert world.wait() == 9


def test_world_runs_without_ever_listening(tmp_path: Path) -> None:
    with running_world(tmp_path, "--never-listen", listens=False) as world:
        wait_until(lambda: "counter world" in world.log)
        # The world would have bound its port by now; SIGTERM shows that it waits endlessly.
        assert is_alive(world.process.pid)
        assert not is_listening(world.port)
        world.process.terminate()
        assert world.wait() == 0


def test_world_boots_slowly(tmp_path: Path) -> None:
    began = time.monotonic()
    with running_world(tmp_path, "--slow-boot", "0.3") as world:
        assert time.monotonic() - began >= 0.3
        assert world.ask("GET", "/api.md").status == 200


def test_world_always_answers_503(tmp_path: Path) -> None:
    with running_world(tmp_path, "--unavailable", "inf") as world:
        assert world.ask("GET", "/api.md").status == 503
        assert world.snapshot().status == 503


def test_world_answers_503_on_request(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(unavailable="inf")
        assert world.ask("GET", "/api.md").status == 503
        world.set(unavailable=0)
        assert world.ask("GET", "/api.md").status == 200


def test_world_answers_503_for_a_while_and_then_serves(tmp_path: Path) -> None:
    with running_world(tmp_path, "--unavailable", "0.3") as world:
        assert world.ask("GET", "/api.md").status == 503
        wait_until(lambda: world.ask("GET", "/api.md").status == 200)


def test_world_accepts_and_never_answers(tmp_path: Path) -> None:
    with running_world(tmp_path, "--mute") as world, pytest.raises(TimeoutError):
        world.ask("GET", "/api.md", timeout=0.1)


def test_world_falls_silent_on_request(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(mute="")
        with pytest.raises(TimeoutError):
            world.ask("GET", "/api.md", timeout=0.1)


def test_agent_document_fails_and_recovers_while_other_routes_work(tmp_path: Path) -> None:
    with running_world(tmp_path, "--doc", "status-500") as world:
        assert world.ask("GET", "/api.md").status == 500
        world.set(doc="hang")
        with pytest.raises(TimeoutError):
            world.ask("GET", "/api.md", timeout=0.1)
        assert world.snapshot().status == 200
        world.set(doc="served")
        assert world.ask("GET", "/api.md").status == 200


def test_world_binds_the_ipv6_loopback_only(tmp_path: Path) -> None:
    with running_world(tmp_path, "--bind", "::1") as world:
        assert world.ask("GET", "/api.md", host="::1").status == 200
        with pytest.raises(ConnectionRefusedError):
            world.ask("GET", "/api.md")


def test_world_binds_another_port(tmp_path: Path) -> None:
    other = free_port()
    with running_world(tmp_path, "--bind-port", str(other), listens=False) as world:
        wait_until(lambda: is_listening(other))
        assert not is_listening(world.port)


def test_world_is_ready_by_its_log_and_serves_health(tmp_path: Path) -> None:
    with running_world(tmp_path, "--health", "--say-ready", "0.1") as world:
        assert world.ask("GET", "/api.md").status == 404
        assert world.ask("GET", "/health").status == 200
        wait_until(lambda: "READY to serve\n" in world.log)
