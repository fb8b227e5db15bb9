"""Agents whose programs crash, hang, fail, flood or do not read."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

import anyio
import pytest

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.running import dialogue
from clawblox.agents.running.program import OutputReader
from clawblox.agents.running.start_request import ProgramLimits
from clawblox.agents.usage import Budget
from clawblox.agents.values import AgentResult, DriverReport, Usage
from clawblox.errors import (
    AgentError,
    AgentExitedError,
    AgentResumeError,
    AgentStallError,
    ConfigError,
)
from clawblox.telemetry.log_segments import LogArrivals, list_segments
from clawblox.telemetry.log_times import index_path, read_entries
from clawblox.telemetry.tail import read_lines
from tests.agents.small import (
    SmallConversation,
    SmallDriver,
    make_agent,
    opened,
    records,
    small,
    transcript,
    until,
)
from tests.support.processes import live_processes, marked_processes
from tests.support.waiting import HANG_S

__all__ = ["small"]

CLOCK_REALTIME_COARSE = 5  # in linux/time.h
EARLY = timedelta(seconds=time.clock_getres(CLOCK_REALTIME_COARSE), milliseconds=1)
"""Maximum error of a file's time: a tick of the kernel's clock, and truncated milliseconds."""

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("small", "_short_delays")]


@pytest.fixture(
    params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)], scope="module"
)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dialogue, "_FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(dialogue, "_FIRST_BUSY_DELAY_S", 0.01)
    return None


@pytest.fixture(
    params=[
        pytest.param((), id="a process per turn"),
        pytest.param(("loop",), id="one process", marks=pytest.mark.thorough),
    ]
)
def flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(request.param)


async def run_to_end(agent: AsyncAgent, prompt: str) -> AgentResult:
    """Return the result of an agent, which may fail before its start has returned."""
    with suppress(AgentError):
        await agent.start(initial_prompt=prompt)
    return await agent.wait()


async def test_a_crash_before_any_work_repeats_the_message(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags) as agent:
        await agent.start(initial_prompt="crash-once 3")
        result = await agent.wait()
        assert (result.state, result.usage.turns) == ("idle", 1)
        assert transcript(agent) == ["crash-once 3"] * 2
    exits = [record["status"] for record in records(agent, "process.exited")]
    assert exits[0] == "restarting"
    assert exits[-1] == "stopped"


async def test_a_crash_after_some_work_only_asks_to_continue(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work crash-once 3")
        await agent.wait()
        assert transcript(agent) == ["work crash-once 3", AUTO_CONTINUE]


async def test_an_agent_that_crashes_too_often_has_failed(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags, max_restarts=2) as agent:
        result = await run_to_end(agent, "crash 7")
        assert (result.state, result.exit_code) == ("failed", 7)
        failure = agent.failure
    assert isinstance(failure, AgentExitedError)
    assert failure.log_lines[-1] == "the last words"
    assert len(records(agent, "process.started")) == 3
    last = records(agent)[-1]
    assert (last["status"], last["exit_code"]) == ("failed", 7)
    assert last["error"] == failure.message


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("auth", 1),
        pytest.param("invalid", 1, marks=pytest.mark.thorough),
        ("rate_limit", 2),
    ],
)
async def test_permanent_failures_are_not_retried(tmp_path: Path, kind: str, count: int) -> None:
    async with opened(tmp_path, max_restarts=1) as agent:
        result = await run_to_end(agent, f"fail {kind}")
        assert (result.state, result.exit_code, result.reason) == (
            "failed",
            1,
            f"it failed: {kind}",
        )
    assert len(records(agent, "process.started")) == count


async def test_a_failed_agent_can_be_sent_another_message(tmp_path: Path) -> None:
    async with opened(tmp_path, max_restarts=0) as agent:
        assert (await run_to_end(agent, "fail model")).state == "failed"
        await agent.send(prompt="work")
        assert (await agent.wait()).state == "idle"
        assert agent.failure is None


@pytest.mark.thorough
async def test_a_silent_program_is_restarted_then_given_up(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags, stall_timeout=2.0, max_restarts=1) as agent:
        result = await run_to_end(agent, "hang")
        assert result.state == "failed"
        assert isinstance(agent.failure, AgentStallError)
    assert len(records(agent, "stalled")) == 2
    assert result.exit_code == -15


@pytest.mark.thorough
async def test_a_program_that_reports_a_wait_is_not_silent(tmp_path: Path) -> None:
    async with opened(tmp_path, stall_timeout=2.0) as agent, agent.events() as events:
        await agent.start(initial_prompt="retry 3600 hang")
        await until(events, "retry")
        with anyio.move_on_after(2.5):
            await until(events, "stalled")
            raise AssertionError("it is called silent")


async def test_an_agent_waits_for_its_provider_until_a_busy_model_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue, "_FIRST_BUSY_DELAY_S", HANG_S)
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.start(initial_prompt="fail overloaded")
        await until(events, "process.exited")
        assert agent.is_waiting_for_provider
        await agent.stop()
        assert not agent.is_waiting_for_provider


async def test_a_crash_does_not_count_as_waiting_for_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue, "_FIRST_DELAY_S", HANG_S)
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.start(initial_prompt="retry 1 crash 3")
        await until(events, "process.exited")
        assert not agent.is_waiting_for_provider


async def test_an_implausible_retry_delay_counts_as_silence(tmp_path: Path) -> None:
    async with opened(tmp_path, stall_timeout=2.0, max_restarts=0) as agent:
        assert (await run_to_end(agent, "retry 1e300 hang")).state == "failed"
        assert isinstance(agent.failure, AgentStallError)


@pytest.mark.thorough
@pytest.mark.parametrize("number", ["9" * 400, "1e300", "nan", "-inf"])
async def test_events_are_strict_json_for_arbitrary_numbers_from_a_program(
    tmp_path: Path, number: str
) -> None:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    async with opened(tmp_path) as agent:
        result = await run_to_end(agent, f"use {number} retry {number.replace('9' * 400, 'inf')}")
        assert (result.state, result.usage) == ("idle", Usage(turns=1))
        await agent.stop()
    for name in ("events.jsonl", "usage.json", "runtime/status.json"):
        text = (agent.dir / name).read_text()
        for document in text.splitlines() if name.endswith("l") else [text]:
            json.loads(document, parse_constant=refuse)


async def test_the_last_output_becomes_events_and_its_usage_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain(self: SmallDriver, log_lines: list[str]) -> DriverReport:
        return DriverReport("error", {"kind": "auth", "message": log_lines[-1]})

    recorded = DriverReport("usage", {"usage": Usage(output_tokens=7), "scope": "session"})
    monkeypatch.setattr(SmallDriver, "explain", explain)
    monkeypatch.setattr(SmallDriver, "records_usage", True)
    monkeypatch.setattr(SmallDriver, "read_usage", lambda *_arguments: recorded)
    async with opened(tmp_path) as agent:
        result = await run_to_end(agent, "work one crash 3")
        assert (result.state, result.reason) == ("failed", "the last words")
        assert result.usage.output_tokens == 7
    [error] = records(agent, "error")
    assert error["data"] == {"kind": "auth", "message": "the last words"}


async def test_standard_error_never_becomes_an_event(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.start(initial_prompt="mutter message mutter turn.finished work one")
        found = await until(events, "turn.finished")
    assert [event.data["text"] for event in found if event.kind == "message"] == ["one"]
    assert b"forged" not in (agent.dir / "logs" / "agent.log").read_bytes()
    assert (agent.dir / "logs" / "agent.stderr.log").read_text().count("forged") == 2


async def test_a_program_that_writes_only_standard_error_still_works(tmp_path: Path) -> None:
    log = tmp_path / "Eko" / "logs" / "agent.log"
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt=f"grumble {tmp_path / 'enough'}")
        for _ in range(2):  # idle detectors check the age of the log
            os.utime(log, (0, 0))
            while not log.stat().st_mtime:
                await anyio.sleep(0.01)
        dialogue = agent._owner._attempt.dialogue
        silent_since = dialogue._silent_since
        while dialogue._silent_since == silent_since:
            await anyio.sleep(0.01)
        (tmp_path / "enough").touch()
        assert (await agent.wait()).state == "idle"


async def test_endless_standard_error_ends_the_agent(tmp_path: Path) -> None:
    limits = ProgramLimits(max_log_bytes=1 << 8)
    async with opened(tmp_path, limits=limits) as agent:
        assert (await run_to_end(agent, f"grumble {tmp_path / 'never'}")).state == "failed"
        assert "Eko/logs away" in str(agent.failure)


async def test_a_program_that_ignores_term_is_killed(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with opened(tmp_path, *flags) as agent, agent.events() as events:
        started = await agent.start(initial_prompt="deaf work hang")
        await until(events, "message")
        result = await agent.stop(grace_seconds=0.1)
        assert result.exit_code == -9
        assert started.pid not in live_processes()


async def test_a_line_that_is_too_long_is_counted_and_skipped(tmp_path: Path) -> None:
    size = 8 * 1024 * 1024 + 1
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.start(initial_prompt=f"long-line {size} work after")
        found = await until(events, "turn.finished")
    assert [event.kind for event in found][-3:] == ["oversized", "message", "turn.finished"]
    assert found[-3].data == {"size_bytes": size}


async def test_endless_output_ends_the_agent(tmp_path: Path) -> None:
    limits = ProgramLimits(max_log_bytes=1 << 20)
    async with opened(tmp_path, limits=limits) as agent:
        result = await run_to_end(agent, "flood")
        assert result.state == "failed"
        assert "Eko/logs away" in result.reason
    assert len(records(agent, "process.started")) == 1


async def test_an_agent_is_idle_once_the_program_of_its_turn_has_exited(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as agent, agent.events() as events:
        await agent.start(initial_prompt=f"keep-later {tmp_path / 'due'}")
        await until(events, "turn.finished")
        await anyio.wait_all_tasks_blocked()
        assert (agent.state, agent.is_between_turns) == ("working", False)
        (tmp_path / "due").touch()
        assert (await agent.wait()).state == "idle"
        assert agent.is_between_turns
        assert transcript(agent)[-1] == "kept later"


async def test_a_held_agent_is_between_turns_once_the_program_of_its_turn_has_exited(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, auto_continue=True) as agent, agent.events() as events:
        with agent.hold_turns():
            await agent.start(initial_prompt=f"keep-later {tmp_path / 'due'}")
            await until(events, "turn.finished")
            await anyio.wait_all_tasks_blocked()
            assert not agent.is_between_turns  # the program still writes its transcript
            (tmp_path / "due").touch()
            await until(events, "process.exited")
            assert agent.is_between_turns


async def test_an_agent_whose_log_is_full_continues_in_another_segment(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    limits = ProgramLimits(segment_bytes=1000, leave_timeout=5.0)
    async with opened(tmp_path, *flags, limits=limits) as agent, agent.events() as events:
        for turn in range(4):
            await agent.send(prompt=f"work {'x' * 900} use 5") if turn else await agent.start(
                initial_prompt=f"work {'x' * 900} use 5"
            )
            await until(events, "turn.finished")
        result = await agent.wait()
        assert (result.state, result.usage.turns, result.usage.tokens) == ("idle", 4, 20)
        await agent.stop()
    log = agent.dir / "logs" / "agent.log"
    segments = await anyio.to_thread.run_sync(list_segments, log)
    assert [segment.number for segment in segments] == [1, 2, 3, 4]
    for segment in segments:  # each has kept its own index
        entries = read_entries(index_path(segment.path).read_bytes())
        assert [entry.event for entry in entries if entry.event] == ["started", "exited"]
        assert entries[-1].size == segment.end - segment.start
    arrivals = LogArrivals(log)
    await anyio.to_thread.run_sync(arrivals.read_on)
    finished = records(agent, "turn.finished")
    for record in finished:
        arrived_at = arrivals.arrival(record["raw_offset"])
        assert arrived_at is not None
        assert records(agent)[0]["time"] <= arrived_at <= record["time"]
    # Output after the third turn is in the last segment.
    third, fourth = (record["raw_offset"] for record in finished[2:])
    found = arrivals.find_since(finished[2]["time"])
    assert found is not None
    assert third < found <= fourth
    lines = await anyio.to_thread.run_sync(lambda: [*read_lines(log)])
    said = {line.offset: json.loads(line.data or b"")["type"] for line in lines}
    for kind in ("usage", "turn.finished"):
        assert [said[record["raw_offset"]] for record in records(agent, kind)] == [kind] * 4
    starts = [record["raw_offset"] for record in records(agent, "process.started")]
    assert starts == sorted(set(starts))
    assert len(starts) == 4


async def test_the_turns_of_one_process_have_their_own_times_in_the_index(tmp_path: Path) -> None:
    async with opened(tmp_path, "loop") as agent, agent.events() as events:
        await agent.start(initial_prompt="work one")
        await until(events, "turn.finished")
        await agent.send(prompt="work two")
        await until(events, "turn.finished")
        await agent.stop()
    arrivals = LogArrivals(agent.dir / "logs" / "agent.log")
    await anyio.to_thread.run_sync(arrivals.read_on)
    finished = records(agent, "turn.finished")
    (process,) = records(agent, "process.started")
    begun = process["time"]
    for record in finished:
        arrived_at = arrivals.arrival(record["raw_offset"])
        assert arrived_at is not None
        assert datetime.fromisoformat(begun) <= datetime.fromisoformat(arrived_at) + EARLY
        assert arrived_at <= record["time"]
        begun = record["time"]


async def test_an_agent_whose_error_log_is_full_continues(tmp_path: Path) -> None:
    limits = ProgramLimits(segment_bytes=40)
    async with opened(tmp_path, limits=limits) as agent:
        assert (await run_to_end(agent, "mutter message work one")).state == "idle"
        await agent.send(prompt="mutter message work two")
        assert (await agent.wait()).state == "idle"
    errors = agent.dir / "logs" / "agent.stderr.log"
    assert len(await anyio.to_thread.run_sync(list_segments, errors)) == 2


async def test_a_program_that_does_not_read_never_blocks_the_orchestrator(tmp_path: Path) -> None:
    limits = ProgramLimits(confirm_timeout=0.2)
    async with opened(tmp_path, "loop", "unread", limits=limits) as agent:
        with pytest.raises(Exception, match="did not confirm its conversation"):
            await agent.start(initial_prompt="x" * (1 << 20))


async def test_a_successful_exit_within_a_turn_finishes_the_turn(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work end 0")
        assert (await agent.wait()).usage.turns == 1


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        pytest.param(Budget(turns=2), "budget of 2 turns used up", marks=pytest.mark.thorough),
        (Budget(tokens=100), "budget of 100 tokens used up"),
    ],
)
async def test_a_budget_stops_the_agent(tmp_path: Path, budget: Budget, reason: str) -> None:
    async with opened(tmp_path, "loop", auto_continue=True, budget=budget) as agent:
        await agent.start(initial_prompt=f"until {tmp_path / 'go'} use 60")
        await agent.send(prompt="use 60")
        (tmp_path / "go").touch()
        result = await agent.wait()
        assert (result.state, result.ended_by, result.reason) == ("stopped", "budget", reason)
        assert (result.usage.turns, result.usage.tokens) == (2, 120)
    assert records(agent, "limit")[0]["data"]["message"] == reason
    assert records(agent)[-1]["status"] == "stopped"


async def test_a_new_budget_applies_to_an_agent_that_works(tmp_path: Path) -> None:
    async with opened(tmp_path, "loop", auto_continue=True, budget=Budget(turns=9)) as agent:
        await agent.start(initial_prompt=f"until {tmp_path / 'go'}")
        agent.set_budget(Budget(turns=1))
        assert agent.budget == Budget(turns=1)
        (tmp_path / "go").touch()
        result = await agent.wait()
        assert (result.ended_by, result.usage.turns) == ("budget", 1)


async def test_a_new_budget_ends_an_idle_agent(tmp_path: Path, flags: tuple[str, ...]) -> None:
    async with opened(tmp_path, *flags) as agent:
        assert (await run_to_end(agent, "work")).ended_by is None
        async with agent.events() as events:
            agent.set_budget(Budget(turns=1))
            await until(events, "process.exited")
        assert (await agent.wait()).ended_by == "budget"


async def test_a_budget_set_before_the_start_replaces_the_original_budget(tmp_path: Path) -> None:
    async with opened(tmp_path, auto_continue=True, budget=Budget(turns=9)) as agent:
        agent.set_budget(Budget(turns=1))
        assert (await run_to_end(agent, "work")).reason == "budget of 1 turn used up"
        with pytest.raises(ConfigError, match="budget"):
            agent.set_budget({"turns": 1})  # type: ignore[arg-type]


async def test_a_stop_or_a_failure_is_not_reported_as_a_used_up_budget(tmp_path: Path) -> None:
    async with opened(tmp_path, max_restarts=0) as agent:
        assert (await run_to_end(agent, "crash 1")).ended_by == "failure"
        await agent.send(prompt="work")
        assert (await agent.stop()).ended_by == "request"


async def test_minutes_end_a_turn_too(tmp_path: Path) -> None:
    async with opened(tmp_path, budget=Budget(minutes=0.001)) as agent:
        result = await run_to_end(agent, "hang")
        assert result.reason == "budget of 0.001 minutes used up"


async def test_a_change_of_the_conversation_is_an_error(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        assert (await run_to_end(agent, "elsewhere")).state == "failed"
        assert isinstance(agent.failure, AgentResumeError)


async def test_a_defect_of_a_driver_loses_only_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SmallConversation.read

    def fail_at_messages(self, line):
        if b'"message"' in line:
            raise KeyError("a defect")
        return read(self, line)

    monkeypatch.setattr(SmallConversation, "read", fail_at_messages)
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work")
        assert (await agent.wait()).state == "idle"


async def test_the_end_of_one_agent_does_not_affect_another(tmp_path: Path) -> None:
    async with (
        opened(tmp_path / "a", max_restarts=0) as one,
        opened(tmp_path / "b") as other,
        other.events() as events,
    ):
        await other.start(initial_prompt="until " + str(tmp_path / "go"))
        assert (await run_to_end(one, "crash 1")).state == "failed"
        assert other.state == "working"
        (tmp_path / "go").touch()
        await until(events, "turn.finished")


@pytest.mark.thorough
async def test_output_that_is_slow_to_parse_does_not_delay_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, is_slow = SmallConversation.read, threading.Event()

    def read_slowly(self: SmallConversation, line: bytes) -> Sequence[DriverReport]:
        if is_slow.is_set():
            time.sleep(0.05)  # so that the rest would take minutes
        return read(self, line)

    monkeypatch.setattr(SmallConversation, "read", read_slowly)
    limits = ProgramLimits(drain_timeout=0.1)
    async with opened(tmp_path, limits=limits) as agent, agent.events() as events:
        await agent.start(initial_prompt="work one flood")
        await until(events, "message")
        is_slow.set()
        while agent._owner._attempt._reader.log_size() < 1 << 24:
            await anyio.sleep(0.01)
        assert (await agent.stop(grace_seconds=1)).state == "stopped"


async def test_an_agent_has_one_orchestrator(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="hang")
        async with opened(tmp_path) as other:
            with pytest.raises(Exception, match="another orchestrator runs it"):
                await other.send(prompt="work")
            assert other.state == "new"
            assert agent.state == "working"
            await agent.stop(grace_seconds=1)
            await other.send(prompt="work")


async def test_a_log_truncated_by_a_leftover_process_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = OutputReader.log_size
    monkeypatch.setattr(OutputReader, "log_size", lambda reader: size(reader) + 1000)
    with anyio.fail_after(HANG_S):
        async with opened(tmp_path) as agent:
            assert (await run_to_end(agent, "Begin")).state == "idle"


def _leave_a_daemon(small: SmallDriver) -> None:
    script = "setsid sleep 600 >/dev/null 2>&1 & echo small 1.0"
    small.version_argv = lambda binary: ("/bin/sh", "-c", script)  # type: ignore[method-assign]


async def test_background_process_of_a_version_command_ends_with_the_agent(
    tmp_path: Path, small: SmallDriver
) -> None:
    _leave_a_daemon(small)
    async with opened(tmp_path) as agent:
        await agent.start(initial_prompt="work hang")
        assert len(marked_processes()) == 2
        await agent.stop(grace_seconds=0)
        assert not marked_processes()


async def test_background_process_of_a_version_command_ends_with_a_check(
    tmp_path: Path, small: SmallDriver
) -> None:
    _leave_a_daemon(small)
    assert await make_agent(tmp_path).check() == "1.0"
    assert not marked_processes()
