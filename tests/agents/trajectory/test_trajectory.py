"""An agent's trajectory as a document of ATIF 1.7, checked by the format's own package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from atif import Step, Trajectory

from clawblox.agents.layout import AgentDir
from clawblox.agents.trajectory import encode_trajectory, export_trajectory, write_trajectory
from clawblox.errors import UsageError
from clawblox.telemetry.tail import MAX_LINE_BYTES
from tests.agents.support import write_status
from tests.agents.trajectory.support import (
    EventLines,
    make_agent,
    recorded_turns,
    session_id,
    write_events,
)

VERSIONS = ("2.1.197", "2.1.330")


def export(directory: AgentDir, **options: Any) -> Trajectory:
    """Return the trajectory of an agent, parsed by a reader of the format."""
    document = json.loads(encode_trajectory(export_trajectory(directory.path, **options)))
    trajectory = Trajectory.model_validate(document)
    assert trajectory.to_json_dict() == document
    return trajectory


def outline(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [(step.source, str(step.message)) for step in trajectory.steps]


def only(steps: list[Step], source: str) -> list[Step]:
    return [step for step in steps if step.source == source]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def eko(tmp_path: Path, version: str) -> AgentDir:
    directory = make_agent(tmp_path / "run" / "agents" / "Eko", version)
    write_events(directory, version)
    return directory


def test_a_trajectory_covers_two_processes_completely(eko: AgentDir, version: str) -> None:
    trajectory = export(eko)
    assert outline(trajectory) == [
        ("system", "You are Eko."),
        ("user", "Begin"),
        ("agent", ""),
        ("agent", "I have noted that."),
        ("user", "Say it again."),
        ("agent", "I have noted that."),
        ("user", "Go on"),
        ("agent", "I have noted that."),
    ]
    assert trajectory.schema_version == "ATIF-v1.7"
    assert trajectory.session_id == session_id(version)
    assert trajectory.trajectory_id == f"Eko/{session_id(version)}"
    agent = trajectory.agent
    assert (agent.name, agent.version, agent.model_name) == ("claude", version, "claude-sonnet-4-5")


def test_a_tool_call_is_exported_with_its_result(eko: AgentDir) -> None:
    step = export(eko).steps[2]
    assert step.tool_calls is not None
    assert step.observation is not None
    (call,) = step.tool_calls
    (result,) = step.observation.results
    assert (call.function_name, call.arguments["command"]) == ("Bash", "echo hi-there")
    assert (result.source_call_id, result.content) == (call.tool_call_id, "hi-there")


def test_every_step_of_the_agent_has_the_offset_of_its_line_in_the_log(eko: AgentDir) -> None:
    log = eko.log_file.read_bytes()
    for step in only(export(eko).steps, "agent"):
        assert step.extra is not None
        line = log[step.extra["raw_offset"] :].split(b"\n")[0]
        assert json.loads(line)["type"] == "assistant"
        assert (str(step.message) or "echo hi-there") in line.decode()


def test_usage_adds_up_for_each_scope_of_the_cost(eko: AgentDir) -> None:
    # One version counts its cost per process, the other per conversation.
    trajectory = export(eko)
    metrics = [step.metrics for step in trajectory.steps if step.metrics is not None]
    assert [(one.prompt_tokens, one.completion_tokens) for one in metrics] == [
        (2, 2),
        (1, 1),
        (1, 1),
    ]
    assert [one.cost_usd for one in metrics] == pytest.approx([3.6e-5, 1.8e-5, 1.8e-5])
    total = trajectory.final_metrics
    assert total is not None
    assert (total.total_prompt_tokens, total.total_completion_tokens) == (4, 4)
    assert total.total_cost_usd == pytest.approx(7.2e-5)
    assert total.total_steps == len(trajectory.steps)


def test_the_cost_of_a_process_is_counted_by_its_version(tmp_path: Path) -> None:
    directory = make_agent(tmp_path / "Eko", "2.1.197", slice(0, 2))
    events = EventLines(directory.events_file, session_id("2.1.197"))
    events.add("process.started", 0, 0, pid=1)
    events.add("process.started", 2, directory.log_file.stat().st_size, pid=2)
    old, new = (session_id(version).encode() for version in VERSIONS)
    with directory.log_file.open("ab") as log:
        log.writelines(line.replace(new, old) for line in recorded_turns("2.1.330")[2])
    trajectory = export(directory)
    assert trajectory.agent.version == "2.1.330"
    assert trajectory.final_metrics is not None
    # The total of the newer version starts at 0.
    assert trajectory.final_metrics.total_cost_usd == pytest.approx(5.4e-5 + 7.2e-5)


def test_usage_of_a_new_process_is_added(tmp_path: Path) -> None:
    # The cost of its first turn is higher than the whole cost of the previous process.
    directory = make_agent(tmp_path / "Eko", "2.1.197", slice(0, 2))
    events = EventLines(directory.events_file, session_id("2.1.197"))
    events.add("process.started", 0, 0, pid=1)
    first = sum(map(len, recorded_turns("2.1.197")[0]))
    events.add("process.started", 1, first, pid=2)
    total = export(directory).final_metrics
    assert total is not None
    assert total.total_cost_usd == pytest.approx(3.6e-5 + 5.4e-5)


def test_a_late_result_belongs_to_its_call(tmp_path: Path) -> None:
    directory = make_agent(tmp_path / "Eko", "2.1.330", slice(0, 0))
    calls = [{"type": "tool_use", "id": name, "name": "Bash", "input": {}} for name in "ab"]
    said = [
        {"type": "assistant", "message": {"content": calls}},
        {"type": "user", "message": {"content": [returned("b")]}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "Meanwhile"}]}},
        {"type": "user", "message": {"content": [returned("a")]}},
    ]
    directory.log_file.write_text("".join(json.dumps(line) + "\n" for line in said))
    _, first, second = export(directory).steps
    assert first.observation is not None
    assert [result.source_call_id for result in first.observation.results] == ["b", "a"]
    assert (second.message, second.observation) == ("Meanwhile", None)


def returned(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": call_id}


def test_times_never_decrease_and_each_turn_has_its_number(eko: AgentDir, version: str) -> None:
    steps = export(eko).steps[1:]
    assert [step.extra["turn"] for step in steps if step.extra] == [1, 1, 1, 2, 2, 3, 3]
    times = [step.timestamp for step in only(steps, "user")]
    assert times == [f"2026-11-22T11:10:{second:02}.000Z" for second in (3, 5, 10)]
    if version == "2.1.330":  # the program reports the time of its output
        assert steps[-1].timestamp == "2026-11-22T11:15:17.694Z"
    else:
        assert steps[-1].timestamp == times[-1]


def test_steps_copied_from_an_earlier_run_are_marked(tmp_path: Path, version: str) -> None:
    # An archive restores the log, but not the events.
    directory = make_agent(tmp_path / "Eko", version)
    write_events(directory, version, first=2)
    steps = export(directory).steps[1:]
    assert [(step.source, step.is_copied_context) for step in steps] == [
        ("agent", True),
        ("agent", True),
        ("agent", True),
        ("user", None),
        ("agent", None),
    ]


def test_a_trajectory_can_name_its_continuation(eko: AgentDir) -> None:
    assert export(eko).continued_trajectory_ref is None
    continued = export(eko, continued_in="../r2/trajectory.json")
    assert continued.continued_trajectory_ref == "../r2/trajectory.json"


def test_a_trajectory_contains_the_facts_of_world_run_and_checkpoints(eko: AgentDir) -> None:
    run_dir = eko.path.parents[1]
    (eko.path / "world_session.txt").write_text("session-17\n")
    checkpoints = [
        {"path": "a.json", "created_at": "2026-11-22T11:10:04Z", "time": 12.5, "sha256": "0a"},
        {"path": "b.ckpt", "created_at": "2026-11-22T12:00:00Z", "time": None, "mid_turn": True},
        {"path": "c.json", "created_at": "2026-11-22T11:00:00Z", "time": 1},
    ]
    manifest = {
        "schema_version": 1,
        "run": {"id": "r1", "index": 0, "resume_from": "../r0/a.json"},
        "agents": [{"id": "1", "dir": "agents/Eko", "world_agent_id": "agent-7"}],
        "checkpoints": checkpoints,
    }
    (run_dir / ".clawblox").mkdir()
    (run_dir / ".clawblox" / "manifest.json").write_text(json.dumps(manifest))
    write_status(eko.path, sandbox="bwrap")
    extra = export(eko).extra
    assert extra is not None
    assert extra["agent"] == "Eko"
    assert extra["sandbox"] == "bwrap"
    assert extra["world"] == {"session": "session-17", "agent_id": "agent-7"}
    assert extra["run"] == {"id": "r1", "resume_from": "../r0/a.json"}
    first, second, third = extra["checkpoints"]
    assert (first["path"], first["world_time"]) == ("a.json", 12.5)
    assert (second["mid_turn"], "world_time" in second) == (True, False)
    steps = export(eko).steps
    assert steps[first["after_step"] - 1].timestamp <= "2026-11-22T11:10:04Z"
    assert second["after_step"] == len(steps)
    assert "after_step" not in third


def test_messages_of_a_killed_process_precede_the_next_message(
    tmp_path: Path, version: str
) -> None:
    directory = make_agent(tmp_path / "Eko", version, slice(0, 0))
    events = EventLines(directory.events_file, session_id(version))
    first, second, _ = recorded_turns(version)
    directory.log_file.write_bytes(b"".join((*first[:2], b"torn {\n", *second)))
    offset = sum(map(len, first[:2])) + 7
    events.add("process.started", 0, 0, pid=1)
    events.add("turn.started", 1, prompt="Begin")
    events.add("process.exited", 1, status="restarting", exit_code=-9, error="killed by KILL")
    events.add("process.started", 1, offset, pid=2)
    events.add("turn.started", 2, prompt="Go on")
    assert outline(export(directory))[1:] == [
        ("user", "Begin"),
        ("agent", ""),
        ("system", "killed by KILL"),
        ("user", "Go on"),
        ("agent", "I have noted that."),
    ]


def test_without_events_the_trajectory_comes_from_the_log(tmp_path: Path, version: str) -> None:
    trajectory = export(make_agent(tmp_path / "Eko", version))
    assert [step.source for step in trajectory.steps] == ["system", *["agent"] * 4]
    assert {step.is_copied_context for step in trajectory.steps} == {None}


def test_without_a_log_the_trajectory_comes_from_the_transcript(
    tmp_path: Path, version: str
) -> None:
    directory = make_agent(tmp_path / "Eko", version, slice(0, 0))
    transcript = directory.state / "projects" / "-workspace" / f"{session_id(version)}.jsonl"
    transcript.parent.mkdir(parents=True)
    said = [
        {"type": "user", "message": {"role": "user", "content": "Begin"}},
        *(json.loads(line) for line in recorded_turns(version)[0][1:4]),
    ]
    stamped = [{**line, "timestamp": "2026-11-22T11:15:15.000Z"} for line in said]
    transcript.write_text("".join(json.dumps(line) + "\n" for line in stamped))
    trajectory = export(directory)
    assert outline(trajectory)[1:] == [
        ("user", "Begin"),
        ("agent", ""),
        ("agent", "I have noted that."),
    ]
    assert trajectory.steps[1].timestamp == "2026-11-22T11:15:15.000Z"
    assert trajectory.steps[2].extra is None


def test_a_trajectory_is_strict_json_for_arbitrary_tool_arguments(tmp_path: Path) -> None:
    directory = make_agent(tmp_path / "Eko", "2.1.330")
    call = b'{"type": "tool_use", "id": "1", "name": "x", "input": {"a": NaN, "b": 1e400, "c": 1}}'
    with directory.log_file.open("ab") as log:
        log.write(b'{"type": "assistant", "message": {"content": [' + call + b"]}}\n")
    write_trajectory(directory.path, tmp_path / "trajectory.json")
    numbers = msgspec.json.decode((tmp_path / "trajectory.json").read_bytes())
    arguments = numbers["steps"][-1]["tool_calls"][0]["arguments"]
    assert arguments == {"a": None, "b": None, "c": 1}


def test_arbitrary_lines_never_raise_an_error(tmp_path: Path) -> None:
    directory = make_agent(tmp_path / "Eko", "2.1.330")
    call = {"type": "tool_use", "id": "", "name": "", "input": {}}
    answers = [
        {"type": "tool_result", "tool_use_id": "unknown", "content": [{"type": "image"}]},
        {"type": "tool_result", "tool_use_id": "", "content": "x", "is_error": True},
    ]
    lines = [
        b"\xff\xfe not text\n",
        b"{" * 5000 + b"\n",
        b'{"type": "assistant", "message": {"content": [{"type": "text", "text": "\\ud83d"}]}}\n',
        json.dumps({"type": "assistant", "message": {"content": [call, call]}}).encode() + b"\n",
        json.dumps({"type": "user", "message": {"content": answers}}).encode() + b"\n",
        b'{"type": "assistant", "mess',
    ]
    with directory.log_file.open("ab") as log:
        log.writelines(lines)
    directory.events_file.write_bytes(
        b'{"type": "usage", "turn": -1, "data": {"usage": {"turns": "x"}, "scope": "turn"}}\n'
        b'{"type": "turn.started", "time": 5, "turn": "x", "raw_offset": 1e999}\n[]\n\xff\n{"ty'
    )
    last = export(directory).steps[-1]
    assert last.message == "\ufffd"
    assert last.tool_calls is not None
    assert len({call.tool_call_id for call in last.tool_calls}) == 2
    assert last.observation is not None
    assert [result.content for result in last.observation.results] == ["[image]", "x"]


def test_lines_of_an_unknown_format_become_steps(tmp_path: Path) -> None:
    directory = make_agent(tmp_path / "Eko", "2.1.330", slice(0, 0))
    directory.id_file("claude").rename(directory.id_file("command"))
    directory.log_file.write_text("one\ntwo\n")
    trajectory = export(directory)
    assert trajectory.agent.name == "command"
    assert outline(trajectory)[1:] == [("agent", "one\ntwo")]


def test_lines_that_are_too_long_are_counted(eko: AgentDir) -> None:
    before = export(eko)
    with eko.log_file.open("ab") as log:
        log.write(b"x" * (MAX_LINE_BYTES + 1) + b"\n")
    after = export(eko)
    assert len(after.steps) == len(before.steps)
    assert "too long to be kept: 1." in str(after.notes)


def test_a_directory_without_an_agent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no agent has run in"):
        export_trajectory(tmp_path)


def test_an_agent_that_never_spoke_has_an_empty_trajectory(tmp_path: Path) -> None:
    write_status(tmp_path / "Eko", state="failed", session_id=None)
    trajectory = export(AgentDir(tmp_path / "Eko"))
    assert trajectory.steps == []
    assert trajectory.session_id is None
    assert trajectory.agent.version == "unknown"


def test_a_file_is_replaced_atomically(eko: AgentDir, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    assert write_trajectory(eko.path, path) == 8
    assert len(Trajectory.model_validate_json(path.read_bytes()).steps) == 8
