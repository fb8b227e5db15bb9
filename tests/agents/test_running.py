"""Agents start, take messages, and stop without leaving processes behind."""

from __future__ import annotations

import json
import stat
from functools import partial
from pathlib import Path

import anyio
import pytest

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.running.agent_process import AgentProcess
from clawblox.agents.running.start_request import ProgramLimits
from clawblox.errors import (
    AgentResumeError,
    AgentSetupError,
    AgentStartError,
    ConfigError,
    UsageError,
)
from tests.agents.small import SmallDriver, make_agent, opened, records, small, transcript, until
from tests.support.processes import live_processes
from tests.support.waiting import wait_until_async

__all__ = ["small"]

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("small")]


@pytest.fixture(
    params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)], scope="module"
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    params=[pytest.param((), marks=pytest.mark.thorough), ("loop",)],
    ids=["a process per turn", "one process"],
)
def flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(request.param)


async def test_a_start_returns_when_the_conversation_is_confirmed(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags) as agent:
        started = await agent.start(initial_prompt="work one", system_prompt="be good")
        assert started.session_id == agent.session_id
        assert (agent.dir / "small_session_id.txt").read_text().strip() == started.session_id
        assert records(agent, "process.started")[0]["version"] == "1.0"
        assert (agent.dir / "runtime" / "system_prompt.md").read_text() == "be good"
        assert stat.S_IMODE(started.command_file.stat().st_mode) == 0o700
        result = await agent.wait()
        assert (result.state, result.usage.turns) == ("idle", 1)
        assert transcript(agent) == ["work one"]
        stopped = await agent.stop(grace_seconds=5)
    assert (stopped.state, stopped.reason) == ("stopped", "stopped on request")
    last = records(agent)[-1]
    assert (last["operation"], last["status"]) == ("agent.process", "stopped")
    assert "error" not in last


@pytest.mark.thorough
@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("flags", [(), ("loop",)], ids=["a process per turn", "one process"])
async def test_messages_follow_each_other_in_one_conversation(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags) as agent:
        await agent.start("work one")
        first = agent.session_id
        await agent.send("work two")
        await agent.send(prompt="work three")
        await agent.wait()
        assert transcript(agent) == ["work one", "work two", "work three"]
        assert agent.session_id == first


async def test_an_agent_that_was_stopped_continues_its_conversation(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags) as agent:
        await agent.start(initial_prompt="work one")
        await agent.wait()
        await agent.stop(grace_seconds=5)
        (agent.dir / "runtime" / "start.sh").unlink()
        started = await agent.send(prompt="work two")
        assert started.command_file.exists()
        await agent.wait()
        assert transcript(agent) == ["work one", "work two"]
    async with opened(tmp_path, *flags) as other:
        await other.send(prompt="work three")
        await other.wait()
        assert transcript(other) == ["work one", "work two", "work three"]
    numbers = [record["seq"] for record in records(other)]
    assert numbers == sorted(set(numbers))
    assert [record["turn"] for record in records(other, "turn.started")] == [1, 2, 3]


async def test_event_numbers_stay_unique_after_a_kill(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.start(initial_prompt=" ".join(["work one"] * 300))
        told = await until(events, "turn.finished")
    path = agent.dir / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    kept = [json.loads(line)["type"] for line in lines].index("turn.started") + 1
    path.write_text("".join(lines[:kept]))  # as if the orchestrator was killed within the turn
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.send(prompt="work two")
        after = await until(events, "turn.finished")
    assert after[0].seq > told[-1].seq > 300


async def test_stop_is_safe_before_the_start_and_twice(tmp_path: Path) -> None:
    agent = make_agent(tmp_path)
    assert (await agent.stop(grace_seconds=1)).state == "new"
    async with agent:
        assert (await agent.stop()).state == "new"
        await agent.start(initial_prompt="hang")
        for _ in range(2):
            assert (await agent.stop(grace_seconds=1)).state == "stopped"
    assert not (agent.dir / "never").exists()


async def test_a_second_start_is_refused_while_the_agent_works(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="hang")
        with pytest.raises(UsageError, match="is already running"):
            await agent.start(initial_prompt="work")


async def test_concurrent_messages_all_go_to_one_program(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags) as agent:
        await agent.start(initial_prompt="work")
        await agent.wait()
        await agent.stop()
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(partial(agent.send, prompt=f"work {number}"))
        await agent.wait()
        assert sorted(transcript(agent)) == ["work", "work 0", "work 1", "work 2"]


async def test_one_of_two_concurrent_starts_is_refused(tmp_path: Path) -> None:
    refused = []

    async with opened(tmp_path) as agent:

        async def start() -> None:
            try:
                await agent.start(initial_prompt="hang")
            except UsageError as error:
                refused.append(error.message)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            tasks.start_soon(start)
        assert agent.state == "working"
    assert refused == ["the agent 'Eko' is already running"]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800", "x" * 128 * 1024], ids=["NUL", "half", "long"])
async def test_a_text_that_no_program_can_receive_is_refused_without_ending_the_agent(
    tmp_path: Path, text: str
) -> None:
    async with opened(tmp_path) as agent:
        with pytest.raises(ConfigError, match="prompt: "):
            await agent.start(initial_prompt=text)
        assert agent.state == "new"
        await agent.start(initial_prompt=f"until {tmp_path / 'go'}")
        with pytest.raises(ConfigError, match="prompt: "):
            await agent.send(prompt=text)
        (tmp_path / "go").touch()
        assert (await agent.wait()).state == "idle"


async def test_a_long_message_on_standard_input_arrives_completely(tmp_path: Path) -> None:
    text = "x" * 1_000_000
    async with opened(tmp_path, "loop") as agent:
        await agent.start(initial_prompt=text)
        await agent.wait()
        assert transcript(agent) == [text]


@pytest.mark.parametrize(
    ("prompt", "error", "text"),
    [
        ("hang", AgentStartError, "did not confirm its conversation within"),
        ("crash 3", AgentStartError, "ended before it confirmed its conversation: exit status 3"),
    ],
)
async def test_a_failed_start_leaves_no_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: str, error: type[Exception], text: str
) -> None:
    monkeypatch.setattr(SmallDriver, "transcripts", lambda self, directory: {})
    async with opened(tmp_path, "silent", limits=ProgramLimits(confirm_timeout=0.5)) as agent:
        with pytest.raises(error, match=text) as caught:
            await agent.start(initial_prompt=prompt)
        assert agent.state == "failed"
    last = records(agent)[-1]
    assert (last["status"], last["operation"]) == ("failed", "agent.process")
    assert last["error"] in str(caught.value)


