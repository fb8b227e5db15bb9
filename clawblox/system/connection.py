"""Persistent HTTP/1.1 connections to one address. Only this module uses httptools.

This is the client for all calls to worlds, some of which are made many times a second. It supports
only plain HTTP to one address, whole answers of limited size, and a deadline for each request. It
does not follow redirects, use proxies or decode bodies. An unknown form of answer is an error, and
a connection is never used again after an unexpected event.

httptools is imported when the first connection is opened.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping
from typing import Final

import anyio
import attrs

from clawblox.errors import WorldCallError
from clawblox.system.request import (
    INTERIM_STATUSES,
    MAX_ANSWER_BYTES,
    REPEATABLE,
    Answer,
    Request,
    make_request,
    parse_address,
)
from clawblox.system.sockets import connect, send_all

MAX_HEAD_BYTES: Final = 64 << 10
"""Maximum size of the status lines and headers of an answer, in bytes."""

_RECEIVE_BYTES = 64 << 10
_CHUNK_BYTES = 6
"""Size of the smallest chunk: a single byte of the body."""

_NO_BODY = frozenset({204, 304})
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"content-encoding"})


@attrs.define
class Delivery:
    """Progress of a request, which a caller can read after its call was cancelled.

    Attributes:
        has_begun: Whether the other end may have received a part.
    """

    has_begun: bool = False


class NotSentError(WorldCallError):
    """The request was not sent, because there was no connection."""


class AnswerTooLargeError(WorldCallError):
    """The body of the answer is larger than the caller's limit."""


class _ClosedUnansweredError(WorldCallError):
    """The connection was closed before any byte of the answer arrived."""


class Connections:
    """The connections to one address; each request in progress has its own connection.

    A connection is kept after its answer and serves the next request unless it was closed in the
    meantime. If it is closed during a request, a GET or HEAD is sent once more, on a new
    connection; any other request fails, because it may have taken effect.

    Args:
        url: Address, base path included: ``http://127.0.0.1:8080/w1`` or ``http://[::1]:8080``.

    Raises:
        ConfigError: ``url`` is not a plain HTTP address.
    """

    def __init__(self, url: str) -> None:
        self._address = parse_address(url)
        self._idle: list[Connection] = []
        self._is_closed = False

    def prepare(
        self,
        method: str,
        route: str,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        host: str | None = None,
    ) -> Request:
        """Return a request to this address.

        Args:
            method: The method, in capitals.
            route: Route below the address.
            query: Encoded query, without its question mark.
            headers: Headers in addition to those that the connection needs.
            host: Value of the ``Host`` header; None sends the address itself.

        Raises:
            ConfigError: An argument cannot be sent in a request.
        """
        return make_request(self._address, method, route, query, headers or {}, host)

    async def send(
        self,
        request: Request,
        body: bytes | None = None,
        *,
        timeout: float,
        max_body_bytes: int = MAX_ANSWER_BYTES,
        delivery: Delivery | None = None,
    ) -> Answer:
        """Send a request and return its answer, whatever its status.

        Args:
            request: A request from :meth:`prepare`.
            body: Body of the request; None for no body.
            timeout: Seconds for the whole call.
            max_body_bytes: Maximum size of the answer's body, in bytes.
            delivery: Updated when the first byte is sent.

        Raises:
            NotSentError: The connection could not be opened.
            WorldCallError: There was no usable answer in time.

        Cancellation: the connection is closed; ``delivery`` shows whether the request may have been
        received.
        """
        data = request.encode(body)
        delivery = delivery or Delivery()
        with anyio.move_on_after(timeout):
            connection = self._take_idle()
            if connection is not None:
                try:
                    return await self._exchange(connection, request, data, max_body_bytes, delivery)
                except _ClosedUnansweredError:
                    if request.method not in REPEATABLE:
                        raise
            connection = Connection(self._address.host, self._address.port)
            return await self._exchange(connection, request, data, max_body_bytes, delivery)
        raise WorldCallError(f"{request} got no answer within {timeout:g} s")

    async def _exchange(
        self,
        connection: Connection,
        request: Request,
        data: bytes,
        max_body_bytes: int,
        delivery: Delivery,
    ) -> Answer:
        answer = await connection.exchange(request, data, max_body_bytes, delivery)
        if self._is_closed:
            connection.close()
        elif connection.is_open:
            self._idle.append(connection)
            # The newest is used first, so the world closes the oldest after a while.
            if len(self._idle) > 1 and not self._idle[0].is_quiet():
                self._idle.pop(0).close()
        return answer

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close idle connections now, and busy ones when their answers are complete."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()


class Connection:
    """A connection that carries one request at a time, and is opened for the first request.

    It uses a plain socket with ``anyio.wait_readable``, because a stream costs twice as much.

    Args:
        host: Host name or address, without brackets.
        port: Port of the host.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None
        self._reader: _AnswerReader
        self._poll: select.poll

    @property
    def is_open(self) -> bool:
        """True if the connection is open."""
        return self._socket is not None

    def is_quiet(self) -> bool:
        """Return whether neither data nor an end of file has arrived since the last answer."""
        return not self._poll.poll(0)

    async def exchange(
        self, request: Request, data: bytes, max_body_bytes: int, delivery: Delivery
    ) -> Answer:
        """Send a request and read its answer to the end.

        Args:
            request: The request.
            data: Bytes of the request.
            max_body_bytes: Maximum size of the answer's body, in bytes.
            delivery: Updated when the first byte is sent.

        Raises:
            NotSentError: The connection could not be opened.
            WorldCallError: There was no usable answer; the connection is closed.

        Cancellation: the connection is closed; ``delivery`` shows whether the request may have been
        received.
        """
        connection = self._socket or await self._open(request)
        reader = self._reader
        reader.begin(request, max_body_bytes)
        delivery.has_begun = True
        try:
            await send_all(connection, data)
            while not reader.is_complete:
                await anyio.wait_readable(connection)
                if received := _receive(connection):
                    reader.feed(received)
                elif received is not None:
                    reader.feed_end()
                    break
        except OSError as error:
            self.close()
            raise reader.closed_early(_reason(error)) from error
        except BaseException:
            self.close()
            raise
        if not reader.can_continue:
            self.close()
        return Answer(reader.status, reader.body, reader.is_delimited, tuple(reader.raw_headers))

    async def _open(self, request: Request) -> socket.socket:
        try:
            reader = _AnswerReader()
            connection = await connect(self._host, self._port)
        except (
            OSError,
            ImportError,
        ) as error:  # imports need a descriptor
            raise NotSentError(f"{request} failed: {_reason(error)}") from error
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._reader = reader
        self._socket = connection
        return connection

    def close(self) -> None:
        """Close the connection. Idempotent."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()


