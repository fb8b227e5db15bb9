"""A run with an agent whose log is written line by line, in Claude Code's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clawblox.agents.layout import AgentDir
from clawblox.agents.prompts import AUTO_CONTINUE
from tests.agents.support import write_status
from tests.agents.trajectory.support import EventLines
from tests.web.sites import write_log

URL = "http://127.0.0.1:2378"
SESSION = "5b5c1e86-6c7c-4f0e-9d6c-0c58bfc5a0f1"


class WrittenAgent:
    """The agent of a run directory."""

    def __init__(self, run: Path, name: str = "Ada", **status: Any) -> None:
        write_log(run, "w000", b"")
        self.directory = AgentDir(run / "agents" / name)
        self.log = self.directory.log_file
        self.log.parent.mkdir(parents=True)
        self.directory.access_file.write_text(json.dumps({"base_url": URL}))
        self.status(**{"state": "stopped", "reason": "stopped on request", **status})
        self.events = EventLines(self.directory.events_file, SESSION)
        self.turn = 0
        self.events.add("process.started", 0, 0, pid=1, version="2.1.197")
        self.log.touch()
        self.calls = 0
        self.time: str | None = None

    def status(self, **members: Any) -> None:
        write_status(self.directory.path, session_id=SESSION, **members)

    @property
    def end(self) -> int:
        return self.log.stat().st_size

    def write(self, record: dict[str, Any], end: str = "\n") -> int:
        """Append a line; return its offset."""
        start, time = self.end, {} if self.time is None else {"timestamp": self.time}
        with self.log.open("a", encoding="utf-8", errors="surrogatepass") as file:
            file.write(json.dumps(record | time) + end)
        return start

    def begin(self, prompt: str | None = AUTO_CONTINUE) -> None:
        self.turn += 1
        self.events.add("turn.started", self.turn, prompt=prompt)
        init = {"type": "system", "subtype": "init", "model": "m-1", "claude_code_version": "2"}
        start = self.write({**init, "session_id": SESSION})
        if self.turn == 1:
            told = {"session_id": SESSION, "version": "2.1.197", "model": "m-1"}
            self.events.add("session.confirmed", 1, start, **told)

    def block(self, **block: Any) -> int:
        message = {"id": f"m{self.end}", "role": "assistant", "content": [block]}
        return self.write({"type": "assistant", "message": message, "session_id": SESSION})

    def say(self, text: str) -> int:
        return self.block(type="text", text=text)

    def think(self, text: str) -> int:
        return self.block(type="thinking", thinking=text)

    def call(self, name: str = "Bash", **arguments: Any) -> int:
        self.calls += 1
        return self.block(type="tool_use", id=f"c{self.calls}", name=name, input=arguments)

    def answer(self, content: str, *, is_error: bool = False) -> int:
        result = {"type": "tool_result", "tool_use_id": f"c{self.calls}", "content": content}
        message = {"role": "user", "content": [{**result, "is_error": is_error}]}
        return self.write({"type": "user", "message": message, "session_id": SESSION})

    def steer(self, x: float, time: float) -> int:
        """Act in the world."""
        body = json.dumps({"type": "Steer", "data": {"direction": [x, 0]}})
        start = self.call(command=f"curl -s {URL}/input -d '{body}'")
        self.answer(json.dumps({"time": time, "player": {"x": x}}))
        return start

    def finish(self, text: str = "Done.") -> None:
        start = self.write({"type": "result", "subtype": "success", "is_error": False,
                            "result": text, "session_id": SESSION})  # fmt: skip
        self.events.add("turn.finished", self.turn, start, ok=True, text=text)
