"""A replica of research harnesses, which drive worlds and agents with the sync public API only.

Every call has the keyword arguments of those scripts, in their order.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from clawblox import Agent, World, default_system_prompt, load_checkpoint, save_checkpoint
from tests.support.sockets import free_port
from tests.support.waiting import HANG_S

AUTO_CONTINUE = "Please don't stop. Just continue doing whatever you want to do."
SAVE_PROMPT = "This is the end. Write down what you want to keep."
POLL_S = 0.05
"""Polling interval; the scripts poll every 2 s, where a single miss is fatal."""
QUIET_S = 0.2
"""Quiet seconds that count as idle; the scripts wait 5 s."""


class WindowMissingError(Exception):
    """A window is missing at a poll, so the script aborts."""


@attrs.define
class Run:
    """One run of a script."""

    dir: Path
    world_dir: Path
    tmux_session: str
    backend: str
    binary: Path | None = None
    env: dict[str, str] | None = None
    sandbox: bool = False
    native_sandbox: bool | None = None
    world: World | None = None
    agents: list[Agent] = attrs.field(factory=list)
    started: list[Any] = attrs.field(factory=list)
    url: str = ""

    # -- the order of both scripts ----------------------------------------------------------

    def make_dirs(self, *names: str) -> None:
        for part in ("runtime", "recordings", "logs", "agents"):
            (self.dir / part).mkdir(parents=True, exist_ok=True)
        for name in names:
            workspace = self.dir / "agents" / name / "workspace"
            workspace.mkdir(parents=True, exist_ok=True)
            (workspace / "SOUL.md").write_text("I am curious.\n")

    def make_agent(self, directory: Path, name: str) -> Agent:
        optional: dict[str, Any] = {}
        if self.binary is not None:
            optional["binary"] = self.binary
        if self.native_sandbox is not None:
            optional["claude_native_sandbox"] = self.native_sandbox
        agent = Agent(
            agent=self.backend,
            name=name,
            dir=directory,
            model="stand-in",
            permission_mode="bypassPermissions",
            tmux=self.tmux_session,
            sandbox=self.sandbox,
            bare=False,
            **optional,
        )
        self.agents.append(agent)
        return agent

    def start_world(self, resume: Path | None = None) -> None:
        self.world = self.world or World(self.world_dir)
        started = self.world.start(
            port=free_port(),
            record=True,
            record_dir=self.dir / "recordings",
            resume=resume,
            health_timeout=30,
            port_wait=120,
            command_file=self.dir / "runtime" / "world.sh",
            log_file=self.dir / "logs" / "world.log",
            _tmux_session=self.tmux_session,
        )
        started.command_file.unlink()
        self.url = started.url
        with urllib.request.urlopen(f"{self.url}/api.md", timeout=HANG_S) as answer:
            assert answer.status == 200

    def connect(self, agent: Agent) -> dict[str, Any]:
        assert self.world is not None
        access = self.world.connect(agent=agent)
        assert isinstance(access, dict)
        assert access["headers"] == {"X-Session": access["session"]}
        return access

    def initial_prompt(self, access: dict[str, Any]) -> str:
        assert self.world is not None
        return f"GET {self.world.api_path(path='/api.md', access=access)}\nBegin"

    def start(self, agent: Agent, access: dict[str, Any]) -> Any:
        assert str(agent.visible_workspace_dir) in (
            "/workspace",
            str(agent.dir / "workspace"),
        )
        started = agent.start(
            initial_prompt=self.initial_prompt(access),
            system_prompt=default_system_prompt(),
            env=self.env,
        )
        return self._note(agent, started)

    def send(self, agent: Agent, prompt: str) -> Any:
        return self._note(agent, agent.send(prompt=prompt, env=self.env))

    def _note(self, agent: Agent, started: Any) -> Any:
        assert Path(started.agent_dir) == agent.dir
        # Immediately: a later reader must have read it already.
        Path(started.command_file).unlink()
        index = self.agents.index(agent)
        assert (started.tmux_window or f"agent-0-{index}") == f"agent-0-{index}"
        assert getattr(started, "tmux_pane_id", None)
        self.started.append(started)
        return started

    # -- polling ------------------------------------------------------------------------------

    def windows(self) -> list[str]:
        command = ["tmux", "list-windows", "-t", self.tmux_session, "-F", "#{window_name}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
        return done.stdout.splitlines()

    def check_windows(self, *, require_agents: bool = True) -> None:
        wanted = {"world-0"}
        if require_agents:
            wanted |= {f"agent-0-{index}" for index in range(len(self.agents))}
        if missing := wanted - set(self.windows()):
            raise WindowMissingError(f"{sorted(missing)}: {self.diagnose()}")

    def watch_until(self, condition: Any, timeout: float = 30.0) -> None:
        """Poll the windows until a condition is true; abort if a window is missing."""
        deadline = time.monotonic() + timeout
        while not condition():
            self.check_windows()
            assert time.monotonic() < deadline, self.diagnose()
            time.sleep(POLL_S)

    def is_idle(self) -> bool:
        logs = [agent.dir / "logs" / "agent.log" for agent in self.agents]
        return all(time.time() - log.stat().st_mtime >= QUIET_S for log in logs)

    def validate_agent_dir(self, agent: Agent) -> None:
        for name in (
            "logs/agent.log",
            "runtime/system_prompt.md",
            f"{self.backend}_session_id.txt",
            "world_session.txt",
        ):
            path = agent.dir / name
            assert path.is_file(), path
            assert path.stat().st_size > 0, path
        assert any((agent.dir / "workspace").iterdir())

    def process_events(self, agent: Agent) -> list[dict[str, Any]]:
        lines = (agent.dir / "events.jsonl").read_text().splitlines()
        return [
            event for event in map(json.loads, lines) if event.get("operation") == "agent.process"
        ]

    def diagnose(self) -> list[Any]:
        return [
            (
                agent.name,
                self.process_events(agent)[-1:] if (agent.dir / "events.jsonl").exists() else None,
                (agent.dir / "logs" / "agent.log").read_text()[-500:]
                if (agent.dir / "logs" / "agent.log").exists()
                else None,
            )
            for agent in self.agents
        ]

    # -- checkpoints and the end ------------------------------------------------------------

    def save_phase(self) -> None:
        """Stop all agents, then ask each, in order, to save its notes."""
        for agent in self.agents:
            agent.stop(grace_seconds=1)
        for agent in self.agents:
            self.send(agent, SAVE_PROMPT)
            self.check_windows(require_agents=False)

    def checkpoint(self, path: Path) -> Path:
        assert self.world is not None
        saved_world = self.world.save(dir=self.dir / "checkpoints")
        saved = save_checkpoint(
            path,
            world_snapshot=saved_world["path"],
            agents={agent.name: agent.dir for agent in self.agents},
            backend=self.backend,
            metadata={"generation": 1},
        )
        Path(saved_world["path"]).unlink()
        return saved

    def end(self) -> None:
        """Stop every constructed agent, then the world; the scripts suppress errors here."""
        for agent in self.agents:
            agent.stop(grace_seconds=1)
        if self.world is not None:
            self.world.stop(grace_seconds=1)

    def close(self) -> None:
        """Clean up like the exit of the interpreter."""
        for agent in self.agents:
            agent.close()
        if self.world is not None:
            self.world.close()


@contextmanager
def ending(run: Run) -> Iterator[Run]:
    try:
        yield run
    finally:
        run.end()
        run.close()


def load(path: Path, into: Run) -> dict[str, Any]:
    """Load a checkpoint into a run directory that already has its folders."""
    into.make_dirs()
    return load_checkpoint(path, into.dir)
