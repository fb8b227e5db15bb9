"""Persistent connections: requests, accepted and refused answers, and reuse."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import anyio
import pytest

from clawblox.errors import ConfigError, WorldCallError
from clawblox.system.connection import Connection, Connections, Delivery, NotSentError
from clawblox.system.request import Answer
from tests.support.sockets import free_port
from tests.support.waiting import HANG_S, wait_until_async
from tests.system.scripted import (
    Peer,
    Script,
    Server,
    close,
    close_at_request,
    hold,
    reset,
    scripted,
)

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connections]:
    """Yield connections to a server, and close them."""
    connections = Connections(url)
    try:
        with anyio.fail_after(HANG_S):
            yield connections
    finally:
        connections.close()


async def get(connections: Connections, method: str = "GET", **options: Any) -> Answer:
    return await connections.send(
        connections.prepare(method, "/observe"), **{"timeout": HANG_S, **options}
    )


async def read_answer(*pieces: bytes, end: Any = hold, **options: Any) -> tuple[Answer, Server]:
    """Return the client's parsed answer, and the server that sent it."""
    with scripted(Script([pieces], end)) as server:
        async with connected(server.url) as connections:
            return await get(connections, **options), server


# -- requests -------------------------------------------------------------------------------


async def test_a_request_is_sent_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with scripted(Script([OK, OK, OK])) as server:
        async with connected(f"{server.url}/w1") as connections:
            headers = {"X-Session": "s-1"}
            await connections.send(
                connections.prepare("GET", "/observe", headers=headers), timeout=HANG_S
            )
            join = connections.prepare("POST", "/join", query="name=Red%20Fox")
            await connections.send(join, timeout=HANG_S)
            await connections.send(join, b'{"type":"x"}', timeout=HANG_S)
    host = server.url.removeprefix("http://").encode()
    lines = b" HTTP/1.1\r\nHost: " + host + b"\r\nAccept-Encoding: identity\r\n"
    post = b"POST /w1/join?name=Red%20Fox" + lines
    assert server.requests == [
        b"GET /w1/observe" + lines + b"X-Session: s-1\r\n\r\n",
        post + b"Content-Length: 0\r\n\r\n",
        post + b'Content-Length: 12\r\n\r\n{"type":"x"}',
    ]


