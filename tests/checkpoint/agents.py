"""Agent directories like those of the three agent programs, and the programs' search.

The layouts are those of Claude Code 2.1, Codex 0.169 and Kimi Code 2.1. The places where a program
searches are listed here independently, so that a mistake in the package is detected.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from clawblox.checkpoint.collect.conversations import ConversationFormat
from clawblox.checkpoint.model import Source

BACKENDS = ("claude", "codex", "kimi")

SECRET_FILES = {
    "claude": (".credentials.json", ".claude.json", "settings.json", "history.jsonl"),
    "codex": ("auth.json", "config.toml", "state_5.sqlite", "history.jsonl"),
    "kimi": ("config.toml", "mcp.json", "device_id", "credentials/kimi.json"),
}
"""Files of the programs next to their conversations that must never be archived."""

COMPANIONS = {
    "world_session.txt": b"sess-0123456789\n",
    "world_access.json": b'{"port": 20001}\n',
    "usage.json": b'{"output_tokens": 812}\n',
    "runtime/system_prompt.md": b"You live in a world.\n",
}
"""Files of clawblox that are archived with a conversation."""

IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
"""Content that starts like a PNG image."""

LOG = b'{"type":"system"}\n'
"""The complete lines of its log."""


@attrs.frozen
class BuiltAgent:
    """An agent directory.

    Attributes:
        dir: The directory.
        backend: Driver of its conversations.
        session_id: The recorded id.
        transcript: The transcript of that conversation.
        family: All files of the conversation, including the transcript.
        strangers: Files of other conversations.
    """

    dir: Path
    backend: str
    conversation_id: str
    transcript: Path
    family: tuple[Path, ...]
    strangers: tuple[Path, ...]

    @property
    def workspace(self) -> Path:
        return self.dir / "workspace"


def build_agent(
    directory: Path,
    backend: str,
    *,
    code_word: str = "MELON",
    mid_turn: bool = False,
    worked_in: Path | None = None,
) -> BuiltAgent:
    """Write an agent directory with a workspace and two conversations, one with a sub-agent.

    Args:
        directory: The agent directory, which is created.
        backend: ``claude``, ``codex`` or ``kimi``.
        code_word: The topic of the conversation.
        mid_turn: Whether the conversation ends with the result of a tool, before the answer.
        worked_in: Working directory in the transcript; None means the workspace.
    """
    _write(directory / "workspace" / "SOUL.md", b"I am.\n")
    conversation_id = codex_id(1) if backend == "codex" else str(uuid.uuid4())
    conversation_id = f"session_{conversation_id}" if backend == "kimi" else conversation_id
    _write(directory / f"{backend}_session_id.txt", f"{conversation_id}\n".encode())
    for name, content in COMPANIONS.items():
        _write(directory / name, content)
    _write(directory / "logs" / "agent.log", LOG + b'{"type":"assis')
    _write(directory / "home" / ".netrc", b"machine a login b\n")
    for name in SECRET_FILES[backend]:
        _write(directory / "session" / name, b"NEVER\n")
    cwd = os.path.realpath(worked_in or directory / "workspace")
    family, strangers = _SESSIONS[backend](
        directory / "session", conversation_id, cwd, code_word, mid_turn
    )
    return BuiltAgent(
        directory, backend, conversation_id, family[0], tuple(family), tuple(strangers)
    )


def find_conversation(
    agent_dir: Path, backend: str, conversation_id: str, *, state_dir: str = "session"
) -> Path:
    """Return the transcript that the program finds by id in its workspace.

    Raises:
        LookupError: The program would not find the conversation, or would refuse it.
    """
    state = agent_dir / state_dir
    cwd = os.path.realpath(agent_dir / "workspace")
    if backend == "codex":
        found = list(state.glob(f"sessions/*/*/*/rollout-*-{conversation_id}.jsonl"))
    elif backend == "claude":
        found = [state / "projects" / claude_slug(cwd) / f"{conversation_id}.jsonl"]
    else:
        bucket = state / "sessions" / kimi_bucket(cwd)
        found = [bucket / conversation_id / "agents" / "main" / "wire.jsonl"]
        said = json.loads((bucket / conversation_id / "state.json").read_bytes())
        if said["cwd"] != cwd or said["agents"]["main"]["homedir"] != str(found[0].parent):
            raise LookupError("created under a different directory")
    if len(found) != 1 or not found[0].is_file():
        raise LookupError(f"no conversation found with session ID {conversation_id}")
    return found[0]


def archived_content(sources: Iterable[Source]) -> dict[str, bytes]:
    """Return the content of files in an archive, read like by a writer."""
    members: dict[str, bytes] = {}
    for source in sources:
        with os.fdopen(source.open(), "rb") as file:
            content = file.read()
        if source.whole_lines:
            content = without_torn_end(content)
        if source.transform is not None:
            content = b"".join(source.transform(pieces(content)))
        assert source.name not in members
        members[source.name] = content
    return members


def without_torn_end(content: bytes) -> bytes:
    """Return content without a last line that is neither complete nor a record."""
    end = content.rfind(b"\n") + 1
    try:
        is_record = isinstance(json.loads(content[end:]), dict)
    except ValueError:
        is_record = False
    return content if is_record else content[:end]


def restore_session(
    members: Mapping[str, bytes], form: ConversationFormat, conversation_id: str, agent_dir: Path
) -> None:
    """Restore the members below ``session/`` to a new agent directory, like a loader."""
    workspace = agent_dir / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    for name, content in members.items():
        place = form.place(name, conversation_id=conversation_id, workspace=workspace)
        assert place is not None, name
        transform = place.transform
        _write(
            agent_dir / place.path, b"".join(transform(pieces(content))) if transform else content
        )


def pieces(content: bytes, size: int = 997) -> list[bytes]:
    """Return content in chunks that do not end at line ends."""
    return [content[start : start + size] for start in range(0, len(content), size)]


def claude_slug(cwd: str) -> str:
    """Return the project directory of a short path in ASCII."""
    assert cwd.isascii()
    assert len(cwd) <= 200
    return re.sub(r"[^a-zA-Z0-9]", "-", cwd)


def codex_id(number: int) -> str:
    """Return an id of version 7, later than ids with smaller numbers."""
    return f"01a1f994-{number:04x}-7{str(uuid.uuid4())[15:]}"


def kimi_bucket(cwd: str) -> str:
    """Return the bucket of a path whose last part is plain."""
    name = cwd.rpartition("/")[2]
    assert re.fullmatch(r"[a-z0-9]{1,40}", name)
    return f"wd_{name}_{hashlib.sha256(cwd.encode()).hexdigest()[:12]}"


def kimi_blob(content: bytes) -> str:
    """Return Kimi's name for the content of an image."""
    return hashlib.sha256(base64.b64encode(content)).hexdigest()


