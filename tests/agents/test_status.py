"""The status of an agent for other processes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import get_args

import attrs
import msgspec
import pytest

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import (
    StatusState,
    StatusWriter,
    describe_metrics,
    find_agent,
    read_agents,
    read_status,
)
from clawblox.agents.values import AgentState
from clawblox.errors import AgentError, UsageError
from clawblox.rundir.manifest import manifest_path
from tests.agents.support import USAGE, another_process, write_status
from tests.rundir.support import make_record

UNDER_WAY = ("starting", "working", "idle")


@pytest.fixture
def eko(tmp_path: Path) -> Path:
    return tmp_path / "agents" / "Eko"


def test_the_status_is_read_by_another_process(eko: Path) -> None:
    record = write_status(eko, reason="", pid=123, window="agent-0-0", sandbox="bwrap")
    status = read_status(eko)
    assert status is not None
    assert (status.name, status.driver, status.dir) == ("Eko", "claude", eko)
    for name in attrs.fields_dict(type(status)).keys() - {"dir"}:
        assert getattr(status, name) == getattr(record, name)
    assert not status.is_over


def test_a_reason_that_json_cannot_represent_is_still_written(eko: Path) -> None:
    write_status(eko, state="failed", reason="the \ud800 value")
    status = read_status(eko)
    assert status is not None
    assert status.reason == "the \ufffd value"


def test_a_file_without_an_agent_has_no_status(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    (tmp_path / "runtime").write_text("a file")
    assert read_status(tmp_path) is None


@pytest.mark.parametrize("state", get_args(AgentState))
def test_a_running_agent_is_interrupted_once_its_orchestrator_is_dead(
    eko: Path, state: AgentState
) -> None:
    with another_process() as owner:
        write_status(eko, state=state, pid=1, window="agent-0-0", reason="", **owner)
        alive = read_status(eko)
    dead = read_status(eko)
    assert alive is not None
    assert dead is not None
    assert alive.state == state
    assert dead.state == ("interrupted" if state in UNDER_WAY else state)
    if state in UNDER_WAY:
        assert (dead.pid, dead.window) == (None, None)
        assert dead.reason == "its orchestrator was killed"
        assert dead.is_over
    assert dead.usage == USAGE


@pytest.mark.parametrize(
    "other", [{"orchestrator_start": 1}, {"boot_id": "00000000-0000-0000-0000-000000000000"}]
)
def test_a_process_that_has_the_pid_by_chance_is_not_the_orchestrator(
    eko: Path, other: dict[str, object]
) -> None:
    write_status(eko, **other)
    status = read_status(eko)
    assert status is not None
    assert status.state == "interrupted"


def test_the_file_is_written_only_at_changes(eko: Path) -> None:
    record = write_status(eko, time="2026-06-22T18:59:25Z")
    path = AgentDir(eko).status_file
    writer = StatusWriter(AgentDir(eko))
    writer.write(record)
    written = path.stat().st_ino
    writer.write(attrs.evolve(record, time="2026-06-22T19:00:00Z"))
    assert path.stat().st_ino == written
    writer.write(attrs.evolve(record, state="idle", time="2026-06-22T19:00:01Z"))
    assert path.stat().st_ino != written
    assert json.loads(path.read_text())["time"] == "2026-06-22T19:00:01Z"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in path.parent.iterdir()] == ["status.json"]


@pytest.mark.parametrize("content", [b"", b'{"name": "Eko", "driv', b"[1]", b"\xff", b"{}"])
def test_a_torn_or_foreign_file_is_an_error_and_is_not_listed(eko: Path, content: bytes) -> None:
    write_status(eko)
    AgentDir(eko).status_file.write_bytes(content)
    with pytest.raises(AgentError, match="is not the status of an agent") as raised:
        read_status(eko)
    assert str(AgentDir(eko).status_file) in str(raised.value)
    assert read_agents(eko.parents[1]) == []


def write_manifest(instance_dir: Path, agents: list[dict[str, str]]) -> None:
    path = manifest_path(instance_dir)
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode({"schema_version": 1, "agents": agents}))


def test_the_agents_of_a_run_include_those_in_its_manifest(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    elsewhere = tmp_path / "elsewhere" / "Rocky"
    for directory in (run_dir / "agents" / "Eko", run_dir / "agents" / "Ana", elsewhere):
        write_status(directory)
    (run_dir / "agents" / "empty").mkdir()
    entries = [{"id": "1", "dir": str(elsewhere)}, {"id": "2", "dir": "agents/Eko"}, {"id": "3"}]
    write_manifest(run_dir, entries)
    assert [(status.name, status.dir) for status in read_agents(run_dir)] == [
        ("Ana", run_dir / "agents" / "Ana"),
        ("Eko", run_dir / "agents" / "Eko"),
        ("Rocky", elsewhere),
    ]
    assert read_agents(tmp_path / "nothing") == []


def test_a_moved_run_does_not_list_agents_of_the_run_at_its_old_path(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    for member in (run_dir, run_dir / "worlds" / "w000"):
        write_status(member / "agents" / "Eko")
        write_manifest(member, [{"id": "1", "dir": "agents/Eko"}])
    make_record(run_dir, os.getpid(), name="w000", instance_dir=str(run_dir / "worlds" / "w000"))
    make_record(run_dir, os.getpid(), name="w001", instance_dir=str(run_dir))
    moved = tmp_path / "run.failed-1"
    shutil.copytree(run_dir, moved)
    for place in (run_dir, moved):
        assert [status.dir for status in read_agents(place)] == [
            place / "agents" / "Eko",
            place / "worlds" / "w000" / "agents" / "Eko",
        ]


def test_a_path_names_an_agent_or_the_only_agent_of_a_run(tmp_path: Path) -> None:
    write_status(tmp_path / "agents" / "Eko")
    assert find_agent(tmp_path / "agents" / "Eko").name == "Eko"
    assert find_agent(tmp_path).name == "Eko"
    write_status(tmp_path / "agents" / "Ana")
    with pytest.raises(UsageError, match="has 2 agents") as raised:
        find_agent(tmp_path)
    assert str(tmp_path / "agents" / "Ana") in str(raised.value)
    with pytest.raises(UsageError, match="no agent has run in"):
        find_agent(tmp_path / "agents")


def test_the_metrics_of_an_agent_count_each_token_once(eko: Path) -> None:
    write_status(eko)
    status = read_status(eko)
    assert status is not None
    metrics = describe_metrics(status)
    assert sum(metrics.tokens.values()) == status.usage.tokens
    assert (metrics.name, metrics.state, metrics.turns) == ("Eko", "working", 3)
    assert metrics.cost_usd == 0.42


def test_the_states_are_the_states_of_agents_and_interrupted() -> None:
    assert get_args(StatusState) == (*get_args(AgentState), "interrupted")
