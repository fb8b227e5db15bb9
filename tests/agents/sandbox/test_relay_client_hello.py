"""The server that a TLS client requests."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.agents.sandbox.relay import MAX_HELLO_BYTES, NoClientHello, read_server_name


def hello(name: str | None) -> bytes:
    """Return the first bytes from Python's own client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def split(record: bytes, at: int) -> bytes:
    """Return the same handshake in two records."""
    head, content = record[:3], record[5:]
    parts = (content[:at], content[at:])
    return b"".join(head + len(part).to_bytes(2, "big") + part for part in parts)


HELLO = hello("api.example.com")


def test_the_server_name_is_read_from_a_client_hello() -> None:
    assert read_server_name(HELLO) == "api.example.com"
    assert read_server_name(HELLO + b"\x17more") == "api.example.com"
    assert read_server_name(hello("API.Example.com")) == "api.example.com"


def test_an_incomplete_client_hello_needs_more_bytes() -> None:
    assert {read_server_name(HELLO[:end]) for end in range(len(HELLO))} == {None}


def test_a_client_hello_may_be_split_into_several_records() -> None:
    for at in range(1, len(HELLO) - 5):
        assert read_server_name(split(HELLO, at)) == "api.example.com"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (hello(None), "does not name one server"),
        (hello("127.0.0.1"), "does not name one server"),
        (b"GET / HTTP/1.1\r\n", "not a TLS handshake"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "not a ClientHello"),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", "truncated"),
        (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff" + b"\x16\x03\x01\xff\xff" * 7000, "too long"),
    ],
)
def test_bytes_without_a_server_name_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(NoClientHello, match=reason):
        read_server_name(data)


def made(*names: bytes) -> bytes:
    """Return a ClientHello with an extension of these contents for each name."""

    def vector(length: int, data: bytes) -> bytes:
        return len(data).to_bytes(length, "big") + data

    extensions = b"".join(b"\0\0" + vector(2, name) for name in names)
    hello = bytes(34) + vector(1, b"") + vector(2, b"\x13\x01") + vector(1, b"\0")
    message = b"\x01" + vector(3, hello + vector(2, extensions))
    return b"\x16\x03\x01" + vector(2, message)


ONE = b"\0\x06\0\0\x03one"
TWO = b"\0\x06\0\0\x03two"
BOTH = b"\0\x0c" + ONE[2:] + TWO[2:]


def test_a_client_that_names_two_servers_is_refused() -> None:
    assert read_server_name(made(ONE)) == "one"
    for data in (made(ONE, TWO), made(BOTH), made(b"\0\x06\x01\0\x03one")):
        with pytest.raises(NoClientHello, match="does not name one server"):
            read_server_name(data)


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255))
def test_a_changed_byte_gives_a_name_or_a_refusal(place: int, value: int) -> None:
    data = HELLO[:place] + bytes([value]) + HELLO[place + 1 :]
    with contextlib.suppress(NoClientHello):
        assert isinstance(read_server_name(data), str | None)
    assert len(HELLO) < MAX_HELLO_BYTES