def lines(*records: dict[str, Any]) -> bytes:
    """Return a transcript with the records in the format of the programs."""
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in records)


def claude_records(conversation_id: str, cwd: str, code_word: str, mid_turn: bool) -> bytes:
    """Return a transcript of Claude Code."""
    own = {"isSidechain": False, "sessionId": conversation_id, "cwd": cwd, "version": "2.1.197"}
    use = {"type": "tool_use", "id": "toolu_0", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_0", "content": "SOUL.md"}
    text = {"type": "text", "text": "I have noted that."}
    said = {"type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    told = {"role": "user", "content": f"Remember {code_word}."}
    called = said | {"id": "msg_0", "content": [use], "stop_reason": "tool_use"}
    answered = said | {"id": "msg_1", "content": [text], "stop_reason": "end_turn"}
    records = [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": conversation_id},
        {"type": "queue-operation", "operation": "dequeue", "sessionId": conversation_id},
        own | {"type": "user", "message": told},
        own | {"type": "attachment", "attachment": {"type": "todo"}},
        own | {"type": "assistant", "message": called},
        own | {"type": "user", "message": {"role": "user", "content": [result]}},
    ]
    if not mid_turn:
        records += [
            own | {"type": "assistant", "message": answered},
            {"type": "last-prompt", "lastPrompt": "Remember", "sessionId": conversation_id},
        ]
    return lines(*records)


def codex_records(
    thread: str, cwd: str, code_word: str, mid_turn: bool, parent: str | None = None
) -> bytes:
    """Return a rollout of Codex."""
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}}
    meta = {"session_id": thread, "id": thread, "cwd": cwd, "originator": "codex_exec"}
    meta |= {"cli_version": "0.169.0", "source": spawned if parent else "exec"}
    meta |= {"base_instructions": {"text": "You are Codex." * 1000}}
    if parent:
        meta |= {"parent_thread_id": parent}
    prompt = [{"type": "input_text", "text": f"Remember {code_word}."}]
    records = [
        {"type": "session_meta", "payload": meta},
        {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t0"}},
        {"type": "turn_context", "payload": {"cwd": cwd, "approval_policy": "never"}},
        {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": prompt},
        },
        {"type": "event_msg", "payload": {"type": "token_count", "info": None}},
    ]
    if not mid_turn:
        records.append({"type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t0"}})
    return lines(*({"ordinal": n, **record} for n, record in enumerate(records)))


