"""Serves only the files below a directory, without listing them."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Final

from anyio import CancelScope, CapacityLimiter, create_task_group, sleep, to_thread
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Receive, Scope, Send

READS_AT_A_TIME: Final = 2
"""Maximum files of a directory open at the same time, for any number of clients."""
_log = logging.getLogger("clawblox.server")

_PIECE: Final = 256 * 1024
_RANGE: Final = re.compile(r"bytes=(?=.*[0-9])([0-9]{0,18})-([0-9]{0,18})")
"""A single range; a request for several gets the whole file."""
_PARTIAL: Final = 206
_NOT_SATISFIABLE: Final = 416
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_TRIES: Final = 100
_PAUSE_S: Final = 0.1

_MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".gif": "image/gif",
    ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json",
    ".hdr": "image/vnd.radiance",
    ".html": "text/html",
    ".ico": "image/vnd.microsoft.icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".ktx2": "image/ktx2",
    ".map": "application/json",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".otf": "font/otf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain",
    ".wasm": "application/wasm",
    ".wav": "audio/wav",
    ".webm": "video/webm",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
"""Types for pages and 3D models; a fixed table keeps answers independent of the machine."""


def guess_media_type(name: str) -> str:
    """Return the media type of a file with this name."""
    return _MEDIA_TYPES.get(Path(name).suffix.lower(), "application/octet-stream")


class StaticDirectory(StaticFiles):
    """An application for a ``Mount`` that serves the files below a directory.

    A path that leads out of it, also through a link, is 404, and so is every path while the
    directory does not exist. Browsers ask again each time, and get 304 while the file is the same.

    Args:
        directory: The directory.
        headers: Further headers of every file, such as a ``Cross-Origin-Resource-Policy`` and a
            ``Content-Security-Policy`` for files that sandboxed frames load. They replace those
            that the kit adds to every answer.
    """

    def __init__(self, directory: Path, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(directory=directory, check_dir=False)
        self.config_checked = True  # the check would insist on the directory
        self._headers = {"Cache-Control": "no-cache", **(headers or {})}
        self._limiter: CapacityLimiter | None = None

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer a request."""
        try:
            return await super().get_response(path, scope)
        except HTTPException as error:
            if error.status_code == 401:  # noqa: PLR2004, RUF100 - a file that we cannot read
                raise HTTPException(404) from error
            raise
        except ValueError as error:  # a path with a null byte, in older versions of starlette
            raise HTTPException(404) from error

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Return a file, or 304 if the client has it."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(READS_AT_A_TIME)
        response = _FileAnswer(str(full_path), stat_result, self._headers, self._limiter)
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response


class _FileAnswer(Response):
    """A file, or a range of it, read in pieces.

    The first piece is read before the status is sent, so an unreadable file is not answered 200.
    The file is open while a piece is read, and not while the client takes it: an unread answer
    occupies no descriptor but its connection.
    """

    def __init__(
        self,
        path: str,
        found: os.stat_result,
        headers: Mapping[str, str],
        limiter: CapacityLimiter,
    ) -> None:
        identity = hashlib.sha256(f"{found.st_mtime_ns} {found.st_size}".encode())
        own = {
            "Accept-Ranges": "bytes",
            "Content-Length": str(found.st_size),
            "ETag": f'"{identity.hexdigest()[:32]}"',
        }
        super().__init__(headers={**own, **headers}, media_type=guess_media_type(path))
        self._path = path
        self._found = found
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or the range that the request asks for."""
        start, end = self._set_range(Headers(scope=scope))
        if scope["method"] == "HEAD" or start >= end:
            await super().__call__(scope, receive, send)
            return
        try:
            piece = await self._read(start, end)
        except OSError as error:
            await _refuse_file(error)(scope, receive, send)
            return
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        async with create_task_group() as tasks:
            tasks.start_soon(_run_until_gone, receive, tasks.cancel_scope)
            try:
                await self._send_pieces(send, piece, start + len(piece), end)
            except OSError as error:  # without its end, the answer closes the connection
                _log.warning("%s: an answer ends early: %s", self._path, error.strerror)
            tasks.cancel_scope.cancel()

    def _set_range(self, request: Headers) -> tuple[int, int]:
        """Set status and headers for the requested range; return the range of bytes."""
        size = self._found.st_size
        match = _RANGE.fullmatch(request.get("range", ""))
        if match is None or request.get("if-range", self.headers["etag"]) != self.headers["etag"]:
            return 0, size
        first, last = match.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        self.status_code = _PARTIAL if start < end else _NOT_SATISFIABLE
        shown = f"{start}-{end - 1}" if start < end else "*"
        self.headers["content-range"] = f"bytes {shown}/{size}"
        self.headers["content-length"] = str(max(0, end - start))
        return start, end

    async def _send_pieces(self, send: Send, piece: bytes, position: int, end: int) -> None:
        while True:
            is_last = position >= end
            await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
            if is_last:
                return
            piece = await self._read_patiently(position, end)
            position += len(piece)

    async def _read_patiently(self, start: int, end: int) -> bytes:
        """Read the next piece of an answer that has begun; descriptors may be rare for a moment."""
        for _ in range(_TRIES):
            try:
                return await self._read(start, end)
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                await sleep(_PAUSE_S)
        return await self._read(start, end)

    async def _read(self, start: int, end: int) -> bytes:
        length = min(_PIECE, end - start)
        return await to_thread.run_sync(
            _read_piece, self._path, self._found, start, length, limiter=self._limiter
        )


def _read_piece(path: str, expected: os.stat_result, start: int, length: int) -> bytes:
    """Read a part of a file that was found earlier.

    Raises:
        OSError: It cannot be read, or is another file by now.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        is_same = _identity(status) == _identity(expected)
        piece = os.pread(descriptor, length, start) if is_same else b""
    finally:
        os.close(descriptor)
    if len(piece) != length:
        raise OSError(errno.ESTALE, "changed while it was sent", path)
    return piece


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _refuse_file(error: OSError) -> Response:
    if error.errno in _SHORTAGES or error.errno == errno.ESTALE:
        return PlainTextResponse("Try again", 503, {"Retry-After": "1"})
    return PlainTextResponse("Not Found", 404)


async def _run_until_gone(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
