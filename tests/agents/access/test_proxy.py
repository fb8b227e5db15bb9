"""The proxy with all kinds of answers, failing worlds, and slow or greedy agents."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.access.grant import Policy
from clawblox.system import sock_diag
from tests.agents.access.support import (
    HANG_S,
    JSON,
    SESSION,
    make_grant,
    receive,
    requests_of_agents,
    served,
    world_grant,
)
from tests.support.resources import open_fds
from tests.support.sockets import free_port
from tests.support.waiting import wait_until
from tests.support.worlds import RunningWorld, running_world
from tests.system.scripted import Script, close, close_at_request, hold, reset, scripted


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorld]:
    with running_world(tmp_path_factory.mktemp("world")) as world:
        yield world


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answer(status: str = "200 OK", body: bytes = b"ok", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def ask_scripted(directory: Path, script: Script, **limits: Any) -> tuple[int, str, bytes]:
    """Return an agent's answer from a world with scripted answers."""
    with scripted(script) as world, served(directory, make_grant(world.url), **limits) as agent:
        return agent.get("/observe")


# -- both backends ------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_agent_acts_in_its_world(tmp_path: Path, world: RunningWorld, backend: str) -> None:
    with served(tmp_path / "agent", world_grant(world), backend=backend) as agent:
        seen = agent.get("/observe")
        acted = agent.ask("POST /input HTTP/1.1", JSON.decode().strip(), body=b'{"type": "add"}')
        assert (seen.status, acted.status, agent.get("/nothing").status) == (200, 200, 403)
        assert b'"counter"' in acted.body
        assert "Content-Type: application/json" in acted.head


def test_usual_clients_are_served(tmp_path: Path, world: RunningWorld) -> None:
    with served(tmp_path / "agent", world_grant(world)) as agent:
        url = f"http://127.0.0.1:{agent.port}"
        before = len(requests_of_agents(world))
        body = '{"type": "add", "note": "' + "x" * 100_000 + '"}'
        curl = ["curl", "-sS", "-m", str(HANG_S), "--fail"]
        subprocess.run([*curl, f"{url}/api.md"], check=True, capture_output=True)
        for more in ([], ["-H", "Content-Type: application/json"], ["-H", "Expect: 100-continue"]):
            command = [*curl, *more, "--data-binary", "@-", f"{url}/input"]
            subprocess.run(command, check=True, capture_output=True, input=body.encode())
        client = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=HANG_S)
        for _ in range(3):  # the proxy reconnects each time
            client.request("POST", "/input", body=body, headers={"Connection": "keep-alive"})
            response = client.getresponse()
            assert (response.status, bool(response.read())) == (200, True)
        client.close()
        assert len(requests_of_agents(world)) - before == 7


# -- who is served ------------------------------------------------------------------------

ASK_AS = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
client = socket.socket()
client.connect(("127.0.0.1", int(sys.argv[1])))
client.sendall(sys.stdin.buffer.read())
try:
    print(client.recv(65536)[:12].decode())
except ConnectionResetError:
    print()
