"""Serves the files of a directory: those below it and no others, without listing them."""

from __future__ import annotations

from os import PathLike, stat_result
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

__all__ = ["StaticDirectory", "guess_media_type"]

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
"""What pages and 3D models need; the tables of the machine would make answers depend on it."""


def guess_media_type(name: str) -> str:
    """Return the media type of a file with this name."""
    return _MEDIA_TYPES.get(Path(name).suffix.lower(), "application/octet-stream")


class StaticDirectory(StaticFiles):
    """An application for a ``Mount`` that serves the files below a directory.

    A path that leads out of it, also through a link, is 404, and so is every path while the
    directory does not exist. Browsers ask again each time, and get 304 while the file is the same.

    Args:
        directory: The directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory, check_dir=False)
        self.config_checked = True  # the check would insist on the directory

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer one request."""
        try:
            return await super().get_response(path, scope)
        except HTTPException as error:
            if error.status_code == 401:  # noqa: PLR2004, RUF100 - a file that we cannot read
                raise HTTPException(404) from error
            raise

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Return a file, or 304 if the client has it."""
        response = FileResponse(
            full_path,
            status_code=status_code,
            headers={"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"},
            media_type=guess_media_type(str(full_path)),
            stat_result=stat_result,
        )
        del response.headers["last-modified"]  # answers hold no time of the host
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response
