"""Starts of the misbehaving world that fail, are late, or use another port."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.support.worlds import running_world

pytestmark = pytest.mark.thorough
"""By default, tests of the package show that these faults match their names."""


def test_world_exits_after_a_while(tmp_path: Path) -> None:
    with running_world(tmp_path, "--exit-after", "0.1") as world:
        assert world.wait() == 9


def test_world_boots_slowly(tmp_path: Path) -> None:
    began = time.monotonic()
    with running_world(tmp_path, "--slow-boot", "0.3") as world:
        assert time.monotonic() - began >= 0.3
        assert world.ask("GET", "/api.md").status == 200


def test_world_answers_503_on_request(tmp_path: Path) -> None:
    with running_world(tmp_path) as world:
        world.set(unavailable="inf")
        assert world.ask("GET", "/api.md").status == 503
        world.set(unavailable=0)
        assert world.ask("GET", "/api.md").status == 200


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


def test_world_is_ready_by_its_log_and_serves_health(tmp_path: Path) -> None:
    with running_world(tmp_path, "--health", "--say-ready", "0.1") as world:
        assert world.ask("GET", "/api.md").status == 404
        assert world.ask("GET", "/health").status == 200
        wait_until(lambda: "READY to serve\n" in world.log)