"""


def ask_as(uid: int, port: int) -> str:
    """Return the start of the answer to a user of this machine."""
    request = b"GET /observe HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
    command = [sys.executable, "-I", "-S", "-c", ASK_AS, str(port), str(uid)]
    asked = subprocess.run(command, input=request, capture_output=True, check=True, timeout=HANG_S)
    return asked.stdout.decode().strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_of_the_machine_gets_no_answer(tmp_path: Path, world: RunningWorld) -> None:
    with served(tmp_path / "agent", world_grant(world)) as agent:
        before = len(requests_of_agents(world))
        assert ask_as(65533, agent.port) == ""
        assert ask_as(0, agent.port) == "HTTP/1.1 200"
        assert len(requests_of_agents(world)) - before == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_gets_no_answer_without_the_index_of_the_kernel(
    tmp_path: Path, world: RunningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sock_diag, "_NETLINK_SOCK_DIAG", 63)  # the status does not exist
    with served(tmp_path / "agent", world_grant(world)) as agent:
        assert ask_as(65533, agent.port) == ""
        assert agent.get("/observe").status == 200


# -- how often ----------------------------------------------------------------------------


def test_an_agent_that_exceeds_its_rate_is_asked_to_wait(
    tmp_path: Path, world: RunningWorld
) -> None:
    with served(tmp_path / "agent", world_grant(world), requests_per_s=0.001) as agent:
        first, second = agent.get("/observe"), agent.get("/observe")
    assert (first.status, second.status) == (200, 429)
    assert "Retry-After: 1" in second.head
    assert "Retry-After" not in first.head


# -- answers ------------------------------------------------------------------------------


def test_an_answer_keeps_only_status_type_and_body(tmp_path: Path) -> None:
    given = answer(
        "418 Teapot",
        b"short and stout",
        "Content-Type: text/x-teapot",
        "Date: Mon, 22 Jun 2026 18:59:25 GMT",
        "Server: uvicorn on /home/me",
        "Set-Cookie: a=b",
        "X-Operator-Token: canary",
        "Access-Control-Allow-Origin: *",
    )
    got = ask_scripted(tmp_path / "agent", Script([given]))
    assert got.body == b"short and stout"
    assert got.head.split("\r\n") == [
        "HTTP/1.1 418 I'm a Teapot",
        "Connection: close",
        "Cache-Control: no-store",
        "Content-Type: text/x-teapot",
        "X-Content-Type-Options: nosniff",
        "Content-Length: 15",
    ]


def test_an_answer_without_a_body_arrives_without_a_body(tmp_path: Path) -> None:
    got = ask_scripted(tmp_path / "agent", Script([b"HTTP/1.1 204 No Content\r\n\r\n"]))
    assert (got.status, got.body, "Content-" in got.head) == (204, b"", False)


def test_a_chunked_answer_arrives_in_one_piece(tmp_path: Path) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    got = ask_scripted(tmp_path / "agent", Script([chunked]))
    assert (got.body, "Content-Length: 3" in got.head) == (b"abc", True)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "304 Same"])
def test_a_redirect_is_neither_followed_nor_shown(tmp_path: Path, status: str) -> None:
    with scripted(Script([answer()])) as other:
        moved = answer(status, b"" if status[:3] == "304" else other.url.encode())
        moved = moved.replace(b"\r\n", f"\r\nLocation: {other.url}/snapshot\r\n".encode(), 1)
        got = ask_scripted(tmp_path / "agent", Script([moved]))
        assert (got.status, other.requests) == (502, [])
        assert other.url not in got.head + got.text


FAULTS = {
    "no HTTP": Script([b"what?\r\n\r\n"], close),
    "closed": Script([b""], close),
    "reset": Script([b""], reset),
    "half a head": Script([b"HTTP/1.1 200 OK\r\nContent-"], close),
    "half a body": Script([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"], close),
    "HTTP/2": Script([b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"]),
    "gzip": Script([answer("200 OK", b"x", "Content-Encoding: gzip")]),
    "no such status": Script([answer("999 Odd")]),
    "too large": Script([b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n"]),
    "endless": Script([b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000], close),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unusable_answer_is_a_502_without_facts_of_this_machine(
    tmp_path: Path, fault: str
) -> None:
    script = FAULTS[fault]
    with scripted(script) as world, served(tmp_path / "a", make_grant(world.url)) as agent:
        got = agent.get("/observe")
        assert got.status == 502
        port = world.url.rpartition(":")[2]
        for secret in (port, str(tmp_path), "127.0.0.1", SESSION, "clawblox"):
            assert secret not in got.head + got.text


def test_an_input_is_never_sent_twice(tmp_path: Path) -> None:
    scripts = [Script([answer()], close_at_request), Script([answer()], close)]
    with scripted(*scripts) as world, served(tmp_path / "a", make_grant(world.url)) as agent:
        assert agent.ask("POST /input HTTP/1.1", body=b"{}").status == 200
        assert agent.ask("POST /input HTTP/1.1", body=b"{}").status == 502
        assert len(world.requests) == 1


# -- worlds that are not there --------------------------------------------------------------


def test_a_missing_world_is_a_503_without_facts_of_this_machine(
    tmp_path: Path,
) -> None:
    port = free_port()
    for url in (f"http://127.0.0.1:{port}", None):
        with served(tmp_path / "agent", make_grant(url)) as agent:
            got = agent.get("/observe")
            assert got.status == 503
            assert "Try again" in got.text
            assert str(port) not in got.head + got.text
            assert agent.get("/snapshot").status == 403


def test_a_world_at_a_new_address_is_found_and_the_old_connections_are_closed(
    tmp_path: Path,
) -> None:
    url: list[str | None] = [None]
    first, second = Script([answer()], hold), Script([answer("200 OK", b"new")], hold)
    with (
        scripted(first) as old,
        scripted(second) as new,
        served(tmp_path / "agent", make_grant(lambda: url[0])) as agent,
    ):
        assert agent.get("/observe").status == 503
        url[0] = old.url
        assert agent.get("/observe").body == b"ok"
        url[0] = f"{new.url}/base/w1"
        assert agent.get("/observe").body == b"new"
        assert first.is_over.wait(HANG_S)
    assert new.requests[0].startswith(b"GET /base/w1/observe HTTP/1.1\r\n")


def test_a_world_that_does_not_answer_is_a_504(tmp_path: Path) -> None:
    got = ask_scripted(tmp_path / "agent", Script([b""], hold), world_s=0.1)
    assert (got.status, got.text) == (504, "The world did not answer within 0.1 s.\n")


# -- slow and greedy agents -------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET /obs",
        b"GET /observe HTTP/1.1\r\nHost: ",
        b"POST /input HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n\r\n{}",
    ],
)
def test_a_stalled_request_is_aborted(tmp_path: Path, world: RunningWorld, start: bytes) -> None:
    with served(tmp_path / "agent", world_grant(world), request_s=0.1) as agent:
        before = requests_of_agents(world)
        got = agent.send(start.replace(b"HOST", b"127.0.0.1:%d" % agent.port))
        assert got.status == 408
        assert requests_of_agents(world) == before


def test_a_request_that_arrives_byte_by_byte_is_served(tmp_path: Path, world: RunningWorld) -> None:
    with served(tmp_path / "agent", world_grant(world)) as agent, agent.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = b'{"type": "add"}'
        head = b"POST /input HTTP/1.1\r\n" + agent.host + b"Content-Length: 15\r\n\r\n"
        for byte in head + body:
            connection.sendall(bytes([byte]))
        assert receive(connection).status == 200


def test_a_huge_head_or_body_is_refused_and_the_agent_reads_why(
    tmp_path: Path, world: RunningWorld
) -> None:
    with served(tmp_path / "agent", world_grant(world)) as agent:
        huge_head = b"GET /observe HTTP/1.1\r\n" + b"X: " + b"a" * 300_000
        assert agent.send(huge_head).status == 431
        assert agent.get("/observe", *[f"X-{n}: {'a' * 100}" for n in range(2000)]).status == 431
        assert agent.ask("POST /input HTTP/1.1", body=b"a" * 3_000_000).status == 413
        assert agent.ask("POST /input HTTP/1.1", body=b"a" * (1 << 20)).status != 413
        assert agent.ask("POST /snapshot HTTP/1.1", body=b"a" * (1 << 20)).status == 403


def test_a_client_that_sends_a_body_that_is_too_large_gets_the_reason(
    tmp_path: Path, world: RunningWorld
) -> None:
    with served(tmp_path / "agent", world_grant(world)) as agent:
        client = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=HANG_S)
        client.request("POST", "/input", body=b"a" * 3_900_000)
        assert client.getresponse().status == 413
        client.close()


def test_a_client_that_expects_100_continue_gets_it_before_its_body(
    tmp_path: Path, world: RunningWorld
) -> None:
    with served(tmp_path / "agent", world_grant(world)) as agent, agent.connect() as connection:
        head = b"POST /input HTTP/1.1\r\n" + agent.host + b"Expect: 100-continue\r\n"
        connection.sendall(head + b"Content-Length: 15\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"type": "add"}')
        assert receive(connection).status == 200


@pytest.mark.parametrize(
    "start", [b"GET /observe HTTP/1.1\nHost: x\n\n", b"\x16\x03\x01", b"GET /\0", b"\r\n"]
)
def test_bytes_that_cannot_become_a_request_are_refused_immediately(
    tmp_path: Path, world: RunningWorld, start: bytes
) -> None:
    with served(tmp_path / "agent", world_grant(world), request_s=2 * HANG_S) as agent:
        assert agent.send(start).status == 400


def test_an_agent_that_does_not_read_its_answer_is_disconnected(tmp_path: Path) -> None:
    large = Script([answer("200 OK", b"x" * (4 << 20))] * 2, hold)
    with (
        scripted(large) as world,
        served(tmp_path / "a", make_grant(world.url), answer_s=0.1, connections=1) as agent,
        socket.socket() as slow,
    ):
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", agent.port))
        slow.sendall(b"GET /observe HTTP/1.1\r\n" + agent.host + b"\r\n")
        # The only slot becomes free again even if the slow client never reads.
        assert len(agent.get("/observe").body) == 4 << 20


def test_connections_above_the_limit_wait_for_their_turn(
    tmp_path: Path, world: RunningWorld
) -> None:
    with served(tmp_path / "agent", world_grant(world), connections=3) as agent:
        idle = [agent.connect() for _ in range(3)]
        before = len(requests_of_agents(world))
        with ThreadPoolExecutor(16) as clients:
            asked = [clients.submit(agent.get, "/observe") for _ in range(48)]
            assert not any(one.done() for one in asked)
            assert len(requests_of_agents(world)) == before
            for connection in idle:
                connection.close()
            assert [one.result(HANG_S).status for one in asked] == [200] * 48
        assert len(requests_of_agents(world)) - before == 48


def test_agents_that_hang_up_leave_nothing_open(tmp_path: Path, world: RunningWorld) -> None:
    with served(tmp_path / "agent", world_grant(world), connections=4) as agent:
        agent.get("/observe")
        before = len(open_fds())
        for sent in (b"", b"GET /ob", b"GET /observe HTTP/1.1\r\n" + agent.host + b"\r\n") * 8:
            with agent.connect() as connection:
                connection.sendall(sent)
        assert agent.get("/observe").status == 200
        wait_until(lambda: len(open_fds()) <= before + 4, what="connections are closed")


def test_routes_added_by_the_world_are_served(tmp_path: Path) -> None:
    policy = Policy.from_api({"allow": ["GET /map/*"]})
    with scripted(Script([answer()])) as world:
        with served(tmp_path / "a", make_grant(world.url, policy=policy)) as agent:
            assert agent.get("/map/7").status == 200
            assert agent.get("/map/7/8").status == 403
            assert agent.get("/map/..").status == 400
        assert [one.split(b"\r\n")[0] for one in world.requests] == [b"GET /map/7 HTTP/1.1"]
