"""Usage of a program is counted once, even if its orchestrator is killed."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox import load_checkpoint, save_checkpoint
from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.proxy import ProxyLimits
from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.options import AgentOptions
from clawblox.agents.programs.kimi import work_dir_key
from clawblox.agents.programs.program import project_slug
from clawblox.agents.running.agenda import Hold
from clawblox.agents.running.bookkeeping import Bookkeeping
from clawblox.agents.running.hooks import Enclosure, Hooks
from clawblox.agents.running.program import OutputReader, read_reports
from clawblox.agents.running.start_request import Start, StartRequest
from clawblox.agents.status import StatusWriter
from clawblox.agents.trajectory import export_trajectory
from clawblox.agents.usage import Ledger
from clawblox.agents.values import MOVES, Usage
from clawblox.supervision.lifecycle import Lifecycle
from clawblox.telemetry.events import Hub
from clawblox.telemetry.log_segments import begin_segment

SEGMENT_BYTES = 2000


class StandIn:
    """A program that reports its usage like a real program, and can be killed at any line.

    Args:
        driver: Name of its driver.
        directory: The agent's directory.
        session_id: Id of its conversation.
        before: Tokens that the conversation used before.
    """

    def __init__(self, driver: str, directory: AgentDir, session_id: str, before: int) -> None:
        self.driver = driver
        self.directory = directory
        self.session_id = session_id
        self.used = before
        self.is_new = True

    def turn(self, tokens: int) -> list[bytes]:
        """Return the lines of a turn, after writing the program's own records."""
        self.used += tokens
        lines = [*getattr(self, f"say_{self.driver}")(tokens)]
        self.is_new = False
        return [json.dumps(line).encode() + b"\n" for line in lines]

    def say_claude(self, tokens: int) -> Iterator[dict[str, Any]]:
        self.append(f"projects/{self.slug}/{self.session_id}.jsonl", {"type": "user"})
        session = {"session_id": self.session_id}
        version = {"claude_code_version": "2.1.330"}
        yield {"type": "system", "subtype": "init", **session, **version}
        answer = {"content": [{"type": "text", "text": "x" * 300}]}
        yield {"type": "assistant", "message": answer}
        usage = {"usage": {"output_tokens": tokens}}
        yield {"type": "result", "subtype": "success", "result": "x", **usage, **session}

    def say_codex(self, tokens: int) -> Iterator[dict[str, Any]]:
        place = f"sessions/2026/01/02/rollout-2026-01-02T03-04-05-{self.session_id}.jsonl"
        self.append(place, {"type": "session_meta"})
        yield {"type": "thread.started", "thread_id": self.session_id}
        yield {"type": "turn.started"}
        yield {"type": "item.completed", "item": {"type": "agent_message", "text": "x" * 300}}
        yield {"type": "turn.completed", "usage": {"output_tokens": self.used}}

    def say_kimi(self, tokens: int) -> Iterator[dict[str, Any]]:
        session = f"sessions/{work_dir_key(self.directory.workspace)}/{self.session_id}"
        state = self.directory.state / session / "state.json"
        for agent, part in (("main", tokens // 2), ("helper", tokens - tokens // 2)):
            usage = {"type": "usage.record", "usage": {"output": part}}
            self.append(f"{session}/agents/{agent}/wire.jsonl", usage)
        state.write_text(json.dumps({"cwd": str(self.directory.workspace)}))
        yield {"role": "meta", "type": "system.version", "version": "2.1.0"}
        yield {"role": "assistant", "content": "x" * 300}
        yield {"role": "meta", "type": "session.resume_hint", "session_id": self.session_id}

    def say_acp(self, tokens: int) -> Iterator[dict[str, Any]]:
        answer = {"stopReason": "end_turn", "usage": {"outputTokens": tokens}}
        if self.is_new:
            yield {"jsonrpc": "2.0", "id": 1, "result": {"agentCapabilities": {}}}
            yield {"jsonrpc": "2.0", "id": 2, "result": {"sessionId": self.session_id}}
            self.asked = 2
        self.asked += 1
        yield {"jsonrpc": "2.0", "id": self.asked, "result": answer}

    @property
    def slug(self) -> str:
        return project_slug(str(self.directory.workspace))

    def append(self, path: str, record: dict[str, Any]) -> None:
        place = self.directory.state / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a") as file:
            file.write(json.dumps(record) + "\n")


class Life:
    """An agent's directory, with successive orchestrators and programs."""

    def __init__(self, driver: str, place: Path) -> None:
        self.driver = driver
        self.place = place
        self.number = itertools.count(1)
        self.directory = AgentDir(place / "runs" / "0" / "agents" / "Eko")
        prefix = "session_" if driver == "kimi" else ""
        self.session_id = f"{prefix}{uuid.UUID(int=4 << 76 | 2 << 62)}"
        self.said = 0
        for path in (self.directory.workspace, self.directory.state, self.directory.runtime):
            path.mkdir(parents=True)
        self.directory.log_file.parent.mkdir()
        self.directory.id_file(driver).write_text(self.session_id)
        self.directory.system_prompt_file.write_text("Be kind.")

    @property
    def order(self) -> StartRequest:
        options = AgentOptions(agent=self.driver, name="Eko", dir=self.directory.path)
        return StartRequest(
            options=options,
            directory=self.directory,
            driver=find_driver(self.driver),
            program=self.driver,
            prompt="x",
            start=Start.CONTINUE,
            system_prompt=None,
            env={},
            inherited={},
            secrets=(),
            hooks=Hooks(
                enclosure=Enclosure(),
                access=AgentAccess("Eko", self.directory, is_sandboxed=False, limits=ProxyLimits()),
                window=None,
                status=StatusWriter(self.directory),
            ),
            resume_text="",
            hold=Hold(),
        )

    def live(self, turns: list[int], read: int, written: int) -> None:
        """Let an orchestrator run a process, and kill both.

        Args:
            turns: Tokens of each turn of the process.
            read: Lines that the orchestrator reads and counts.
            written: Lines that the program writes, at least as many.
        """
        books = self.load()
        offset = begin_segment(self.directory.log_file, SEGMENT_BYTES)
        books.begin_process(1)
        books.conversation_id = self.session_id
        books.emit("process.started", {"pid": 1}, raw_offset=offset.end)
        reader = OutputReader(self.directory.log_file, offset.end, begins_at=offset.start)
        program = StandIn(self.driver, self.directory, self.session_id, self.said)
        conversation = find_driver(self.driver).read_along(self.directory)
        lines = self.say(program, turns)
        for line in itertools.islice(lines, read):
            self.write(line)
            self.take_in(books, reader, conversation)
        for line in itertools.islice(lines, max(0, written - read)):
            self.write(line)
        reader.close()

    def say(self, program: StandIn, turns: list[int]) -> Iterator[bytes]:
        """Yield the output of a program; a turn is finished when its last line is written."""
        for tokens in turns if self.driver in ("claude", "acp") else turns[:1]:
            *lines, last = program.turn(tokens)
            if self.driver == "kimi":  # the program has already recorded its usage
                self.said += tokens
            yield from lines
            if self.driver != "kimi":
                self.said += tokens
            yield last
        program.used = self.said

    def write(self, line: bytes) -> None:
        with self.directory.log_file.open("ab") as log:
            log.write(line)

    def take_in(self, books: Bookkeeping, reader: OutputReader, conversation: Any) -> None:
        for offset, report in read_reports(conversation, reader.read(), "Eko"):
            if report.type == "usage":
                books.count(report.data, offset)
            elif report.type == "turn.finished":
                books.end_turn(report.data, offset)
                anyio.run(books.count_recorded, self.session_id)
        books.ledger.log_offset = reader.line_start
        books._write(books.record())

    def load(self) -> Bookkeeping:
        """Return the books of a new orchestrator after it has caught up."""
        books = Bookkeeping(self.order, Lifecycle(MOVES, "new"), Hub(), 0.0)
        books.load()
        anyio.run(books.catch_up)
        books._write(books.record())
        return books

    def branch(self) -> None:
        """Continue in a copy of the directory."""
        new = AgentDir(self.place / "runs" / f"{next(self.number)}" / "agents" / "Eko")
        shutil.copytree(self.directory.path, new.path)
        for bucket in (new.state / "projects").glob("*"):
            bucket.rename(bucket.with_name(project_slug(str(new.workspace))))
        for bucket in (new.state / "sessions").glob("wd_*"):
            bucket.rename(bucket.with_name(work_dir_key(new.workspace)))
        self.directory = new

    def restore(self) -> None:
        """Continue in a directory loaded from an archive."""
        name = f"{next(self.number)}"
        archive = self.place / f"{name}.ckpt"
        save_checkpoint(archive, agents={"Eko": self.directory.path}, idle_wait=0)
        loaded = load_checkpoint(archive, self.place / "runs" / name)
        self.directory = AgentDir(loaded["agents"]["Eko"])

    def check(self) -> None:
        exported = export_trajectory(self.directory.path)["final_metrics"]
        assert exported["total_completion_tokens"] == self.said
        assert self.load().usage.output_tokens == self.said
        assert Ledger.load(self.directory.usage_file).usage.output_tokens == self.said
        exported = export_trajectory(self.directory.path)["final_metrics"]
        assert exported["total_completion_tokens"] == self.said


def test_unread_turns_of_the_programs_own_are_not_counted_as_turns(tmp_path) -> None:
    life = Life("claude", tmp_path)
    program = StandIn("claude", life.directory, life.session_id, 0)
    *_, init, _, ended = [b"", *program.turn(5)]
    own = {**json.loads(ended), "origin": {"kind": "task-notification"}}
    for line in (init, json.dumps(own).encode() + b"\n", init, ended):
        life.write(line)
    Ledger(1, Usage(), {}, log_offset=0).write(life.directory.usage_file)
    usage = life.load().usage
    assert (usage.turns, usage.output_tokens) == (1, 10)


steps = st.one_of(
    st.tuples(
        st.just("live"),
        st.lists(st.integers(1, 999), min_size=1, max_size=3),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    st.tuples(st.just("branch")),
    st.tuples(st.just("restore")),
)


def check_sum(driver: str, told: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        life = Life(driver, Path(place).resolve())
        life.live([7], 9, 9)
        for kind, *arguments in told:
            if kind != "restore" or driver != "acp":  # whose conversations are not archived
                getattr(life, kind)(*arguments)
        life.check()


@pytest.mark.thorough
@pytest.mark.parametrize("driver", ["claude", "codex", "kimi", "acp"])
@hypothesis.settings(max_examples=2)
@given(st.lists(steps, min_size=2, max_size=6))
def test_ledger_and_trajectory_have_the_sum_of_all_reports(driver: str, told: list[Any]) -> None:
    check_sum(driver, told)


@pytest.mark.thorough
@pytest.mark.parametrize("driver", ["claude", "codex", "kimi", "acp"])
@hypothesis.settings(max_examples=40)
@given(st.lists(steps, min_size=2, max_size=10))
def test_ledger_and_trajectory_agree_across_many_processes(driver: str, told: list[Any]) -> None:
    check_sum(driver, told)
