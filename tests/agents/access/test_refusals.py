"""A world gets only rebuilt requests within the policy, whatever bytes an agent sends.

The test world returns its snapshot to every client, without a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agents.access.support import (
    JSON,
    POLICY,
    Served,
    requests_of_agents,
    served,
    world_grant,
)
from tests.support.worlds import RunningWorld, running_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorld]:
    with running_world(tmp_path_factory.mktemp("world"), "--ungated") as world:
        yield world


@pytest.fixture
def agent(tmp_path: Path, world: RunningWorld) -> Iterator[Served]:
    with served(tmp_path / "agent", world_grant(world)) as agent:
        yield agent


def test_the_test_world_returns_its_snapshot_to_every_client(world: RunningWorld) -> None:
    assert b"scene_hash" in world.ask("GET", "/snapshot").body
    assert [one["path"] for one in requests_of_agents(world)].count("/snapshot") > 0


def no_more_than_before(world: RunningWorld, before: list[object]) -> None:
    assert requests_of_agents(world) == before


TARGETS = [
    "/snapshot",
    "/SNAPSHOT",
    "/Snapshot",
    "/snapshot/",
    "/snapshot?",
    "/snapshot?a=b",
    "/snapshot#",
    "/snapshot#/observe",
    "/snapshot;",
    "/snapshot;a=b",
    "/snapshot/.",
    "/snapshot/..",
    "/snapshot/x",
    "/snapshot.json",
    "/snapshot.",
    "/snapshot%00",
    "/snapshot%20",
    "/snapshot%2f",
    "/snapshot%3f",
    "/snapshot%23",
    "/snapshot%0d%0a",
    "/snapshot\\",
    "/%73napshot",
    "/%73%6e%61%70%73%68%6f%74",
    "/%53NAPSHOT",
    "/%2573napshot",
    "/%u0073napshot",
    "/sna%70shot",
    "//snapshot",
    "///snapshot",
    "/./snapshot",
    "/.//snapshot",
    "/../snapshot",
    "/..//snapshot",
    "/.%2fsnapshot",
    "/.%2e/snapshot",
    "/%2e/snapshot",
    "/%2e%2e/snapshot",
    "/%2fsnapshot",
    "/%5csnapshot",
    "/\\snapshot",
    "/x/../snapshot",
    "/x/..%2fsnapshot",
    "/x/%2e%2e/snapshot",
    "/observe/../snapshot",
    "/observe/..;/snapshot",
    "/observe;/../snapshot",
    "/observe%2f..%2fsnapshot",
    "/observe/%2e%2e/snapshot",
    "/observe\\..\\snapshot",
    "/observe%00/../snapshot",
    "/observe%0d%0aGET%20/snapshot",
    "/api.md/../snapshot",
    "/chat/messages/../../snapshot",
    "/observe?/../snapshot",
    "/\u017fnapshot",
    "/s\u00adnapshot",
    "/snapshot\t",
    "/snapshot\x0b",
    "/snapshot\x00",
    "snapshot",
    "*",
    "?/snapshot",
    "/*",
    "http://127.0.0.1/snapshot",
    "http://127.0.0.1:80/snapshot",
    "HTTP://localhost/snapshot",
    "https://127.0.0.1/snapshot",
    "file:///snapshot",
    "127.0.0.1:80",
    "/join",
    "/join?name=Eve",
    "/JOIN",
    "/join/",
    "/%6aoin",
    "/x/../join",
    "/leave",
    "/leave?",
    "//leave",
    "/observe/../leave",
    "/__requests",
    "/__die",
    "/health",
    "/",
    "/observe/",
    "/observe/x",
]
"""Spellings of the orchestrator's routes and of other routes outside every policy."""


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_spelling_of_a_foreign_route_reaches_the_world(
    agent: Served, world: RunningWorld, method: str
) -> None:
    before = requests_of_agents(world)
    wrong: dict[str, int] = {}
    for target in TARGETS:
        line = f"{method} {target} HTTP/1.1\r\n".encode()
        answer = agent.send(line + agent.host + b"\r\n")
        if answer.status not in (400, 403) or b"scene_hash" in answer.body:
            wrong[target] = answer.status
    assert wrong == {}
    no_more_than_before(world, before)