def kimi_records(bucket: str, code_word: str, mid_turn: bool) -> bytes:
    """Return a wire file of Kimi Code."""
    main = {"agentId": "main", "time": 1795188617630}
    prompt = [{"type": "text", "text": f"Remember {code_word}."}]
    records = [
        {"type": "metadata", "protocol_version": "1.5", "created_at": 1795188617625},
        {"type": "runtime.set_binding", "workspaceId": bucket, "runtimeId": "local"} | main,
        {"type": "profile.bind", "systemPrompt": "You are Kimi. permission.set_mode"} | main,
        {"type": "permission.set_mode", "mode": "auto"} | main,
        {"type": "turn.prompt", "input": prompt, "turnId": 0} | main,
        {"type": "context.append_message", "message": {"role": "user", "content": prompt}} | main,
    ]
    if not mid_turn:
        records += [
            {"type": "turn.ended", "turnId": 0, "reason": "completed"} | main,
            {"type": "prompt.completed", "promptId": "msg_0"} | main,
        ]
    return lines(*records)


def _claude(
    state: Path, conversation_id: str, cwd: str, code_word: str, mid_turn: bool
) -> tuple[list[Path], list[Path]]:
    project = state / "projects" / claude_slug(cwd)
    other = str(uuid.uuid4())
    family = {
        project / f"{conversation_id}.jsonl": claude_records(
            conversation_id, cwd, code_word, mid_turn
        ),
        project / conversation_id / "subagents" / "agent-a1b2c3.jsonl": lines({"type": "user"}),
        project / conversation_id / "subagents" / "agent-a1b2c3.meta.json": b'{"agentType":"x"}',
        project / conversation_id / "tool-results" / "toolu_0.txt": b"long output, no newline",
        project / "memory" / "MEMORY.md": b"# Memory\n",
        project / "memory" / "people" / "a friend.md": b"kind\n",
        state / "tasks" / conversation_id / "1.json": b'{"id":"1","subject":"x"}',
    }
    strangers = {
        project / f"{other}.jsonl": claude_records(other, cwd, "SECRET", False),
        project / other / "subagents" / "agent-ff.jsonl": lines({"type": "user"}),
        project / conversation_id / "subagents" / "agent-a1.jsonl.bak": b"x",
        state / "projects" / "-elsewhere" / f"{uuid.uuid4()}.jsonl": lines({"type": "user"}),
        state / "tasks" / conversation_id / ".lock": b"",
        state / "tasks" / other / "1.json": b"{}",
        state / "session-env" / conversation_id / "env.sh": b"export A=b\n",
        state / "file-history" / conversation_id / "0@v1": b"before\n",
    }
    return _write_all(family), _write_all(strangers)


