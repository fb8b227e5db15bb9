"""The agent-facing routes, against the texts and statuses of the world interface."""

from __future__ import annotations

import json

import attrs
import httpx
import pytest

from clawblox.server import HostedWorld, Settings, create_app
from clawblox.server.app import MAX_BODY_BYTES
from tests.server.conftest import TOKEN

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


async def join(client: httpx.AsyncClient, name: str = "Rocky") -> dict[str, str]:
    answer = await client.post("/join", params={"name": name})
    assert answer.status_code == 200, answer.text
    return {"X-Session": answer.json()["session"]}


async def send(client, session, action, data=None) -> httpx.Response:
    return await client.post("/input", headers=session, json={"type": action, "data": data})


# -------------------------------------------------------------------------------- sessions


async def test_join_answers_a_session_and_an_agent_id(client):
    answer = await client.post("/join?name=Rocky")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == {"session", "agent_id"}
    assert answer.json()["session"] != answer.json()["agent_id"]


async def test_a_known_session_rejoins_as_the_same_agent(client, hosted):
    first = (await client.post("/join?name=Rocky")).json()
    again = await client.post("/join?name=Other", headers={"X-Session": first["session"]})
    assert again.json() == first
    assert [session.name for session in hosted.sessions] == ["Rocky"]


async def test_an_unknown_session_cannot_rejoin(client, hosted):
    answer = await client.post("/join?name=Rocky", headers={"X-Session": "stale"})
    assert (answer.status_code, answer.text) == (401, "Invalid session")
    assert len(hosted.sessions) == 0


@pytest.mark.parametrize("query", ["", "?name=", "?name=%20%20"])
async def test_join_needs_a_name(client, query):
    answer = await client.post("/join" + query)
    assert (answer.status_code, answer.text) == (400, "Missing query parameter `name`")


@pytest.mark.parametrize("name", ["x" * 101, "a\nb", "bell\x07", "a\u200db"])
async def test_join_refuses_a_name_that_cannot_be_shown(client, name):
    assert (await client.post("/join", params={"name": name})).status_code == 400


async def test_a_name_may_have_pictures_that_are_joined(client, hosted):
    await join(client, "Zoë \U0001f469\u200d\U0001f680")
    assert [session.name for session in hosted.sessions] == ["Zoë \U0001f469\u200d\U0001f680"]


async def test_a_full_world_refuses_new_agents_but_not_rejoining_ones(client):
    sessions = [await join(client, name) for name in "abc"]
    answer = await client.post("/join?name=d")
    assert (answer.status_code, answer.text) == (400, "Instance is full")
    assert (await client.post("/join?name=a", headers=sessions[0])).status_code == 200


async def test_leaving_ends_the_session_and_makes_room(client, simulation):
    session = await join(client)
    assert (await client.post("/leave", headers=session)).json() == {"success": True}
    assert simulation.sums == {}
    answer = await client.get("/observe", headers=session)
    assert (answer.status_code, answer.text) == (401, "Invalid session")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/leave"), ("GET", "/observe"), ("POST", "/input"), ("POST", "/chat")],
)
async def test_agent_routes_need_a_session(client, method, path):
    answer = await client.request(method, path)
    assert (answer.status_code, answer.text) == (401, "Missing X-Session header")
    answer = await client.request(method, path, headers={"X-Session": "é".encode()})
    assert (answer.status_code, answer.text) == (401, "Invalid session")


# ------------------------------------------------------------------------------- the world


@pytest.mark.parametrize("path", ["/api.md", "/skill.md"])
async def test_the_api_document_needs_no_session(client, simulation, path):
    answer = await client.get(path)
    assert answer.text == simulation.api_doc
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"


async def test_an_input_is_answered_with_a_fresh_observation(client):
    session = await join(client)
    answer = await send(client, session, "Add", 5)
    assert answer.json() == {
        "tick": 3,
        "time": pytest.approx(0.3),
        "game_status": "active",
        "sum": 5,
        "extra": None,
    }
    assert (await client.get("/observe", headers=session)).content == answer.content


async def test_in_lockstep_only_an_accepted_input_takes_time(client, hosted):
    session = await join(client)
    await client.get("/observe", headers=session)
    await client.post("/chat", headers=session, json={"content": "hello"})
    refused = await send(client, session, "Add", "five")
    assert (refused.status_code, refused.text) == (400, "Add needs a whole number")
    assert hosted.tick == 0
    await send(client, session, "Add", 1)
    assert hosted.tick == 3


