"""Hostile conversations of an agent: documents that would fill the memory of a save."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from clawblox.checkpoint.collect.conversations import find_format
from clawblox.checkpoint.secrets.patterns.known import known_values

ID = str(uuid.UUID(int=7))
MEMORY_BYTES = 220 << 20
MEMBERS = b'{"a":[' + b"[]," * (4 << 20) + b"[]]}\n"
"""A line of 12 MiB that a parser expands to 300 MiB of values."""

TRANSCRIPTS = {
    "claude": f"projects/-old/{ID}.jsonl",
    "codex": f"sessions/2026/01/02/rollout-2026-01-02T03-04-05-{ID}.jsonl",
    "kimi": f"sessions/wd_old_0123456789ab/{ID}/agents/main/wire.jsonl",
}
ENDS = {
    "claude": {"type": "assistant", "message": {"stop_reason": "end_turn"}},
    "codex": {"type": "event_msg", "payload": {"type": "task_complete"}},
    "kimi": {"type": "turn.ended"},
}

SAVE = """
import resource, sys
from pathlib import Path
from clawblox.checkpoint.collect.conversations import find_format
from clawblox.errors import ClawbloxError
import os
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    state, sources = find_format(sys.argv[1]).collect(Path(sys.argv[2]))
    for source in sources:
        with os.fdopen(source.open(), "rb") as file:
            chunks = iter(lambda: file.read(1 << 20), b"")
            for chunk in source.transform(chunks) if source.transform else chunks:
                pass
except ClawbloxError as error:
    print(type(error).__name__)
else:
    print("saved", "mid-turn" if state.mid_turn else "at rest")
"""


def keep(tmp_path: Path, program: str, transcript: bytes) -> Path:
    """Create an agent with a conversation; return its directory."""
    agent_dir = tmp_path / "Eko"
    path = agent_dir / "session" / TRANSCRIPTS[program]
    path.parent.mkdir(parents=True)
    path.write_bytes(transcript)
    (agent_dir / f"{program}_session_id.txt").write_text(ID)
    if program == "kimi":
        (path.parents[2] / "state.json").write_text("{}")
    return agent_dir


def save(agent_dir: Path, program: str) -> str:
    """Collect a conversation in a process with limited memory; return the outcome."""
    command = [sys.executable, "-c", SAVE, program, str(agent_dir), str(MEMORY_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.thorough
@pytest.mark.parametrize("program", TRANSCRIPTS)
def test_a_line_with_millions_of_values_takes_little_memory(tmp_path: Path, program: str) -> None:
    end = json.dumps(ENDS[program]).encode() + b"\n"
    marked = MEMBERS.replace(b'"a"', b'"permission.x"')
    assert save(keep(tmp_path, program, end + marked), program) == "saved at rest"


@pytest.mark.thorough
def test_the_number_of_values_in_a_kimi_state_is_limited(tmp_path: Path) -> None:
    agent_dir = keep(tmp_path, "kimi", json.dumps(ENDS["kimi"]).encode() + b"\n")
    state = agent_dir / "session" / f"sessions/wd_old_0123456789ab/{ID}/state.json"
    state.write_bytes(MEMBERS)
    assert save(agent_dir, "kimi") == "CheckpointFormatError"


def test_the_first_records_of_other_threads_are_limited(tmp_path: Path) -> None:
    end = json.dumps(ENDS["codex"]).encode() + b"\n"
    agent_dir = keep(tmp_path, "codex", end)
    own = agent_dir / "session" / TRANSCRIPTS["codex"]
    for number in range(3):
        other = str(own).replace(ID, str(uuid.UUID(int=number + 8)))
        Path(other).write_bytes(MEMBERS)
    assert save(agent_dir, "codex") == "saved at rest"


def test_a_sparse_transcript_of_terabytes_is_refused(tmp_path: Path) -> None:
    agent_dir = keep(tmp_path, "claude", b"{}\n")
    os.truncate(agent_dir / "session" / TRANSCRIPTS["claude"], 8 << 40)
    assert save(agent_dir, "claude") == "CheckpointLimitError"


def test_only_the_newest_records_of_a_transcript_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = json.dumps(ENDS["claude"]).encode() + b"\n"
    begin = json.dumps({"type": "user", "message": {}}).encode() + b"\n"
    agent_dir = keep(tmp_path, "claude", begin + b'{"type": "note"}\n' * 10_000)
    claude = find_format("claude")
    assert claude.is_mid_turn(agent_dir)
    monkeypatch.setattr("clawblox.checkpoint.collect.conversations.transcripts._MAX_TAIL", 1 << 16)
    assert not claude.is_mid_turn(agent_dir)
    with (agent_dir / "session" / TRANSCRIPTS["claude"]).open("ab") as file:
        file.write(begin)
    assert claude.is_mid_turn(agent_dir)
    with (agent_dir / "session" / TRANSCRIPTS["claude"]).open("ab") as file:
        file.write(end)
    assert not claude.is_mid_turn(agent_dir)


def test_credentials_behind_a_link_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = "a-secret-of-the-user-" + "7" * 4  # sources must not contain a complete token
    (outside / "mine.json").write_text(json.dumps({"api_key": secret}))
    agent_dir = tmp_path / "Eko"
    (agent_dir / "session").mkdir(parents=True)
    (agent_dir / "session" / "credentials").symlink_to(outside)
    assert not known_values({}, [agent_dir])
    (agent_dir / "session" / "credentials").unlink()
    outside.rename(agent_dir / "session" / "credentials")
    assert list(known_values({}, [agent_dir])) == ["Eko:mine.json:api_key"]