@pytest.mark.thorough
async def test_a_body_larger_than_any_buffer_is_sent_whole() -> None:
    body = b"0123456789abcdef" * (1 << 19)
    with scripted(Script([OK])) as server:
        async with connected(server.url) as connections:
            await get(connections, "POST", body=body)
    assert server.requests[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(("route", text) for text in ("observe", "/a b", "/a\r\nX: y", "/\xe4", "/\0", "/\x7f")),
        *(("query", text) for text in ("a b", "a\nb", "\N{SNOWMAN}")),
        *(("method", text) for text in ("", "get", "GET /x HTTP/1.1\r\nX:", "G T")),
        *(("name", text) for text in ("", "X Y", "X:", "X\r\nY", "\xe4")),
        *(("name", text) for text in ("Host", "content-length", "Transfer-Encoding")),
        *(("value", text) for text in ("a\r\nX: y", "a\nb", "a\rb", "\0", "\x7f", "\N{SNOWMAN}")),
    ],
)
async def test_values_that_would_break_a_request_are_refused(part: str, value: str) -> None:
    given = {"method": "GET", "route": "/", "query": "", "name": "X-Y", "value": "z", part: value}
    headers = {given["name"]: given["value"]}
    with pytest.raises(ConfigError) as caught:
        Connections("http://127.0.0.1:1").prepare(
            given["method"], given["route"], query=given["query"], headers=headers
        )
    assert caught.value.key is not None
    assert caught.value.key.startswith({"name": "h", "value": "h", "query": "r"}.get(part, part))
    if part == "value":
        assert repr(value) not in str(caught.value), "a header may be a secret"


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8080", "https://127.0.0.1:8080", "http://", "http://:80", "ftp://a"),
        *("http://a:x", "http://a:99999", "http://[::1", "http://a/?x", "http://a#x"),
        *("http://me:secret@a", "http://a b", "http://\N{SNOWMAN}"),
    ],
)
def test_an_address_must_be_plain_http(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        Connections(url)


async def test_an_ipv6_address_is_connected_and_shown_in_brackets() -> None:
    with scripted(Script([OK]), host="::1") as server:
        async with connected(server.url) as connections:
            assert (await get(connections)).body == b"ok"
    port = server.url.rpartition(":")[2].encode()
    assert b"\r\nHost: [::1]:" + port + b"\r\n" in server.requests[0]


async def test_every_address_of_a_host_name_is_tried() -> None:
    with scripted(Script([OK])) as server:
        async with connected(server.url.replace("127.0.0.1", "localhost")) as connections:
            assert (await get(connections)).body == b"ok"
    async with connected(f"http://localhost:{free_port()}") as connections:
        with pytest.raises(NotSentError, match="Connection refused"):
            await get(connections)


async def test_a_connection_sends_small_packets_without_delay() -> None:
    with scripted(Script([OK])) as server:
        async with connected(server.url) as connections:
            await get(connections)
            (idle,) = connections._idle
            assert idle._socket is not None
            assert idle._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


# -- accepted answers -----------------------------------------------------------------------


def with_head(*headers: bytes, body: bytes = b"", status: bytes = b"1.1 200 OK") -> bytes:
    """Return an answer with exactly these headers."""
    return b"HTTP/%s\r\n%s\r\n%s" % (status, b"".join(b"%s\r\n" % line for line in headers), body)


CHUNKED = with_head(b"Transfer-Encoding: chunked")
TWO = b"Content-Length: 2"
TAKEN = {
    "sized": (OK, b"ok"),
    "in other letters": (with_head(b"content-LENGTH:2", b"ConTent-TYPE:a", body=b"ok"), b"ok"),
    "empty": (with_head(b"Content-Length: 0"), b""),
    "chunked": (CHUNKED + b"2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", b"ok!"),
    "chunked with words": (CHUNKED + b"2;a=b\r\nok\r\n0\r\nX-End: yes\r\n\r\n", b"ok"),
    "trailers do not count": (CHUNKED + b"2\r\nok\r\n0\r\nContent-Encoding: gzip\r\n\r\n", b"ok"),
    "identity": (with_head(b"Content-Encoding: Identity", TWO, body=b"ok"), b"ok"),
    "after interim answers": (
        with_head(status=b"1.1 100 Continue")
        + with_head(b"Link: x", b"Content-Encoding: gzip", status=b"1.1 103 Hints")
        + OK,
        b"ok",
    ),
    "204": (with_head(status=b"1.1 204 No Content"), b""),
    "304": (with_head(status=b"1.1 304 Not Modified"), b""),
    "HTTP/1.0 kept": (
        with_head(b"Connection: keep-alive", TWO, body=b"ok", status=b"1.0 200 OK"),
        b"ok",
    ),
}
"""Answers after which the connection is reused, and their bodies."""


@pytest.mark.thorough
@pytest.mark.parametrize("is_split", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("kind", TAKEN)
async def test_a_connection_is_kept_after_a_complete_answer(kind: str, is_split: bool) -> None:
    wire, body = TAKEN[kind]
    pieces = [wire[at : at + 1] for at in range(len(wire))] if is_split else [wire]
    with scripted(Script([pieces, OK])) as server:
        async with connected(server.url) as connections:
            answer = await get(connections)
            assert (answer.body, answer.is_delimited) == (body, True)
            assert (await get(connections)).body == b"ok"
    assert server.accepted == 1


ENDING = {
    "asked to": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "bytes too many": OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "the start of another": OK + b"HTTP/1.1 200",
    "garbage behind": OK + b"garbage",
    "behind a close": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nokay",
}
"""Answers of two bytes after which the connection is closed."""


@pytest.mark.parametrize("kind", ENDING)
async def test_a_connection_is_closed_after_an_answer_that_requests_it(kind: str) -> None:
    with scripted(Script([ENDING[kind], OK]), Script([OK])) as server:
        async with connected(server.url) as connections:
            assert (await get(connections)).body == b"ok"
            assert (await get(connections)).body == b"ok"
    assert server.accepted == 2


@pytest.mark.parametrize(
    ("method", "status"),
    [("HEAD", b"200 OK"), ("HEAD", b"404 Not Found"), ("GET", b"204 None"), ("GET", b"304 Same")],
)
@pytest.mark.parametrize(
    "header", [b"Content-Length: 500", b"Transfer-Encoding: chunked", b"X: y"], ids=str
)
async def test_an_answer_without_a_body_is_complete_immediately(
    method: str, status: bytes, header: bytes
) -> None:
    head = with_head(header, b"Content-Encoding: gzip", status=b"1.1 " + status)
    with scripted(Script([head, OK]), Script([OK])) as server:
        async with connected(server.url) as connections:
            answer = await get(connections, method, max_body_bytes=100)
            assert answer == Answer(int(status[:3]), b"", is_delimited=True)
            assert (await get(connections)).body == b"ok"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_body_ended_by_the_end_of_the_connection_is_marked(version: str) -> None:
    answer, _ = await read_answer(f"HTTP/{version} 200 OK\r\n\r\n".encode(), b"o", b"k", end=close)
    assert answer == Answer(200, b"ok", is_delimited=False)


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_every_status_is_returned_and_redirects_are_not_followed(status: int) -> None:
    head = f"HTTP/1.1 {status} -\r\nLocation: /api.md\r\nContent-Length: 3\r\n\r\nwhy"
    answer, server = await read_answer(head.encode())
    assert answer == Answer(status, b"why")
    assert len(server.requests) == 1


async def test_an_answer_contains_the_content_type() -> None:
    head = with_head(b"content-TYPE: text/markdown; charset=utf-8", b"Content-Length: 2")
    answer, _ = await read_answer(head + b"ok")
    assert answer.content_type == "text/markdown; charset=utf-8"


async def test_an_answer_contains_its_headers_without_interim_headers_and_trailers() -> None:
    interim = with_head(b"Link: </early>", status=b"1.1 103 Early Hints")
    head = with_head(b"X-One: 1", b"x-two: \xe9", b"X-ONE: 2", b"Transfer-Encoding: chunked")
    answer, _ = await read_answer(interim, head, b"2\r\nok\r\n0\r\nX-One: late\r\n\r\n")
    assert answer.raw_headers == (
        (b"X-One", b"1"),
        (b"x-two", b"\xe9"),
        (b"X-ONE", b"2"),
        (b"Transfer-Encoding", b"chunked"),
    )
    values = [answer.header(name) for name in ("x-one", "X-Two", "X-Three")]
    assert values == ["1, 2", "\xe9", None]
    assert answer.content_type == ""


async def test_the_next_answer_has_its_own_headers() -> None:
    with scripted(Script([with_head(b"X-One: 1", b"Content-Length: 2") + b"ok", OK])) as server:
        async with connected(server.url) as connections:
            answers = [await get(connections), await get(connections)]
    assert [answer.header("X-One") for answer in answers] == ["1", None]


async def test_a_request_may_name_a_foreign_host() -> None:
    with scripted(Script([OK])) as server:
        async with connected(server.url) as connections:
            foreign = connections.prepare("GET", "/observe", host="example.org")
            await connections.send(foreign, timeout=HANG_S)
    assert server.requests[0].split(b"\r\n")[1] == b"Host: example.org"
    with pytest.raises(ConfigError, match="host: must be one line"):
        connections.prepare("GET", "/", host="a\r\nX: y")


async def test_a_body_of_exactly_the_maximum_size_is_accepted() -> None:
    answer, _ = await read_answer(OK, max_body_bytes=2)
    assert answer.body == b"ok"


async def test_a_large_body_arrives_completely() -> None:
    body = bytes(range(256)) * 4096
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer, _ = await read_answer(head, body)
    assert answer.body == body


# -- refused answers ------------------------------------------------------------------------

ENDLESS = b"x" * 70_000
MANY = b"X: y\r\n" * 12_000
TOO_LARGE = "has 101 bytes"
TOO_MANY_HEADERS = "has more than 65536 bytes of headers"
REFUSED_HEADS = {
    "no HTTP": (b"ok\r\n\r\n", "is not HTTP"),
    "two lengths": (with_head(TWO, b"Content-Length: 3", body=b"ok"), "is not HTTP"),
    "length and chunks": (with_head(TWO, b"Transfer-Encoding: chunked"), "is not HTTP"),
    "negative length": (with_head(b"Content-Length: -2", body=b"ok"), "is not HTTP"),
    "huge length": (with_head(b"Content-Length: 99999999999999999999"), "is not HTTP"),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "is not HTTP"),
    "upgrade": (
        with_head(b"Upgrade: h2c", b"Connection: upgrade", status=b"1.1 101 Switching"),
        "has the status 101",
    ),
    "unknown interim answer": (with_head(status=b"1.1 199 Soon"), "has the status 199"),
    "no status": (with_head(status=b"1.1 000 None"), "has the status 0"),
    "endless header": (b"HTTP/1.1 200 OK\r\nX: " + ENDLESS, TOO_MANY_HEADERS),
    "endless headers": (b"HTTP/1.1 200 OK\r\n" + MANY, TOO_MANY_HEADERS),
    "endless interim answers": (with_head(status=b"1.1 102 Wait") * 4_000, TOO_MANY_HEADERS),
}
REFUSED_BODIES = {
    "HTTP/2.0": (with_head(TWO, body=b"ok", status=b"2.0 200 OK"), "is HTTP/2.0"),
    "gzip": (
        with_head(b"Content-Encoding: gzip", TWO, body=b"ok"),
        "has the Content-Encoding 'gzip'",
    ),
    "encoded twice": (
        with_head(b"Content-Encoding: identity", b"Content-Encoding: br", TWO, body=b"ok"),
        "has the Content-Encoding 'identity, br'",
    ),
    "gzip, chunked": (
        with_head(b"Transfer-Encoding: gzip, chunked"),
        "has the Transfer-Encoding 'gzip, chunked'",
    ),
    "transfer of identity": (
        with_head(b"Transfer-Encoding: identity", body=b"ok"),
        "has the Transfer-Encoding 'identity'",
    ),
    "no chunk": (CHUNKED + b"zz\r\n", "is not HTTP"),
    "declared too large": (with_head(b"Content-Length: 101"), TOO_LARGE),
    "chunks too large": (CHUNKED + b"64\r\n" + b"x" * 100 + b"\r\n1\r\nx\r\n", TOO_LARGE),
    "end-delimited too large": (with_head(body=b"x" * 101), TOO_LARGE),
    "endless words at a chunk": (CHUNKED + b"1;" + ENDLESS, TOO_MANY_HEADERS),
    "endless trailers": (CHUNKED + b"0\r\n" + MANY, TOO_MANY_HEADERS),
}
REFUSED = {**REFUSED_HEADS, **REFUSED_BODIES}
"""Unusable answers, and the error message for each."""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", REFUSED)
async def test_an_ambiguous_answer_is_refused_and_its_connection_closed(
    kind: str,
) -> None:
    wire, words = REFUSED[kind]
    script = Script([wire])
    with scripted(script) as server:
        async with connected(server.url) as connections:
            with pytest.raises(WorldCallError) as caught:
                await get(connections, max_body_bytes=100)
            assert connections._idle == []
            assert script.is_over.wait(HANG_S), "the connection is open"
    assert caught.value.message.startswith(f"the answer to GET /observe {words}")
    assert caught.value.status == (None if kind in REFUSED_HEADS else 200)


TRUNCATED = {
    "nothing": (b"", "the connection was closed before the answer"),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", "the connection was closed before the answer"),
    "interim only": (b"HTTP/1.1 100 Continue\r\n\r\n", "was closed before the answer"),
    "half a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "closed after 2 bytes of"),
    "no last chunk": (CHUNKED + b"2\r\nok\r\n", "closed after 2 bytes of the answer's body"),
    "half a chunk": (CHUNKED + b"9\r\nok", "closed after 2 bytes of the answer's body"),
}


@pytest.mark.parametrize("kind", TRUNCATED)
async def test_a_truncated_answer_is_an_error(kind: str) -> None:
    wire, words = TRUNCATED[kind]
    with pytest.raises(WorldCallError, match=words) as caught:
        await read_answer(wire, end=close)
    assert caught.value.status is None, "the world may have died, which is the better error"


async def test_a_reset_connection_raises_a_clawblox_error() -> None:
    with pytest.raises(WorldCallError, match="GET /observe failed: "):
        await read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", end=reset)


async def test_a_request_to_an_address_without_a_listener_is_not_sent() -> None:
    async with connected(f"http://127.0.0.1:{free_port()}") as connections:
        with pytest.raises(NotSentError, match="GET /observe failed: Connection refused"):
            await get(connections)


async def test_a_cancelled_call_reports_whether_its_request_was_sent() -> None:
    delivery = Delivery()
    with scripted(Script([()])) as server:
        async with connected(server.url) as connections:
            with anyio.CancelScope() as connecting:
                connecting.cancel()
                await get(connections, "POST", delivery=delivery)
        assert (connecting.cancelled_caught, delivery.has_begun) == (True, False)
    with scripted(Script([()])) as server:
        async with connected(server.url) as connections, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(get, connections, "POST", delivery=delivery))
            await wait_until_async(lambda: bool(server.requests))
            tasks.cancel_scope.cancel()
    assert delivery.has_begun


