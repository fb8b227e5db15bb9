"""Real agent programs, resumed from an archive with files in addition to the transcript.

They run as in ``test_agent_clis``; each archive is saved and loaded as a whole.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import shutil
import struct
import subprocess
import sys
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import load_checkpoint, save_checkpoint
from clawblox.agents.drivers.codex import CodexDriver
from clawblox.agents.drivers.driver import Fork
from clawblox.agents.layout import AgentDir
from clawblox.concurrency.threads import Interruption
from tests.agents.drivers.support import NEW_ID, build_setup
from tests.checkpoint.test_agent_clis import PROGRAMS, RUN_TIMEOUT_S, Agent
from tests.support.model_api import ModelApi, user_messages
from tests.support.programs import Programs

pytestmark = pytest.mark.cli

VERSIONS = {"claude": "claude-2.1.330", "codex": "codex-0.169.0", "kimi": "kimi"}
MISSING = "[media missing]"
LINES = 20_000


def make_agent(directory: Path, backend: str, programs: Programs, api: ModelApi) -> Agent:
    [program] = [each for each in PROGRAMS if each.backend == backend]
    agent = Agent(directory, program, programs.install(VERSIONS[backend]), api)
    agent.prepare()
    return agent


def carry(agent: Agent, session_id: str, tmp_path: Path) -> Agent:
    """Save an agent, remove it, and load it at another path."""
    agent.record(session_id)
    archive = save_checkpoint(tmp_path / f"{session_id}.ckpt", agents={"rocky": agent.dir})
    shutil.rmtree(agent.dir)
    place = tmp_path / "far away" / session_id / "run.2"
    loaded = load_checkpoint(archive, place)
    assert loaded["lost_sessions"] == {}
    carried = attrs.evolve(agent, dir=loaded["agents"]["rocky"])
    carried.prepare()
    return carried


# A last record without a newline


@pytest.mark.parametrize("backend", VERSIONS)
def test_a_program_appends_to_a_last_record_that_had_no_newline(tmp_path, programs, api, backend):
    old = make_agent(tmp_path / "old" / "rocky", backend, programs, api)
    session_id = old.turn("Remember MELON.", new=str(uuid.uuid4()))
    [transcript] = old.transcripts()
    whole = transcript.read_bytes()
    transcript.write_bytes(whole.removesuffix(b"\n"))
    last = json.loads(whole.splitlines()[-1])
    new = carry(old, session_id, tmp_path)
    assert new.turn("Which word?", resumed=session_id) == session_id
    assert "Remember MELON." in json.dumps(api.requests[-1])
    [transcript] = new.transcripts()
    records = [json.loads(line) for line in transcript.read_bytes().splitlines()]
    assert last in records[:-1]


# Kimi


def picture() -> bytes:
    """Return a PNG of noise, because Kimi stores images above a few thousand bytes in files."""
    noise = random.Random(7)
    rows = b"".join(b"\0" + noise.randbytes(64 * 3) for _ in range(64))
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def tool_results(api: ModelApi) -> list[str]:
    """Return the results of tools in the newest request."""
    messages = api.requests[-1]["messages"]
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


def use_tools(agent: Agent, prompt: str, *tools: tuple[str, dict[str, Any]], **more: str) -> str:
    """Let an agent use tools, then answer; return its conversation id."""
    waiting = iter(tools)
    agent.api.tool = lambda _request: next(waiting, None)
    return agent.turn(prompt, **more)


def test_images_and_long_outputs_of_kimi_exist_after_a_load(tmp_path, programs, api):
    old = make_agent(tmp_path / "old" / "rocky", "kimi", programs, api)
    image = picture()
    (old.dir / "workspace" / "picture.png").write_bytes(image)
    session_id = use_tools(
        old,
        "Look and count.",
        ("ReadMediaFile", {"path": "picture.png"}),
        ("Bash", {"command": f"seq 1 {LINES}"}),
    )
    counted = tool_results(api)[-1]
    task = counted.partition("task_id: ")[2].split()[0]
    assert str(old.dir) in counted
    new = carry(old, session_id, tmp_path)
    (new.dir / "workspace" / "picture.png").unlink()

    asked_before = len(api.requests)
    [output] = new.state.glob(f"sessions/*/*/agents/main/tasks/{task}/output.log")
    read = {"path": str(output), "line_offset": LINES - 2}
    tools = ("TaskOutput", {"task_id": task}), ("Read", read)
    assert use_tools(new, "Which number was last?", *tools, resumed=session_id) == session_id
    resumed = json.dumps(api.requests[asked_before])
    assert base64.b64encode(image).decode() in resumed
    assert MISSING not in json.dumps(api.requests)
    assert counted in tool_results(api)  # the text of messages is unchanged
    shown, lines = tool_results(api)[-2:]
    assert str(output) in shown
    assert f"{LINES - 1}\n{LINES}" in shown
    assert f"{LINES - 1}" in lines


def test_commands_of_another_machine_are_neither_ended_nor_awaited_by_kimi(tmp_path, programs, api):
    old = make_agent(tmp_path / "old" / "rocky", "kimi", programs, api)
    background = {"command": "seq 1 9", "run_in_background": True, "description": "count"}
    session_id = use_tools(old, "Count.", ("Bash", background))
    [document] = old.state.glob("sessions/*/*/agents/main/tasks/*.json")
    sleep = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(sleep, stdin=subprocess.PIPE) as other:
        task = json.loads(document.read_bytes()) | {"status": "running", "pid": other.pid}
        wire = document.parents[1] / "wire.jsonl"
        records = [json.loads(line) for line in wire.read_text().splitlines()]
        ended = [record for record in records if record["type"] == "task.terminated"]
        assert ended
        task |= {"endedAt": None}
        document.write_text(json.dumps(task))
        wire.write_text(
            "".join(f"{json.dumps(record)}\n" for record in records if record not in ended)
        )
        new = carry(old, session_id, tmp_path)
        stop = ("TaskStop", {"task_id": task["taskId"]})
        use_tools(new, "Stop it.", ("TaskList", {}), stop, resumed=session_id)
        assert other.poll() is None
    [document] = new.state.glob("sessions/*/*/agents/main/tasks/*.json")
    assert json.loads(document.read_bytes())["status"] == "lost"
    assert "from the previous session lost contact" in json.dumps(api.requests[-1])


def test_files_outside_the_conversation_are_not_sent_to_the_model_by_kimi(tmp_path, programs, api):
    old = make_agent(tmp_path / "old" / "rocky", "kimi", programs, api)
    (old.dir / "workspace" / "picture.png").write_bytes(picture())
    session_id = use_tools(old, "Look.", ("ReadMediaFile", {"path": "picture.png"}))
    secret = b"the user's own text " * 300
    (tmp_path / "private").write_bytes(secret)
    (tmp_path / "private.md").write_bytes(secret)
    [wire] = old.state.glob("sessions/*/*/agents/main/wire.jsonl")
    reference = next(part for part in wire.read_text().split('"') if part.startswith("blobref:"))
    up = "../" * 40 + str(tmp_path)[1:]
    hostile = wire.read_text().replace(reference, f"blobref:image/png;{up}/private")
    plan = {"type": "plan_mode.enter", "agentId": "main", "id": f"{up}/private", "time": 1}
    wire.write_text(f"{hostile}{json.dumps(plan)}\n")
    new = carry(old, session_id, tmp_path)
    asked_before = len(api.requests)
    use_tools(new, "Describe it.", resumed=session_id)
    asked = json.dumps(api.requests[asked_before:])
    assert base64.b64encode(secret).decode()[:100] not in asked
    assert "the user's own text" not in asked
    assert "/private" not in asked
    assert MISSING in asked


# Codex


@contextlib.contextmanager
def app_server(agent: Agent) -> Iterator[AppServer]:
    """Run Codex's server for editors, which can revert and fork threads."""
    arguments = agent.arguments("")
    settings = [word for word in arguments["command"] if word.startswith("model_provider")]
    overrides = [word for setting in (*settings, 'model="stand-in"') for word in ("-c", setting)]
    command = [str(agent.installed.binary), "app-server", *overrides]
    with subprocess.Popen(
        command,
        env=arguments["env"],
        cwd=arguments["cwd"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        server = AppServer(process)
        server.call("initialize", clientInfo={"name": "clawblox", "version": "1"})
        server.tell("initialized")
        yield server
        process.stdin.close()
        process.wait(RUN_TIMEOUT_S)


@attrs.define
class AppServer:
    """A connection to the server."""

    process: subprocess.Popen[str]
    calls: int = 0

    def tell(self, method: str, **more: Any) -> None:
        self.process.stdin.write(json.dumps({"method": method, **more}) + "\n")
        self.process.stdin.flush()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.calls += 1
        self.tell(method, id=self.calls, params=params)
        return next(
            message["result"]
            for message in map(json.loads, self.process.stdout)
            if message.get("id") == self.calls and "method" not in message
        )

    def turn(self, thread: str, text: str) -> str:
        """Let a thread answer once; return the id of the turn."""
        told = [{"type": "text", "text": text}]
        turn = self.call("turn/start", threadId=thread, input=told)["turn"]["id"]
        next(
            message
            for message in map(json.loads, self.process.stdout)
            if message.get("method") == "turn/completed"
        )
        return turn


def rollout_paths(agent: Agent) -> list[str]:
    """Return the paths of all rollouts below the state directory, including archived threads."""
    return sorted(str(path.relative_to(agent.state)) for path in agent.state.rglob("rollout-*"))


@pytest.mark.parametrize("which", ["reverted", "forked", "put aside", "branched"])
def test_all_rollouts_in_the_history_of_codex_exist_after_a_load(tmp_path, programs, api, which):
    old = make_agent(tmp_path / "old" / "rocky", "codex", programs, api)
    with app_server(old) as server:
        thread = server.call("thread/start", cwd=str(old.dir / "workspace"))["thread"]["id"]
        server.turn(thread, "Remember MELON.")
        wrong = server.turn(thread, "Remember APPLE.")
        server.call("thread/revert", threadId=thread, beforeTurnId=wrong)
        server.turn(thread, "Remember PEAR.")
        told = ["Remember MELON.", "Remember PEAR."]
        if which in ("forked", "put aside"):
            first, thread = thread, server.call("thread/fork", threadId=thread)["thread"]["id"]
            server.turn(thread, "Remember KIWI.")
            told.append("Remember KIWI.")
        if which == "put aside":
            server.call("thread/archive", threadId=first)
    rollouts = rollout_paths(old)
    assert len(rollouts) == (3 if "Remember KIWI." in told else 2)
    new = carry(old, thread, tmp_path)
    assert rollout_paths(new) == rollouts
    if which == "branched":
        directory = AgentDir(new.dir)
        branch = Fork(thread, thread := NEW_ID, new.dir)
        CodexDriver().branch(build_setup(directory), branch, Interruption())
    assert new.turn("Which words?", resumed=thread) == thread
    assert user_messages(api.requests[-1]) == [*told, "Which words?"]
