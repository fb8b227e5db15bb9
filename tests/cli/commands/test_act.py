"""``clawblox act``: one input of an agent, from a script."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.errors import ConfigError
from clawblox.protocol import read_join_answer
from clawblox.rundir.records import read_record
from clawblox.world.kept_sessions import KeptSession
from tests.cli.conftest import Start, assert_nothing_runs, find_port, read_instances
from tests.support.waiting import wait_until
from tests.support.worlds import ask, make_world

UNKNOWN = "0123456789abcdef"


@pytest.fixture
def run(start: Start, tmp_path: Path, run_dir: Path) -> Iterator[str]:
    """Run one instance of a counter world; return its run directory."""
    words = ("-n", "1", "--run-dir", str(run_dir), "--restart", "fresh")
    command = start("up", str(make_world(tmp_path)), *words)
    command.wait_for("ready after")
    yield str(run_dir)
    assert command.interrupt() == 130
    assert_nothing_runs()


def requests(run: str, path: str) -> list[Any]:
    received = ask(find_port(run), "GET", "/__requests").json()
    return [one for one in received if one["path"] == path]


def kept_files(run: str) -> list[Path]:
    return sorted((Path(run) / ".clawblox" / "act").rglob("*.json"))


def test_calls_with_the_same_name_act_as_the_same_agent(run: str, call: Start) -> None:
    seen = [
        json.loads(call("act", run, "w000", *words, "--as", "red").out)
        for words in ([], ["add", "2"], ["add", "3"])
    ]
    assert [one["counter"] for one in seen] == [0, 2, 5]
    assert {one["agent_id"] for one in seen} == {"agent-1"}
    blue = json.loads(call("act", run, "w000", "--as", "blue").out)
    assert blue["agent_id"] == "agent-2"
    agents = json.loads((Path(run) / "worlds/w000/.clawblox/manifest.json").read_text())["agents"]
    assert [(one["name"], one["world_agent_id"]) for one in agents] == [
        ("red", "agent-1"),
        ("blue", "agent-2"),
    ]


@pytest.mark.thorough
def test_session_file_is_readable_only_by_its_owner(run: str, call: Start) -> None:
    call("act", run, "w000", "--as", "../red team")
    (path,) = kept_files(run)
    assert path.name == "..%2Fred team.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["run_id"] == read_instances(Path(run))["w000"]["run_id"]


@pytest.mark.thorough
def test_refused_input_is_an_error_with_the_reason_of_the_world(run: str, call: Start) -> None:
    command = call("act", run, "w000", "fly")
    assert (command.wait(), command.out) == (1, "")
    refusal = "Error: w000: POST /input was refused: unknown type of input\n"
    assert command.err.startswith(refusal)


@pytest.mark.thorough
def test_data_comes_from_standard_input_or_a_file(run: str, call: Start, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(" 41\n")
    command = call("act", run, "w000", "add", "@data.json", cwd=tmp_path)
    assert json.loads(command.out)["counter"] == 41
    command = call("act", run, "w000", "add", "-", typed=" 1\n")
    assert json.loads(command.out)["counter"] == 42


@pytest.mark.thorough
def test_malformed_data_is_refused_before_the_agent_joins(run: str, call: Start) -> None:
    for words, status, error in [
        (["w000", "add", "{1"], 2, "Error: the data is not JSON: Expecting property name"),
        (["w000", "add", "@missing"], 1, "Error: missing: No such file or directory"),
        (["w007"], 2, "Error: no instance 'w007' in "),
        (["w000", "--as", "a\nb"], 2, "must be a printable text, not 'a\\nb'"),
    ]:
        command = call("act", run, *words)
        assert command.wait() == status
        assert error in command.err
    assert requests(run, "/join") == []


@pytest.mark.thorough
def test_only_instance_is_used_without_a_name(run: str, call: Start) -> None:
    assert json.loads(call("act", run, "--as", "red").out)["counter"] == 0
    assert json.loads(call("act", run, "add", "--as", "red").out)["counter"] == 1
    assert json.loads(call("act", run, "add", "2", "--as", "red").out)["counter"] == 3
    assert call("act", run, "--leave", "--as", "blue").err == "'blue' is not in w000\n"
    too_many = call("act", run, "add", "2", "3")
    assert too_many.wait() == 2
    assert too_many.err.endswith(
        "Error: only TYPE and DATA may follow the instance; there is no instance 'add'\n"
    )
    assert call("act", run, "w000", "add", "2", "3").wait() == 2


@pytest.mark.thorough
def test_an_instance_can_be_named_among_several(up: Start, call: Start, run_dir: Path) -> None:
    running = up()
    refused = call("act", str(run_dir), "add", "2")
    assert refused.wait() == 2
    assert "are ready: w000, w001, w002" in refused.err
    assert json.loads(call("act", str(run_dir), "w001", "add", "2").out)["counter"] == 2
    assert running.interrupt() == 130


@pytest.mark.thorough
def test_an_agent_speaks_before_it_acts(run: str, call: Start) -> None:
    call("act", run, "w000", "add", "--say", "hello", "--as", "red")
    paths = [one["path"] for one in ask(find_port(run), "GET", "/__requests").json()]
    assert [path for path in paths if path in ("/chat", "/input", "/observe")] == [
        "/chat",
        "/input",
    ]


@pytest.mark.thorough
def test_leave_ends_the_agent(run: str, call: Start) -> None:
    assert call("act", run, "w000", "--as", "red", "--leave").err == "'red' is not in w000\n"
    call("act", run, "w000", "add", "--as", "red")
    command = call("act", run, "w000", "--as", "red", "--leave")
    assert (command.wait(), command.out, command.err) == (0, "", "")
    assert len(requests(run, "/leave")) == 1
    assert kept_files(run) == []
    again = call("act", run, "w000", "add", "--as", "red", "--leave")
    assert json.loads(again.out)["counter"] == 2
    assert len(requests(run, "/leave")) == 2


@pytest.mark.thorough
def test_agent_rejoins_when_the_world_has_forgotten_it(run: str, call: Start) -> None:
    call("act", run, "w000", "add", "--as", "red")
    ask(find_port(run), "POST", "/__die?signal=SIGKILL")
    wait_until(lambda: read_instances(Path(run))["w000"]["restarts"] == 1, what="a restart")
    wait_until(lambda: read_instances(Path(run))["w000"]["state"] == "ready", what="it is ready")
    command = call("act", run, "w000", "--as", "red")
    assert command.err == "w000 no longer knows 'red': joined as a new agent\n"
    assert json.loads(command.out)["counter"] == 0
    assert call("act", run, "w000", "--as", "red").err == ""


@pytest.mark.thorough
def test_ended_world_is_an_error_with_its_last_log_lines(
    start: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    command = start("up", str(make_world(tmp_path)), "--run-dir", str(run_dir))
    command.wait_for("ready after")
    ask(read_instances(run_dir)["w000"]["port"], "POST", "/__die?status=3")
    assert command.wait() == 1
    late = call("act", str(run_dir), "w000")
    assert late.wait() == 1
    assert late.err.startswith("Error: w000: the world has ended: exit status 3\n  last log lines:")
    assert "Spectator frontend" in late.err


def test_damaged_or_foreign_session_file_is_ignored(run: str) -> None:
    record = read_record(Path(run), "w000")
    assert record is not None
    kept = KeptSession(Path(run), record.name, record.run_id, "red")
    answer = read_join_answer({"session": UNKNOWN, "agent_id": "agent-1", "spawn": [1, 2]})
    kept.write(answer)
    assert kept.read() == answer
    (path,) = kept_files(run)
    other = json.dumps({"run_id": "another", "session": UNKNOWN})
    spoilt = json.dumps({"run_id": record.run_id, "session": "a b"})
    for content in ("", "[]", "{}", "x", other, spoilt, spoilt.replace('"a b"', "3")):
        path.write_text(content)
        assert kept.read() is None
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="the session cannot be read: is not a regular file"):
        kept.read()
