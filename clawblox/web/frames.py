"""The files that a renderer in a frame may have: the engine's page, and some of its world.

Foreign code runs in such a frame. It has no origin, and a key that opens the files of one recording
alone. Their addresses are those of the world's routes, so that its page works unchanged.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import attrs

from clawblox.config.world_toml import WorldConfig
from clawblox.system.regular_files import read_file
from clawblox.web.site import NoSuchPage

_KEY_BYTES: Final = 16
_MAX_BYTES: Final = 64 << 20
"""Maximum size of a file."""
_API_VERSION: Final = 1
_PAGE_DIR: Final = Path(str(resources.files("clawblox") / "engine" / "page"))
_WORLD_DIRS: Final = {"assets": "assets", "renderer-files": "renderer", "static": "static"}
_FEED: Final = "frame_feed.js"
_AUTHORITY: Final = re.compile(r"[\w.:\[\]-]+", re.ASCII)


class FrameKeys:
    """The keys of frames, 128 random bits each. Thread-safe."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def make(self, run: str, number: str) -> str:
        """Return the key of a recording, by its run's name in addresses and its number."""
        with self._lock:
            return self._keys.setdefault((run, number), secrets.token_urlsafe(_KEY_BYTES))

    def find(self, key: str) -> tuple[str, str]:
        """Return run and number of a recording.

        Raises:
            NoSuchPage: There is no such key.
        """
        with self._lock:
            pairs = list(self._keys.items())
        for recording, own in pairs:
            if secrets.compare_digest(own.encode(), key.encode()):
                return recording
        raise NoSuchPage("There is no frame with this key.")


@attrs.frozen
class FrameFile:
    """A file for a frame.

    Attributes:
        name: Its name, which tells its type.
        content: Its content.
    """

    name: str
    content: bytes


def has_renderer(config: WorldConfig) -> bool:
    """Return whether a world's states can be shown: by the engine's page or a module of its own."""
    return config.is_engine_world or bool(config.renderer.get("entry"))


def read_frame_file(config: WorldConfig, path: str) -> FrameFile:
    """Return the file at a path of a frame. Blocks.

    Args:
        config: The world.
        path: The path below the key.

    Raises:
        NoSuchPage: There is none, it is no regular file, too large, or behind a link.
    """
    if path == "renderer/manifest":
        return FrameFile("manifest.json", json.dumps(_describe(config)).encode())
    if path == "chat/messages":
        return FrameFile("messages.json", b'{"messages":[]}')
    if path == "ui/feed.js":
        own = resources.files("clawblox.web") / "static" / _FEED
        return FrameFile(_FEED, own.read_bytes())
    first, _, rest = path.partition("/")
    if first in _WORLD_DIRS:
        try:
            return _read(config.dir / _WORLD_DIRS[first], rest)
        except NoSuchPage:
            if path != "assets/player.glb":
                raise
    return _read(_PAGE_DIR, {"": "index.html", "ui": rest, "assets": rest}.get(first, ""))


def _read(root: Path, path: str) -> FrameFile:
    names = path.split("/")
    try:
        if any(name in ("", ".", "..") for name in names):
            raise ValueError(path)
        return FrameFile(names[-1], read_file(root, path, max_bytes=_MAX_BYTES))
    except (OSError, ValueError) as error:
        raise NoSuchPage("There is no such file.") from error


def _describe(config: WorldConfig) -> Mapping[str, object]:
    """Return what ``GET /renderer/manifest`` of an engine world says; addresses are relative."""
    renderer = config.renderer
    entry = renderer.get("entry")
    return {
        "schema_version": 1,
        "api_version": renderer.get("api_version", _API_VERSION),
        "name": renderer.get("name", config.name),
        "mode": renderer.get("mode", "module"),
        "entry_url": f"renderer-files/{entry}" if entry else None,
        "capabilities": renderer.get("capabilities", []),
    }


def frame_headers(host: str, key: str, path: str) -> Mapping[str, str]:
    """Return the headers of a file of a frame: its page may load what is below its key, no more.

    Only that page runs scripts; any other file shown as a page is dead.

    Args:
        host: The ``Host`` of the request, with which the browser compares addresses.
        key: The key of the frame.
        path: The path below the key.

    Raises:
        NoSuchPage: The host is malformed.
    """
    if _AUTHORITY.fullmatch(host) is None:
        raise NoSuchPage("The Host is malformed.")
    own = f"http://{host}/x/{key}/"
    page = (
        "sandbox allow-scripts",
        "default-src 'none'",
        f"script-src {own} 'unsafe-inline'",  # the page has an import map; nothing here is trusted
        f"style-src {own} 'unsafe-inline'",
        f"img-src {own} blob: data:",
        f"font-src {own} data:",
        f"media-src {own} blob: data:",
        f"connect-src {own} blob: data:",
        "form-action 'none'",
        "base-uri 'none'",
    )
    policy = ("sandbox", "default-src 'none'") if path else page
    return {
        "Content-Security-Policy": "; ".join((*policy, f"frame-ancestors http://{host}")),
        # What that policy does not know: WebRTC, preconnect, DNS.
        "Connection-Allowlist": "(response-origin);webrtc=block",
        "Access-Control-Allow-Origin": "null",  # modules and fetch, from a page without an origin
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
