"""Claude Code's driver: command lines, the private home, and lines that two versions wrote."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.agents.drivers.claude import ClaudeDriver
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.programs.program import project_slug
from clawblox.agents.values import Usage
from clawblox.concurrency.threads import Interruption
from clawblox.system.clock import format_utc, utc_now
from tests.agents.drivers.support import (
    FIRST,
    NEW_ID,
    OTHER_ID,
    RESUMED,
    build_setup,
    data_by_type,
    read_all,
    recorded_lines,
    types,
)

CLAUDE = ClaudeDriver()
VERSIONS = ["2.1.197", "2.1.330"]


@pytest.fixture
def directory(tmp_path) -> AgentDir:
    made = AgentDir(tmp_path / "rocky")
    made.workspace.mkdir(parents=True)
    return made


# The command line


def test_a_new_conversation_has_our_id_and_its_prompt_on_standard_input(directory):
    setup = build_setup(directory, is_root=True, model="opus")
    started = CLAUDE.invocation(setup, FIRST)
    assert shlex.join(started.argv) == (
        "/bin/program -p --input-format stream-json --output-format stream-json --verbose"
        f" --session-id {NEW_ID}"
        f" --append-system-prompt-file {directory.system_prompt_file}"
        " --model opus --permission-mode bypassPermissions"
        " --setting-sources user --strict-mcp-config"
    )
    assert started.has_stdin
    assert started.env["CLAUDE_CONFIG_DIR"] == str(directory.state)
    assert started.env["IS_SANDBOX"] == "1"
    conversation = CLAUDE.converse(setup, FIRST)
    [opening] = conversation.outgoing().splitlines()
    assert json.loads(opening)["message"] == {"role": "user", "content": "Begin"}
    assert conversation.outgoing() == b""


def test_a_conversation_is_continued_by_its_id_with_its_system_prompt(directory):
    argv = CLAUDE.invocation(build_setup(directory), RESUMED).argv
    assert argv[argv.index("--resume") + 1] == NEW_ID
    assert "--session-id" not in argv
    assert "--append-system-prompt-file" in argv
    assert not {"Go on", "Be kind."} & {*argv}


def test_only_root_gets_the_sandbox_variable(directory):
    assert "IS_SANDBOX" not in CLAUDE.invocation(build_setup(directory), FIRST).env


def test_options_of_a_start_reach_the_command_line(directory):
    setup = build_setup(
        directory,
        is_bare=True,
        permission_mode="plan",
        native_sandbox={"enableWeakerNestedSandbox": True},
        system_prompt="",
    )
    argv = CLAUDE.invocation(setup, FIRST).argv
    assert "--bare" in argv
    assert argv[argv.index("--permission-mode") + 1] == "plan"
    settings = directory.runtime / "claude_sandbox_settings.json"
    assert argv[argv.index("--settings") + 1] == str(settings)
    assert "--append-system-prompt-file" not in argv
    CLAUDE.prepare(setup, {})
    sandbox = json.loads(settings.read_text())["sandbox"]
    assert sandbox["enabled"] is sandbox["failIfUnavailable"] is True
    assert sandbox["allowUnsandboxedCommands"] is False
    assert sandbox["enableWeakerNestedSandbox"] is True


def test_a_message_is_one_line_for_any_content(directory):
    conversation = CLAUDE.converse(build_setup(directory), FIRST)
    conversation.outgoing()
    text = "two\nlines\r\u2028and \u00e9\U0001f41f \ud800"
    assert conversation.say(text)
    assert conversation.say("next")
    first, second = conversation.outgoing().splitlines()
    assert json.loads(first)["message"]["content"] == text
    assert json.loads(second)["message"]["content"] == "next"


# The private home


def test_every_question_is_answered_and_the_programs_own_state_is_kept(directory):
    directory.state.mkdir()
    written = {"userID": "u", "projects": {"/other": {"x": 1}, str(directory.workspace): {"y": 2}}}
    (directory.state / ".claude.json").write_text(json.dumps(written))
    (directory.state / "settings.json").write_text('{"hooks": {"Stop": ["the agent wrote this"]}}')
    key = "sk-canary-canary-canary-canary"
    for _ in range(2):
        CLAUDE.prepare(build_setup(directory), {"ANTHROPIC_API_KEY": key})
    state = json.loads((directory.state / ".claude.json").read_text())
    assert state == {
        "userID": "u",
        "hasCompletedOnboarding": True,
        "bypassPermissionsModeAccepted": True,
        "projects": {
            "/other": {"x": 1},
            str(directory.workspace): {"y": 2, "hasTrustDialogAccepted": True},
        },
    }
    settings = (directory.state / "settings.json").read_text()
    assert "hooks" not in settings
    assert key[-5:] not in settings + json.dumps(state)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"projects": []}'])
def test_an_unreadable_state_file_is_replaced(directory, content):
    directory.state.mkdir()
    (directory.state / ".claude.json").write_bytes(content)
    CLAUDE.prepare(build_setup(directory), {})
    state = json.loads((directory.state / ".claude.json").read_text())
    assert state["projects"] == {str(directory.workspace): {"hasTrustDialogAccepted": True}}


def test_a_workspace_behind_a_link_is_trusted_under_its_real_path(tmp_path):
    (tmp_path / "real" / "workspace").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    directory = AgentDir(tmp_path / "link")
    CLAUDE.prepare(build_setup(directory), {})
    state = json.loads((directory.state / ".claude.json").read_text())
    assert [*state["projects"]] == [str(tmp_path / "real" / "workspace")]


# Places of conversations


def write_conversation(directory: AgentDir, slug: str, conversation_id: str = NEW_ID) -> None:
    project = directory.state / "projects" / slug
    (project / conversation_id / "subagents").mkdir(parents=True)
    (project / "memory").mkdir(exist_ok=True)
    (project / f"{conversation_id}.jsonl").write_text("{}\n")
    (project / conversation_id / "subagents" / "agent-a.jsonl").write_text("{}\n")
    (project / "memory" / "notes.md").write_text(slug)


def files_below(path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize("workspace", [None, SANDBOX_WORKSPACE])
def test_a_conversation_is_moved_to_the_project_of_its_workspace(directory, workspace):
    write_conversation(directory, "-home-someone-else")
    setup = build_setup(directory, workspace=workspace or directory.workspace)
    expected = project_slug(str(setup.workspace))
    for _ in range(2):
        CLAUDE.adopt(setup, NEW_ID, Interruption())
        projects = directory.state / "projects"
        assert [path.name for path in projects.iterdir()] == [expected]
        assert files_below(projects / expected) == {
            f"{NEW_ID}.jsonl",
            f"{NEW_ID}/subagents/agent-a.jsonl",
            "memory/notes.md",
        }
        found = CLAUDE.transcripts(directory)
        assert found == {NEW_ID: projects / expected / f"{NEW_ID}.jsonl"}


def test_moving_a_conversation_keeps_newer_files_at_the_destination(directory):
    setup = build_setup(directory)
    here = project_slug(str(directory.workspace))
    write_conversation(directory, here, OTHER_ID)
    write_conversation(directory, "-old")
    CLAUDE.adopt(setup, NEW_ID, Interruption())
    project = directory.state / "projects" / here
    assert {*CLAUDE.transcripts(directory).values()} == {
        project / f"{NEW_ID}.jsonl",
        project / f"{OTHER_ID}.jsonl",
    }
    assert (project / "memory" / "notes.md").read_text() == here


def test_no_file_is_moved_for_a_missing_conversation(directory):
    CLAUDE.adopt(build_setup(directory), NEW_ID, Interruption())
    assert CLAUDE.transcripts(directory) == {}


# Recorded lines of versions


@pytest.mark.parametrize("version", VERSIONS)
def test_two_turns_and_a_resume_are_reported(directory, version):
    lines = recorded_lines(f"claude-{version}.jsonl")
    conversation = CLAUDE.converse(build_setup(directory), FIRST)
    reports = read_all(conversation, lines)
    turn = ["turn.started", "message", "usage", "turn.finished"]
    assert types(reports) == [
        "session.confirmed",
        *["turn.started", "tool.called", "tool.returned", *turn[1:]],
        *turn,
        *turn,  # a resume begins like any other turn
    ]
    conversation_id = json.loads(lines[0])["session_id"]
    confirmed = {"session_id": conversation_id, "version": version, "model": "claude-sonnet-4-5"}
    assert reports[0].data == confirmed
    [called] = data_by_type(reports, "tool.called")
    assert (called["name"], called["arguments"]["command"]) == ("Bash", "echo hi-there")
    [returned] = data_by_type(reports, "tool.returned")
    assert returned == {"id": called["id"], "content": "hi-there", "is_error": False}
    finished = [*data_by_type(reports, "turn.finished")]
    assert finished == [{"ok": True, "text": "I have noted that."}] * 3


@pytest.mark.parametrize(
    ("version", "scope", "resumed_cost"),
    [("2.1.197", "process", 18e-6), ("2.1.330", "session", 72e-6)],
)
def test_tokens_are_per_turn_and_the_scope_of_costs_depends_on_the_version(
    directory, version, scope, resumed_cost
):
    conversation = CLAUDE.converse(build_setup(directory), FIRST)
    readings = read_all(conversation, recorded_lines(f"claude-{version}.jsonl"))
    readings = [*data_by_type(readings, "usage")]
    assert {reading["scope"] for reading in readings} == {"turn"}
    assert {reading["cost_scope"] for reading in readings} == {scope}
    counts = [(each["usage"].input_tokens, each["usage"].output_tokens) for each in readings]
    assert counts == [(2, 2), (1, 1), (1, 1)]
    assert readings[-1]["usage"].cost_usd == pytest.approx(resumed_cost)


@pytest.mark.parametrize(
    ("version", "scope"),
    [
        ("2.1.276", "process"),
        ("2.1.277", "session"),
        ("2.1.300 (Claude Code)", "session"),
        ("3.0.0", "session"),
        ("", "cumulative"),
        ("nightly", "cumulative"),
    ],
)
def test_the_version_determines_the_scope_of_a_cost(directory, version, scope):
    assert CLAUDE.cost_scope(version) == scope


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("You've hit your limit · resets 2:53am (UTC)", 429),
        ("You've hit your weekly limit · resets Oct 9, 5pm (UTC)", None),
        ("Credit balance is too low", 400),
    ],
)
def test_a_used_up_allowance_is_a_limit_without_an_end_for_any_status(directory, text, status):
    failed = {"type": "result", "subtype": "success", "is_error": True, "result": text}
    report = CLAUDE.explain_record({**failed, "api_error_status": status})
    assert report.data["kind"] == "limit"
    assert "resets_at" not in report.data


@pytest.mark.parametrize("version", VERSIONS)
def test_failures_have_their_kind_even_if_the_program_reports_success(directory, version):
    lines = recorded_lines(f"claude-{version}-failures.jsonl")
    conversation = CLAUDE.converse(build_setup(directory), FIRST)
    reports = read_all(conversation, lines[:-1])
    errors = [*data_by_type(reports, "error")]
    assert [(error["kind"], error.get("status")) for error in errors] == [
        ("invalid", 400),
        ("auth", 401),
        ("model", 404),
        ("rate_limit", 429),
        ("overloaded", 529),
        ("auth", None),
    ]
    assert "Not logged in" in errors[-1]["message"]
    assert not any(data["ok"] for data in data_by_type(reports, "turn.finished"))
    assert "message" not in types(reports)
    retries = [*data_by_type(reports, "retry")]
    assert [retry["status"] for retry in retries] == [401, 429, 529]
    assert all(0.4 < retry["delay_s"] < 1 for retry in retries)
    assert retries[0]["attempt"] == retries[0]["max_attempts"] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_conversation_is_not_confirmed_by_its_echoed_id(directory, version):
    line = recorded_lines(f"claude-{version}-failures.jsonl")[-1]
    assert b"session_id" in line
    [report] = CLAUDE.converse(build_setup(directory), RESUMED).read(line)
    assert (report.type, report.data["kind"]) == ("error", "resume")
    assert CLAUDE.explain(["noise", line.decode()]) == report


def test_another_id_in_the_same_process_is_reported(directory):
    conversation = CLAUDE.converse(build_setup(directory), FIRST)
    init = {"type": "system", "subtype": "init"}
    lines = [json.dumps({**init, "session_id": each}).encode() for each in (NEW_ID, OTHER_ID)]
    confirmed = data_by_type(read_all(conversation, lines), "session.confirmed")
    assert [data["session_id"] for data in confirmed] == [NEW_ID, OTHER_ID]


def read_one(directory: AgentDir, record: dict) -> list[tuple[str, dict]]:
    conversation = CLAUDE.converse(build_setup(directory), FIRST)
    conversation.read(json.dumps({"type": "system", "subtype": "init", "session_id": "s"}).encode())
    reports = conversation.read(json.dumps(record).encode())
    return [(report.type, dict(report.data)) for report in reports]


def test_less_common_lines_are_reported(directory):
    thinking = {"content": [{"type": "thinking", "thinking": "hm"}]}
    assert read_one(directory, {"type": "assistant", "message": thinking}) == [
        ("reasoning", {"text": "hm"})
    ]
    content = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    block = {"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": True}
    assert read_one(directory, {"type": "user", "message": {"content": [block]}}) == [
        ("tool.returned", {"id": "t", "content": "a\n[image]\nb", "is_error": True})
    ]
    in_an_hour = utc_now() + timedelta(hours=1)
    resets_at = int(in_an_hour.timestamp())
    rejected = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
    [(kind, data)] = read_one(directory, {"type": "rate_limit_event", "rate_limit_info": rejected})
    assert (kind, data["kind"]) == ("limit", "five_hour")
    assert data["resets_at"] == format_utc(in_an_hour)
    assert data["resets_at"] in data["message"]
    allowed = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}
    assert read_one(directory, allowed) == []
    assert read_one(directory, {"type": "assistant", "parent_tool_use_id": "t"}) == []
    spent = {"type": "result", "subtype": "error_max_turns", "is_error": True, "usage": {}}
    (_, usage), limit, finished = read_one(directory, spent)
    assert usage["usage"] == Usage()
    assert limit[0] == "limit"
    assert limit[1]["kind"] == "turns"
    assert finished == ("turn.finished", {"ok": False, "text": ""})


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)
TYPES = st.sampled_from(["system", "assistant", "user", "result", "rate_limit_event", "new"])
KEYS = st.sampled_from(
    [
        "subtype",
        "session_id",
        "message",
        "usage",
        "errors",
        "result",
        "error",
        "content",
        "is_error",
        "rate_limit_info",
    ]
)


@pytest.mark.thorough
@settings(max_examples=40)
@given(TYPES, st.dictionaries(KEYS, VALUES | st.sampled_from(["init", "api_retry"])))
def test_arbitrary_lines_never_raise_an_error(kind, record):
    conversation = ClaudeDriver().converse(build_setup(AgentDir(SANDBOX_WORKSPACE)), FIRST)
    line = json.dumps({"type": kind, **record}).encode()
    for each in (line, line[:-1], b"[" * 100_000, b"{" * 10, b"\xff\x00", line):
        conversation.read(each)
    CLAUDE.explain([line.decode(), "", "{"])


# Checks


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("2.1.330 (Claude Code)\n", None),
        ("2.0.14 (Claude Code)", r"2\.0\.14 .* is too old"),
        ("bash: no such thing", "does not print a version"),
        ("", "does not print a version"),
    ],
)
def test_an_unusable_version_is_named_with_a_hint(directory, version, problem):
    found = CLAUDE.check(build_setup(directory), {"ANTHROPIC_API_KEY": "k"}, version)
    if problem is None:
        assert found == []
    else:
        [requirement] = found
        assert_matches(requirement, problem, "npm install .*Node 22.*Node 20, npm installs 2.1.197")


def assert_matches(requirement, problem: str, hint: str) -> None:
    assert re.search(problem, requirement.problem), requirement
    assert re.search(hint, requirement.hint), requirement


@pytest.mark.parametrize(
    ("env", "is_bare", "hint"),
    [
        ({"CLAUDE_CODE_OAUTH_TOKEN": "t"}, False, None),
        ({"ANTHROPIC_AUTH_TOKEN": "t"}, True, None),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, False, None),
        ({"ANTHROPIC_API_KEY": ""}, False, "claude setup-token"),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "t"}, True, "with bare=True .* does not read"),
    ],
)
def test_a_missing_login_is_named_with_a_hint(directory, env, is_bare, hint):
    found = CLAUDE.check(build_setup(directory, is_bare=is_bare), env, "2.1.330")
    assert len(found) == (hint is not None)
    for requirement in found:
        assert_matches(requirement, "may not be logged in", hint)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"No conversation found with session ID: {NEW_ID}", "resume"),
        (f"Error: Session ID {NEW_ID} is already in use.", "resume"),
        ("error: option '--permission-mode <mode>' argument 'x' is invalid.", "invalid"),
        ("--dangerously-skip-permissions cannot be used with root/sudo privileges", "invalid"),
        ("Invalid API key \u00b7 Please run /login", "auth"),
        ("what a nice day", None),
    ],
)
def test_a_failure_is_explained_by_the_last_lines(line, kind):
    report = CLAUDE.explain(["begin", line, ""])
    assert (report.data["kind"] if report else None) == kind
    assert report is None or report.data["message"] == line
