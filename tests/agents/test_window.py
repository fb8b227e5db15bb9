"""The tmux window of an agent, in a real tmux server in a directory of the test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.layout import AgentDir
from clawblox.agents.window import AgentWindow
from clawblox.system.tmux import TmuxError
from tests.support.tmux import Tmux, windows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("tmux")

CANARY = "canary-5d0b7c1e9a3f4286"
ID = "0b6e3d2c-3f3e-4d7e-9a1b-2c3d4e5f6071"


@pytest.fixture
def session(tmp_path: Path, tmux: Tmux) -> str:
    """Return the name of a tmux session that no other test uses."""
    return tmp_path.name.replace(".", "_")


def make_agent(tmp_path: Path, name: str = "Eko") -> AgentDir:
    directory = AgentDir(tmp_path / "run" / "agents" / name)
    directory.log_file.parent.mkdir(parents=True)
    return directory


def add(path: Path, *records: dict[str, Any] | bytes) -> None:
    with path.open("ab") as file:
        for record in records:
            file.write(record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n")


def said(text: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}


INIT = {"type": "system", "subtype": "init", "session_id": ID, "model": "fable"}
CALLED = {
    "type": "assistant",
    "message": {
        "content": [
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "curl /observe"}}
        ]
    },
}


def screen(tmux: Tmux, session: str, window: str) -> str:
    return "\n".join(tmux("capture-pane", "-p", "-J", "-t", f"={session}:={window}"))


def shows(tmux: Tmux, session: str, window: str, text: str) -> None:
    wait_until(lambda: text in screen(tmux, session, window), what=f"{text!r} on the screen")


def test_the_window_is_open_from_the_start_to_the_end_of_an_agent(
    tmp_path: Path, tmux: Tmux, session: str
) -> None:
    window = AgentWindow(session, make_agent(tmp_path), "claude")
    assert (window.name, window.pane_id) == ("agent-0-0", None)
    assert tmux("list-sessions") == []
    window.open()
    assert windows(tmux, session) == ["agent-0-0"]
    assert tmux("list-panes", "-t", f"={session}", "-F", "#{pane_id}") == [window.pane_id]
    first = window.pane_id
    window.open()
    assert (windows(tmux, session), window.pane_id) == (["agent-0-0"], first)
    window.close()
    window.close()
    assert windows(tmux, session) == []
    assert window.pane_id is None


@pytest.mark.thorough
def test_the_window_shows_the_agents_activity_from_its_opening_on(
    tmp_path: Path, tmux: Tmux, session: str
) -> None:
    agent = make_agent(tmp_path)
    add(agent.log_file, said("the run before"))
    window = AgentWindow(session, agent, "claude")
    window.open()
    add(agent.events_file, {"operation": "agent.process", "type": "process.started", "pid": 77})
    shows(tmux, session, window.name, "process 77")
    add(
        agent.log_file,
        INIT,
        b"not json\n",
        b"[]\n",
        said("I go to the \x1b[31mfarm\x1b[m."),
        CALLED,
    )
    shows(tmux, session, window.name, r"| I go to the \x1b[31mfarm\x1b[m.")
    shows(tmux, session, window.name, "● Bash curl /observe")
    text = json.dumps(said("It begins here, it ends there.")).encode()
    add(agent.log_file, text[:40])
    add(agent.log_file, text[40:] + b"\n")
    shows(tmux, session, window.name, "It begins here, it ends there.")
    add(agent.events_file, {"type": "process.exited", "exit_code": 1, "error": "no more tokens"})
    shows(tmux, session, window.name, "no more tokens")
    add(agent.events_file, {"type": "turn.started", "prompt": "Come back."})
    add(agent.events_file, {"type": "limit", "data": {"kind": "budget", "message": "used up"}})
    shows(tmux, session, window.name, "> Come back.")
    shows(tmux, session, window.name, "used up")
    assert "the run before" not in screen(tmux, session, window.name)
    assert windows(tmux, session) == ["agent-0-0"]
    window.close()


@pytest.mark.thorough
def test_endless_output_does_not_delay_the_latest_lines(
    tmp_path: Path, tmux: Tmux, session: str
) -> None:
    agent = make_agent(tmp_path)
    window = AgentWindow(session, agent, "claude")
    window.open()
    add(agent.log_file, b"x" * 3_000_000, b"\n", said("Still here."))
    shows(tmux, session, window.name, "Still here.")
    window.close()


def test_the_window_number_is_assigned_at_construction_and_stays(
    tmp_path: Path, tmux: Tmux, session: str
) -> None:
    first, second = (
        AgentWindow(session, make_agent(tmp_path, name), "claude") for name in ("Eko", "Moa")
    )
    second.open()
    assert windows(tmux, session) == ["agent-0-1"]
    first.open()
    first.close()
    first.open()
    assert sorted(windows(tmux, session)) == ["agent-0-0", "agent-0-1"]
    first.close()
    again = AgentWindow(session, AgentDir(tmp_path / "run" / "agents" / "Eko"), "claude")
    other = AgentWindow(f"{session}-2", AgentDir(tmp_path / "run" / "agents" / "Moa"), "claude")
    assert (again.name, other.name) == ("agent-0-0", "agent-0-0")
    second.close()


def test_a_window_is_added_to_a_session_and_removed_without_other_windows(
    tmp_path: Path, tmux: Tmux, session: str
) -> None:
    tmux("new-session", "-d", "-s", session, "-n", "world-0", "sleep 60")
    window = AgentWindow(session, make_agent(tmp_path), "claude")
    window.open()
    for option in ("automatic-rename", "allow-rename", "remain-on-exit"):
        assert tmux("show-options", "-w", "-v", "-t", f"={session}:=agent-0-0", option) == ["off"]
    assert windows(tmux, session) == ["world-0", "agent-0-0"]
    window.close()
    assert windows(tmux, session) == ["world-0"]


@pytest.mark.thorough
def test_typing_in_the_window_does_not_close_it(tmp_path: Path, tmux: Tmux, session: str) -> None:
    agent = make_agent(tmp_path)
    window = AgentWindow(session, agent, "claude")
    window.open()
    add(agent.log_file, said("Ready."))
    shows(tmux, session, window.name, "Ready.")
    tmux("send-keys", "-t", f"={session}:=agent-0-0", "C-c", "C-\\", "C-z", "C-d", "q")
    add(agent.log_file, said("Still watched."))
    shows(tmux, session, window.name, "Still watched.")
    window.close()


def test_a_closed_window_is_opened_again_at_the_next_start(
    tmp_path: Path, tmux: Tmux, session: str
) -> None:
    window = AgentWindow(session, make_agent(tmp_path), "claude")
    window.open()
    tmux("kill-window", "-t", f"={session}:=agent-0-0")
    assert windows(tmux, session) == []
    window.open()
    assert windows(tmux, session) == ["agent-0-0"]
    tmux("kill-server")
    window.close()


def test_a_window_that_cannot_be_opened_is_an_error_with_the_reason(
    tmp_path: Path, tmux: Tmux, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = AgentWindow(session, make_agent(tmp_path), "claude")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(TmuxError, match="not installed"):
            window.open()
    assert window.pane_id is None
    window.close()


@pytest.mark.thorough
def test_the_windows_program_does_not_get_the_orchestrators_environment(
    tmp_path: Path, tmux: Tmux, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    monkeypatch.setenv("WORLD_OPERATOR_TOKEN", CANARY)
    agent = make_agent(tmp_path)
    window = AgentWindow(session, agent, "claude")
    window.open()
    add(agent.log_file, said("Ready."))
    shows(tmux, session, window.name, "Ready.")
    (pid,) = tmux("list-panes", "-t", f"={session}", "-F", "#{pane_pid}")
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert CANARY.encode() not in environment + Path(f"/proc/{pid}/cmdline").read_bytes()
    window.close()


ORCHESTRATOR = """
import sys, time
from pathlib import Path
from clawblox.agents.layout import AgentDir
from clawblox.agents.window import AgentWindow
AgentWindow(sys.argv[1], AgentDir(Path(sys.argv[2])), "claude").open()
print("open", flush=True)
time.sleep(60)
"""


@pytest.mark.thorough
def test_a_killed_orchestrator_leaves_no_window(tmp_path: Path, tmux: Tmux, session: str) -> None:
    agent = make_agent(tmp_path)
    command = [sys.executable, "-c", ORCHESTRATOR, session, str(agent.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert windows(tmux, session) == ["agent-0-0"]
        add(agent.log_file, said("Ready."))
        wait_until(lambda: "Ready." in screen(tmux, session, "agent-0-0"))
        process.kill()
    wait_until(lambda: windows(tmux, session) == [])


@pytest.mark.thorough
def test_an_idle_screen_uses_almost_no_cpu(tmp_path: Path, tmux: Tmux, session: str) -> None:
    agent = make_agent(tmp_path)
    window = AgentWindow(session, agent, "claude")
    window.open()
    add(agent.log_file, said("Ready."))
    shows(tmux, session, window.name, "Ready.")
    (pid,) = tmux("list-panes", "-t", f"={session}", "-F", "#{pane_pid}")

    def looks() -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    begun, ticks = looks(), cpu_ticks(pid)
    wait_until(lambda: looks() >= begun + 5)
    assert cpu_ticks(pid) - ticks <= 2  # of a hundredth of a second each, in five polls
    window.close()


def cpu_ticks(pid: str) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
