"""Real agent programs find a conversation that was restored at another path.

They are installed from npm into a temporary directory, and talk to a stand-in for their model's
API on loopback. Each runs with a home of its own and a minimal environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from clawblox.checkpoint.collect import plan as tiers
from clawblox.checkpoint.collect.conversations import find_format
from tests.checkpoint.agents import archived_content, restore_session
from tests.support.model_api import ANSWER, ModelApi
from tests.support.programs import Installed, Programs
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.cli

FISH = "\U0001f41f"
"""Two units in UTF-16, the unit in which Claude counts."""

RUN_TIMEOUT_S = 90


@attrs.frozen
class Program:
    """One agent program: its command, and the place of the conversation id in its output."""

    backend: str
    command: Callable[[str, str | None, str | None, str], list[str]]
    env: Callable[[Path, str], dict[str, str]]
    told_id: Callable[[dict], str | None]
    sessions: str


def claude_command(prompt: str, new: str | None, resumed: str | None, url: str) -> list[str]:
    which = ["--resume", resumed] if resumed else ["--session-id", new or ""]
    flags = ["--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"]
    policy = ["--permission-mode", "dontAsk", "--setting-sources", "user", "--strict-mcp-config"]
    return ["-p", prompt, *flags, *policy, *which]


def codex_command(prompt: str, new: str | None, resumed: str | None, url: str) -> list[str]:
    provider = {"name": "stand-in", "base_url": f"{url}/v1", "wire_api": "responses"}
    settings = [
        'model_provider="stand-in"',
        *(f'model_providers.stand-in.{key}="{value}"' for key, value in provider.items()),
    ]
    flags = ["--json", "--skip-git-repo-check", "-s", "read-only", "-m", "stand-in"]
    overrides = [word for setting in settings for word in ("-c", setting)]
    return ["exec", *flags, *overrides, *(["resume", resumed] if resumed else []), prompt]


def kimi_command(prompt: str, new: str | None, resumed: str | None, url: str) -> list[str]:
    flags = ["--output-format", "stream-json", *(["-r", resumed] if resumed else [])]
    return ["-p", prompt, *flags]


def claude_env(state: Path, url: str) -> dict[str, str]:
    return {
        "CLAUDE_CONFIG_DIR": str(state),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "not-a-key",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }


def kimi_env(state: Path, url: str) -> dict[str, str]:
    return {
        "KIMI_CODE_HOME": str(state),
        "KIMI_MODEL_NAME": "stand-in",
        "KIMI_MODEL_API_KEY": "not-a-key",
        "KIMI_MODEL_BASE_URL": f"{url}/v1",
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
    }


PROGRAMS = [
    Program(
        backend="claude",
        command=claude_command,
        env=claude_env,
        told_id=lambda event: event.get("session_id"),
        sessions="projects/*/*.jsonl",
    ),
    Program(
        backend="codex",
        command=codex_command,
        env=lambda state, _url: {"CODEX_HOME": str(state)},
        told_id=lambda event: event.get("thread_id"),
        sessions="sessions/*/*/*/*.jsonl",
    ),
    Program(
        backend="kimi",
        command=kimi_command,
        env=kimi_env,
        told_id=lambda event: event.get("session_id"),
        sessions="sessions/*/*/agents/main/wire.jsonl",
    ),
]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.backend)
def program(request: pytest.FixtureRequest) -> Program:
    return request.param


@pytest.fixture
def installed(program: Program, programs: Programs) -> Installed:
    return programs.install(program.backend)


@contextlib.contextmanager
def running(
    command: list[str], *, env: Mapping[str, str], cwd: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run a command, and end all its processes."""
    found = shutil.which(command[0], path=env["PATH"])
    process = subprocess.Popen(
        [found or command[0], *command[1:]],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run(
    command: list[str], *, env: Mapping[str, str], cwd: Path, timeout: float
) -> tuple[int, str, str]:
    with running(command, env=env, cwd=cwd) as process:
        output, errors = process.communicate(timeout=timeout)
    return process.returncode, output, errors


@attrs.frozen
class Agent:
    """An agent directory with a program in it."""

    dir: Path
    program: Program
    installed: Installed
    api: ModelApi

    @property
    def state(self) -> Path:
        return self.dir / "session"

    def prepare(self) -> None:
        for name in ("workspace", "session", "home"):
            (self.dir / name).mkdir(parents=True, exist_ok=True)

    def arguments(self, prompt: str, *, new: str | None = None, resumed: str | None = None):
        own = self.program.env(self.state, self.api.url)
        command = self.program.command(prompt, new, resumed, self.api.url)
        return {
            "command": [self.program.backend, *command],
            "env": self.installed.env(self.dir / "home", **own),
            "cwd": self.dir / "workspace",
        }

    def turn(self, prompt: str, *, new: str | None = None, resumed: str | None = None) -> str:
        """Let the agent answer once; return the first reported conversation id."""
        status, output, errors = run(
            **self.arguments(prompt, new=new, resumed=resumed), timeout=RUN_TIMEOUT_S
        )
        assert status == 0, (output[-2000:], errors[-2000:])
        assert ANSWER in output
        told = (self.program.told_id(json.loads(line)) for line in output.splitlines())
        return next(each for each in told if each)

    def record(self, session_id: str) -> None:
        (self.dir / f"{self.program.backend}_session_id.txt").write_text(session_id)

    def transcripts(self) -> list[Path]:
        return list(self.state.glob(self.program.sessions))

    def session_on_disk(self) -> str:
        """Return the id of the only conversation on disk."""
        [transcript] = self.transcripts()
        return (
            transcript.parents[2].name if self.program.backend == "kimi" else transcript.stem[-36:]
        )


def test_a_program_resumes_a_restored_conversation_by_its_id(tmp_path, program, installed, api):
    old = Agent(tmp_path / "old" / "rocky", program, installed, api)
    old.prepare()
    told = old.turn("Remember the word MELON.", new=str(uuid.uuid4()))
    old.record(told)

    planned = tiers.plan({"rocky": old.dir}, backend=program.backend, workspace_only=False)
    assert planned.agents["rocky"].session_id == told
    assert planned.agents["rocky"].mid_turn is False
    prefix = "agents/rocky/session/"
    members = {
        name.removeprefix(prefix): content
        for name, content in archived_content(planned.sources).items()
        if name.startswith(prefix)
    }
    shutil.rmtree(tmp_path / "old")
    asked_before = len(api.requests)

    far = tmp_path / f"another place {FISH}" / ("far-away-" * 20) / "run.2" / "rocky"
    new = Agent(far, program, installed, api)
    new.prepare()
    restore_session(members, find_format(program.backend), told, new.dir)
    assert new.turn("Which word was it?", resumed=told) == told
    assert "MELON" in json.dumps(api.requests[asked_before:])
    assert new.session_on_disk() == told

    again = tiers.plan({"rocky": new.dir}, backend=None, workspace_only=False)
    assert again.agents == planned.agents


def test_a_turn_in_progress_is_recognised(tmp_path, program, installed, api):
    agent = Agent(tmp_path / "rocky", program, installed, api)
    agent.prepare()
    api.gate.clear()
    with running(**agent.arguments("Think.", new=str(uuid.uuid4()))) as process:
        wait_until(lambda: api.requests, HANG_S, "the program asks its model")
        wait_until(agent.transcripts, HANG_S, "the program writes what it was told")
        agent.record(agent.session_on_disk())
        busy = {"rocky": agent.dir}
        wait_until(lambda: not tiers.is_idle(busy, program.backend), HANG_S, "a turn is under way")
        planned = tiers.plan(busy, backend=program.backend, workspace_only=False)
        assert planned.agents["rocky"].mid_turn is True
        api.gate.set()
        output, errors = process.communicate(timeout=RUN_TIMEOUT_S)
    assert ANSWER in output, errors[-2000:]
    assert tiers.is_idle(busy, program.backend)
