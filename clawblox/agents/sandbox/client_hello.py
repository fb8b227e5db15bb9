"""Reading which server a TLS client wants, from the first bytes that it sends. Pure.

Many hosts share an address, above all behind a content delivery network: a client that may connect
to one of them could ask it for another. The name stands in the ClientHello, in the clear; see RFC
8446, section 4.1.2, and RFC 6066, section 3.
"""

from __future__ import annotations

from typing import Final

MAX_HELLO_BYTES: Final = 32 << 10
"""Length that no ClientHello has; those with post-quantum keys are near 2 kB."""

_HANDSHAKE_RECORD: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_VERSION_AND_RANDOM: Final = 2 + 32


class NoClientHello(ValueError):  # noqa: N818 - says the condition
    """The bytes are not the beginning of a TLS connection, or name no server."""


def read_server_name(data: bytes) -> str | None:
    """Return the name of the server that a client wants; None if more bytes are needed.

    Raises:
        NoClientHello: These bytes are no ClientHello.
    """
    message = _first_message(data)
    if message is None:
        if len(data) > MAX_HELLO_BYTES:
            raise NoClientHello("it is too long")
        return None
    try:
        return _server_name(_Fields(message))
    except IndexError:
        raise NoClientHello("it is cut short") from None


def _first_message(data: bytes) -> bytes | None:
    """Return the content of the first handshake message, which may be split into records."""
    content = b""
    while data:
        if data[0] != _HANDSHAKE_RECORD:
            raise NoClientHello("it is no TLS handshake")
        end = _RECORD_HEAD + int.from_bytes(data[3:_RECORD_HEAD], "big")
        if len(data) < _RECORD_HEAD or len(data) < end:
            return None
        content += data[_RECORD_HEAD:end]
        data = data[end:]
        if len(content) >= _MESSAGE_HEAD:
            if content[0] != _CLIENT_HELLO:
                raise NoClientHello("it is no ClientHello")
            length = _MESSAGE_HEAD + int.from_bytes(content[1:_MESSAGE_HEAD], "big")
            if len(content) >= length:
                return content[_MESSAGE_HEAD:length]
    return None


class _Fields:
    """Takes one field after another.

    Raises:
        IndexError: There are fewer bytes than a field says.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_empty(self) -> bool:
        return self._position == len(self._data)

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise IndexError
        taken, self._position = self._data[self._position : end], end
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def vector(self, length: int) -> bytes:
        """Take a vector whose own length is a number of ``length`` bytes."""
        return self.take(self.number(length))


def _server_name(hello: _Fields) -> str:
    hello.take(_VERSION_AND_RANDOM)
    for length in (1, 2, 1):  # session id, cipher suites, compression methods
        hello.vector(length)
    extensions = _Fields(hello.vector(2))
    found: list[bytes] = []
    while not extensions.is_empty:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            found.append(content)
    if len(found) != 1:
        raise NoClientHello("it does not name one server")
    names = _Fields(_Fields(found[0]).vector(2))
    kind, name = names.number(1), names.vector(2)
    if kind != _HOST_NAME or not names.is_empty:
        raise NoClientHello("it does not name one server")
    return name.decode("ascii", "replace").lower()
