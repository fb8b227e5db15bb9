"""Codex's driver: command lines, the private home, and lines that version 0.169 wrote."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tomllib
import uuid
from datetime import datetime, timedelta
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.drivers.codex import CodexDriver
from clawblox.agents.drivers.driver import Fork
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.values import Usage
from clawblox.concurrency.threads import Interruption
from clawblox.errors import AgentResumeError
from clawblox.system.clock import utc_now
from tests.agents.drivers.support import (
    FIRST,
    NEW_ID,
    PLACES,
    RESUMED,
    build_setup,
    data_by_type,
    read_all,
    recorded_lines,
    types,
)

CODEX = CodexDriver()
THREAD = "01a20307-2076-73e0-99e2-0b123811abc1"
KEY = {"CODEX_API_KEY": "not-a-key"}


@pytest.fixture
def directory(tmp_path) -> AgentDir:
    made = AgentDir(tmp_path / "rocky")
    made.workspace.mkdir(parents=True)
    return made


def settings(directory: AgentDir, env: dict[str, str] = KEY, **more) -> dict:
    CODEX.prepare(build_setup(directory, **more), env)
    return tomllib.loads((directory.state / "config.toml").read_text())


def reports(*lines: bytes) -> list:
    return read_all(CODEX.converse(None, FIRST), [*lines])


# The command line


def test_the_prompt_is_passed_on_standard_input_only(directory):
    setup = build_setup(directory, model="gpt-5")
    begun = CODEX.invocation(setup, FIRST)
    assert begun.argv == (
        *("/bin/program", "exec", "--json", "--skip-git-repo-check"),
        "--dangerously-bypass-approvals-and-sandbox",
        *("--model", "gpt-5", "-"),
    )
    assert begun.input == b"Begin"
    assert not begun.has_stdin
    assert begun.env == {"CODEX_HOME": str(directory.state)}
    resumed = CODEX.invocation(setup, RESUMED)
    assert resumed.argv == (*begun.argv[:-1], "resume", NEW_ID, "-")
    assert resumed.input == b"Go on"


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        (None, ("--dangerously-bypass-approvals-and-sandbox",)),
        ("bypassPermissions", ("--dangerously-bypass-approvals-and-sandbox",)),
        ("danger-full-access", ("--dangerously-bypass-approvals-and-sandbox",)),
        ("workspace-write", ("--sandbox", "workspace-write")),
        ("read-only", ("--sandbox", "read-only")),
    ],
)
def test_a_permission_mode_is_an_option_before_resume(directory, mode, options):
    setup = build_setup(directory, permission_mode=mode)
    assert CODEX.check(setup, KEY, "codex-cli 0.169.0") == []
    argv = CODEX.invocation(setup, RESUMED).argv
    assert argv[4 : argv.index("resume")] == options


# The check


def test_an_unknown_permission_mode_is_named(directory):
    setup = build_setup(directory, permission_mode="plan")
    assert CODEX.invocation(setup, FIRST).argv  # the version is determined before the check
    [missing] = CODEX.check(setup, KEY, "codex-cli 0.169.0")
    assert "'plan'" in missing.problem
    assert "workspace-write" in missing.hint


@pytest.mark.parametrize("version", ["", "v20.1.0", "codex-cli 0.127.9", "codex-cli"])
def test_another_program_or_an_old_version_is_refused(directory, version):
    [missing] = CODEX.check(build_setup(directory), KEY, version)
    assert "0.128" in missing.problem or "does not print" in missing.problem
    assert "@openai/codex" in missing.hint


@pytest.mark.parametrize("places", PLACES)
def test_a_login_is_a_key_or_the_file_of_codex_login(directory, places):
    setup = build_setup(directory, **places)
    [missing] = CODEX.check(setup, {"ANTHROPIC_API_KEY": "k"}, "codex-cli 0.169.0")
    assert "CODEX_API_KEY" in missing.problem
    assert f"CODEX_HOME={directory.state} " in missing.hint
    assert CODEX.check(setup, {"OPENAI_API_KEY": "k"}, "codex-cli 0.169.0") == []
    directory.state.mkdir()
    (directory.state / "auth.json").write_text("{}")
    assert CODEX.check(setup, {}, "codex-cli 0.169.0") == []


# The private home


@hypothesis.settings(max_examples=30)
@given(prompt=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_system_prompt_survives_the_settings(tmp_path_factory, prompt):
    directory = AgentDir(tmp_path_factory.mktemp("agent"))
    assert settings(directory, system_prompt=prompt)["developer_instructions"] == prompt


def test_a_lone_surrogate_in_a_system_prompt_does_not_stop_an_agent(directory):
    assert settings(directory, system_prompt="a\ud83db")["developer_instructions"] == "a?b"


def test_settings_in_the_workspace_have_no_effect(directory, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(directory.path)
    linked = AgentDir(link)
    written = settings(linked)["projects"]
    assert written == {str(directory.workspace): {"trust_level": "untrusted"}}
    sandboxed = settings(directory, workspace=SANDBOX_WORKSPACE)["projects"]
    assert sandboxed == {"/workspace": {"trust_level": "untrusted"}}


def test_settings_are_rewritten_and_the_program_s_copy_of_itself_is_removed(directory):
    (directory.state / "packages" / "standalone").mkdir(parents=True)
    (directory.state / "packages" / "standalone" / "codex").write_bytes(b"x")
    (directory.state / "config.toml").write_text("[mcp_servers.x]\ncommand = 'x'\n")
    (directory.state / "auth.json").write_text("{}")
    assert "mcp_servers" not in settings(directory)
    assert sorted(path.name for path in directory.state.iterdir()) == ["auth.json", "config.toml"]


def test_a_key_of_openai_and_another_address_need_a_provider_and_no_secret_is_written(directory):
    assert "model_provider" not in settings(directory)
    env = {"OPENAI_API_KEY": "secret-key"}
    provider = settings(directory, env)["model_providers"]["custom"]
    assert provider["env_key"] == "OPENAI_API_KEY"
    assert provider["base_url"] == "https://api.openai.com/v1"
    written = settings(directory, {**env, **KEY, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert written["model_provider"] == "custom"
    provider = written["model_providers"]["custom"]
    assert provider["base_url"] == "http://127.0.0.1:1/v1"
    assert provider["env_key"] == "CODEX_API_KEY"
    assert "secret" not in (directory.state / "config.toml").read_text()


def test_each_thread_has_its_newest_rollout_as_its_transcript(directory):
    day = directory.state / "sessions" / "2026" / "11" / "22"
    day.mkdir(parents=True)
    other = "01a20307-2076-73e0-99e2-0b123811abc2"
    for name in (
        f"rollout-2026-11-22T10-00-00-{THREAD}.jsonl",
        f"rollout-2026-11-22T11-00-00-{THREAD}.jsonl",
        f"rollout-2026-11-22T11-00-00-{THREAD}_{other}.jsonl",
        f"rollout-2026-11-22T09-00-00-{other}.jsonl",
        "rollout-2026-11-22T09-00-00-me.jsonl",
    ):
        (day / name).write_text("{}\n")
    assert CODEX.transcripts(directory) == {
        THREAD: day / f"rollout-2026-11-22T11-00-00-{THREAD}_{other}.jsonl",
        other: day / f"rollout-2026-11-22T09-00-00-{other}.jsonl",
    }
    assert CODEX.transcripts(AgentDir(directory.path / "none")) == {}


# A branch of a thread in several rollouts

SECOND = "01a20307-3000-73e0-99e2-0b123811abc1"
THIRD = "01a20307-4000-73e0-99e2-0b123811abc1"
OTHER = "01a20307-5000-73e0-99e2-0b123811abc1"


def write_rollout(directory: AgentDir, ids: str, base: str | None) -> Path:
    day = directory.state / "sessions" / "2026" / "11" / "22"
    day.mkdir(parents=True, exist_ok=True)
    meta = {"id": ids[:36], "session_id": ids[:36], "cwd": f"/{THREAD}"}
    meta |= {"history_base": {"thread_id": base, "end_byte_offset": 7}} if base else {}
    said = {"type": "response_item", "payload": {"text": f"I am {THREAD}."}}
    records = [{"type": "session_meta", "payload": meta}, said]
    path = day / f"rollout-2026-11-22T10-00-00-{ids}.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def branch_thread(directory: AgentDir) -> None:
    branch = Fork(THREAD, NEW_ID, directory.path)
    CODEX.branch(build_setup(directory), branch, Interruption())


def test_a_branch_contains_all_rollouts_of_its_thread(directory):
    write_rollout(directory, THREAD, None)
    write_rollout(directory, f"{THREAD}_{SECOND}", THREAD)
    write_rollout(directory, f"{THREAD}_{THIRD}", SECOND)
    other = write_rollout(directory, OTHER, None)
    branch_thread(directory)
    by_name = {path.name[28:-6]: path.read_text() for path in other.parent.iterdir()}
    metas = {ids: json.loads(text.splitlines()[0])["payload"] for ids, text in by_name.items()}
    assert {ids: meta.get("history_base", {}).get("thread_id") for ids, meta in metas.items()} == {
        NEW_ID: None,
        f"{NEW_ID}_{SECOND}": NEW_ID,
        f"{NEW_ID}_{THIRD}": SECOND,
        OTHER: None,
    }
    assert all(meta["id"] == meta["session_id"] == ids[:36] for ids, meta in metas.items())
    assert all(f"I am {THREAD}." in text for text in by_name.values())
    assert CODEX.transcripts(directory)[NEW_ID].name.endswith(f"{THIRD}.jsonl")


def test_an_interrupted_branch_is_completed_by_the_next_call(directory):
    write_rollout(directory, THREAD, None)
    write_rollout(directory, f"{NEW_ID}_{SECOND}", THREAD)
    write_rollout(directory, f"{NEW_ID}_{THIRD}", SECOND)
    branch_thread(directory)
    assert set(CODEX.transcripts(directory)) == {NEW_ID}


def test_a_thread_whose_history_is_in_another_thread_is_not_branched(directory):
    write_rollout(directory, OTHER, None)
    first = write_rollout(directory, THREAD, OTHER)
    write_rollout(directory, f"{THREAD}_{SECOND}", THREAD)
    with pytest.raises(AgentResumeError, match="refers to another rollout"):
        branch_thread(directory)
    assert first.exists()


# Another place


def keep_thread(directory: AgentDir, place: Path) -> Path:
    """Write a rollout, and an index that names it at ``place``; return the index."""
    name = f"sessions/2026/11/22/rollout-2026-11-22T10-00-00-{THREAD}.jsonl"
    (directory.state / name).parent.mkdir(parents=True, exist_ok=True)
    (directory.state / name).write_text("{}\n")
    index = directory.state / "state_5.sqlite"
    with contextlib.closing(sqlite3.connect(index)) as database, database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE threads (id TEXT, rollout_path TEXT)")
        database.execute("INSERT INTO threads VALUES (?, ?)", (THREAD, str(place / name)))
    return index


def test_an_index_that_points_to_another_directory_is_removed(directory, tmp_path):
    index = keep_thread(directory, tmp_path / "old" / "session")
    (directory.state / "state_5.sqlite-wal").write_bytes(b"")
    history = directory.state / "thread_history_1.sqlite"
    history.write_bytes(b"")
    CODEX.adopt(build_setup(directory), NEW_ID, Interruption())
    assert index.exists()
    CODEX.adopt(build_setup(directory), THREAD, Interruption())
    assert not list(directory.state.glob("state_*"))
    assert history.exists()


def test_an_index_that_points_to_this_directory_is_kept(directory, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(directory.path)
    index = keep_thread(directory, directory.state)
    for known in (directory, AgentDir(link)):
        CODEX.adopt(build_setup(known), THREAD, Interruption())
        assert index.exists()
    sandboxed = build_setup(directory, workspace=SANDBOX_WORKSPACE, state=Path("/state"))
    CODEX.adopt(sandboxed, THREAD, Interruption())
    assert not index.exists()


def test_an_index_that_cannot_be_read_is_removed(directory):
    index = keep_thread(directory, directory.state)
    index.write_bytes(b"not a database" * 100)
    CODEX.adopt(build_setup(directory), THREAD, Interruption())
    assert not index.exists()


# Output


def test_a_turn_is_reported_from_its_thread_to_its_usage():
    told = read_all(CODEX.converse(None, FIRST), recorded_lines("codex-0.169-first.log"))
    assert types(told) == [
        "session.confirmed",
        "turn.started",
        "tool.called",
        "tool.returned",
        "message",
        "usage",
        "turn.finished",
    ]
    confirmed, _, called, returned, message, usage, finished = (report.data for report in told)
    assert confirmed == {"session_id": THREAD}
    assert called == {
        "id": "item_1",
        "name": "command_execution",
        "arguments": {"command": "/bin/bash -lc 'echo hi'"},
    }
    assert returned == {"id": "item_1", "content": "hi\n", "is_error": False}
    assert message == {"role": "assistant", "text": "I have noted that."}
    assert usage["scope"] == "session"
    assert usage["usage"] == Usage(
        input_tokens=22, cached_tokens=14, output_tokens=10, reasoning_tokens=4
    )
    assert finished == {"ok": True, "text": "I have noted that."}


def test_a_resumed_thread_reports_its_id_and_continues_its_count():
    told = read_all(CODEX.converse(None, RESUMED), recorded_lines("codex-0.169-resumed.log"))
    assert told[0].data == {"session_id": THREAD}
    [usage] = data_by_type(told, "usage")
    assert usage["usage"].tokens == 2 * (22 + 14 + 10)
    [returned] = data_by_type(told, "tool.returned")
    assert returned["is_error"]


def test_a_refused_turn_reports_its_retries_and_its_reason():
    lines = recorded_lines("codex-0.169-refused.log")
    told = read_all(CODEX.converse(None, RESUMED), lines)
    assert types(told)[2:] == [*["retry"] * 5, "error", "turn.finished"]
    retries = [*data_by_type(told, "retry")]
    assert [retry["attempt"] for retry in retries] == [1, 2, 3, 4, 5]
    assert {(retry["max_attempts"], retry["status"]) for retry in retries} == {(5, 401)}
    [error] = data_by_type(told, "error")
    assert (error["kind"], error["status"]) == ("auth", 401)
    assert told[-1].data["ok"] is False
    assert CODEX.explain([line.decode() for line in lines]).data == error


REFUSALS = [
    ("unexpected status 401 Unauthorized: no, url: http://x/v1", "auth", 401),
    ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit", 429),
    ("unexpected status 404 Not Found: no such model", "invalid", 404),
    ("unexpected status 503 Service Unavailable: later", "overloaded", 503),
    ("We\u2019re currently experiencing high demand, which may cause errors.", "overloaded", None),
    ("Reconnecting... 5/5 (stream disconnected before completion)", "overloaded", None),
    ('{"error": {"message": "no such tool"}}', "invalid", None),
    ("Missing environment variable: `OPENAI_API_KEY`.", "auth", None),
    ("You've hit your usage limit. Try again later.", "limit", None),
    ("unexpected status 429 Too Many Requests: insufficient_quota", "limit", 429),
    ("something else", "model", None),
]


@pytest.mark.parametrize(("message", "kind", "status"), REFUSALS)
def test_a_failed_turn_has_the_kind_of_its_error(message, kind, status):
    line = json.dumps({"type": "turn.failed", "error": {"message": message}})
    error, finished = reports(line.encode())
    assert (error.data["kind"], error.data.get("status")) == (kind, status)
    assert finished.data == {"ok": False, "text": ""}
    assert CODEX.explain(["", line, "a line of no meaning"]) == error


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"Error: thread/resume: no rollout found for thread id {THREAD} (code -1)", "resume"),
        ("error: unexpected argument '--json' found", "invalid"),
    ],
)
def test_an_error_before_any_event_has_its_kind(line, kind):
    assert CODEX.explain(["WARNING: proceeding", line]).data == {"kind": kind, "message": line}


def test_a_failure_without_output_is_not_explained():
    assert CODEX.explain([]) is None
    assert CODEX.explain(["WARNING: proceeding", '{"type":"turn.started"}']) is None


def test_waiting_for_the_network_is_reported_as_a_retry():
    message = "Reconnecting... waiting for network (Connection failed: error sending request)"
    [retry] = reports(json.dumps({"type": "error", "message": message}).encode())
    assert retry.type == "retry"
    assert retry.data["error"] == "Connection failed: error sending request"


ITEMS = [
    (
        {"type": "mcp_tool_call", "server": "s", "tool": "look", "arguments": {"at": 1}},
        ("look", {"server": "s", "arguments": {"at": 1}}),
        {"result": {"content": [{"type": "text", "text": "a"}, {"type": "image"}]}},
        ("a\n[image]", False),
    ),
    (
        {"type": "mcp_tool_call", "server": "s", "tool": "look", "arguments": None},
        ("look", {"server": "s", "arguments": None}),
        {"error": {"message": "no"}, "status": "failed"},
        ("no", True),
    ),
    (
        {"type": "file_change", "changes": [{"path": "a", "kind": "add"}]},
        ("file_change", {"changes": [{"path": "a", "kind": "add"}]}),
        {"status": "completed"},
        ("", False),
    ),
    ({"type": "web_search", "query": "q"}, ("web_search", {"query": "q"}), {}, ("", False)),
]


@pytest.mark.parametrize("is_started", [True, False])
@pytest.mark.parametrize(("item", "call", "result", "content"), ITEMS)
def test_each_tool_call_and_result_is_reported_once(item, call, result, content, is_started):
    item = {"id": "item_7", **item}
    events = [{"type": "item.started", "item": item}] if is_started else []
    events.append({"type": "item.completed", "item": {**item, **result}})
    called, returned = reports(*(json.dumps(event).encode() for event in events))
    assert (called.data["name"], called.data["arguments"]) == call
    assert (returned.data["content"], returned.data["is_error"]) == content
    assert called.data["id"] == returned.data["id"] == "item_7"


def test_reasoning_is_reported_but_plans_and_warnings_are_not():
    items = [
        {"type": "reasoning", "text": "hm"},
        {"type": "todo_list", "items": []},
        {"type": "error", "message": "Model metadata not found."},
        {"type": "something_new", "id": "x"},
    ]
    lines = [json.dumps({"type": "item.completed", "item": item}).encode() for item in items]
    [report] = reports(*lines)
    assert (report.type, report.data) == ("reasoning", {"text": "hm"})


@pytest.mark.thorough
@hypothesis.settings(max_examples=20)
@given(
    line=st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)
    ),
    kind=st.sampled_from(
        ["thread.started", "item.started", "item.completed", "error", "turn.completed", "new"]
    ),
    key=st.sampled_from(["item", "usage", "error", "message", "thread_id"]),
)
def test_a_line_of_any_shape_is_never_an_error(line, kind, key):
    reports(json.dumps(line).encode(), json.dumps({"type": kind, key: line}).encode())
    reports(b"", b"{", b"\xff", b"WARNING: proceeding")


def test_a_process_takes_only_one_message():
    conversation = CODEX.converse(None, FIRST)
    assert conversation.say("more") is False
    assert conversation.outgoing() == b""


def allowance(used_percent: object, resets_at: object) -> dict[str, object]:
    return {"used_percent": used_percent, "window_minutes": 300, "resets_at": resets_at}


NOON = utc_now().replace(microsecond=0) + timedelta(hours=3)
LATER = NOON + timedelta(days=2)


@pytest.mark.parametrize(
    ("limits", "reset"),
    [
        ({"primary": allowance(100.0, int(NOON.timestamp())), "secondary": None}, NOON),
        (
            {
                "primary": allowance(100, int(NOON.timestamp())),
                "secondary": allowance(100, int(LATER.timestamp())),
            },
            LATER,
        ),
        (
            {
                "primary": allowance(100, int(NOON.timestamp())),
                "secondary": allowance(40, int(LATER.timestamp())),
            },
            NOON,
        ),
        ({"primary": allowance(99, int(NOON.timestamp()))}, None),
        ({"primary": allowance("all", int(NOON.timestamp()))}, None),
        ({"primary": 7, "secondary": "x"}, None),
        (None, None),
    ],
)
def test_a_limit_ends_with_the_renewal_of_all_used_up_allowances(
    directory: AgentDir, limits: object, reset: datetime | None
) -> None:
    thread = str(uuid.uuid4())
    folder = directory.state / "sessions" / "2026" / "11" / "27"
    folder.mkdir(parents=True)
    counted = {"type": "token_count", "info": None, "rate_limits": limits}
    records = [{"type": "event_msg", "payload": counted}, {"type": "event_msg", "payload": {}}]
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    (folder / f"rollout-2026-11-27T10-00-00-{thread}.jsonl").write_text(text)
    assert CodexDriver().find_reset(directory, thread) == reset
    assert CodexDriver().find_reset(directory, str(uuid.uuid4())) is None