# -- reuse of connections -------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("end", [close, reset])
async def test_a_connection_closed_while_idle_is_not_reused(method: str, end: Any) -> None:
    first = Script([OK], end)
    with scripted(first, Script([OK])) as server:
        async with connected(server.url) as connections:
            await get(connections)
            assert first.is_over.wait(HANG_S)
            assert (await get(connections, method)).body == b"ok"
    assert (server.accepted, len(server.requests)) == (2, 2)


async def test_a_connection_with_unexpected_bytes_is_not_reused() -> None:
    is_answered = threading.Event()

    def send_more(peer: Peer) -> None:
        is_answered.wait(HANG_S)
        peer.connection.sendall(OK)
        hold(peer)

    with scripted(Script([OK], send_more), Script([OK.replace(b"ok", b"my")])) as server:
        async with connected(server.url) as connections:
            await get(connections)
            is_answered.set()
            while connections._idle[0].is_quiet():
                await anyio.sleep(0)
            assert (await get(connections)).body == b"my"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_read_is_repeated_if_its_kept_connection_closes_instead_of_answering(
    method: str,
) -> None:
    with scripted(Script([OK], close_at_request), Script([OK])) as server:
        async with connected(server.url) as connections:
            await get(connections)
            assert (await get(connections, method)).status == 200
    assert server.accepted == 2