def _receive(connection: socket.socket) -> bytes | None:
    """Return the bytes that have arrived; empty at the end; None after a spurious wakeup."""
    try:
        return connection.recv(_RECEIVE_BYTES)
    except BlockingIOError:
        return None


class _AnswerReader:
    """Reads the answers of a connection; the parser calls the ``on_`` methods."""

    def __init__(self) -> None:
        from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

        self._parser = HttpResponseParser(self)
        self._refusals = (HttpParserError, HttpParserUpgrade)
        self.is_complete = False

    def begin(self, request: Request, max_body_bytes: int) -> None:
        """Expect the answer to ``request``."""
        self._request = request
        self._max_body_bytes = max_body_bytes
        self._received = self._body_bytes = 0
        self._framing: dict[bytes, bytes] = {}
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        self._fault = ""
        self._is_too_large = False
        self.status = 0
        self.is_complete = self.is_delimited = self.can_continue = False

    @property
    def body(self) -> bytes:
        """The body so far."""
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def feed(self, data: bytes) -> None:
        """Parse further bytes.

        Raises:
            WorldCallError: The answer cannot be used.
        """
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except self._refusals as error:
            if not self.is_complete:
                self._fault = self._fault or f"is not HTTP: {error}"
        if self._received > MAX_HEAD_BYTES + _CHUNK_BYTES * self._body_bytes:
            self._fault = self._fault or f"has more than {MAX_HEAD_BYTES} bytes of headers"
        if self._fault:
            # Without a status the world may have died, and the caller can raise a better error.
            kind = AnswerTooLargeError if self._is_too_large else WorldCallError
            raise kind(f"the answer to {self._request} {self._fault}", status=self.status or None)

    def feed_end(self) -> None:
        """Note that the world closed the connection.

        Raises:
            WorldCallError: The answer is not complete.
        """
        if self.status == 0:
            raise self.closed_early("the connection was closed before the answer")
        if self.is_delimited:
            raise self.closed_early(
                f"the connection was closed after {self._body_bytes} bytes of the answer's body"
            )

    def closed_early(self, reason: str) -> WorldCallError:
        """Return the error for a connection that broke before the answer was complete."""
        error = WorldCallError if self._received else _ClosedUnansweredError
        return error(f"{self._request} failed: {reason}")

    # -- called by the parser, which would discard an exception -------------------------------

    def on_message_begin(self) -> None:
        """Note bytes that arrive without a request."""
        if self.is_complete:
            self.can_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header unless it is a trailer."""
        if self.status:
            return
        self.raw_headers.append((name, value))
        name = name.lower()
        if name in _FRAMING:
            earlier = self._framing.get(name)
            self._framing[name] = value if earlier is None else b"%s, %s" % (earlier, value)

    def on_headers_complete(self) -> None:
        """Decide how the body ends, and whether to read it."""
        status = self._parser.get_status_code()
        if status in INTERIM_STATUSES or self.is_complete:
            self._framing.clear()
            self.raw_headers.clear()
            return
        if status < 200:  # an unknown status may never be followed by an answer
            self._fault = f"has the status {status}, which is not an answer"
            return
        self.status = status
        headers = self._framing
        length = headers.get(b"content-length")
        transfer = headers.get(b"transfer-encoding", b"").lower()
        coding = headers.get(b"content-encoding", b"identity").lower()
        has_no_body = self._request.method == "HEAD" or status in _NO_BODY
        self.is_delimited = length is not None or bool(transfer) or has_no_body
        self.can_continue = self._parser.should_keep_alive()
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            self._fault = f"is HTTP/{self._parser.get_http_version()}"
        elif transfer not in (b"", b"chunked"):
            self._fault = f"has the Transfer-Encoding {transfer.decode('latin-1')!r}"
        elif has_no_body:
            if length or transfer or self._request.method == "HEAD":
                self.is_complete, self.can_continue = True, False  # the parser may expect a body
        elif coding != b"identity":
            self._fault = f"has the Content-Encoding {coding.decode('latin-1')!r}"
        elif length and int(length) > self._max_body_bytes:
            self._refuse_size(f"has {int(length)} bytes")

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        if self.is_complete or self._fault:
            return
        self._body_bytes += len(data)
        self._chunks.append(data)
        if self._body_bytes > self._max_body_bytes:
            self._refuse_size(f"has {self._body_bytes} bytes or more")

    def _refuse_size(self, size: str) -> None:
        self._is_too_large = True
        self._fault = f"{size}, and at most {self._max_body_bytes} are read"

    def on_message_complete(self) -> None:
        """End the answer, unless it was interim."""
        self.is_complete = self.status != 0


def _reason(error: BaseException) -> str:
    """Return the system's reason for a broken connection."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
        cause = cause.__cause__
    return str(error) or "the connection broke"
