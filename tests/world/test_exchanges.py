"""The records of arbitrary requests and answers in a recording. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawblox.foreign_values import MAX_DEPTH, parse_document
from clawblox.world import exchanges
from clawblox.world.access import Actor
from clawblox.world.exchanges import AgentExchange, ExchangeKind, Transcript, route_kinds

SESSION = "0123456789abcdef0123456789abcdef"
ROCKY = Actor(SESSION, "agent-1", "Rocky")
DEEPEST = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
UTC_TIME = datetime(2026, 6, 22, 18, 59, 25, tzinfo=UTC)


def exchange(kind: ExchangeKind, actor: Actor = ROCKY, **facts: object) -> AgentExchange:
    facts = {"status": 200, **facts}
    return AgentExchange(kind=kind, actor=actor, utc=UTC_TIME, at=0.0, **facts)


def record(
    transcript: Transcript, kind: ExchangeKind, actor: Actor = ROCKY, **facts: object
) -> list[dict]:
    """Return the records of an exchange as readers see them."""
    records = list(transcript.records(exchange(kind, actor, **facts)))
    assert all(b"\n" not in each.fields and each.fields.isascii() for each in records)
    return [
        {"track": str(each.track), "tick": each.moment.tick, "time": each.moment.time}
        | parse_document(each.fields)
        for each in records
    ]


@pytest.fixture
def transcript() -> Transcript:
    """A transcript that Rocky has joined."""
    transcript = Transcript(["the-operator-token"])
    list(transcript.event("start", UTC_TIME))
    assert [each["event"] for each in record(transcript, ExchangeKind.JOIN)] == ["join"]
    return transcript


def seen(transcript: Transcript, body: bytes) -> bytes | None:
    """Return the bytes of an observation in the recording; None if it was left out."""
    records = list(transcript.records(exchange(ExchangeKind.OBSERVE, answer=body)))
    assert len(records) <= 1
    return records[0].fields.partition(b',"observation":')[2][:-1] if records else None


# --- events ---------------------------------------------------------------------------------


def test_an_input_is_followed_by_the_agents_observation(transcript: Transcript) -> None:
    body, answer = b'{"type": "push", "data": {"force": 2.5}}', b'{"tick": 7, "time": 0.7}'
    acted, saw = record(transcript, ExchangeKind.INPUT, body=body, answer=answer)
    assert acted == {
        "track": "inputs", "tick": 0, "time": 0.0, "event": "input", "agent_id": "agent-1",
        "action": "push", "data": {"force": 2.5}, "refusal": None, "status": 200,
    }  # fmt: skip
    assert saw == {
        "track": "observations", "tick": 7, "time": 0.7, "agent_id": "agent-1", "after": 3,
        "observation": {"tick": 7, "time": 0.7},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "answer", "refusal"),
    [(400, b"no wings", "no wings"), (500, b"", "status 500"), (None, b"", None)],
)
def test_a_refused_input_is_recorded_without_an_observation(
    transcript: Transcript, status: int | None, answer: bytes, refusal: str | None
) -> None:
    [acted] = record(
        transcript, ExchangeKind.INPUT, body=b'{"type":"fly"}', status=status, answer=answer
    )
    assert (acted["status"], acted["refusal"]) == (status, refusal)


@pytest.mark.parametrize(
    ("body", "action", "data"),
    [
        (b'{"type":"push"}', "push", None),
        (b'{"steer": 1}', None, {"steer": 1}),
        (b'{"type": 5}', None, {"type": 5}),
        (b"[1,2]", None, [1, 2]),
        (b"left", None, "left"),
        (b"\xff\0", None, "\ufffd\0"),
        (b"", None, None),
        (None, None, None),
        (b'{"type":"push","data":NaN}', "push", None),
    ],
)
def test_inputs_of_any_form_are_recorded(
    transcript: Transcript, body: bytes | None, action: str | None, data: object
) -> None:
    [acted] = record(transcript, ExchangeKind.INPUT, body=body)
    assert (acted["action"], acted["data"]) == (action, data)


def test_a_chat_record_contains_the_worlds_answer(transcript: Transcript) -> None:
    answer = b'{"id": "m-1", "created_at": 1.5}'
    [said] = record(transcript, ExchangeKind.CHAT, body=b'{"content": "hi"}', answer=answer)
    expected = {"agent_name": "Rocky", "content": "hi", "id": "m-1", "created_at": 1.5}
    assert expected.items() <= said.items()
    [refused] = record(
        transcript, ExchangeKind.CHAT, body=b'{"content": ""}', status=400, answer=b"it is empty"
    )
    assert (refused["id"], refused["refusal"]) == (None, "it is empty")


def test_an_agent_from_before_the_recording_is_recorded_as_rejoined(
    transcript: Transcript,
) -> None:
    molly = Actor("another-session", "agent-2", "Molly")
    joined, saw = record(transcript, ExchangeKind.OBSERVE, molly, answer=b"{}")
    assert (joined["event"], joined["name"], joined["rejoined"]) == ("join", "Molly", True)
    assert saw["after"] == 3
    assert record(transcript, ExchangeKind.JOIN, molly, rejoined=True) == []
    assert [each["event"] for each in record(transcript, ExchangeKind.LEAVE, molly)] == ["leave"]
    [back] = record(transcript, ExchangeKind.JOIN, molly, rejoined=True)
    assert back["rejoined"] is True


def test_a_refused_leave_is_not_recorded(transcript: Transcript) -> None:
    assert record(transcript, ExchangeKind.LEAVE, status=404) == []


@pytest.mark.parametrize("agent_id", [None, 7, "", SESSION, {"a": 1}])
def test_an_agent_without_an_id_is_known_by_its_name(agent_id: object) -> None:
    [joined] = record(Transcript(), ExchangeKind.JOIN, Actor(SESSION, agent_id, "Rocky"))
    assert joined["agent_id"] == "Rocky"


def test_endless_names_are_cut() -> None:
    long = "x" * 1_000_000
    [joined] = record(Transcript(), ExchangeKind.JOIN, Actor(SESSION, long, long + "\ud800"))
    assert len(joined["agent_id"]) == len(joined["name"]) == 200


# --- time -----------------------------------------------------------------------------------


def test_simulation_time_follows_the_answers_and_never_goes_back() -> None:
    transcript = Transcript(time=0.5)
    answers = [
        b"{}", b'{"time": 1.5}', b'{"tick": 3, "time": "late"}', b'{"tick": 2.5, "time": 1}',
        b'{"tick": true, "time": -1e999}', b'{"tick": 1e300, "time": 2}', b"[]", b'{"time": null}',
    ]  # fmt: skip
    moments = []
    for answer in answers:
        records = record(transcript, ExchangeKind.OBSERVE, answer=answer)
        moments += [(each["tick"], each["time"]) for each in records if "event" not in each]
    assert moments[0] == (0, 0.5)
    assert moments[1:3] == [(0, 1.5), (3, 1.5)]
    assert moments == sorted(moments)
    assert moments[-1] == (3, 2.0)


# --- observations ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b'{"a": [1.50, 2e3],\t"b":"\\u00e9"}', b"  7", b'{"a":1,"a":2}', DEEPEST]
)
def test_an_answer_of_one_ascii_line_is_recorded_unchanged(
    transcript: Transcript, body: bytes
) -> None:
    assert seen(transcript, body) == body


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{\n  "a": 1\r\n}\n', b'{"a":1}'),
        ('{"name": "Ročky"}'.encode(), b'{"name":"Ro\\u010dky"}'),
        (b'["\\n"\r]', b'["\\n"]'),
    ],
)
def test_an_answer_of_several_lines_is_encoded_again(
    transcript: Transcript, body: bytes, line: bytes
) -> None:
    assert seen(transcript, body) == line


HOSTILE = {
    "no JSON": b"{oops",
    "two values": b"{}{}",
    "no UTF-8": b'"\xff"',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "with a byte order mark": b"\xef\xbb\xbf{}",
    "no number": b'{"a": NaN}',
    "infinite": b"[Infinity]",
    "a control character": b'"\x01"',
    "a line within a text": b'"a\nb"',
    "NUL": b'{"a":"\0"}',
    "deep": b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    "very deep": b"[" * 200_000 + b"]" * 200_000,
    "many values": b"[" + b"[]," * 600_000 + b"[]]",
    "HTML": b"<html>",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_an_unparseable_answer_is_left_out_and_counted(transcript: Transcript, body: bytes) -> None:
    assert seen(transcript, body) is None
    assert transcript.left_out == 1
    assert seen(transcript, b"{}") == b"{}"


def test_an_answer_without_a_body_does_not_count_as_an_observation(transcript: Transcript) -> None:
    assert record(transcript, ExchangeKind.OBSERVE, status=204, answer=b"") == []
    assert transcript.left_out == 0


def test_too_long_values_are_left_out_and_counted(
    transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "_MAX_FIELDS_BYTES", 300)
    assert seen(transcript, json.dumps("x" * 300).encode()) is None
    body = json.dumps({"type": "push", "data": "x" * 300}).encode()
    assert record(transcript, ExchangeKind.INPUT, body=body) == []
    assert transcript.left_out == 2


def test_a_repeated_answer_is_recorded_only_after_an_event(transcript: Transcript) -> None:
    assert seen(transcript, b'{"a":1}') == b'{"a":1}'
    assert seen(transcript, b'{"a":1}') is None
    assert seen(transcript, b'{"a":2}') == b'{"a":2}'
    record(transcript, ExchangeKind.CHAT, body=b'{"content":"hi"}')
    assert seen(transcript, b'{"a":2}') == b'{"a":2}'


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@example(b'"\\ud800"')
@example(b"1" * 5000)
@example(b"1e999999")
@given(
    st.binary()
    | st.builds(
        lambda value, indent, ascii_: json.dumps(value, indent=indent, ensure_ascii=ascii_).encode(
            errors="surrogatepass"
        ),
        _JSON,
        st.sampled_from([None, 1]),
        st.booleans(),
    )
)
def test_every_record_is_one_parseable_line(body: bytes) -> None:
    transcript = Transcript()
    for each in transcript.records(exchange(ExchangeKind.OBSERVE, answer=body)):
        assert each.fields.isascii()
        assert b"\n" not in each.fields
        json.loads(each.fields, parse_constant=pytest.fail, parse_int=float)
    for kind in (ExchangeKind.INPUT, ExchangeKind.CHAT):
        for each in transcript.records(exchange(kind, body=body, status=400, answer=body)):
            parse_document(each.fields)


# --- secrets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"you": SESSION, "at": 1}).encode(),
        json.dumps({f"of {SESSION}": [f"<{SESSION}>"]}).encode(),
        f'"{SESSION[:-1]}\\u0066"'.encode(),
        f'{{\n"é": "{SESSION}"}}'.encode(),
        b'"the-operator-token"',
    ],
)
def test_sessions_and_tokens_are_never_recorded(transcript: Transcript, body: bytes) -> None:
    records = [
        *transcript.records(exchange(ExchangeKind.OBSERVE, answer=body)),
        *transcript.records(exchange(ExchangeKind.INPUT, body=body, answer=b"{}")),
        *transcript.records(exchange(ExchangeKind.CHAT, body=body, status=400, answer=body)),
        *transcript.records(
            exchange(ExchangeKind.JOIN, Actor(SESSION, f"a-{SESSION}", f"n {SESSION}"))
        ),
        *transcript.event("halted", UTC_TIME, error=transcript.mask(f"no {SESSION}")),
    ]
    text = json.dumps([json.loads(each.fields) for each in records])
    assert len(records) == 6
    assert SESSION not in text
    assert "the-operator-token" not in text
    assert "***" in text


def test_a_short_session_is_masked_only_as_a_whole_text() -> None:
    transcript = Transcript()
    record(transcript, ExchangeKind.JOIN, Actor("1", "agent", "Rocky"))
    assert seen_by("1", transcript, b'{"x": 1, "y": "1", "z": "121"}') == {
        "x": 1, "y": "***", "z": "121"
    }  # fmt: skip
    quoted = 'with-"-and-\\'
    body = json.dumps([quoted]).encode()
    assert seen_by(quoted, transcript, body) == ["***"]


def seen_by(session: str, transcript: Transcript, body: bytes) -> object:
    saw = record(transcript, ExchangeKind.OBSERVE, Actor(session, "agent", "Rocky"), answer=body)[
        -1
    ]
    return saw["observation"]


# --- routes ---------------------------------------------------------------------------------


def test_the_kind_of_a_request_follows_from_the_worlds_routes() -> None:
    assert route_kinds({"observe": "/look", "input": "/do"}) == {
        ("GET", "/look"): ExchangeKind.OBSERVE,
        ("POST", "/do"): ExchangeKind.INPUT,
        ("POST", "/chat"): ExchangeKind.CHAT,
        ("POST", "/leave"): ExchangeKind.LEAVE,
    }