async def test_a_request_that_may_have_changed_the_world_is_never_repeated() -> None:
    with scripted(Script([OK], close_at_request), Script([OK])) as server:
        async with connected(server.url) as connections:
            await get(connections)
            with pytest.raises(WorldCallError, match="POST /observe failed: "):
                await get(connections, "POST", body=b"{}")
    assert (server.accepted, len(server.requests)) == (1, 1)


@pytest.mark.parametrize(
    "scripts",
    [
        [Script([], close_at_request)],
        [Script([OK, b"HTTP/1.1 200 OK\r\n"], close)],
        [Script([OK], close_at_request), Script([], close_at_request)],
    ],
    ids=["a new connection", "part of an answer", "the second try"],
)
async def test_a_read_is_repeated_only_once_and_only_without_any_answer(
    scripts: Sequence[Script],
) -> None:
    with scripted(*scripts, Script([OK])) as server:
        async with connected(server.url) as connections:
            if scripts[0].answers:
                await get(connections)
            with pytest.raises(WorldCallError, match="closed before the answer"):
                await get(connections)
    assert server.accepted == len(scripts)


async def test_concurrent_requests_have_separate_connections() -> None:
    slow, fast = Script([OK, OK]), Script([OK, OK])
    with scripted(slow, fast) as server:
        async with connected(server.url) as connections:
            for _ in range(2):
                async with anyio.create_task_group() as tasks:
                    for _ in range(2):
                        tasks.start_soon(get, connections)
            assert len(connections._idle) == 2
    assert (server.accepted, len(server.requests)) == (2, 4)


