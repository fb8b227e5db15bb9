"""The stand-in for Codex behaves like the program."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.agents.standins import told
from tests.agents.standins.running import CODEX, Ended, StandIn, new_id
from tests.support.processes import live_processes
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.thorough


@pytest.fixture
def codex(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, "codex")


def thread(ended: Ended) -> str:
    [started] = ended.of("thread.started")
    return started["thread_id"]


def rollouts(codex: StandIn) -> list[Path]:
    return sorted(codex.state.glob("sessions/*/*/*/rollout-*.jsonl"))


def test_a_turn_has_the_format_of_the_real_program(codex: StandIn) -> None:
    ended = codex.run(*CODEX, "RUN echo hello")
    assert ended.status == 0
    assert [record["type"] for record in ended.records] == [
        "thread.started",
        "item.completed",
        "turn.started",
        "item.started",
        "item.completed",
        "item.completed",
        "turn.completed",
    ]
    items = [record["item"] for record in ended.of("item.completed")]
    kinds = [item["type"] for item in items]
    assert kinds == ["error", "command_execution", "agent_message"]
    assert items[1]["aggregated_output"] == "hello\n"
    [rollout] = rollouts(codex)
    assert rollout.stem.endswith(thread(ended))
    assert "Reading additional input from stdin..." in ended.errors


def test_a_continued_thread_keeps_its_instructions_and_its_count(codex: StandIn) -> None:
    first = codex.run(*CODEX, "-c", 'developer_instructions="S"', "one")
    again = codex.run(*CODEX, "resume", thread(first), "WHO", cwd=codex.home)
    assert thread(again) == thread(first)
    [rollout] = rollouts(codex)
    assert told(rollout) == ["one", "WHO"]
    answer = again.of("item.completed")[-1]["item"]["text"]
    assert json.loads(answer) == {"system": "S", "told": ["one", "WHO"]}
    used = [ended.of("turn.completed")[0]["usage"]["input_tokens"] for ended in (first, again)]
    assert used[1] == 2 * used[0]


def test_an_unknown_thread_is_refused_without_an_event(codex: StandIn) -> None:
    session = new_id()
    ended = codex.run(*CODEX, "resume", session, "x")
    assert (ended.status, ended.output) == (1, "")
    assert f"no rollout found for thread id {session}" in ended.errors


def test_an_invalid_id_starts_a_new_thread_silently(codex: StandIn) -> None:
    first = codex.run(*CODEX, "one")
    ended = codex.run(*CODEX, "resume", "not-an-id", "two")
    assert ended.status == 0
    assert thread(ended) != thread(first)


def test_an_empty_rollout_is_refused(codex: StandIn) -> None:
    first = codex.run(*CODEX, "one")
    rollouts(codex)[0].write_bytes(b"")
    ended = codex.run(*CODEX, "resume", thread(first), "x")
    assert (ended.status, ended.output) == (1, "")
    assert "is empty (code -32603)" in ended.errors


def test_a_torn_line_is_repaired(codex: StandIn) -> None:
    first = codex.run(*CODEX, "one")
    codex.misbehave(torn={"times": 1})
    assert codex.run(*CODEX, "resume", thread(first), "two").status == 1
    assert not rollouts(codex)[0].read_bytes().endswith(b"\n")
    codex.run(*CODEX, "resume", thread(first), "three")
    assert told(rollouts(codex)[0]) == ["one", "two", "three"]


def test_a_pipe_on_standard_input_is_read_to_its_end(codex: StandIn) -> None:
    with codex.started(*CODEX, "x", stdin=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stdin is not None
        assert any("Reading additional input" in line for line in process.stderr)
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(HANG_S) == 0
    assert codex.run(*CODEX, "x", stdin="more\n").status == 0
    assert told(rollouts(codex)[-1])[-1] == "x\n\n<stdin>\nmore\n</stdin>"


def test_a_directory_without_a_repository_is_refused(codex: StandIn) -> None:
    ended = codex.run("exec", "--json", "x")
    assert (ended.status, ended.output) == (1, "")
    assert "--skip-git-repo-check was not specified." in ended.errors


@pytest.mark.parametrize("flags", [["--frobnicate", "x"], ["resume", "-s", "read-only", "x"]])
def test_an_unknown_flag_is_refused(codex: StandIn, flags: list[str]) -> None:
    ended = codex.run("exec", *flags)
    assert (ended.status, ended.output) == (2, "")
    assert "error: unexpected argument" in ended.errors


def test_a_missing_home_is_refused(codex: StandIn) -> None:
    codex.state.rmdir()
    ended = codex.run(*CODEX, "x")
    assert (ended.status, ended.output) == (1, "")
    assert "that path does not exist" in ended.errors


@pytest.mark.parametrize(
    ("status", "attempts"),
    [
        (400, 0),
        (401, 5),
        *(pytest.param(*row, marks=pytest.mark.thorough) for row in ((403, 5), (429, 0), (500, 5))),
    ],
)
def test_an_error_of_the_model_fails_the_turn(codex: StandIn, status: int, attempts: int) -> None:
    codex.misbehave(api_error=status)
    ended = codex.run(*CODEX, "x")
    assert ended.status == 1
    assert [record["type"] for record in ended.records[-2:]] == ["error", "turn.failed"]
    tries = [record for record in ended.of("error") if "Reconnecting" in record["message"]]
    assert len(tries) == attempts


def test_term_ends_the_program_and_its_tool(codex: StandIn) -> None:
    told_pid = codex.workspace / "pid"
    command = "RUN echo $$ > pid; exec sleep 600"
    with codex.started(*CODEX, command) as process:
        tool = int(wait_until(lambda: told_pid.exists() and told_pid.read_text()))
        process.terminate()
        assert process.wait(HANG_S) == -signal.SIGTERM
    wait_until(lambda: tool not in live_processes())


def test_another_thread_is_started_if_configured(codex: StandIn) -> None:
    first = codex.run(*CODEX, "one")
    codex.misbehave(wrong_id=True)
    ended = codex.run(*CODEX, "resume", thread(first), "two")
    assert ended.status == 0
    assert thread(ended) != thread(first)


def test_the_version_is_printed(codex: StandIn) -> None:
    assert codex.run("--version").output == "codex-cli 0.169.0\n"


def test_prompt_comes_from_standard_input_and_instructions_from_the_home(
    codex: StandIn,
) -> None:
    (codex.state / "config.toml").write_text('developer_instructions = "S"\n')
    first = codex.run(*CODEX, "-", stdin="WHO")
    answer = first.of("item.completed")[-1]["item"]["text"]
    assert json.loads(answer) == {"system": "S", "told": ["WHO"]}
    assert thread(codex.run(*CODEX, "resume", thread(first), "-", stdin="two")) == thread(first)
    assert told(rollouts(codex)[0]) == ["WHO", "two"]
    nothing = codex.run(*CODEX)
    assert (nothing.status, nothing.output) == (1, "")
    assert nothing.errors.endswith("No prompt provided via stdin.\n")
