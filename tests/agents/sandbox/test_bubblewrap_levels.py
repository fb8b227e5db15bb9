"""The level of an agent's sandbox, and its reports."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import anyio
import pytest

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.sandbox.bubblewrap import Bubblewrap
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentSetupError, ConfigError
from clawblox.system.outer_user import choose_uid, find_obstacle
from tests.agents.sandbox.support import LABEL, TIMEOUT_S, Sandbox, make_directory
from tests.agents.standins import install

REASON = "root lacks CAP_SYS_ADMIN here"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
pytestmark = [pytest.mark.anyio, pytest.mark.needs("bwrap")]


def refuse_outer_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawblox.agents.sandbox.bubblewrap.find_obstacle", lambda _uid: REASON)


def make(*, is_strict: bool = False) -> Bubblewrap:
    return Bubblewrap(api_hosts=(), host=lambda: LABEL, settings=dict, is_strict=is_strict)


@needs_root
async def test_root_without_its_capabilities_gets_a_level_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_outer_users(monkeypatch)
    sandbox = await run_blocking(partial(Sandbox.open, tmp_path))
    assert sandbox.bubblewrap.level == "bwrap-root"
    assert sandbox.bubblewrap.facts["weakness"] == REASON
    assert await sandbox.run("id", "-u") == "1000\n"


@needs_root
def test_a_strict_sandbox_is_refused_where_it_would_be_weaker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_directory(tmp_path)
    make(is_strict=True).open(directory, Path("/usr/bin/env"))
    refuse_outer_users(monkeypatch)
    with pytest.raises(AgentSetupError) as caught:
        make(is_strict=True).open(directory, Path("/usr/bin/env"))
    expected = f'sandbox: must be True here, not "strict", because {REASON}'
    assert caught.value.message == expected


@needs_root
def test_the_output_of_an_attempt_as_another_user_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_mapping(_directory: str) -> int:
        return 2**32 - 2  # no user can be mapped after this id

    monkeypatch.setattr("clawblox.agents.sandbox.bubblewrap.choose_uid", no_mapping)
    sandbox = make()
    sandbox.open(make_directory(tmp_path), Path("/usr/bin/env"))
    assert sandbox.level == "bwrap-root"
    assert "become user 4294967294: write /proc/<pid>/uid_map" in sandbox.facts["weakness"]


@needs_root
def test_a_machine_that_is_too_busy_does_not_lower_the_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawblox.agents.sandbox.bubblewrap._PROBE_TIMEOUT_S", 0)
    sandbox = make()
    with pytest.raises(AgentSetupError, match=r"cannot be tested: .* did not end within 0 s"):
        sandbox.open(make_directory(tmp_path), Path("/usr/bin/env"))


def test_a_strict_sandbox_needs_the_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "clawblox.agents.sandbox.bubblewrap.build_filter", lambda _machine, may_nest: None
    )
    with pytest.raises(AgentSetupError, match=r"the system calls of .* are not known"):
        make(is_strict=True).open(make_directory(tmp_path), Path("/usr/bin/env"))


def test_an_unknown_sandbox_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be True, False or strict, not 'tight'"):
        AsyncAgent(agent="claude", name="Eko", dir=tmp_path, sandbox="tight")


def test_each_agent_directory_gets_a_different_user() -> None:
    users = {choose_uid(f"/runs/r1/agents/{number}") for number in range(1000)}
    assert len(users) > 990
    assert min(users) > 2_000_200_000  # lower ids are of systemd's containers and SSSD's users
    assert max(users) < 2_147_352_576
    assert choose_uid("/runs/r1") == choose_uid("/runs/r1")
    if os.geteuid() == 0:
        assert find_obstacle(2**32 - 1) is not None


@pytest.mark.parametrize("choice", [True, pytest.param("strict", marks=pytest.mark.thorough)])
async def test_a_start_reports_its_sandbox_level(tmp_path: Path, choice: bool | str) -> None:
    agent = AsyncAgent(
        agent="claude",
        name="Eko",
        dir=tmp_path / "Eko",
        binary=install(tmp_path / "bin", "claude"),
        sandbox=choice,  # type: ignore[arg-type]  # a parameter of the test
        auto_continue=False,
    )
    with anyio.fail_after(TIMEOUT_S):
        async with agent:
            started = await agent.start(initial_prompt="Begin")
            await agent.wait()
    lines = (tmp_path / "Eko" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (event,) = [event for event in events if event["type"] == "sandbox"]
    assert event["operation"] == "agent.sandbox"
    assert event["data"]["level"] == started.sandbox == agent.sandbox == "bwrap"
    assert event["data"]["weakness"] is None
    assert (event["data"]["outer_uid"] == 0) is False


async def test_a_program_may_open_its_output_by_name(tmp_path: Path) -> None:
    # The file belongs to its user and is not readable by others.
    sandbox = await run_blocking(partial(Sandbox.open, tmp_path))
    log = tmp_path / "agent.log"
    fd = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    say = "echo one; echo two >>/dev/stdout; echo three >>/dev/stderr"
    try:
        async with sandbox.running("sh", "-c", say, output=fd) as running:
            await running.end()
    finally:
        os.close(fd)
    assert log.read_text() == "one\ntwo\nthree\n"
    assert log.stat().st_uid == os.geteuid()
