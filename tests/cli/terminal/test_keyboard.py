"""Decoding the bytes of a terminal into keys."""

from __future__ import annotations

from itertools import product

import pytest

from clawblox.cli.terminal.keyboard import KeyDecoder

PARTS = (b"\x1b", b"[", b"O", b"A", b"1", b";", b"a", b"\r", b"\xc3", b"\xa9")
UP, DOWN = b"\x1b[A", b"\x1b[B"


def decode(*chunks: bytes) -> list[str]:
    """Return the keys of bytes, including the keys at the end."""
    decoder = KeyDecoder()
    return [key for chunk in chunks for key in decoder.feed(chunk)] + decoder.flush()


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q?/", ["q", "?", "/"]),
        (UP + DOWN, ["up", "down"]),
        (b"\x1bOA\x1bOB", ["up", "down"]),
        (b"\x1b[1;5A", ["up"]),
        (b"\r\n\x7f\x08", ["enter", "enter", "backspace", "backspace"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        (b"\x1bx", ["escape", "x"]),
        ("é→🙂".encode(), ["é", "→", "🙂"]),
        (b"\x1b[C\x1b[3~\x1b[200~", []),
        (b"\x00\x01\x03\x1a\x9b\xff", []),
        ("\u202e\u0085".encode(), []),
        (b"\x1b[", []),
        (b"\xf0\x9f\x99", []),
    ],
)
def test_known_keys_are_decoded_and_others_dropped(data: bytes, keys: list[str]) -> None:
    assert decode(data) == keys


def test_decoded_keys_do_not_depend_on_chunks() -> None:
    for parts in product(PARTS, repeat=4):
        assert decode(*parts) == decode(b"".join(parts)), parts


def test_an_unfinished_sequence_does_not_grow() -> None:
    decoder = KeyDecoder()
    for _ in range(1000):
        assert decoder.feed(b"1" if decoder.is_waiting else b"\x1b[") == []
    assert len(decoder._rest) <= 32
    assert decoder.feed(b"A") == ["up"]
    assert not decoder.is_waiting


def test_escape_key_is_recognised_after_a_silence() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.is_waiting
    assert decoder.feed(b"[A") == ["up"]
    assert decoder.feed(b"\x1b") == []
    assert decoder.flush() == ["escape"]
    assert decoder.feed(b"[A") == ["[", "A"]