async def test_connections_closed_by_the_server_do_not_accumulate() -> None:
    scripts = [Script([OK, OK]) for _ in range(3)]
    spent = Script([OK], close)
    with scripted(spent, *scripts) as server:
        async with connected(server.url) as connections:
            first = Connection("127.0.0.1", connections._address.port)
            request = connections.prepare("GET", "/observe")
            await first.exchange(request, request.bare, 100, Delivery())
            assert spent.is_over.wait(HANG_S)
            connections._idle.append(first)
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(get, connections)
            assert len(connections._idle) == 3
            assert not first.is_open


@pytest.mark.parametrize("answer", [b"", OK[:20], OK[:-1]], ids=["none", "head", "body"])
async def test_a_deadline_is_for_the_whole_call_and_closes_the_connection(answer: bytes) -> None:
    script = Script([answer])
    with scripted(script, Script([OK])) as server:
        async with connected(server.url) as connections:
            with pytest.raises(WorldCallError, match=r"GET /observe got no answer within 0\.05 s"):
                await get(connections, timeout=0.05)
            assert script.is_over.wait(HANG_S), "the connection is open"
            assert (await get(connections)).body == b"ok"


async def test_a_cancelled_call_closes_its_connection() -> None:
    script = Script([OK, OK[:-1]])
    with scripted(script, Script([OK])) as server:
        async with connected(server.url) as connections:
            await get(connections)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(get, connections)
                while len(server.requests) < 2:
                    await anyio.sleep(0)
                tasks.cancel_scope.cancel()
            assert script.is_over.wait(HANG_S), "the connection is open"
            assert (await get(connections)).body == b"ok"


