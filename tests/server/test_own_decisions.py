"""Decisions of a simulation about sessions, halts, observations and audiences."""

from __future__ import annotations

import json

import pytest

from clawblox.server import HostedWorld
from clawblox.server.sessions import MAX_ENDED, AgentSession, Sessions
from clawblox.server.snapshot_document import SnapshotRefusal, make_snapshot, restore_snapshot
from tests.server.gallery import Gallery
from tests.server.seen import Seen
from tests.server.test_own_routes import GALLERY
from tests.server.test_routes import join, send

pytestmark = pytest.mark.anyio

ENDED = (400, "Not in any instance of this game")


@pytest.fixture
def simulation(tmp_path) -> Gallery:
    return Gallery(tmp_path)


# ------------------------------------------------------------------------------ ended sessions


async def test_n10_a_kicked_session_is_in_no_instance_of_the_game(client, hosted):
    rocky, molly = await join(client, "Rocky"), await join(client, "Molly")
    hosted.recorder = recorder = Seen()
    kicked = next(iter(hosted.sessions)).agent_id
    assert (await send(client, molly, "Kick", kicked)).status_code == 200
    for method, path in [
        ("GET", "/observe"),
        ("POST", "/input"),
        ("POST", "/chat"),
        ("POST", "/leave"),
        ("POST", "/join?name=Rocky"),
    ]:
        answer = await client.request(method, path, headers=rocky, json={"type": "Add", "data": 1})
        assert (answer.status_code, answer.text) == ENDED
    assert [fields for event, fields in recorder.events if event == "removed"] == [
        {"agent_id": kicked}
    ]
    assert (await client.get("/observe", headers=molly)).status_code == 200
    assert [session.name for session in hosted.sessions] == ["Molly"]


async def test_an_agent_that_kicks_itself_gets_the_error_as_the_answer(client):
    session = await join(client)
    answer = await send(client, session, "Kick")
    assert (answer.status_code, answer.text) == ENDED


async def test_agents_without_a_session_may_be_removed(client, hosted):
    session = await join(client)
    assert (await send(client, session, "Kick", "a bot")).status_code == 200
    assert len(hosted.sessions) == 1


async def test_inputs_of_a_kicked_agent_are_dropped(hosted):
    session = hosted.join("Rocky")
    hosted.queue(session, "Kick", None)
    hosted.apply_inputs()
    hosted.queue(session, "Add", 1)
    hosted.step()
    assert hosted.pending == []


async def test_ended_sessions_are_in_the_snapshot(hosted, tmp_path):
    session = hosted.join("Rocky")
    hosted.queue(session, "Kick", None)
    hosted.apply_inputs()
    hosted.step()
    document = make_snapshot(hosted)
    copy = HostedWorld(Gallery(tmp_path))
    restore_snapshot(copy, json.dumps(document).encode())
    assert copy.sessions.has_ended(session.session)
    assert make_snapshot(copy) == document
    del document["ended_sessions"]  # as older kits wrote it
    restore_snapshot(HostedWorld(Gallery(tmp_path)), json.dumps(document).encode())
    document["ended_sessions"] = [1]
    with pytest.raises(SnapshotRefusal, match="'ended_sessions' are malformed"):
        restore_snapshot(HostedWorld(Gallery(tmp_path)), json.dumps(document).encode())


def test_only_the_newest_ended_sessions_are_remembered():
    sessions = Sessions()
    for number in range(MAX_ENDED + 1):
        session = AgentSession(f"s{number}", f"a{number}", "Rocky")
        sessions.add(session)
        sessions.end(session)
    assert len(sessions.ended) == MAX_ENDED
    assert not sessions.has_ended("s0")
    assert sessions.has_ended(f"s{MAX_ENDED}")


# -------------------------------------------------------------------------------------- halts


async def test_n3_a_simulation_halts_in_its_own_words(client, hosted, caplog):
    session = await join(client)
    text = "Game halted: Begin frame error: main.lua:3: boom. See logs for full stack trace."
    for answer in [
        await send(client, session, "Halt"),
        await client.get("/observe", headers=session),
        await client.post("/join?name=late"),
        await client.post("/join", headers=session),
        await client.post("/join"),
    ]:
        assert (answer.status_code, answer.text) == (503, text)
    assert (await client.get("/health")).json()["reason"] == hosted.failure
    assert (await client.get("/api.md")).status_code == 200
    assert "Traceback" not in caplog.text


