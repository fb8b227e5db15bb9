"""The client side of the Agent Client Protocol, with lines that four programs wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.agents.drivers.acp import AcpDriver
from clawblox.agents.drivers.driver import Continue, Conversation, Turn
from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.values import DriverReport, Usage
from clawblox.errors import ConfigError
from tests.agents.drivers.support import (
    FIRST,
    build_setup,
    data_by_type,
    recorded_lines,
    types,
    within_limit,
)

ACP = AcpDriver()
PROGRAMS = ["gemini", "qwen", "kimi", "opencode"]
MODELS = {"gemini": "gemini-2.5-pro", "opencode": "standin/m"}
"""The requested model in the recorded lines."""

DIRECTORY = AgentDir(SANDBOX_WORKSPACE)


def converse(turn: Turn = FIRST, **more) -> Conversation:
    return ACP.converse(build_setup(DIRECTORY, **more), turn)


def asked(conversation: Conversation) -> list[dict]:
    return [json.loads(line) for line in conversation.outgoing().splitlines()]


def read(conversation: Conversation, *messages: dict) -> list[DriverReport]:
    lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    return [report for line in lines for report in conversation.read(line)]


def recorded_turn(program: str) -> Turn:
    """Return the turn for which the recorded conversation was continued."""
    [conversation_id] = {
        message["params"]["sessionId"]
        for message in map(json.loads, recorded_lines(f"acp-{program}-load.jsonl"))
        if message.get("method") == "session/update"
    }
    return Turn(prompt="third", start=Continue(conversation_id))


def replay(
    program: str, name: str, turn: Turn, *texts: str
) -> tuple[list[DriverReport], list[dict]]:
    """Return the reports read from recorded lines, and the written messages."""
    conversation = converse(turn, model=MODELS.get(program))
    reports, sent, left = [], asked(conversation), [*texts]
    for line in recorded_lines(f"acp-{program}-{name}.jsonl"):
        found = conversation.read(line)
        reports += found
        if left and "turn.finished" in types(found):
            assert conversation.say(left.pop(0))
        sent += asked(conversation)
    return reports, sent


def prompts(sent: list[dict]) -> list[list[str]]:
    return [
        [block["text"] for block in message["params"]["prompt"]]
        for message in sent
        if message.get("method") == "session/prompt"
    ]


# Recorded lines


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_turns_are_reported(program):
    reports, sent = replay(program, "new", FIRST, "second")
    assert [message["method"] for message in sent[:2]] == ["initialize", "session/new"]
    assert prompts(sent) == [["Be kind.", "Begin"], ["second"]]
    kinds = types(reports)
    assert kinds[:2] == ["session.confirmed", "turn.started"]
    assert kinds.count("turn.started") == kinds.count("turn.finished") == 2
    finished = [*data_by_type(reports, "turn.finished")]
    assert finished == [{"ok": True, "text": "I have noted that."}] * 2
    confirmed = reports[0].data
    assert confirmed["session_id"] == recorded_turn(program).continued_id
    assert confirmed["version"]


@pytest.mark.parametrize("program", ["gemini", "qwen", "kimi"])
def test_a_tool_call_is_allowed_and_reported_once_before_its_result(program):
    reports, sent = replay(program, "new", FIRST, "second")
    [called] = data_by_type(reports, "tool.called")
    [returned] = data_by_type(reports, "tool.returned")
    assert called["id"] == returned["id"]
    assert not returned["is_error"]
    tools = [kind for kind in types(reports) if kind.startswith("tool")]
    assert tools == ["tool.called", "tool.returned"]
    if program != "gemini":  # this program never reports the arguments
        assert called["arguments"]["command"] == "touch made-it"
    [answer] = [message["result"] for message in sent if "result" in message]
    assert answer["outcome"]["outcome"] == "selected"
    assert answer["outcome"]["optionId"] in ("proceed_once", "approve_once")


@pytest.mark.parametrize("program", PROGRAMS)
def test_replayed_messages_prove_a_resume_and_are_not_reported_again(program):
    turn = recorded_turn(program)
    reports, sent = replay(program, "load", turn)
    assert sent[1]["method"] == "session/load"
    assert sent[1]["params"]["sessionId"] == turn.continued_id
    assert prompts(sent) == [["third"]]
    told = [kind for kind in types(reports) if kind != "usage"]
    assert told == ["session.confirmed", "turn.started", "message", "turn.finished"]
    assert reports[0].data["session_id"] == turn.continued_id


@pytest.mark.parametrize(
    ("program", "tokens"), [("gemini", 5), ("qwen", 2), ("opencode", 2), ("kimi", None)]
)
def test_tokens_are_read_wherever_the_program_reports_them(program, tokens):
    reports, _ = replay(program, "load", recorded_turn(program))
    readings = [*data_by_type(reports, "usage")]
    assert [reading["usage"].tokens for reading in readings] == ([tokens] if tokens else [])
    assert all(reading["scope"] == "turn" for reading in readings)


# A resume is proven


INITIALIZED = {"id": 1, "result": {"agentCapabilities": {"loadSession": True}}}
CHUNK = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hi"}}
RESUMED = Turn(prompt="Go on", start=Continue("s1"))


def update(**fields) -> dict:
    return {"method": "session/update", "params": {"sessionId": "s1", "update": fields}}


@pytest.mark.parametrize("result", [{}, {"sessionId": "s1"}])
def test_a_load_without_replayed_messages_confirms_no_conversation(result):
    conversation = converse(RESUMED)
    error, finished = read(conversation, INITIALIZED, {"id": 2, "result": result})
    assert (error.type, error.data["kind"]) == ("error", "resume")
    assert finished == DriverReport("turn.finished", {"ok": False, "text": error.data["message"]})
    assert prompts(asked(conversation)) == []


def test_a_load_of_another_conversation_is_reported_with_its_id():
    answer = {"id": 2, "result": {"sessionId": "other"}}
    confirmed, *_ = read(converse(RESUMED), INITIALIZED, update(**CHUNK), answer)
    assert confirmed.data["session_id"] == "other"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Invalid params: Unknown sessionId: s1", "resume"),
        ("Internal error: OpenCode service failure", "resume"),
        ("Authentication required", "auth"),
    ],
)
def test_a_refused_load_is_an_error_of_the_right_kind(message, kind):
    refusal = {"id": 2, "error": {"code": -32603, "message": message}}
    error, finished = read(converse(RESUMED), INITIALIZED, refusal)
    assert error == DriverReport("error", {"kind": kind, "message": message})
    assert finished.data["ok"] is False


def test_a_program_that_cannot_load_gets_no_load_request():
    conversation = converse(RESUMED)
    error, finished = read(conversation, {"id": 1, "result": {"agentCapabilities": {}}})
    assert (error.data["kind"], finished.type) == ("resume", "turn.finished")
    assert [message["method"] for message in asked(conversation)] == ["initialize"]


def test_the_first_prompt_waits_until_a_late_replay_is_over():
    conversation = converse(RESUMED)
    modes = {"modes": {"currentModeId": "default"}}
    read(conversation, INITIALIZED, update(**CHUNK), {"id": 2, "result": modes})
    assert asked(conversation)[-1]["method"] == "session/set_mode"
    late = update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "old"})
    assert read(conversation, late) == []
    assert types(read(conversation, {"id": 3, "result": {}})) == ["turn.started"]
    assert prompts(asked(conversation)) == [["Go on"]]


# Turns


def open_session(**more) -> Conversation:
    conversation = converse(**more)
    read(conversation, INITIALIZED, {"id": 2, "result": {"sessionId": "s1"}})
    return conversation


def test_messages_wait_for_the_end_of_the_previous_turn():
    conversation = open_session()
    assert conversation.say("second")
    assert conversation.say("third")
    assert prompts(asked(conversation)) == [["Be kind.", "Begin"]]
    ended = {"result": {"stopReason": "end_turn"}}
    assert types(read(conversation, {"id": 3, **ended})) == ["turn.finished", "turn.started"]
    assert prompts(asked(conversation)) == [["second"]]
    read(conversation, {"id": 4, **ended}, {"id": 5, **ended})
    assert prompts(asked(conversation)) == [["third"]]


def test_pieces_of_text_are_joined_into_one_message():
    conversation = open_session()
    chunks = [
        ("agent_thought_chunk", "let me "),
        ("agent_thought_chunk", "see"),
        ("agent_message_chunk", "It "),
        ("agent_message_chunk", "is."),
    ]
    updates = [update(sessionUpdate=k, content={"type": "text", "text": t}) for k, t in chunks]
    reports = read(conversation, *updates, {"id": 3, "result": {"stopReason": "end_turn"}})
    assert reports == [
        DriverReport("reasoning", {"text": "let me see"}),
        DriverReport("message", {"role": "assistant", "text": "It is."}),
        DriverReport("turn.finished", {"ok": True, "text": "It is."}),
    ]


def test_an_answer_in_many_pieces_is_joined_once_and_reported_in_parts():
    conversation = open_session()
    content = {"type": "text", "text": "x" * 256}
    piece = update(sessionUpdate="agent_message_chunk", content=content)
    line = json.dumps({"jsonrpc": "2.0", **piece}).encode()
    reports = []

    def read_all() -> None:
        for _ in range(60_000):
            reports.extend(conversation.read(line))

    within_limit(read_all)  # joining the text at each piece would copy 460 GB
    reports += read(conversation, {"id": 3, "result": {"stopReason": "end_turn"}})
    lengths = [len(data["text"]) for data in data_by_type(reports, "message")]
    assert sum(lengths) == 60_000 * 256
    assert max(lengths) == 1 << 20
    assert len(reports[-1].data["text"]) == lengths[-1]


def test_remembered_tool_calls_of_a_turn_are_limited():
    conversation = open_session()
    for number in range(11_000):
        call = {"toolCallId": f"t{number}", "title": "Shell", "rawInput": {"command": "x"}}
        read(conversation, update(sessionUpdate="tool_call", **call))
    assert len(conversation._calls) == 10_000


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"result": {"stopReason": "max_turn_requests"}}, ("limit", "turns")),
        ({"result": {"stopReason": "refusal"}}, ("error", "model")),
        ({"error": {"code": 1, "message": "got status: 429 quota"}}, ("error", "rate_limit")),
        ({"error": {"code": 1, "message": "503 Service Unavailable"}}, ("error", "overloaded")),
        ({"error": {"code": -32000, "message": "Authentication required"}}, ("error", "auth")),
        ({"error": "nonsense"}, ("error", "model")),
    ],
)
def test_a_failed_turn_reports_its_reason_and_the_next_turn_follows(answer, told):
    conversation = open_session()
    conversation.say("next")
    why, finished, started = read(conversation, {"id": 3, **answer})
    assert (why.type, why.data["kind"]) == told
    assert finished.data["ok"] is False
    assert started.type == "turn.started"


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (150, Usage(input_tokens=60, cached_tokens=40, output_tokens=50, reasoning_tokens=5)),
        (190, Usage(input_tokens=100, cached_tokens=40, output_tokens=50, reasoning_tokens=5)),
    ],
)
def test_cached_tokens_are_counted_once_however_the_program_counts(total, expected):
    counted = {"inputTokens": 100, "cachedReadTokens": 40, "outputTokens": 50, "thoughtTokens": 5}
    usage = {**counted, "totalTokens": total}
    reports = read(open_session(), {"id": 3, "result": {"stopReason": "end_turn", "usage": usage}})
    [reading] = data_by_type(reports, "usage")
    assert reading["usage"] == expected


# Requests of the program


PERMISSION = {
    "toolCall": {"toolCallId": "t", "title": "Shell"},
    "options": [
        {"optionId": "ever", "kind": "allow_always"},
        {"optionId": "yes", "kind": "allow_once"},
        {"optionId": "no", "kind": "reject_once"},
    ],
}


@pytest.mark.parametrize(("mode", "chosen"), [(None, "yes"), ("plan", "no")])
def test_permission_is_given_unless_a_mode_was_chosen(mode, chosen):
    conversation = open_session(permission_mode=mode)
    asked(conversation)
    question = {"id": "q", "method": "session/request_permission", "params": PERMISSION}
    assert read(conversation, question) == []
    [answer] = asked(conversation)
    assert answer["id"] == "q"
    assert answer["result"]["outcome"] == {"outcome": "selected", "optionId": chosen}


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "new/thing"])
def test_requests_for_unsupported_features_are_refused(method):
    conversation = open_session()
    asked(conversation)
    assert read(conversation, {"id": 0, "method": method, "params": {}}) == []
    [answer] = asked(conversation)
    assert (answer["id"], answer["error"]["code"]) == (0, -32601)
    assert read(conversation, {"method": "new/notification"}) == []
    assert asked(conversation) == []


def test_a_model_is_chosen_with_the_request_that_the_program_offers():
    option = {"id": "m", "category": "model", "currentValue": "x"}
    for offered, method in [
        ({}, "session/set_model"),
        ({"configOptions": [option]}, "session/set_config_option"),
    ]:
        conversation = converse(model="big")
        opened = {"id": 2, "result": {"sessionId": "s1", **offered}}
        assert types(read(conversation, INITIALIZED, opened)) == ["session.confirmed"]
        *_, choice = asked(conversation)
        assert choice["method"] == method
        assert "big" in choice["params"].values()
        refusal = {"id": 3, "error": {"message": "no such model"}}
        error, finished = read(conversation, refusal)
        assert (error.data["kind"], finished.data["ok"]) == ("invalid", False)
        assert prompts(asked(conversation)) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(1, 4) | VALUES,
        "method": st.sampled_from(["session/update", "session/request_permission", "x"]) | VALUES,
        "params": st.fixed_dictionaries({"update": VALUES, "toolCall": VALUES}) | VALUES,
        "result": st.fixed_dictionaries({"sessionId": VALUES, "usage": VALUES}) | VALUES,
        "error": VALUES,
    },
)


@settings(max_examples=5)
@given(st.lists(MESSAGES, max_size=6))
def test_arbitrary_lines_never_raise_an_error(messages):
    conversation = converse()
    read(conversation, *messages)
    read(conversation, INITIALIZED, {"id": 2, "result": {"sessionId": "s1"}}, *messages)
    for line in (b"", b"\xff", b"{", b"[1]", b"Skipping project agents"):
        conversation.read(line)


# The command line


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_known_program_gets_its_protocol_arguments_and_state_directory(program):
    binary = f"/opt/{program}"
    assert ACP.name_binary(binary, None) == binary
    started = ACP.invocation(build_setup(DIRECTORY, binary=binary), FIRST)
    assert started.argv in ((binary, "--acp"), (binary, "acp"))
    assert started.has_stdin
    assert str(DIRECTORY.state) in " ".join(started.env.values())
    assert ACP.version_argv(binary) == (binary, "--version")


def test_an_unknown_program_is_started_with_its_command_line():
    command = ["my-agent", "--acp"]
    assert ACP.name_binary(None, command) == "my-agent"
    setup = build_setup(DIRECTORY, binary="/opt/my-agent", command=command)
    assert ACP.invocation(setup, FIRST).argv == ("/opt/my-agent", "--acp")
    assert ACP.version_argv("/opt/my-agent") == ()


@pytest.mark.parametrize(
    ("binary", "command", "complaint"),
    [
        (None, None, "binary: must be one of gemini, qwen, kimi, opencode, not None"),
        ("/opt/my-agent", None, "binary: must be one of gemini"),
        (None, "my-agent --acp", "command: must be the words of a command line"),
        (None, [], "command: must be the words of a command line"),
        (None, ["my-agent", 1], "command: must be the words of a command line"),
    ],
)
def test_a_program_that_cannot_be_started_is_an_error(binary, command, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ACP.name_binary(binary, command)


def test_a_failure_is_explained_by_the_last_lines():
    report = ACP.explain(["begin", "Error: 401 Unauthorized", '{"jsonrpc": "2.0"}', ""])
    assert report == DriverReport("error", {"kind": "auth", "message": "Error: 401 Unauthorized"})
    assert ACP.explain(["what a nice day"]) is None
