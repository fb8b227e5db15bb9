"""Agent directories after a finished run, with lines that Claude Code wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clawblox.agents.layout import AgentDir
from tests.agents.drivers.support import recorded_lines

PROMPTS = ("Begin", "Say it again.", "Go on")
"""Messages to the recorded program: two in its first process, one in its second."""


class EventLines:
    """Writes ``events.jsonl`` like an orchestrator, with one second between events."""

    def __init__(self, path: Path, session_id: str, second: int = 0) -> None:
        self._path = path
        self._session_id = session_id
        self._seq = 0
        self.second = second

    def add(self, kind: str, turn: int, raw_offset: int | None = None, /, **data: Any) -> None:
        self._seq += 1
        self.second += 1
        group = kind.partition(".")[0]
        record = {
            "time": f"2026-11-22T11:10:{self.second:02}.000Z",
            "seq": self._seq,
            "agent": "Eko",
            "operation": f"agent.{group}",
            "type": kind,
            "session_id": self._session_id,
            "turn": turn,
            **({} if raw_offset is None else {"raw_offset": raw_offset}),
            **(data if group == "process" else {"data": data}),
        }
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def recorded_turns(version: str) -> list[list[bytes]]:
    """Return the recorded lines of Claude Code by turn."""
    turns: list[list[bytes]] = []
    for line in recorded_lines(f"claude-{version}.jsonl"):
        if json.loads(line).get("subtype") == "init":
            turns.append([])
        turns[-1].append(line + b"\n")
    return turns


def session_id(version: str) -> str:
    return str(json.loads(recorded_turns(version)[0][0])["session_id"])


def make_agent(path: Path, version: str, turns: slice = slice(None)) -> AgentDir:
    """Create the directory of an agent with the recorded output."""
    directory = AgentDir(path)
    for made in (directory.runtime, directory.log_file.parent):
        made.mkdir(parents=True, exist_ok=True)
    directory.system_prompt_file.write_text("You are Eko.\n")
    directory.id_file("claude").write_text(session_id(version) + "\n")
    said = recorded_turns(version)[turns]
    directory.log_file.write_bytes(b"".join(line for lines in said for line in lines))
    return directory


def write_events(directory: AgentDir, version: str, first: int = 0) -> None:
    """Write the events of the recorded turns, from the turn with the number ``first`` + 1."""
    events = EventLines(directory.events_file, session_id(version))
    offset = sum(len(line) for lines in recorded_turns(version)[:first] for line in lines)
    for turn, lines in enumerate(recorded_turns(version)[first:], start=first + 1):
        if turn in (first + 1, 3):  # its second process had one turn
            events.add("process.started", turn - 1, offset, pid=100 + turn, version=version)
            events.add("session.confirmed", turn - 1, offset, version=version)
        events.add("turn.started", turn, prompt=PROMPTS[turn - 1])
        offset += sum(map(len, lines))
        end = offset - len(lines[-1])
        events.add("turn.finished", turn, end, ok=True, text="I have noted that.")
        if turn in (2, 3):
            events.add("process.exited", turn, status="stopped", exit_code=0)