def _codex(
    state: Path, conversation_id: str, cwd: str, code_word: str, mid_turn: bool
) -> tuple[list[Path], list[Path]]:
    day = state / "sessions" / "2026" / "11" / "20"
    child, grandchild, other, before = (codex_id(number) for number in (2, 3, 4, 0))

    def rollout(time: str, thread: str) -> Path:
        return day / f"rollout-2026-11-20T{time}-{thread}.jsonl"

    family = {
        rollout("15-30-16", conversation_id): codex_records(
            conversation_id, cwd, code_word, mid_turn
        ),
        rollout("15-30-17", child): codex_records(child, cwd, "child", False, conversation_id),
        rollout("15-30-18", grandchild): codex_records(grandchild, cwd, "g", False, child),
    }
    strangers = {
        rollout("15-30-19", other): codex_records(other, cwd, "SECRET", False),
        rollout("15-30-10", before): codex_records(before, cwd, "SECRET", False),
        state / "thread-writer-locks" / ".coordination.lock": b"",
        state / "skills" / ".system" / "imagegen" / "SKILL.md": b"skill\n",
        state / "shell_snapshots" / f"{conversation_id}.sh": b"export A=b\n",
    }
    return _write_all(family), _write_all(strangers)


def _kimi(
    state: Path, conversation_id: str, cwd: str, code_word: str, mid_turn: bool
) -> tuple[list[Path], list[Path]]:
    bucket = kimi_bucket(cwd)
    session = state / "sessions" / bucket / conversation_id
    agents = {
        name: {"homedir": str(session / "agents" / name), "type": kind}
        for name, kind in (("main", "main"), ("agent-0", "sub"))
    }
    said = {"id": conversation_id, "version": 2, "cwd": cwd, "agents": agents, "custom": {}}
    main, older, called = session / "agents" / "main", session / "tasks", uuid.uuid4()
    task = {"taskId": "bash-90ntjjmo", "status": "completed", "kind": "process", "pid": 1}
    family = {
        main / "wire.jsonl": kimi_records(bucket, code_word, mid_turn),
        main / "plans" / "first-plan.md": b"# Plan\n",
        main / "blobs" / kimi_blob(IMAGE): IMAGE,
        main / "tasks" / "bash-90ntjjmo.json": json.dumps(task).encode(),
        main / "tasks" / "bash-90ntjjmo" / "output.log": b"1\n2\n3, and no newline",
        main / "tool-results" / f"Grep-call_1-{called}.txt": b"long, and no newline",
        older / "bash-0-0123abcd.json": b"{}",
        older / "bash-0-0123abcd" / "output.log": b"",
        session / "media" / "f_0a1b.png": IMAGE,
        session / "media" / "meta" / "f_0a1b.json": b"{}",
        session / "media-originals" / f"{'0a' * 16}.jpg": IMAGE,
        session / "agents" / "agent-0" / "wire.jsonl": kimi_records(bucket, "sub", False),
        session / "state.json": json.dumps(said, separators=(",", ":")).encode(),
    }
    other = state / "sessions" / bucket / f"session_{uuid.uuid4()}"
    strangers = {
        other / "agents" / "main" / "wire.jsonl": kimi_records(bucket, "SECRET", False),
        other / "state.json": b"{}",
        session / "logs" / "kimi-code.log": b"log\n",
        session / "notify" / "state.json": b'{"enabled":false}',
        session / "cron" / "1.json": b"{}",
        session / "tasks" / "1.json": b"{}",
        main / "blobs" / f"{kimi_blob(IMAGE)}.tmp.1": IMAGE,
        main / "file-history" / "0@v1": b"NEVER",
        state / "session_index.jsonl": b"{}\n",
        state / "workspaces.json": b"{}",
    }
    return _write_all(family), _write_all(strangers)


_SESSIONS: dict[str, Callable[..., tuple[list[Path], list[Path]]]] = {
    "claude": _claude,
    "codex": _codex,
    "kimi": _kimi,
}


def _write_all(files: dict[Path, bytes]) -> list[Path]:
    for path, content in files.items():
        _write(path, content)
    return list(files)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def relative_files(directory: Path) -> set[str]:
    """Return the files below a directory, relative to it."""
    return {str(path.relative_to(directory)) for path in _files(directory.rglob("*"))}


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    return (path for path in paths if path.is_file())