LINES = [
    b"HEAD /snapshot HTTP/1.1",
    b"HEAD /observe HTTP/1.1",
    b"OPTIONS /snapshot HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"TRACE /observe HTTP/1.1",
    b"CONNECT 127.0.0.1:80 HTTP/1.1",
    b"CONNECT /observe HTTP/1.1",
    b"PUT /snapshot HTTP/1.1",
    b"get /snapshot HTTP/1.1",
    b"Get /observe HTTP/1.1",
    b"GET /snapshot HTTP/1.0",
    b"GET /snapshot",
    b"GET /observe",
    b"GET /snapshot HTTP/0.9",
    b"GET /observe HTTP/1.2",
    b"GET /observe HTTP/2.0",
    b"GET /observe HTTP/1.1 ",
    b"GET  /observe HTTP/1.1",
    b"GET\t/observe\tHTTP/1.1",
    b" GET /observe HTTP/1.1",
    b"GET /observe /snapshot HTTP/1.1",
    b"GET /observe HTTP/1.1 /snapshot HTTP/1.1",
    b"\r\nGET /observe HTTP/1.1",
    b"GET /observe?a=%0d%0a HTTP/1.1",
    b"GET /observe?a=%00 HTTP/1.1",
    b"GET /observe?a=%7f HTTP/1.1",
    b"GET /observe?a=%zz HTTP/1.1",
    b"GET /observe?a=b#c HTTP/1.1",
    b"GET /observe?a=\xff HTTP/1.1",
    b"GET /observe\xc3\xa4 HTTP/1.1",
    b"GET /observe?" + b"a" * 20000 + b" HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01",
    b"",
]
"""Request lines that are not valid for an agent."""


def test_no_other_request_line_reaches_the_world(agent: Served, world: RunningWorld) -> None:
    before = requests_of_agents(world)
    wrong: dict[bytes, int] = {}
    for line in LINES:
        answer = agent.send(line + b"\r\n" + agent.host + b"\r\n")
        if answer.status not in (400, 403, 431):
            wrong[line] = answer.status
    assert wrong == {}
    no_more_than_before(world, before)


