"""Requests and answers as evidence: the command of a request, and the first difference."""

from __future__ import annotations

import pytest

from clawblox.conformance.exchange import Exchange, compare_answers, number_names
from clawblox.system.request import Answer


def exchange(body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> Exchange:
    length = (b"content-length", str(len(body)).encode())
    answer = Answer(status, body, raw_headers=(*headers, length))
    return Exchange("GET", "http://127.0.0.1:8080/observe", {}, None, None, answer)


def request(body: bytes | None, **headers: str) -> Exchange:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Exchange(
        "POST", "http://127.0.0.1:8080/input", named, body, "evil.example", None, "gone"
    )


def test_the_command_of_a_request_has_variables_for_secrets() -> None:
    curl = request(b'{"type": "it\'s"}', X_Session="s-1", X_Operator_Token="t-1").curl
    assert '-H "X-Session: $SESSION"' in curl
    assert '-H "X-Operator-Token: $WORLD_OPERATOR_TOKEN"' in curl
    assert "s-1" not in curl
    assert "t-1" not in curl
    assert "-H 'Host: evil.example'" in curl
    assert curl.endswith("http://127.0.0.1:8080/input")


def test_a_long_body_is_named_and_not_cut() -> None:
    assert "--data-binary @body-of-5000-bytes http://" in request(b"x" * 5000).curl


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        (exchange(b"{}"), exchange(b"{}", status=404), "status"),
        (exchange(b"{}", (b"a", b"1")), exchange(b"{}", (b"a", b"2")), "headers.a"),
        (exchange(b'{"x":1}'), exchange(b'{"x":1.5}'), "body.x"),
        (exchange(b'{"x":1}', (b"a", b"1")), exchange(b'{"x":22}', (b"a", b"2")), "headers.a"),
        (exchange(b'{"a":1,"b":2}'), exchange(b'{"b":2,"a":1}'), "body, byte 2"),
        (exchange(b"abc"), exchange(b"abd"), "body, byte 2"),
    ],
)
def test_the_first_difference_has_a_path(first: Exchange, second: Exchange, path: str) -> None:
    difference = compare_answers(first, second)
    assert difference is not None
    assert difference.path == path
    assert compare_answers(first, first) is None


def test_numbered_names_keep_the_length_of_a_body() -> None:
    numbered = number_names(exchange(b'{"session":"abcdef","id":"abcdefg"}'), ["abcdef"])
    assert numbered.content == b'{"session":"#1----","id":"abcdefg"}'