async def test_closing_waits_for_the_answers_of_busy_connections() -> None:
    idle, busy = Script([OK]), Script([OK])
    with scripted(idle, busy) as server:
        async with connected(server.url) as connections:
            await get(connections)
            assert connections._idle
            (kept,) = connections._idle
            connections._idle.clear()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(get, connections)
                while len(server.requests) < 2:
                    await anyio.sleep(0)
                connections._idle.append(kept)
                connections.close()
            assert idle.is_over.wait(HANG_S)
            assert busy.is_over.wait(HANG_S)
            assert connections._idle == []


def test_the_parser_is_loaded_with_the_first_connection_only() -> None:
    code = (
        "import sys, clawblox.system.connection as c; c.Connections('http://a'); "
        "assert 'httptools' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)


EXHAUSTED = """
import resource
from pathlib import Path

import anyio

from clawblox.errors import SnapshotError, WorldCallError
from clawblox.snapshot.capture import SnapshotSource, Transfer
from clawblox.system.connection import Connections


async def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        connections = Connections("http://127.0.0.1:1")
        await connections.send(connections.prepare("POST", "/join"), timeout=20)
    except WorldCallError as error:
        print(error)
    try:
        Transfer(SnapshotSource("w000", "127.0.0.1", 1, "", "s3cret"), Path("/tmp"), 20, 9).run()
    except SnapshotError as error:
        print(error.message)


anyio.run(main)
"""


@pytest.mark.thorough
def test_calls_and_snapshots_raise_clawblox_errors_without_a_free_descriptor() -> None:
    words = [sys.executable, "-c", EXHAUSTED]
    result = subprocess.run(words, check=True, timeout=HANG_S, capture_output=True, text=True)
    first, second = result.stdout.splitlines()
    assert first.startswith("POST /join failed: ")
    assert "Too many open files" in first
    assert second.startswith("Too many open files")
