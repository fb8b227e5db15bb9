"""Requests and answers as evidence: the command of a request, and the first difference."""

from __future__ import annotations

import subprocess

import attrs
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
    curl = request(b'{"type": "it\'s"}', X_Session="s-1", X_Operator_Token="t-1").command("")
    assert '-H "X-Session: $SESSION"' in curl
    assert '-H "X-Operator-Token: $WORLD_OPERATOR_TOKEN"' in curl
    assert "s-1" not in curl
    assert "t-1" not in curl
    assert "-H 'Host: evil.example'" in curl
    assert curl.endswith("http://127.0.0.1:8080/input")


SAMPLES = (
    b'{"type": "say", "text": "' + b"'; touch owned; echo '" * 5 + b'"}',
    b"@/etc/passwd",
    b"line\nline\r\n\x1b]0;title\x07",
    b"\xff\xfe \xe2\x80\xae",
)


@pytest.mark.parametrize("body", SAMPLES, ids=lambda body: repr(body[:12]))
def test_a_shell_reads_a_body_to_the_byte(body: bytes) -> None:
    assert request(body).long_body is None
    assert read_by_shell(request(body).command(""))[-3:-1] == [b"--data-raw", body]


@pytest.mark.parametrize("body", [b"x" * 601, b"'" * 200, b"a\0b"], ids=["long", "quotes", "NUL"])
def test_body_too_long_for_a_command_is_a_file(body: bytes) -> None:
    exchange = request(body)
    assert exchange.long_body == body
    words = read_by_shell(exchange.command("it's /a $file"))
    assert words[-3:-1] == [b"--data-binary", b"@it's /a $file"]


def test_quoted_answer_is_one_line_unlike_report_lines() -> None:
    quoted = exchange(b"no\r\nrequest: curl -i x; touch owned\n", status=500).outcome
    assert quoted == "500 no request: curl -i x; touch owned"


def read_by_shell(command: str) -> list[bytes]:
    """Return the words that bash passes to ``curl``."""
    script = f"curl() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True, env={})
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


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


def test_method_in_a_request_command_is_quoted_for_the_shell() -> None:
    sent = attrs.evolve(exchange(b"{}"), method="GET; touch owned")
    assert read_by_shell(sent.command(""))[:3] == [b"-i", b"-X", b"GET; touch owned"]