async def test_a_missing_program_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(tmp_path, binary="no-such-program") as agent:
        with pytest.raises(AgentSetupError, match="'no-such-program' is not on PATH"):
            await agent.start(initial_prompt="work")
    assert "not written" not in "".join(capsys.readouterr())


@pytest.mark.thorough
async def test_a_program_that_reports_no_id_is_confirmed_by_its_transcript(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, "silent") as agent:
        started = await agent.start(initial_prompt="hang")
        assert (agent.dir / "session" / f"{started.session_id}.jsonl").exists()


async def test_another_conversation_on_a_resume_is_an_error(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work")
        await agent.wait()
        await agent.stop()
        with pytest.raises(AgentResumeError, match="00000000dead"):
            await agent.send(prompt="elsewhere")
        assert agent.state == "failed"


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: path.unlink(), "has no transcript"),
        pytest.param(lambda path: path.write_bytes(b""), "is empty", marks=pytest.mark.thorough),
        (lambda path: path.write_bytes(b'{"torn'), "in the middle of a line"),
    ],
)
async def test_a_damaged_transcript_is_not_continued(tmp_path: Path, damage, text: str) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work")
        await agent.wait()
        await agent.stop()
        damage(agent.dir / "session" / f"{agent.session_id}.jsonl")
        with pytest.raises(AgentResumeError, match=text):
            await agent.send(prompt="work")


async def test_an_agent_continues_by_itself(tmp_path: Path, flags: tuple[str, ...]) -> None:
    async with opened(tmp_path, *flags, auto_continue=True) as agent:
        async with agent.events() as events:
            first = f"until {tmp_path / 'go'}"
            await agent.start(initial_prompt=first)
            await agent.send(prompt="work two")
            (tmp_path / "go").touch()
            await until(events, "turn.finished", 3)
        await agent.stop(grace_seconds=1)
    assert transcript(agent)[:3] == [first, "work two", AUTO_CONTINUE]


async def test_events_have_their_offsets_in_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.start(initial_prompt="work hello")
        found = await until(events, "turn.finished")
    kinds = [event.kind for event in found]
    assert kinds == [
        *("process.started", "turn.started", "session.confirmed", "message", "turn.finished"),
    ]
    log = (agent.dir / "logs" / "agent.log").read_bytes()
    message = found[3]
    assert log[message.raw_offset :].startswith(b'{"type": "message"')
    assert [event.seq for event in found] == [1, 2, 3, 4, 5]


async def test_events_without_listeners_still_get_numbers(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work one work two")
        await agent.wait()
        async with agent.events() as events:
            await agent.send(prompt="work three")
            found = await until(events, "turn.finished")
    (first, _), (turn_1, turn_2) = (
        [record["seq"] for record in records(agent, kind)]
        for kind in ("session.confirmed", "turn.finished")
    )
    assert turn_1 == first + 3  # two messages between them
    heard = [event.seq for event in found]
    assert heard == [*range(heard[0], turn_2 + 1)]
    assert turn_1 < heard[0]


async def test_background_tools_end_with_the_agent(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        async with agent.events() as events:
            await agent.start(initial_prompt="leave")
            found = await until(events, "tool.called")
            await agent.wait()
            tool = found[-1].data["arguments"]["pid"]
            assert tool in live_processes()
            await agent.send(prompt="work")
            await agent.wait()
            assert tool in live_processes()
        await agent.stop(grace_seconds=1)
        assert tool not in live_processes()


async def test_leaving_the_block_stops_the_agent(tmp_path: Path, flags: tuple[str, ...]) -> None:
    async with opened(tmp_path, *flags) as agent:
        started = await agent.start(initial_prompt="hang")
    assert started.pid not in live_processes()
    assert agent.state == "stopped"


async def test_a_cancelled_start_leaves_no_processes(tmp_path: Path) -> None:
    async with opened(tmp_path, "silent") as agent:
        with anyio.move_on_after(0.05):
            await agent.start(initial_prompt="hang")
        assert agent.state in ("stopped", "new")


async def test_a_held_agent_is_between_turns_when_its_program_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_ended = anyio.Event()
    see_off, watch_exit = AgentProcess._see_off, AgentProcess._watch_exit

    def note(attempt: AgentProcess, now: float) -> None:
        see_off(attempt, now)
        has_ended.set()

    async def watch_late(attempt: AgentProcess) -> None:
        await has_ended.wait()  # the end of the turn is read before the exit is noticed
        await watch_exit(attempt)

    monkeypatch.setattr(AgentProcess, "_see_off", note)
    monkeypatch.setattr(AgentProcess, "_watch_exit", watch_late)
    async with opened(tmp_path, auto_continue=True) as agent:
        with agent.hold_turns():
            await agent.start(initial_prompt="work one")
            await wait_until_async(lambda: agent.is_between_turns)
        assert transcript(agent) == ["work one"]