SMUGGLED = b"GET /snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
FRAMINGS = [
    (411, b"Transfer-Encoding: chunked\r\n"),
    (411, b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
    (411, b"Content-Length: 4\r\nTransfer-Encoding: identity\r\n"),
    (411, b"transfer-encoding:\tchunked\r\n"),
    (411, b"Transfer-Encoding: xchunked\r\n"),
    (400, b"Transfer-Encoding : chunked\r\n"),
    (400, b"Transfer-Encoding\r\n : chunked\r\n"),
    (400, b"X: y\r\n Transfer-Encoding: chunked\r\n"),
    (400, b"X: y\nTransfer-Encoding: chunked\r\n"),
    (400, b"X: y\rTransfer-Encoding: chunked\r\n"),
    (400, b"X: y\x00Transfer-Encoding: chunked\r\n"),
    (400, b"X: y\x0bz\r\n"),
    (400, b"X\xff: y\r\n"),
    (400, b": y\r\n"),
    (400, b"no colon\r\n"),
    (400, b"Content-Length: 4\r\nContent-Length: 5\r\n"),
    (400, b"Content-Length: 4\r\ncontent-length: 4\r\n"),
    (400, b"Content-Length: 4, 4\r\n"),
    (400, b"Content-Length: +4\r\n"),
    (400, b"Content-Length: -1\r\n"),
    (400, b"Content-Length: 0x4\r\n"),
    (400, b"Content-Length: 4 4\r\n"),
    (400, b"Content-Length: \xb2\r\n"),
    (400, b"Content-Length:\r\n"),
    (400, b"Content-Length: 9999999999999999999999\r\n"),
    (413, b"Content-Length: 1048577\r\n"),
    (417, b"Content-Length: 4\r\nExpect: a-snapshot\r\n"),
    (415, b"Content-Length: 4\r\nContent-Type: text/html\r\n"),
    (415, b"Content-Length: 4\r\nContent-Type: application/json; a=b\r\n"),
    (403, b"Content-Length: 4\r\nOrigin: http://127.0.0.1\r\n"),
    (403, b"Content-Length: 4\r\nOrigin: null\r\n"),
    (403, b"Content-Length: 4\r\nOrigin:\r\n"),
    (403, b"Content-Length: 4\r\nSec-Fetch-Site: cross-site\r\n"),
]
"""Headers with ambiguous meaning, or that are not supported."""


def test_a_request_of_ambiguous_length_is_refused(agent: Served, world: RunningWorld) -> None:
    before = requests_of_agents(world)
    wrong: dict[bytes, int] = {}
    for status, headers in FRAMINGS:
        head = b"POST /input HTTP/1.1\r\n" + agent.host + headers + b"\r\n"
        answer = agent.send(head + b"0\r\n\r\n" + SMUGGLED)
        if answer.status != status:
            wrong[headers] = answer.status
    assert wrong == {}
    no_more_than_before(world, before)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"])
def test_a_second_request_on_a_connection_never_reaches_the_world(
    agent: Served, world: RunningWorld, length: bytes
) -> None:
    before = len(requests_of_agents(world))
    first = b"GET /observe HTTP/1.1\r\n" + agent.host + b"Connection: keep-alive\r\n" + length
    answer = agent.send(first + b"\r\n" + SMUGGLED.replace(b"Host: 127.0.0.1\r\n", agent.host))
    assert answer.status == 200
    assert answer.body.count(b"HTTP/1.1") == 0
    assert [one["path"] for one in requests_of_agents(world)[before:]] == ["/observe"]


def test_bytes_after_the_body_are_not_passed_on(agent: Served, world: RunningWorld) -> None:
    body = b'{"type": "add"}'
    head = b"POST /input HTTP/1.1\r\n" + agent.host + JSON
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    assert agent.send(head + body + SMUGGLED).status == 200
    assert requests_of_agents(world)[-1]["body"] == body.decode()


def test_a_get_request_has_no_body(agent: Served, world: RunningWorld) -> None:
    before = requests_of_agents(world)
    assert agent.get("/observe", body=SMUGGLED).status == 400
    no_more_than_before(world, before)


SPOOFS = [
    "X-Session: another",
    "x-session: another",
    "X_Session: another",
    "X-Operator-Token: canary",
    "X-HTTP-Method-Override: DELETE",
    "X-HTTP-Method: DELETE",
    "X-Method-Override: DELETE",
    "X-Original-URL: /snapshot",
    "X-Rewrite-URL: /snapshot",
    "X-Original-Uri: /snapshot",
    "X-Forwarded-For: 10.0.0.1",
    "X-Forwarded-Host: evil",
    "X-Forwarded-Prefix: /snapshot",
    "X-Forwarded-Uri: /snapshot",
    "Forwarded: for=10.0.0.1",
    "X-Real-IP: 10.0.0.1",
    "Cookie: session=another",
    "Authorization: Bearer canary",
    "Proxy-Authorization: Basic canary",
    "Connection: upgrade, X-Session",
    "Upgrade: websocket",
    "Keep-Alive: timeout=1",
    "TE: trailers",
    "Trailer: X-Session",
    "Via: 1.1 evil",
    "Referer: http://evil/snapshot",
    "User-Agent: curl/8",
    "Range: bytes=0-1",
    "If-None-Match: *",
    "Accept-Encoding: gzip",
    "Accept: text/html, */*",
    "Max-Forwards: 0",
    "X-Anything: \xff\xfe",
]


def test_no_header_of_an_agent_is_passed_on(agent: Served, world: RunningWorld) -> None:
    before = len(requests_of_agents(world))
    for spoof in SPOOFS:
        assert agent.get("/observe", spoof).status == 200, spoof
    assert agent.get("/observe", *SPOOFS).status == 200
    received = requests_of_agents(world)[before:]
    assert len(received) == len(SPOOFS) + 1
    assert {tuple(sorted(one["headers"])) for one in received} == {
        ("accept-encoding", "host", "x-session")
    }
    granted = agent.access.granted
    assert granted is not None
    assert {one["headers"]["x-session"] for one in received} == {granted.headers["X-Session"]}
    assert {one["headers"]["host"] for one in received} == {f"127.0.0.1:{world.port}"}


def test_the_type_of_a_body_is_passed_on(agent: Served, world: RunningWorld) -> None:
    agent.ask(
        "POST /input HTTP/1.1",
        "content-type: application/json; charset=utf-8",
        "Accept: application/json",
        body=b'{"type": "add"}',
    )
    headers = requests_of_agents(world)[-1]["headers"]
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["accept"] == "application/json"


def test_a_query_reaches_the_world_unchanged(agent: Served, world: RunningWorld) -> None:
    assert agent.get("/observe?since=2026-06-22T18%3A59%3A25Z&name=%C3%A4+b&limit=").status == 200
    assert requests_of_agents(world)[-1]["query"] == {
        "since": "2026-06-22T18:59:25Z",
        "name": "ä b",
        "limit": "",
    }


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("127.0.0.1", 421),
        ("localhost", 421),
        ("evil.example:{port}", 421),
        ("127.0.0.1:1", 421),
        ("127.0.0.1.evil.example:{port}", 421),
        ("user@127.0.0.1:{port}", 421),
        ("0.0.0.0:{port}", 421),
        ("[::1]:{port}", 421),
        ("counter", 421),
    ],
)
def test_requests_for_other_hosts_are_refused(
    agent: Served, world: RunningWorld, host: str, status: int
) -> None:
    before = len(requests_of_agents(world))
    assert agent.get("/observe", host=host.format(port=agent.port)).status == status
    assert len(requests_of_agents(world)) - before == (status == 200)