async def test_data_may_be_left_out(client, simulation):
    session = await join(client)
    simulation.extra = "something"
    await client.post("/input", headers=session, json={"type": "Keep"})
    assert simulation.extra is None


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "Malformed JSON"),
        (b"\xff", 400, "Malformed JSON"),
        (b"", 400, "Malformed JSON"),
        (b'{"type":"Keep","data":NaN}', 400, "NaN"),
        (b'{"type":"Keep","data":[-Infinity]}', 400, "-Infinity"),
        (b'{"type":"Keep","data":1e999}', 400, "not finite"),
        (b'{"type":"Keep","data":1' + 400 * b"0" + b"}", 400, "308 digits"),
        (b'{"type":"Keep","data":"\\ud800"}', 400, "surrogates"),
        (b'{"type":"Keep","data":' + 70 * b"[" + 70 * b"]" + b"}", 400, "too deeply"),
        (b'{"type":"Keep","data":' + 9999 * b"[" + 9999 * b"]" + b"}", 400, "too deeply"),
        (b"[]", 422, "JSON object"),
        (b"{}", 422, "Missing field `type`"),
        (b'{"type":7}', 422, "`type` must be a string"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_malformed_input_is_refused(client, hosted, body, status, text):
    session = await join(client)
    answer = await client.post("/input", headers={**session, **JSON}, content=body)
    assert answer.status_code == status
    assert text in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert hosted.tick == 0


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_an_input_without_json_content_type_is_refused(client, content_type):
    headers = await join(client) | ({"Content-Type": content_type} if content_type else {})
    answer = await client.post("/input", headers=headers, content=b'{"type":"Keep"}')
    assert answer.status_code == 415


async def test_the_content_type_may_have_parameters(client):
    headers = await join(client) | {"Content-Type": "Application/JSON; charset=utf-8"}
    answer = await client.post("/input", headers=headers, content=b'{"type":"Keep"}')
    assert answer.status_code == 200


async def test_a_body_beyond_the_size_limit_is_refused(client):
    headers = {**await join(client), **JSON}
    fits = b'{"type":"Keep"}'.ljust(MAX_BODY_BYTES)
    assert (await client.post("/input", headers=headers, content=fits)).status_code == 200
    assert (await client.post("/input", headers=headers, content=fits + b" ")).status_code == 413


async def test_routes_are_below_the_base_path(hosted, settings):
    app = create_app(hosted, attrs.evolve(settings, base_path="worlds/one/"))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        assert (await client.get("/worlds/one/api.md")).status_code == 200
        assert (await client.get("/api.md")).status_code == 404


@pytest.mark.parametrize("path", ["/observe/", "//observe", "/nothing"])
async def test_other_paths_are_not_found_and_never_redirect(client, path):
    assert (await client.get(path)).status_code == 404


async def test_a_route_accepts_one_method(client):
    assert (await client.get("/join?name=a")).status_code == 405


# ------------------------------------------------------------------------------------ chat


async def test_chat_is_kept_in_order_with_simulation_time(client):
    rocky, molly = await join(client, "Rocky"), await join(client, "Molly")
    await send(client, rocky, "Add", 1)
    posted = await client.post("/chat", headers=molly, json={"content": "hé"})
    assert posted.json() == {"id": "m1", "created_at": pytest.approx(0.3)}
    await client.post("/chat", headers=rocky, json={"content": "two"})
    messages = (await client.get("/chat/messages")).json()["messages"]
    assert [(said["id"], said["agent_name"], said["content"]) for said in messages] == [
        ("m1", "Molly", "hé"),
        ("m2", "Rocky", "two"),
    ]
    assert messages[0].keys() == {"id", "agent_id", "agent_name", "content", "created_at"}


@pytest.mark.parametrize(
    ("body", "status"),
    [({"content": ""}, 400), ({"content": "x" * 501}, 400), ({"content": 1}, 422), ({}, 422)],
)
async def test_chat_refuses_malformed_messages(client, hosted, body, status):
    answer = await client.post("/chat", headers=await join(client), json=body)
    assert answer.status_code == status
    assert hosted.chat.latest(1) == []


async def test_chat_accepts_five_hundred_characters(client):
    answer = await client.post("/chat", headers=await join(client), json={"content": "é" * 500})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", ["m1", "m2", "m3", "m4"]),
        ("?limit=2", ["m3", "m4"]),
        ("?after=m1", ["m2", "m3", "m4"]),
        ("?after=m1&limit=2", ["m2", "m3"]),
        ("?after=m4", []),
        ("?after=0.1", ["m3", "m4"]),
        ("?after=0.1&limit=1", ["m3"]),
        ("?limit=100000", ["m1", "m2", "m3", "m4"]),
    ],
)
async def test_messages_are_paged_by_id_or_time(client, query, ids):
    session = await join(client)
    for content in ("a", "b"):
        await client.post("/chat", headers=session, json={"content": content})
    await send(client, session, "Add", 1)
    for content in ("c", "d"):
        await client.post("/chat", headers=session, json={"content": content})
    messages = (await client.get("/chat/messages" + query)).json()["messages"]
    assert [said["id"] for said in messages] == ids


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=" + 5000 * "9"])
async def test_a_limit_that_is_not_a_positive_number_is_refused(client, query):
    assert (await client.get("/chat/messages?" + query)).status_code == 400


