"""Agents after their orchestrator was killed, and sync agents after its end."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from clawblox import Agent, AsyncAgent
from tests.agents.small import make_agent, records, small, transcript
from tests.support.orchestrators import kill_with_guard
from tests.support.processes import command_line, descendants, is_alive
from tests.support.waiting import wait_until

__all__ = ["small"]

PRELUDE = """
import sys
from pathlib import Path
from clawblox import Agent
from clawblox.agents import drivers
from tests.agents.small import SmallDriver

drivers.DRIVERS = {"small": SmallDriver()}
agent = Agent(agent="small", name="Eko", dir=Path(sys.argv[1]) / "Eko", binary=sys.executable,
              command=["loop"], auto_continue=False)
"""
ROOT = Path(__file__).parents[2]


def orchestrate(directory: Path, code: str) -> subprocess.Popen[str]:
    """Run a script with an agent."""
    script = PRELUDE + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_orchestrator_leaves_no_process_of_an_agent(tmp_path: Path) -> None:
    code = """
        print(agent.start(initial_prompt="leave deaf work hang").pid, flush=True)
        input()
    """
    log = tmp_path / "Eko" / "logs" / "agent.log"
    with orchestrate(tmp_path, code) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_until(lambda: '"message"' in log.read_text())
        process.kill()
    lines = map(json.loads, log.read_text().splitlines())
    tool = next(line["data"]["arguments"]["pid"] for line in lines if "called" in line["type"])
    wait_until(lambda: not is_alive(pid))
    wait_until(lambda: not is_alive(tool))


@pytest.mark.usefixtures("small")
@pytest.mark.anyio
async def test_the_next_start_ends_processes_of_an_orchestrator_killed_with_its_guard(
    tmp_path: Path,
) -> None:
    code = """
        print(agent.start(initial_prompt="hang").pid, flush=True)
        input()
    """
    with orchestrate(tmp_path, code) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        kill_with_guard(process)
    assert is_alive(pid)
    async with make_agent(tmp_path, "loop") as agent:
        await agent.send(prompt="use 5")
        assert not is_alive(pid)
        await agent.wait()


@pytest.mark.thorough
def test_a_killed_orchestrator_leaves_no_version_command(tmp_path: Path) -> None:
    code = """
        import tempfile
        tempfile.tempdir = sys.argv[1]
        SmallDriver.version_argv = lambda self, binary: ("/bin/sleep", "600")
        print("checking", flush=True)
        agent.check()
    """
    with orchestrate(tmp_path, code) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (pid,) = wait_until(lambda: asked(process.pid))
        process.kill()
    wait_until(lambda: not is_alive(pid))


def asked(orchestrator: int) -> list[int]:
    """Return the process of the version command that an orchestrator waits for."""
    return [pid for pid in descendants(orchestrator) if command_line(pid) == "/bin/sleep 600"]


@pytest.mark.thorough
@pytest.mark.usefixtures("small")
@pytest.mark.anyio
async def test_usage_reported_to_a_killed_orchestrator_is_counted(tmp_path: Path) -> None:
    code = f"""
        agent.start(initial_prompt="use 20")
        agent.wait()
        agent.send(prompt="until {tmp_path / "go"} use 1000000 hang")
        print("working", flush=True)
        input()
    """
    log = tmp_path / "Eko" / "logs" / "agent.log"
    with orchestrate(tmp_path, code) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)  # the program no longer reads
        (tmp_path / "go").touch()
        wait_until(lambda: '"tokens": 1000000' in log.read_text())
        process.kill()
    usage = json.loads((tmp_path / "Eko" / "usage.json").read_text())["usage"]
    assert usage["output_tokens"] == 20
    agent = make_agent(tmp_path, "loop")
    async with agent:
        await agent.send(prompt="use 5")
        assert (await agent.wait()).usage.output_tokens == 1_000_025
    counted = [record["data"]["usage"]["output_tokens"] for record in records(agent, "usage")]
    assert counted == [20, 1_000_000, 5]


@pytest.mark.thorough
def test_time_in_which_the_orchestrator_was_stopped_does_not_count_as_silence(
    tmp_path: Path,
) -> None:
    code = """
        import attrs
        from clawblox.concurrency.synchronous import unwrap
        awaited = unwrap(agent)
        awaited._options = attrs.evolve(awaited._options, stall_timeout=1.0)
        agent.start(initial_prompt="hang")
        print("started", flush=True)
        agent.wait()
    """
    with orchestrate(tmp_path, textwrap.dedent(code)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        time.sleep(4.0)  # this tests a duration
        process.send_signal(signal.SIGCONT)
        events = tmp_path / "Eko" / "events.jsonl"
        wait_until(lambda: '"stalled"' in events.read_text())
        process.kill()
    lines = map(json.loads, events.read_text().splitlines())
    [stalled] = [line["data"] for line in lines if line["type"] == "stalled"]
    assert stalled["silence_s"] < 3.5


@pytest.mark.thorough
def test_a_script_that_ends_stops_its_agent(tmp_path: Path) -> None:
    code = """
        print(agent.start(initial_prompt="hang").pid, flush=True)
    """
    with orchestrate(tmp_path, code) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    assert not is_alive(int(output))


@pytest.mark.usefixtures("small")
def test_a_sync_agent_behaves_like_an_async_agent(tmp_path: Path) -> None:
    agent = Agent(
        agent="small",
        name="Eko",
        dir=tmp_path / "Eko",
        binary=sys.executable,
        auto_continue=False,
    )
    assert agent.stop(grace_seconds=1).state == "new"
    with agent:
        started = agent.start(initial_prompt="work one")
        assert started.session_id == agent.session_id
        assert agent.wait().state == "idle"
        agent.send(prompt="work two")
        assert agent.wait().usage.turns == 2
        assert agent.stop(grace_seconds=1).state == "stopped"
        assert transcript(agent) == ["work one", "work two"]
    assert records(agent)[-1]["status"] == "stopped"


@pytest.mark.usefixtures("small")
def test_the_streams_of_a_sync_agent_end_with_it(tmp_path: Path) -> None:
    with Agent(
        agent="small", name="Eko", dir=tmp_path / "Eko", binary=sys.executable, auto_continue=False
    ) as agent:
        events = agent.events()
        agent.start(initial_prompt="work")
        agent.wait()
    kinds = [event.kind for event in events]
    assert kinds[0] == "process.started"
    assert kinds[-1] == "process.exited"


def test_both_classes_take_the_same_arguments() -> None:
    for name in ("__init__", "start", "send", "stop", "wait"):
        ours, theirs = (
            inspect.signature(getattr(one, name)).parameters for one in (Agent, AsyncAgent)
        )
        assert ours == theirs


def test_the_constructor_touches_no_files(tmp_path: Path, small: object) -> None:
    agent = make_agent(tmp_path, tmux="no-such-session")
    assert not list(tmp_path.iterdir())
    assert agent.visible_workspace_dir == tmp_path / "Eko" / "workspace"
