"""``clawblox agent`` and ``clawblox trajectory``, and agents in ``clawblox ps``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import attrs
import pytest
from anyio.from_thread import start_blocking_portal
from atif import Trajectory

from clawblox.agents.control import open_control
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord, AgentStatus
from clawblox.errors import AgentResumeError
from clawblox.rundir.control_server import ControlServer
from tests.agents.support import another_process, write_status
from tests.agents.trajectory.support import make_agent, write_events
from tests.cli.conftest import Start


@attrs.define
class FakeAgent:
    """An agent in this process that records its requests."""

    record: AgentRecord
    asked: list[object] = attrs.field(factory=list)

    async def send(self, prompt: str) -> None:
        if prompt == "fail":
            raise AgentResumeError("its transcript is torn", agent="Eko", hint="restore it")
        self.asked.append(prompt)
        self.record = attrs.evolve(self.record, state="working", turn=5)

    async def stop(self, grace_seconds: float) -> None:
        self.asked.append(grace_seconds)
        self.record = attrs.evolve(self.record, state="stopped")


@contextmanager
def served(directory: Path) -> Iterator[FakeAgent]:
    """Run an agent's control socket in a thread, like the orchestrator of an agent."""
    agent = FakeAgent(write_status(directory))
    calls = (lambda: agent.record), agent.send, agent.stop

    async def serve(*, task_status: anyio.abc.TaskStatus[ControlServer]) -> None:
        server = await open_control("Eko", AgentDir(directory), *calls)
        assert server is not None
        task_status.started(server)
        await server.run()

    with start_blocking_portal() as portal:
        future, server = portal.start_task(serve)
        yield agent
        portal.call(server.aclose)
        future.result()


@pytest.fixture
def eko(run_dir: Path) -> Path:
    return run_dir / "agents" / "Eko"


def test_message_is_sent_by_agent_directory_or_run_directory(
    call: Start, eko: Path, run_dir: Path
) -> None:
    with served(eko) as agent:
        assert call("agent", "send", str(eko), "Come back, Zoë.").out == "Eko: working\n"
        assert call("agent", "send", str(run_dir), "Once more.").wait() == 0
        assert agent.asked == ["Come back, Zoë.", "Once more."]


def test_stop_ends_a_running_agent_and_ignores_an_ended_agent(call: Start, eko: Path) -> None:
    with served(eko) as agent:
        assert call("agent", "stop", str(eko), "--grace", "0.5").out == "Eko: stopped\n"
        assert agent.asked == [0.5]
    write_status(eko, state="stopped")
    assert call("agent", "stop", str(eko)).out == "Eko: was not running\n"


def test_message_is_refused_when_no_program_runs_the_agent(call: Start, eko: Path) -> None:
    write_status(eko)
    command = call("agent", "send", str(eko), "Hello")
    assert command.wait() == 2
    assert "Error: no program runs agent 'Eko'\n" in command.err


def test_the_error_of_an_agent_is_shown(call: Start, eko: Path) -> None:
    with served(eko):
        command = call("agent", "send", str(eko), "fail")
    assert command.wait() == 1
    assert "its transcript is torn" in command.err
    assert "restore it" in command.err


def test_status_shows_the_current_state_turn_and_usage(call: Start, eko: Path) -> None:
    with served(eko) as agent:
        agent.record = attrs.evolve(agent.record, turn=17)
        out = call("agent", "status", str(eko)).out
        assert "\nstate    working\n" in out
        assert "\nturn     17\n" in out
        assert "\nusage    44k tokens (1.2k input, 40k cached, 2.3k output), $0.42\n" in out
        fields = json.loads(call("agent", "status", str(eko), "--json").out)
    assert fields.keys() == {*attrs.fields_dict(AgentStatus), "own_usage"}
    assert fields["own_usage"] == fields["usage"]
    assert fields["usage"]["cached_tokens"] == 40_000
    assert fields["dir"] == str(eko)