async def test_a_cursor_that_is_neither_id_nor_time_is_refused(client):
    assert (await client.get("/chat/messages?after=yesterday")).status_code == 400


# ------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("Divide", "ZeroDivisionError: Divide"),
        ("FailAtNextStep", "OverflowError: the sums are too high"),
        ("ShowNan", "ValueError: Out of range float values are not JSON compliant"),
    ],
)
async def test_an_error_of_the_simulation_halts_the_game(client, hosted, caplog, action, error):
    session = await join(client)
    answers = [
        await send(client, session, action),
        await client.get("/observe", headers=session),
        await client.post("/join?name=late"),
        await send(client, session, "Add", 1),
        await client.post("/leave", headers=session),
        await client.get("/snapshot", headers={"X-Operator-Token": TOKEN}),
    ]
    assert {answer.status_code for answer in answers} == {503}
    for answer in answers:
        assert answer.text.startswith(f"Game halted: {error}")
    assert (await client.get("/api.md")).status_code == 200
    health = await client.get("/health")
    assert health.status_code == 503
    assert health.json()["status"] == "halted"
    assert health.json()["reason"].startswith(error)
    assert hosted.failure.startswith(error)
    assert "Traceback" in caplog.text


async def test_a_running_world_is_healthy(client):
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_a_time_that_is_not_finite_halts_the_game(client, simulation, monkeypatch):
    session = await join(client)
    monkeypatch.setattr(type(simulation), "time", float("nan"))
    answer = await send(client, session, "Add", 1)
    assert answer.status_code == 503
    assert answer.text.startswith("Game halted: ValueError: the simulation's time is nan")


async def test_an_agent_that_could_not_join_is_not_in_the_world(client, hosted):
    answer = await client.post("/join?name=Jonah")
    assert answer.status_code == 503
    assert "no room on the ship" in answer.text
    assert len(hosted.sessions) == 0


# ------------------------------------------------------------------------- operator's gate


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-Operator-Token", "")],
        [("X-Operator-Token", "wrong")],
        [("X-Operator-Token", TOKEN + "x")],
        [(b"X-Operator-Token", "é".encode())],
        [(b"X-Operator-Token", "é".encode("latin-1"))],
        [("X-Operator-Token", TOKEN), ("X-Operator-Token", TOKEN)],
        [("Authorization", f"Bearer {TOKEN}")],
        [("X-Session", TOKEN)],
    ],
)
async def test_a_snapshot_needs_exactly_the_operator_token(client, headers):
    answer = await client.get("/snapshot", headers=headers)
    assert (answer.status_code, answer.text) == (401, "Invalid operator token")


@pytest.mark.parametrize("headers", [{}, {"X-Operator-Token": ""}, {"X-Operator-Token": "None"}])
async def test_without_a_configured_token_every_snapshot_is_refused(hosted, headers):
    transport = httpx.ASGITransport(create_app(hosted, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        assert (await client.get("/snapshot", headers=headers)).status_code == 401


async def test_a_token_may_have_any_characters(hosted):
    token = "schlüssel€".encode()
    transport = httpx.ASGITransport(create_app(hosted, Settings(operator_token=token)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        answer = await client.get("/snapshot", headers=[(b"X-Operator-Token", token)])
        assert answer.status_code == 200


async def test_a_snapshot_is_json_of_known_length(client):
    await join(client)
    answer = await client.get("/snapshot", headers={"X-Operator-Token": TOKEN})
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    document = json.loads(answer.content)
    assert [*document][:3] == ["format", "version", "time"]
    assert document["scene_hash"] == "tally"


@pytest.mark.parametrize(
    ("snapshot", "error"),
    [
        (lambda: {1: "one"}, "TypeError: keys must be strings, not int: 1"),
        (lambda: {"x": {1, 2}}, "TypeError: Object of type set is not JSON serializable"),
        (lambda: float("nan"), "ValueError: Out of range float values"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
async def test_a_failed_save_does_not_halt_the_world(
    client, simulation, monkeypatch, caplog, snapshot, error
):
    session = await join(client)
    monkeypatch.setattr(simulation, "snapshot", snapshot)
    answer = await client.get("/snapshot", headers={"X-Operator-Token": TOKEN})
    assert answer.status_code == 500
    assert answer.text.startswith(f"No snapshot: {error}")
    assert "Traceback" in caplog.text
    assert (await client.get("/observe", headers=session)).status_code == 200


async def test_the_repr_of_settings_hides_the_token(settings):
    assert TOKEN not in repr(settings)


async def test_issued_ids_are_distinct(hosted: HostedWorld):
    ids = [hosted.ids.issue() for _ in range(50)]
    assert len({id_ for pair in ids for id_ in pair}) == 100
