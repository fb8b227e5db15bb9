"""The snapshot document: whole, exact, and refused where it does not belong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.server import HostedWorld
from clawblox.server.payload import encode_large_json
from clawblox.server.snapshot_document import SnapshotRefusal, make_snapshot, restore_snapshot
from tests.server.tally import Tally

NONCE = b"fixed: a copy issues the same session ids as its original"


def written(hosted: HostedWorld) -> bytes:
    return encode_large_json(make_snapshot(hosted))


def restored(body: bytes, simulation: Tally | None = None) -> HostedWorld:
    hosted = HostedWorld(simulation or Tally(), nonce=NONCE)
    restore_snapshot(hosted, body)
    return hosted


@pytest.fixture
def lived() -> HostedWorld:
    """A world with every kind of state, including a waiting input."""
    hosted = HostedWorld(Tally(), nonce=NONCE)
    rocky, molly = hosted.join("Rocky"), hosted.join("Mölly")
    hosted.queue(rocky, "Add", 5)
    hosted.apply_inputs()
    for _ in range(7):
        hosted.step()
    hosted.say(rocky, "hällo")
    hosted.queue(molly, "Add", 3)
    hosted.queue(rocky, "Keep", {"deep": [1.5, None]})
    return hosted


def test_a_restored_world_writes_the_same_snapshot(lived):
    body = written(lived)
    assert written(restored(body)) == body


def test_a_restored_world_continues_like_the_original(lived):
    copy = restored(written(lived))
    assert copy.simulation is not lived.simulation
    for hosted in (lived, copy):
        hosted.apply_inputs()
        hosted.step()
        late = hosted.join("late")
        hosted.say(late, "me too")
        hosted.leave(late)
        hosted.join("later")
    assert written(copy) == written(lived)
    assert copy.simulation.extra == {"deep": [1.5, None]}


def test_sessions_keep_their_ids_and_their_order(lived):
    copy = restored(written(lived))
    assert [*copy.sessions] == [*lived.sessions]
    session = next(iter(lived.sessions))
    assert copy.observe(session) == lived.observe(session)


def test_worlds_restored_from_one_snapshot_issue_different_sessions_to_the_same_agents(lived):
    body = written(lived)
    copies = [HostedWorld(Tally()) for _ in range(2)]
    for copy in copies:
        restore_snapshot(copy, body)
    joined = [hosted.join("Ada") for hosted in (lived, *copies)]
    assert len({session.session for session in joined}) == 3
    assert len({session.agent_id for session in joined}) == 1
    for hosted in (lived, *copies):
        assert [hosted.sessions.find(ada.session) for ada in joined].count(None) == 2


def test_the_nonce_of_a_launch_is_in_no_snapshot(lived):
    again = HostedWorld(Tally(), nonce=b"another")
    restore_snapshot(again, written(lived))
    assert written(again) == written(lived)  # so it depends on no nonce


def test_join_hooks_are_not_called_for_agents_that_are_restored(hosted):
    hosted.join("Rocky")

    class Picky(Tally):
        def join(self, agent_id, name):
            raise AssertionError("not for the restored")

    assert len(restored(written(hosted), Picky()).sessions) == 1


def test_inputs_of_an_agent_that_left_are_not_in_the_snapshot(lived):
    molly = list(lived.sessions)[1]
    lived.leave(molly)
    document = json.loads(written(lived))
    assert [item["action"] for item in document["pending_inputs"]] == ["Keep"]


def test_the_document_names_its_format_and_version(lived):
    document = json.loads(written(lived))
    assert [*document] == [
        "format",
        "version",
        "time",
        "tick",
        "scene_hash",
        "seed",
        "state",
        "sessions",
        "ended_sessions",
        "ids",
        "pending_inputs",
        "chat",
    ]
    assert document["format"] == "tally-v1"
    assert document["time"] == lived.simulation.time
    assert document["tick"] == 7


def test_the_chat_history_is_bounded_and_its_numbers_continue(hosted, monkeypatch):
    monkeypatch.setattr("clawblox.server.chat.MAX_HISTORY", 3)
    hosted = HostedWorld(Tally())
    rocky = hosted.join("Rocky")
    for number in range(5):
        hosted.say(rocky, str(number))
    copy = restored(written(hosted))
    assert [message.id for message in copy.chat.latest(10)] == ["m3", "m4", "m5"]
    assert copy.say(rocky, "next").id == "m6"


@pytest.mark.parametrize(
    "body",
    [b"", b"not json", b"<html></html>", b"\xff\xfe", b'{"format":', b"[1]", b"null", b"[" * 9999],
)
def test_a_snapshot_that_is_not_a_json_object_is_refused(body):
    with pytest.raises(SnapshotRefusal, match="it is not"):
        restored(body)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": "marbles-v1"}, "its format is 'marbles-v1', and this world's is 'tally-v1'"),
        ({"version": 2}, "its version is 2, and this world's is 1"),
        ({"version": True}, "its 'version' is of the wrong type: bool"),
        (
            {"scene_hash": "other"},
            "its scene_hash is 'other', and this world's is 'tally': the world's files or rules",
        ),
        ({"tick": "7"}, "its 'tick' is of the wrong type: str"),
        ({"time": 1.25}, "it was taken at time 1.25, but the restored world is at 0.7"),
        ({"sessions": {}}, "its 'sessions' is of the wrong type: dict"),
        ({"sessions": [{"session": "s"}]}, "its 'sessions' are malformed"),
        ({"sessions": ["s"]}, "its 'sessions' are malformed"),
        ({"sessions": [{"session": 1, "agent_id": "a", "name": "n"}]}, "its 'sessions' are malf"),
        ({"ids": {"key": "xyz", "issued": 2}}, "its 'ids' are malformed"),
        ({"ids": {"key": "00"}}, "it has no 'issued'"),
        ({"pending_inputs": [{"agent_id": "a"}]}, "its 'pending_inputs' are malformed"),
        ({"chat": {"posted": 1, "messages": [{"id": "x"}]}}, "its 'messages' are malformed"),
        ({"state": {"ticks": -1}}, "its state cannot be restored: ticks cannot be negative"),
        ({"state": {}}, "its state cannot be restored: KeyError: 'ticks'"),
        ({"state": 5}, "its state cannot be restored: TypeError"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_foreign_document_is_refused_with_the_reason(lived, changes, complaint):
    document = {**json.loads(written(lived)), **changes}
    with pytest.raises(SnapshotRefusal, match=f"^{_escaped(complaint)}"):
        restored(json.dumps(document).encode())


@pytest.mark.parametrize(
    "key",
    [
        "format",
        "version",
        "scene_hash",
        "tick",
        "time",
        "state",
        "sessions",
        "ids",
        "pending_inputs",
        "chat",
    ],
)
def test_a_document_without_one_of_its_keys_is_refused(lived, key):
    document = json.loads(written(lived))
    del document[key]
    with pytest.raises(SnapshotRefusal, match=f"it has no '{key}'"):
        restored(json.dumps(document).encode())


def test_a_number_that_is_not_json_is_refused(lived):
    body = written(lived).replace(b'"tick":7', b'"tick":NaN')
    with pytest.raises(SnapshotRefusal, match="NaN is not JSON"):
        restored(body)


ACTIONS = st.one_of(
    st.tuples(st.just("join"), st.text(max_size=5).map(lambda name: "x" + name)),
    st.tuples(st.just("leave"), st.integers(0, 2)),
    st.tuples(st.just("queue"), st.integers(0, 2), st.integers()),
    st.tuples(st.just("tick")),
    st.tuples(st.just("say"), st.integers(0, 2), st.text(min_size=1, max_size=5)),
)


@pytest.mark.thorough
@given(before=st.lists(ACTIONS, max_size=15), after=st.lists(ACTIONS, max_size=15))
def test_a_copy_continues_like_the_original_at_any_moment(before, after):
    original = HostedWorld(Tally(), nonce=NONCE)
    for action in before:
        perform(original, *action)
    copy = restored(written(original))
    for action in after:
        assert perform(copy, *action) == perform(original, *action)
    assert written(copy) == written(original)


def perform(hosted: HostedWorld, kind: str, *arguments):
    if kind == "join":
        return hosted.join(*arguments) if len(hosted.sessions) < 3 else None
    if kind == "tick":
        hosted.apply_inputs()
        return hosted.step()
    place, *rest = arguments
    sessions = [*hosted.sessions]
    if place >= len(sessions):
        return None
    if kind == "leave":
        return hosted.leave(sessions[place])
    if kind == "say":
        return hosted.say(sessions[place], *rest)
    return hosted.queue(sessions[place], "Add", *rest)


def _escaped(text: str) -> str:
    return text.replace(".", r"\.").replace("(", r"\(")