async def test_a_simulation_hears_chat_messages_and_may_halt_at_them(client, hosted):
    session = await join(client)
    await client.post("/chat", headers=session, json={"content": " hello "})
    ((author, content),) = hosted.simulation.heard
    assert (author, content) == (hosted.sessions.find(session["X-Session"]).agent_id, "hello")
    answer = await client.post("/chat", headers=session, json={"content": "Halt"})
    assert answer.status_code == 503
    assert hosted.failure == "Chatted: main.lua:3: boom"
    messages = (await client.get("/chat/messages", headers=session)).json()["messages"]
    assert [each["content"] for each in messages] == ["hello", "Halt"]


def test_n3_the_halt_names_the_log(launch):
    world = launch(GALLERY)
    session = world.ask("POST", "/join?name=a").json()["session"]
    headers = {"X-Session": session, "Content-Type": "application/json"}
    answer = world.ask("POST", "/input", headers=headers, body=b'{"type":"Halt"}')
    assert answer.body.decode() == (
        "Game halted: Begin frame error: main.lua:3: boom. "
        f"See logs for full stack trace: {world.log_file.name}"
    )


def test_n3_the_log_of_a_run_is_named_relative_to_the_run(launch, tmp_path):
    manifest = tmp_path.parent / ".clawblox" / "manifest.json"
    world = launch(GALLERY, env={"CLAWBLOX_MANIFEST_PATH": str(manifest)})
    session = world.ask("POST", "/join?name=a").json()["session"]
    headers = {"X-Session": session, "Content-Type": "application/json"}
    answer = world.ask("POST", "/input", headers=headers, body=b'{"type":"Halt"}')
    name = f"{tmp_path.name}/{world.log_file.name}"
    assert answer.body.decode().endswith(f"See logs for full stack trace: {name}")


# ------------------------------------------------------------------------ observations and chat


async def test_without_a_header_the_observation_is_the_simulations_own(client):
    session = await join(client)
    assert (await client.get("/observe", headers=session)).json() == {"sum": 0, "extra": None}


async def test_n14_content_is_trimmed(client):
    session = await join(client)
    posted = await client.post("/chat", headers=session, json={"content": " hi \n"})
    assert posted.status_code == 200
    assert (await client.get("/chat/messages")).json()["messages"][0]["content"] == "hi"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"content": " \n"}, 400, "Message content cannot be empty"),
        ({"content": "x" * 501}, 400, "Message content exceeds 500 characters"),
        ({"content": "x", "media_url": "http://a/b"}, 400, "`media_url` must be an https address"),
        ({"content": "x", "media_url": "https://a/" + "b" * 2040}, 400, "at most 2048 characters"),
        ({"content": "x", "media_url": "https://a b"}, 400, "`media_url` must be"),
        ({"content": "x", "media_url": 1}, 422, "`media_url` must be a string"),
    ],
)
async def test_n14_the_texts_of_refused_messages(client, hosted, body, status, text):
    answer = await client.post("/chat", headers=await join(client), json=body)
    assert answer.status_code == status
    assert text in answer.text
    assert hosted.chat.latest(1) == []


async def test_n14_a_message_may_have_a_recording(client):
    session = await join(client)
    for url in ("https://media.example/1.ogg", None):
        body = {"content": "hi", "media_url": url}
        assert (await client.post("/chat", headers=session, json=body)).status_code == 200
    spoken, written = (await client.get("/chat/messages")).json()["messages"]
    assert spoken["media_url"] == "https://media.example/1.ogg"
    assert "media_url" not in written


async def test_only_the_audience_hears_a_message_also_after_a_resume(client, hosted, tmp_path):
    speaker, near, far = [await join(client, name) for name in ("Rocky", "Molly", "Ann")]
    await send(client, near, "Add", 1)
    hosted.simulation.is_whispering = True
    await client.post("/chat", headers=speaker, json={"content": "psst"})
    hosted.simulation.is_whispering = False
    await client.post("/chat", headers=speaker, json={"content": "hello"})

    async def heard(headers, query=""):
        answer = await client.get(f"/chat/messages{query}", headers=headers)
        return [(said["content"], "audience" in said) for said in answer.json()["messages"]]

    for query in ("", "?after=0", "?after=m0"):
        assert await heard(speaker, query) == [("psst", False), ("hello", False)]
        assert await heard(near, query) == [("psst", False), ("hello", False)]
        assert await heard(far, query) == [("hello", False)]
        assert await heard({}, query) == [("hello", False)]
    assert await heard(far, "?limit=1") == [("hello", False)]
    copy = HostedWorld(Gallery(tmp_path))
    restore_snapshot(copy, json.dumps(make_snapshot(hosted)).encode())
    assert make_snapshot(copy) == json.loads(json.dumps(make_snapshot(hosted)))
