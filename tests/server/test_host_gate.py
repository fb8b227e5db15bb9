"""Host and Origin: what a browser was tricked into sending never reaches a route."""

from __future__ import annotations

import pytest

from clawblox.host_gate import ServerAddress
from tests.server.conftest import PROTECTION

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:8080", "LocalHost:8080", "[::1]:8080"]
)
async def test_the_loopback_names_reach_the_world(client, host):
    assert (await client.get("/api.md", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8080",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8081",
        "127.0.0.1:08080",
        "127.0.0.1.evil.example:8080",
        "localhost.:8080",
        "user@127.0.0.1:8080",
        "127.0.0.1:8080, evil.example",
        "192.168.0.7:8080",
        "0.0.0.0:8080",
        "[::]:8080",
    ],
)
async def test_a_foreign_host_is_misdirected(client, host):
    answer = await client.get("/api.md", headers={"Host": host})
    assert (answer.status_code, answer.text) == (421, "Misdirected request: unknown Host")


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8080", "http://localhost:8080"])
async def test_our_own_origin_is_accepted(client, origin):
    assert (await client.get("/api.md", headers={"Origin": origin})).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://evil.example:8080",
        "http://127.0.0.1:3000",
        "https://127.0.0.1:8080",
        "http://127.0.0.1:8080/path",
        "http://127.0.0.1:8080 http://evil.example",
        "127.0.0.1:8080",
    ],
)
@pytest.mark.parametrize("path", ["/join?name=a", "/nothing"])
async def test_a_foreign_origin_is_forbidden(client, hosted, origin, path):
    answer = await client.post(path, headers={"Origin": origin})
    assert answer.status_code == 403
    assert len(hosted.sessions) == 0


LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", LINK, 200),  # a link in a notebook
        ("HEAD", LINK, 200),
        ("POST", LINK, 403),  # a form
        ("GET", {**LINK, "Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", {**LINK, "Sec-Fetch-Dest": "object"}, 403),
        ("GET", {**LINK, "Sec-Fetch-Mode": "no-cors"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ("GET", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
    ],
)
async def test_foreign_pages_may_not_load_a_world_but_may_link_to_it(
    client, method, headers, status
):
    answer = await client.request(method, "/api.md", headers=headers)
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api.md", {}, 200),
        ("/nothing", {}, 404),
        ("/join", {}, 405),
        ("/observe", {}, 401),
        ("/api.md", {"Host": "evil.example"}, 421),
        ("/api.md", {"Origin": "http://evil.example"}, 403),
    ],
)
async def test_every_answer_forbids_other_pages_to_frame_or_load_it(client, path, headers, status):
    answer = await client.get(path, headers=headers)
    assert answer.status_code == status
    assert PROTECTION.items() <= dict(answer.headers).items()


async def test_no_answer_allows_another_origin(client):
    answer = await client.options("/join", headers={"Access-Control-Request-Method": "POST"})
    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("bound", "authority", "is_ours"),
    [
        ("192.168.0.7", "192.168.0.7:8080", True),
        ("192.168.0.7", "192.168.0.8:8080", False),
        ("box.lan", "BOX.lan:8080", True),
        ("fe80::1", "[fe80::1]:8080", True),
        ("0.0.0.0", "192.168.0.7:8080", True),
        ("0.0.0.0", "[fe80::1]:8080", True),
        ("0.0.0.0", "evil.example:8080", False),
        ("::", "10.0.0.1:8080", True),
        ("::", "10.0.0.1:8081", False),
    ],
)
async def test_a_world_answers_to_the_address_it_is_bound_to(bound, authority, is_ours):
    assert ServerAddress(bound, 8080).matches(authority) is is_ours
    assert ServerAddress(bound, 8080).matches("localhost:8080")


async def test_port_80_may_be_left_out():
    assert ServerAddress("127.0.0.1", 80).matches("127.0.0.1")