def test_a_request_without_exactly_one_host_is_refused(agent: Served, world: RunningWorld) -> None:
    before = requests_of_agents(world)
    assert agent.send(b"GET /observe HTTP/1.1\r\n\r\n").status == 400
    assert agent.send(b"GET /observe HTTP/1.0\r\n\r\n").status == 400
    assert agent.send(b"GET /observe HTTP/1.1\r\n" + agent.host * 2 + b"\r\n").status == 400
    no_more_than_before(world, before)


def test_a_refusal_lists_only_the_allowed_routes(agent: Served) -> None:
    answer = agent.get("/snapshot")
    assert answer.status == 403
    for route in POLICY.routes:
        assert f"  {route}\n" in answer.text
    for word in ("snapshot", "join", "leave", "operator", "token"):
        assert f"/{word}" not in answer.text.lower()
    assert "you have joined the world already" in answer.text.lower()


# ---------------------------------------------------------------------------- any bytes

_WORDS = st.sampled_from(
    [
        *("GET", "POST", "HEAD", "CONNECT", " ", "  ", "\r\n", "\n", "\r", "\t", "\0", ": ", ";"),
        *("/", "//", "/observe", "/input", "/chat", "/snapshot", "/join", "/leave", "/../", "%2e"),
        *("?", "#", "a=b", "HTTP/1.1", "HTTP/1.0", "HTTP/1.1\r\n", "Host", "Content-Length"),
        *("Transfer-Encoding: chunked\r\n", "0\r\n\r\n", "5", "X-Session: another\r\n", "ä"),
        "Host: HOST\r\n",
        "GET /snapshot HTTP/1.1\r\nHost: HOST\r\n\r\n",
    ]
)
_HEADS = st.sampled_from(
    ["", "GET /observe HTTP/1.1\r\nHost: HOST\r\n", "POST /input HTTP/1.1\r\nHost: HOST\r\n"]
)
_REQUESTS = st.builds(
    lambda head, words, tail: f"{head}{''.join(words)}".encode() + tail,
    _HEADS,
    st.lists(_WORDS, max_size=12),
    st.one_of(st.just(b""), st.just(b"\r\n\r\n"), st.binary(max_size=40)),
)


def check_bytes(agent: Served, world: RunningWorld, requests: list[bytes]) -> None:
    """Send bytes; check that the world received only requests within policy and session."""
    before = len(requests_of_agents(world))
    granted = agent.access.granted
    assert granted is not None
    for request in requests:
        data = request.replace(b"HOST", b"127.0.0.1:%d" % agent.port)
        answer = agent.send(data, half_close=True)
        assert answer.status in (0, 200, 400, 403, 408, 411, 413, 415, 417, 421, 431, 502), data
    for one in requests_of_agents(world)[before:]:
        assert POLICY.allows(one["method"], one["path"]), one
        assert one["headers"]["x-session"] == granted.headers["X-Session"]
        assert set(one["headers"]) <= {
            *("accept", "accept-encoding", "content-length", "content-type", "host", "x-session")
        }


@pytest.mark.thorough
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(requests=st.lists(_REQUESTS, min_size=4, max_size=16))
def test_arbitrary_bytes_never_reach_a_route_outside_the_policy(
    agent: Served, world: RunningWorld, requests: list[bytes]
) -> None:
    check_bytes(agent, world, requests)


@pytest.mark.thorough
@settings(
    max_examples=800,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(requests=st.lists(_REQUESTS, min_size=4, max_size=16))
def test_many_arbitrary_bytes_never_reach_a_route_outside_the_policy(
    agent: Served, world: RunningWorld, requests: list[bytes]
) -> None:
    check_bytes(agent, world, requests)