def test_status_is_interrupted_when_the_orchestrator_is_dead(call: Start, eko: Path) -> None:
    with another_process() as owner:
        write_status(eko, **owner)
    out = call("agent", "status", str(eko)).out
    assert "\nstate    interrupted: its orchestrator was killed\n" in out
    assert call("agent", "stop", str(eko)).out == "Eko: was not running\n"


@pytest.mark.parametrize(
    "words",
    [
        ("send", "{}", "x"),
        pytest.param(("stop", "{}"), marks=pytest.mark.thorough),
        pytest.param(("status", "{}"), marks=pytest.mark.thorough),
    ],
)
def test_directory_with_no_agent_or_several_is_refused(
    call: Start, run_dir: Path, words: tuple[str, ...]
) -> None:
    typed = ("agent", *(word.format(run_dir) for word in words))
    command = call(*typed)
    assert f"Error: Path '{run_dir}' does not exist" in command.err
    run_dir.mkdir()
    command = call(*typed)
    assert command.wait() == 2
    assert f"no agent has run in {run_dir}" in command.err
    for name in ("Eko", "Ana"):
        write_status(run_dir / "agents" / name)
    command = call(*typed)
    assert command.wait() == 2
    assert f"{run_dir} has 2 agents" in command.err
    assert str(run_dir / "agents" / "Ana") in command.err


# -- trajectories -------------------------------------------------------------------------------


@pytest.fixture
def told(eko: Path) -> AgentDir:
    directory = make_agent(eko, "2.1.330")
    write_events(directory, "2.1.330")
    return directory


def test_a_trajectory_is_written_next_to_the_agent_or_to_a_given_file(
    call: Start, told: AgentDir, run_dir: Path
) -> None:
    file = told.path / "trajectory.json"
    assert call("trajectory", str(told.path)).out == f"Wrote {file}: 8 steps\n"
    assert len(Trajectory.model_validate_json(file.read_bytes()).steps) == 8
    write_status(told.path)
    options = ("-o", "-", "--continued-in", "r2.json")
    out = call("agent", "trajectory", str(run_dir), *options).out
    assert Trajectory.model_validate_json(out).continued_trajectory_ref == "r2.json"
    assert call("trajectory", str(told.path), "-o", "eko.json").out == "Wrote eko.json: 8 steps\n"


def test_trajectory_without_an_agent_is_refused(call: Start, tmp_path: Path) -> None:
    command = call("trajectory", str(tmp_path))
    assert command.wait() == 2
    assert "no agent has run in" in command.err


def test_trajectory_to_a_missing_directory_is_refused(call: Start, told: AgentDir) -> None:
    command = call("trajectory", str(told.path), "-o", "missing/eko.json")
    assert command.wait() == 1
    assert (
        command.err == "Error: Path 'missing' does not exist\n  hint: create the directory first\n"
    )


# -- ps -----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_ps_shows_the_agents_of_a_run_below_its_instances(
    call: Start, up: Start, run_dir: Path
) -> None:
    command = up("--label", "a=b")
    write_status(run_dir / "agents" / "Eko", time="2026-11-22T11:15:15Z")
    ended = {"state": "stopped", "reason": "budget of 20 turns used up", "driver": "codex"}
    write_status(run_dir / "agents" / "Ana", turn=20, **ended)
    out = call("ps", str(run_dir)).out
    _, _, table = out.partition("\n\n")
    heading, ana, eko = table.splitlines()
    assert heading.split()[:5] == ["AGENT", "STATE", "DRIVER", "TURN", "TOKENS"]
    assert ana.split()[:6] == ["Ana", "stopped", "codex", "20", "44k", "$0.42"]
    assert ana.endswith("budget of 20 turns used up")
    assert eko.split()[:6] == ["Eko", "working", "claude", "4", "44k", "$0.42"]
    running = call("ps").out
    assert "Eko " in running
    assert "Ana " not in running
    assert "Ana " in call("ps", "-a").out
    filtered = call("ps", str(run_dir), "--filter", "a=b").out
    assert "w000" in filtered
    assert "Eko " not in filtered
    command.interrupt()
    summary = "2 agents: 1 working, 1 stopped; 6 turns, 87k tokens, $0.84.\n"
    assert summary in command.out
