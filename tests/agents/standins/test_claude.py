"""The stand-in for Claude Code behaves like the program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.agents.standins import ANSWER, hold, left_behind, read_dumps, told
from tests.agents.standins.running import CLAUDE, StandIn, new_id, say
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.thorough


LATER = "2.1.330"


def thorough(status: int) -> object:
    return pytest.param(status, 10, marks=pytest.mark.thorough)


@pytest.fixture(params=[None, pytest.param(LATER, marks=pytest.mark.thorough)])
def claude(request: pytest.FixtureRequest, tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, "claude", request.param)


@pytest.fixture
def old(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, "claude")


def transcript(standin: StandIn, session: str) -> Path:
    [path] = standin.state.glob(f"projects/*/{session}.jsonl")
    return path


def test_a_turn_has_the_format_of_the_real_program(claude: StandIn) -> None:
    session = new_id()
    ended = claude.run("-p", "RUN echo hello", *CLAUDE, "--session-id", session)
    assert (ended.status, ended.errors) == (0, "")
    kinds = [record["type"] for record in ended.records]
    assert kinds == ["system", "assistant", "user", "assistant", "result"]
    assert {record["session_id"] for record in ended.records} == {session}
    [init] = ended.of("system")
    assert (init["subtype"], init["cwd"]) == ("init", str(claude.workspace))
    [user] = ended.of("user")
    assert user["message"]["content"][0]["content"] == "hello"
    [result] = ended.of("result")
    assert (result["subtype"], result["is_error"], result["result"]) == ("success", False, ANSWER)
    assert [each["message"]["usage"]["output_tokens"] for each in ended.of("assistant")] == [1, 1]
    assert result["usage"]["output_tokens"] == 10
    bucket = re.sub("[^a-zA-Z0-9]", "-", str(claude.workspace))
    assert transcript(claude, session).parent.name == bucket


def test_a_conversation_is_continued_by_its_id(claude: StandIn) -> None:
    session = new_id()
    claude.run("-p", "one", *CLAUDE, "--session-id", session)
    ended = claude.run("-p", "two", *CLAUDE, "--resume", session)
    assert ended.of("system")[0]["session_id"] == session
    assert told(transcript(claude, session)) == ["one", "two"]
    parents = [
        record["parentUuid"]
        for record in map(json.loads, transcript(claude, session).read_text().splitlines())
        if "parentUuid" in record
    ]
    assert parents.count(None) == 1, "one chain of records"


def test_the_later_version_counts_cost_per_conversation(tmp_path: Path) -> None:
    for version, costs in ((None, [0.001, 0.001]), (LATER, [0.001, 0.002])):
        (tmp_path / str(version)).mkdir()
        claude, session = StandIn(tmp_path / str(version), "claude", version), new_id()
        ends = [
            claude.run("-p", "x", *CLAUDE, "--session-id", session),
            claude.run("-p", "x", *CLAUDE, "--resume", session),
        ]
        assert [ended.of("result")[0]["total_cost_usd"] for ended in ends] == costs


def test_only_the_later_version_continues_from_another_directory(tmp_path: Path) -> None:
    for version, status in ((None, 1), (LATER, 0)):
        (tmp_path / str(version)).mkdir()
        claude, session = StandIn(tmp_path / str(version), "claude", version), new_id()
        claude.run("-p", "x", *CLAUDE, "--session-id", session)
        elsewhere = claude.home
        assert claude.run("-p", "y", *CLAUDE, "--resume", session, cwd=elsewhere).status == status
        assert told(transcript(claude, session)) == ["x", "y"][: 2 - status]


def test_messages_during_a_turn_are_answered_by_one_further_turn(
    claude: StandIn,
) -> None:
    session = new_id()
    arguments = ("-p", "left out", "--input-format", "stream-json", *CLAUDE)
    ended = claude.run(*arguments, "--session-id", session, stdin=say("a", "b", "c"))
    assert ended.status == 0
    assert [record["type"] for record in ended.records] == ["system", "assistant", "result"] * 2
    assert told(transcript(claude, session)) == ["a", "b\nc"]
    silent = claude.run(*arguments, "--session-id", new_id(), stdin="")
    assert (silent.status, silent.output, silent.errors) == (0, "", "")


REFUSALS = {
    "Error: Invalid session ID. Must be a valid UUID.": ["--session-id", "x"],
    "error: unknown option '--frobnicate'": ["--frobnicate"],
    "error: option '--permission-mode <mode>' argument 'x' is invalid.": [
        "--permission-mode",
        "x",
    ],
}


@pytest.mark.parametrize("words", REFUSALS)
def test_a_bad_command_line_is_refused(old: StandIn, words: str) -> None:
    ended = old.run("-p", "x", *CLAUDE, *REFUSALS[words])
    assert (ended.status, ended.output) == (1, "")
    assert ended.errors.startswith(words)


def test_an_unknown_conversation_is_refused_with_a_result_that_has_its_id(
    claude: StandIn,
) -> None:
    session = new_id()
    ended = claude.run("-p", "x", *CLAUDE, "--resume", session)
    assert ended.status == 1
    assert ended.errors == f"No conversation found with session ID: {session}\n"
    [result] = ended.records
    assert (result["subtype"], result["session_id"]) == ("error_during_execution", session)
    bucket = claude.state / "projects" / re.sub("[^a-zA-Z0-9]", "-", str(claude.workspace))
    bucket.mkdir(parents=True, exist_ok=True)
    (bucket / f"{session}.jsonl").touch()
    ended = claude.run("-p", "x", *CLAUDE, "--resume", session)
    assert (ended.status, len(ended.records)) == (1, 1), "an empty transcript cannot be resumed"


def test_a_conversation_id_cannot_be_used_twice(claude: StandIn) -> None:
    session = new_id()
    claude.run("-p", "x", *CLAUDE, "--session-id", session)
    again = claude.run("-p", "x", *CLAUDE, "--session-id", session)
    assert again.errors == f"Error: Session ID {session} is already in use.\n"
    both = claude.run("-p", "x", *CLAUDE, "--session-id", new_id(), "--resume", session)
    assert (both.status, both.output) == (1, "")
    assert "--fork-session" in both.errors


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused")
@pytest.mark.parametrize("value", [None, pytest.param("true", marks=pytest.mark.thorough), "yes"])
def test_root_may_not_bypass_permissions_outside_a_sandbox(old: StandIn, value: str | None) -> None:
    del old.env["IS_SANDBOX"]
    old.env |= {"IS_SANDBOX": value} if value else {}
    ended = old.run("-p", "x", *CLAUDE)
    assert (ended.status, ended.output) == (1, "")
    assert ended.errors.startswith("--dangerously-skip-permissions cannot be used with root/sudo")


def test_an_interrupted_turn_is_marked_as_interrupted(tmp_path: Path) -> None:
    for version, added in ((None, ["Continue from where you left off."]), (LATER, [])):
        (tmp_path / str(version)).mkdir()
        claude, session = StandIn(tmp_path / str(version), "claude", version), new_id()
        claude.misbehave(crash_at_turn={"signal": 9, "times": 1})
        assert claude.run("-p", "one", *CLAUDE, "--session-id", session).status == -9
        claude.run("-p", "two", *CLAUDE, "--resume", session)
        assert told(transcript(claude, session)) == ["one", *added, "two"]
        assert "No response requested." in transcript(claude, session).read_text()


def test_a_torn_line_destroys_the_next_record(old: StandIn) -> None:
    session = new_id()
    old.run("-p", "one", *CLAUDE, "--session-id", session)
    old.misbehave(torn={"times": 1})
    assert old.run("-p", "two", *CLAUDE, "--resume", session).status == 1
    assert not transcript(old, session).read_bytes().endswith(b"\n")
    old.run("-p", "three", *CLAUDE, "--resume", session)
    lines = transcript(old, session).read_text().splitlines()
    assert sum("torn" in line and "enqueue" in line for line in lines) == 1


@pytest.mark.parametrize(("status", "attempts"), [(400, 0), (529, 10), *map(thorough, [401, 429])])
def test_an_error_of_the_model_is_a_success_that_is_an_error(
    old: StandIn, status: int, attempts: int
) -> None:
    old.misbehave(api_error=status)
    ended = old.run("-p", "x", *CLAUDE)
    assert ended.status == 1
    [result] = ended.of("result")
    assert (result["subtype"], result["is_error"]) == ("success", True)
    assert result["api_error_status"] == status
    retries = [record for record in ended.of("system") if record["subtype"] == "api_retry"]
    assert [record["attempt"] for record in retries] == list(range(1, attempts + 1))


def test_a_key_is_needed_only_if_configured(old: StandIn) -> None:
    assert old.run("-p", "x", *CLAUDE).status == 0
    old.misbehave(needs_login=True)
    ended = old.run("-p", "x", *CLAUDE)
    assert ended.of("result")[0]["result"] == "Not logged in · Please run /login"
    old.env["CLAUDE_CODE_OAUTH_TOKEN"] = "token"
    assert old.run("-p", "x", *CLAUDE).status == 0


def test_term_ends_the_program_immediately_but_not_its_tool(old: StandIn) -> None:
    told_pid = old.workspace / "pid"
    with old.started("-p", "RUN echo $$ > pid; exec sleep 600", *CLAUDE) as process:
        wait_until(lambda: told_pid.exists() and told_pid.read_text())
        process.terminate()
        assert process.wait(HANG_S) == 143
    tool = int(told_pid.read_text())
    assert os.getsid(tool) == tool
    os.kill(tool, signal.SIGKILL)


def test_term_is_ignored_if_configured(old: StandIn) -> None:
    old.misbehave(ignore_term=True, silent_at_session=True, leave_behind=2)
    with old.started("-p", "x", *CLAUDE) as process:
        assert process.stdout is not None
        assert "init" in process.stdout.readline()
        process.terminate()
        ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        assert ignored
        assert int(ignored[1], 16) & 1 << signal.SIGTERM - 1
        assert process.poll() is None


def test_background_processes_lead_sessions_of_their_own(old: StandIn) -> None:
    old.misbehave(leave_behind=2)
    assert old.run("-p", "x", *CLAUDE).status == 0
    left = left_behind(old.workspace)
    assert [os.getsid(pid) for pid in left] == left
    assert len(left) == 2
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_a_held_turn_does_not_end(old: StandIn) -> None:
    arguments = ("-p", "--input-format", "stream-json", *CLAUDE)
    with old.started(*arguments, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with hold(old.workspace):
            process.stdin.write(say("x"))
            process.stdin.flush()
            assert "init" in process.stdout.readline()
        assert "assistant" in process.stdout.readline()
        assert "result" in process.stdout.readline()
        process.stdin.close()
        assert process.wait(HANG_S) == 0


def test_a_line_can_be_oversized_and_output_endless(old: StandIn) -> None:
    old.misbehave(oversize=3_000_000)
    assert max(map(len, old.run("-p", "x", *CLAUDE).output.splitlines())) > 3_000_000
    old.misbehave(endless=True)
    with old.started("-p", "x", *CLAUDE) as process:
        assert process.stdout is not None
        assert all("session_id" in process.stdout.readline() for _ in range(1_000))
        process.terminate()
        assert process.wait(HANG_S) == 143


def test_arguments_and_environment_are_dumped(old: StandIn) -> None:
    old.misbehave(dump=True, exit_at_start=True)
    ended = old.run("-p", "x", *CLAUDE)
    assert (ended.status, ended.output) == (0, "")
    [dumped] = read_dumps(old.workspace)
    assert dumped["argv"][1:3] == ["-p", "x"]
    assert dumped["environ"] == old.env
    assert (dumped["stdin"], dumped["cwd"]) == ("null", str(old.workspace))


def test_another_conversation_is_continued_if_configured(claude: StandIn) -> None:
    session = new_id()
    claude.run("-p", "x", *CLAUDE, "--session-id", session)
    claude.misbehave(wrong_id=True)
    ended = claude.run("-p", "y", *CLAUDE, "--resume", session)
    assert ended.status == 0
    assert ended.of("system")[0]["session_id"] != session


def test_the_version_is_printed(claude: StandIn) -> None:
    assert claude.run("--version").output in ("2.1.197 (Claude Code)\n", f"{LATER} (Claude Code)\n")


def test_an_answer_contains_system_prompt_and_messages(old: StandIn) -> None:
    session = new_id()
    old.run("-p", "one", *CLAUDE, "--session-id", session)
    ended = old.run("-p", "WHO", *CLAUDE, "--resume", session, "--append-system-prompt", "S")
    answer = json.loads(ended.of("result")[0]["result"])
    assert answer == {"system": "S", "told": ["one", "WHO"]}
