"""Snapshots: ``GET /snapshot`` -> a verified file on disk, complete or absent.

The transfer runs in a worker thread on a blocking loopback socket: bytes go from the socket
through the digest to a private partial file, so memory stays flat whatever the size, and the
event loop is not involved. The document itself is never built; its ``format`` and ``time``
are picked out of the mapped file.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import math
import mmap
import os
import secrets
import socket
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import msgspec

from clawblox import protocol
from clawblox.clock import format_utc, utc_now
from clawblox.errors import SnapshotError
from clawblox.files import PartialFile, make_private_dir, sweep_partials, write_all
from clawblox.model import SavedSnapshot
from clawblox.ports import connect_host
from clawblox.threads import run_blocking

__all__ = ["DEFAULT_MAX_BYTES", "SnapshotSource", "capture"]

DEFAULT_MAX_BYTES = 16 << 30
"""A larger snapshot is refused unless the caller allows it, in bytes."""

_BUFFER_BYTES = 1 << 20
_BODY_START_BYTES = 200
_TRANSFERS_AT_ONCE = 4
_JSON_TYPE = "application/json"

_transfer_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar(
    "clawblox_transfer_limiter"
)


@attrs.frozen
class SnapshotSource:
    """The instance to take a snapshot of.

    Attributes:
        instance: Its name.
        host: Address it was told to bind.
        port: Its port.
        base_path: Prefix of its routes.
        operator_token: Secret that opens the route.
    """

    instance: str
    host: str
    port: int
    base_path: str
    operator_token: str = attrs.field(repr=False)


class _Header(msgspec.Struct):
    """The top-level fields of a JSON snapshot that the manifest records."""

    format: Any = None
    time: Any = None


async def capture(
    source: SnapshotSource, directory: Path, *, timeout: float, max_bytes: int
) -> SavedSnapshot:
    """Take a snapshot and publish it in ``directory``.

    Args:
        source: The instance.
        directory: Where the file goes; created when missing. The name is chosen and new.
        timeout: Seconds for all of it.
        max_bytes: Largest body that is accepted.

    Raises:
        SnapshotError: The answer is unusable or late; no file is left.

    Cancellation: the connection is closed and no file is left.
    """
    transfer = _Transfer(source, directory, timeout, max_bytes)
    with anyio.move_on_after(timeout):
        return await _run_abortable(transfer)
    raise SnapshotError(
        f"the snapshot took longer than {timeout:g} s",
        phase=transfer.phase,
        bytes=transfer.received,
    )


async def _run_abortable(transfer: _Transfer) -> SavedSnapshot:
    """Run a transfer in a worker thread; a cancellation ends it and takes back its file."""
    try:
        outcome = await _race_cancellation(transfer)
        await anyio.lowlevel.checkpoint_if_cancelled()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await run_blocking(transfer.take_back)
        raise
    if isinstance(outcome, SnapshotError):
        raise outcome
    return outcome


async def _race_cancellation(transfer: _Transfer) -> SavedSnapshot | SnapshotError:
    """Run a transfer in a worker thread; a cancellation closes its socket and waits for it."""
    limiter = _transfer_limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_TRANSFERS_AT_ONCE)
        _transfer_limiter.set(limiter)

    async def abort_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            transfer.abort()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(abort_when_cancelled)
        try:
            return await run_blocking(transfer.run, limiter=limiter)
        except SnapshotError as error:
            return error  # raised in here, it would come out in an ExceptionGroup
        finally:
            tasks.cancel_scope.cancel()
    raise AssertionError("unreachable: the block returns")


class _Transfer:
    """One snapshot on its way from the socket to the published file. Blocks.

    Attributes:
        phase: What is being done, for an error.
        received: Body bytes received so far.
    """

    def __init__(
        self, source: SnapshotSource, directory: Path, timeout: float, max_bytes: int
    ) -> None:
        self.phase = "connect"
        self.received = 0
        self._source = source
        self._directory = directory
        self._max_bytes = max_bytes
        self._connection = http.client.HTTPConnection(
            connect_host(source.host), source.port, timeout=timeout
        )
        self._is_aborted = False
        self._published: Path | None = None

    def abort(self) -> None:
        """End a running transfer soon, from another thread."""
        self._is_aborted = True
        if (connected := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def take_back(self) -> None:
        """Remove the file again, if it was published, since nobody will register it."""
        if self._published is not None:
            self._published.unlink(missing_ok=True)

    def run(self) -> SavedSnapshot:
        """Do it.

        Raises:
            SnapshotError: Nothing was published.
        """
        try:
            make_private_dir(self._directory)
            sweep_partials(self._directory)
            return self._transfer()
        except (http.client.HTTPException, OSError) as error:
            self.take_back()
            raise self._error(_describe(error)) from error
        finally:
            self._connection.close()

    def _transfer(self) -> SavedSnapshot:
        response = self._request()
        partial = PartialFile(self._directory, self._source.instance)
        try:
            digest = self._receive(response, partial.fd)
            self.phase = "verify"
            content_type = response.getheader("Content-Type", "")
            header = self._read_header(partial.fd, content_type)
            self.phase = "publish"
            if self._is_aborted:
                raise self._error("the save was cancelled")
            return self._publish(partial, digest, header)
        finally:
            partial.close()

    def _request(self) -> http.client.HTTPResponse:
        route = protocol.join_base_path(self._source.base_path, protocol.SNAPSHOT_ROUTE)
        self._connection.connect()
        if self._is_aborted:
            raise self._error("the save was cancelled")
        self.phase = "headers"
        headers = {
            protocol.OPERATOR_HEADER: self._source.operator_token,
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        self._connection.request("GET", route, headers=headers)
        response = self._connection.getresponse()
        self._check_head(response)
        return response

    def _check_head(self, response: http.client.HTTPResponse) -> None:
        if response.status != 200:
            start = response.read(_BODY_START_BYTES).decode(errors="replace")
            raise self._error(
                f"GET /snapshot answered {response.status} {response.reason}: {start!r}",
                status=response.status,
            )
        encoding = response.getheader("Content-Encoding", "identity")
        if encoding != "identity":
            raise self._error(f"the snapshot has Content-Encoding {encoding!r}", status=200)
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
        while promised is None or self.received < promised:
            # Not readinto: it returns only when the buffer is full, and hides what has come.
            chunk = response.read1(_BUFFER_BYTES)
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
        if promised is None and not response.chunked and not _is_json(fd):
            raise self._error("the body has no length and is no JSON: it may be incomplete")
        return digest.hexdigest()

    def _read_header(self, fd: int, content_type: str) -> _Header | None:
        """Return the header of a JSON snapshot, None for an opaque one."""
        start = os.pread(fd, _BODY_START_BYTES, 0).lstrip()
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type == "text/html" or start[:9].lower() in (b"<!doctype", b"<html>"):
            raise self._error("the world answered with a web page", status=200)
        if media_type != _JSON_TYPE and not start.startswith((b"{", b"[")):
            return None
        try:
            return _decode_header(fd)
        except msgspec.DecodeError as error:
            raise self._error(f"the snapshot is not valid JSON: {error}", status=200) from error

    def _publish(self, partial: PartialFile, digest: str, header: _Header | None) -> SavedSnapshot:
        created_at = format_utc(utc_now())
        stamp = created_at.replace("-", "").replace(":", "")
        suffix = "snapshot" if header is None else "json"
        name = f"{self._source.instance}-{stamp}-{secrets.token_hex(3)}.{suffix}"
        path = self._directory / name
        try:
            self._published = path
            partial.publish(path, overwrite=False)
        except FileExistsError:
            self._published = None  # somebody else's
            raise
        return SavedSnapshot(
            path=path,
            format=_usable_format(header),
            time=_usable_time(header),
            size_bytes=self.received,
            sha256=digest,
            created_at=created_at,
            instance=self._source.instance,
        )

    def _error(self, message: str, *, status: int | None = None) -> SnapshotError:
        masked = message.replace(self._source.operator_token, protocol.MASK)
        return SnapshotError(masked, phase=self.phase, bytes=self.received, status=status)


def _decode_header(fd: int) -> _Header:
    # A whole-file syntax check that builds nothing: the order of the keys does not matter.
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        try:
            return msgspec.json.decode(view, type=_Header)
        except msgspec.ValidationError:  # valid JSON, but no object
            return _Header()


def _is_json(fd: int) -> bool:
    try:
        _decode_header(fd)
    except msgspec.DecodeError:
        return False
    return True


def _usable_format(header: _Header | None) -> str:
    name = header.format if header else None
    return name if isinstance(name, str) and name else protocol.DEFAULT_SNAPSHOT_FORMAT


def _usable_time(header: _Header | None) -> float | None:
    value = header.time if header else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _describe(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the body ended early"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return f"{type(error).__name__}: {error}"
