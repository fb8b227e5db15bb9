"""Snapshots: ``GET /snapshot`` -> a verified file on disk, complete or absent.

Bytes are hashed and written to a private partial file as they arrive, so memory does not grow with
the size. The document is never built; ``format`` and ``time`` are read from the file. A transfer
blocks, so it runs in a worker thread; :func:`capture` owns its deadline and its cancellation, and
limits the number of concurrent transfers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import anyio
import attrs

from clawblox import protocol
from clawblox.concurrency.deadlines import running_deadline
from clawblox.concurrency.per_loop import per_loop
from clawblox.concurrency.threads import run_blocking, run_interruptible
from clawblox.errors import SnapshotError
from clawblox.results import SavedSnapshot
from clawblox.snapshot.checker import CheckerLost, DocumentCheck, checkers
from clawblox.snapshot.header import Header, InvalidDocument
from clawblox.snapshot.rows import RowsCopy
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import (
    PartialFile,
    make_private_dir,
    partial_name,
    sweep_partials,
    write_all,
)
from clawblox.system.ports import connect_host
from clawblox.system.request import INTERIM_STATUSES

if TYPE_CHECKING:
    import http.client


_CHUNK_BYTES = 1 << 19
_QUOTED_BYTES = 200
_START_BYTES = 1 << 16
_TICK_S = 0.1
_JSON_TYPE = "application/json"
_PAGE: Final = re.compile(rb"(?:\s|\xef\xbb\xbf)*<(?:!doctype\s+html|html)", re.IGNORECASE)
"""The start of a web page, perhaps after a byte order mark."""
_CODINGS: Final = {
    "Content-Encoding": ("identity",),
    "Transfer-Encoding": ("identity", "chunked"),
}
_TRANSFERS_AT_ONCE = 4


@attrs.frozen
class SnapshotSource:
    """The instance to take a snapshot of.

    Attributes:
        instance: Name of the instance.
        host: Address that the world was configured to bind.
        port: Port of the world.
        base_path: Prefix of the world's routes.
        operator_token: Secret for the route.
        has_own_rows: Whether a save includes a copy of the rows of the data stores.
    """

    instance: str
    host: str
    port: int
    base_path: str
    operator_token: str = attrs.field(repr=False)
    has_own_rows: bool = False


async def capture(
    source: SnapshotSource, directory: Path, *, timeout: float, max_bytes: int
) -> SavedSnapshot:
    """Take a snapshot and publish it in ``directory``.

    Args:
        source: The instance.
        directory: Directory for the file, which gets a new name; created if missing.
        timeout: Seconds for the transfer, excluding time in the queue of transfers and time in
            which this process is suspended.
        max_bytes: Maximum size of the body, in bytes.

    Raises:
        SnapshotError: The response is unusable or late; no file is left.

    Cancellation: closes the connection and leaves no file.
    """
    # This deadline expires first; the transfer's own limit ends a thread that was abandoned.
    transfer = Transfer(source, directory, 3 * timeout, max_bytes)
    try:
        async with _checkers_held(), _current_turns(), running_deadline(timeout):
            # Not anyio's default limiter, which is for short work.
            limiter = anyio.CapacityLimiter(1)
            return await run_interruptible(transfer.run, transfer.abort, limiter=limiter)
        raise SnapshotError(
            f"the snapshot took longer than {timeout:g} s",
            phase=transfer.phase,
            bytes=transfer.received,
        )
    except BaseException:
        # A cancellation may arrive even after the file was published.
        with anyio.CancelScope(shield=True):
            await run_blocking(transfer.discard)
        raise


@per_loop
def _current_turns() -> anyio.Semaphore:
    return anyio.Semaphore(_TRANSFERS_AT_ONCE, fast_acquire=True)


@contextlib.asynccontextmanager
async def _checkers_held() -> AsyncIterator[None]:
    """Keep idle checkers until no transfer is running or waiting."""
    checkers.hold()
    try:
        yield
    finally:
        if spent := checkers.release():
            with anyio.CancelScope(shield=True):
                for checker in spent:
                    await run_blocking(checker.end)


class _Wire(socket.socket):
    """A connected socket that waits for bytes in short ticks, with a check before each.

    A single timeout would expire while this process is suspended.

    Args:
        fileno: Descriptor of the socket; this object owns and closes it.
        check_wait: Called with the seconds waited so far; raises to end the wait.

    Attributes:
        is_patient: Whether to wait for longer than a tick; otherwise silence counts as the end.
    """

    def __init__(self, fileno: int, check_wait: Callable[[float], None]) -> None:
        super().__init__(fileno=fileno)
        self.settimeout(_TICK_S)
        self._check_wait = check_wait
        self.is_patient = True

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """Receive the available bytes, waiting until there are some."""
        waited_s = 0.0
        while self.is_patient or waited_s == 0.0:
            self._check_wait(waited_s)
            with contextlib.suppress(TimeoutError):
                return super().recv_into(*args, **kwargs)
            waited_s += _TICK_S
        return 0


@attrs.define(eq=False)
class Transfer:
    """The transfer of a snapshot.

    Args:
        source: The instance.
        directory: Directory for the file, which gets a new name; created if missing.
        max_silence_s: Maximum silence of the world, in seconds.
        max_bytes: Maximum size of the body, in bytes.

    Attributes:
        phase: The current phase, for errors.
        received: Number of body bytes received so far.
    """

    _source: SnapshotSource
    _directory: Path
    _max_silence_s: float
    _max_bytes: int
    phase: str = attrs.field(default="connect", init=False)
    received: int = attrs.field(default=0, init=False)
    _check: DocumentCheck = attrs.field(factory=DocumentCheck, init=False)
    _wire: _Wire = attrs.field(init=False)
    _is_aborted: bool = attrs.field(default=False, init=False)
    _published: Path | None = attrs.field(default=None, init=False)
    _rows: RowsCopy | None = attrs.field(default=None, init=False)

    def abort(self) -> None:
        """Make a running transfer fail soon. Thread-safe."""
        self._is_aborted = True
        self._check.interrupt()

    def discard(self) -> None:
        """Remove the published file and its rows, if any.

        Raises:
            OSError: A file cannot be removed.
        """
        if self._published is not None:
            self._published.unlink(missing_ok=True)
        if self._rows is not None:
            self._rows.discard()

    def run(self) -> SavedSnapshot:
        """Transfer, verify and publish the snapshot. Blocks.

        Raises:
            SnapshotError: The transfer failed, and no file was published.
        """
        try:
            import http.client  # loading it would delay every start by 10 ms
        except OSError as error:  # no descriptor is available
            raise self._error(_describe(error)) from error
        try:
            make_private_dir(self._directory)
            sweep_partials(self._directory)
            if self._source.has_own_rows:
                name = partial_name(f"{self._source.instance}.rows")
                self._rows = RowsCopy(self._directory / name)
            with contextlib.closing(self._connect()) as connection:
                return self._transfer(connection)
        except (http.client.HTTPException, CheckerLost, OSError) as error:
            self.discard()
            raise self._error(_describe(error)) from error
        finally:
            self._check.close()

    def _check_wait(self, waited_s: float) -> None:
        if self._is_aborted:
            raise self._error("the save was cancelled")
        if waited_s > self._max_silence_s:
            raise self._error(f"the world was silent for {self._max_silence_s:g} s")

    def _connect(self) -> http.client.HTTPConnection:
        import http.client

        host, port = connect_host(self._source.host), self._source.port
        connection = http.client.HTTPConnection(host, port)
        waited_s = 0.0
        while True:
            self._check_wait(waited_s)
            with contextlib.suppress(TimeoutError):
                connected = socket.create_connection((host, port), timeout=_TICK_S)
                self._wire = _Wire(connected.detach(), self._check_wait)
                connection.sock = self._wire
                return connection
            waited_s += _TICK_S

    def _transfer(self, connection: http.client.HTTPConnection) -> SavedSnapshot:
        with contextlib.closing(self._request(connection)) as response:
            self._check_head(response)
            partial = PartialFile(self._directory, self._source.instance)
            with contextlib.ExitStack() as leaving:
                leaving.callback(partial.close)
                if self._rows is not None:
                    leaving.callback(self._rows.close)
                digest = self._receive(response, partial.fd)
                header = self._verify(response, partial.fd)
                if self._rows is not None and response.getheader(protocol.DATASTORE_HEADER):
                    self._rows.take()
                self.phase = "publish"
                self._check_wait(0.0)
                return self._publish(partial, digest, header)

    def _request(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        self.phase = "headers"
        route = f"{self._source.base_path}{protocol.SNAPSHOT_ROUTE}"
        headers = {
            protocol.OPERATOR_HEADER: self._source.operator_token,
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        if self._rows is not None:
            headers[protocol.DATASTORE_HEADER] = quote(os.fsencode(self._rows.partial))
        connection.request("GET", route, headers=headers)
        response = connection.getresponse()
        while response.status in INTERIM_STATUSES:  # http.client skips only status 100
            response.headers = None  # type: ignore[assignment] # so that it reads the next head
            response.begin()
        return response

    def _check_head(self, response: http.client.HTTPResponse) -> None:
        if response.status != 200:
            start = response.read(_QUOTED_BYTES).decode(errors="replace")
            raise self._error(
                f"GET /snapshot answered {response.status} {response.reason}: {start!r}",
                status=response.status,
            )
        for name, readable in _CODINGS.items():
            coding = response.getheader(name, "identity")
            if coding.lower() not in readable:
                raise self._error(f"the snapshot has {name} {coding!r}", status=200)
        if (response.length or 0) > self._max_bytes:
            raise self._error(
                f"the snapshot has {response.length} bytes, more than {self._max_bytes}",
                status=200,
            )

    def _receive(self, response: http.client.HTTPResponse, fd: int) -> str:
        """Write the body to ``fd``; return its digest. A body that ends early is an error."""
        self.phase = "body"
        digest = hashlib.sha256()
        promised = response.length
        is_json = _media_type(response) == _JSON_TYPE
        # Not readinto, which returns only when the buffer is full. The response itself would close
        # the connection after the last byte, but _goes_on reads from it.
        read = response.read1 if promised is None else response.fp.read1
        while promised is None or self.received < promised:
            if is_json:
                self._check.prepare(promised or self.received)
            left = _CHUNK_BYTES if promised is None else promised - self.received
            chunk = read(min(left, _CHUNK_BYTES))
            if not chunk:
                break
            self.received += len(chunk)
            if self.received > self._max_bytes:
                raise self._error(f"the snapshot is larger than {self._max_bytes} bytes")
            digest.update(chunk)
            write_all(fd, chunk)
        if promised is not None and self.received < promised:
            raise self._error(f"the body ended after {self.received} of {promised} bytes")
        if self.received == 0:
            raise self._error("the snapshot is empty", status=200)
        return digest.hexdigest()

    def _verify(self, response: http.client.HTTPResponse, fd: int) -> Header | None:
        """Return the header of a JSON snapshot, None for an opaque snapshot."""
        self.phase = "verify"
        start = os.pread(fd, _START_BYTES, 0)
        if _PAGE.match(start):
            raise self._error("the world answered with a web page", status=200)
        is_json = _media_type(response) == _JSON_TYPE or start.lstrip().startswith((b"{", b"["))
        is_delimited = response.length is not None or response.chunked
        if is_delimited and not is_json:
            return None
        try:
            header = self._check.read_header(fd)
        except InvalidDocument as error:
            if not is_delimited:
                self.phase = "body"
                message = "the body has no length and is not JSON, so it may be incomplete"
                raise self._error(message) from error
            if self._goes_on(response):
                message = f"the body is longer than its Content-Length, {self.received} bytes"
                raise self._error(message, status=200) from error
            return None
        return header if is_json else None

    def _goes_on(self, response: http.client.HTTPResponse) -> bool:
        """Return whether data follows a body with a length, which may be counted in characters."""
        self._wire.is_patient = False
        return not response.chunked and bool(response.fp.peek(1))

    def _publish(self, partial: PartialFile, digest: str, header: Header | None) -> SavedSnapshot:
        created_at = format_utc(utc_now())
        stamp = created_at.replace("-", "").replace(":", "")
        suffix = "snapshot" if header is None else "json"
        path = self._directory / f"{self._source.instance}-{stamp}-{secrets.token_hex(3)}.{suffix}"
        if self._rows is not None:
            self._rows.publish(path)
        try:
            self._published = path
            partial.publish(path, overwrite=False)
        except FileExistsError:
            self._published = None  # the file of another process
            raise
        header = header or Header()
        return SavedSnapshot(
            path=path,
            format=header.format or protocol.DEFAULT_SNAPSHOT_FORMAT,
            time=header.time,
            size_bytes=self.received,
            sha256=digest,
            created_at=created_at,
            instance=self._source.instance,
            rows_sha256=self._rows.sha256 if self._rows else None,
            rows_size_bytes=self._rows.size_bytes if self._rows else None,
        )

    def _error(self, message: str, *, status: int | None = None) -> SnapshotError:
        masked = message.replace(self._source.operator_token, protocol.MASK)
        return SnapshotError(masked, phase=self.phase, bytes=self.received, status=status)


def _media_type(response: http.client.HTTPResponse) -> str:
    return response.getheader("Content-Type", "").partition(";")[0].strip().lower()


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    import http.client

    if isinstance(error, http.client.IncompleteRead):
        return "the body ended early"
    return str(error) if isinstance(error, CheckerLost) else f"{type(error).__name__}: {error}"
