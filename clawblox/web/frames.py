"""The display of a recorded world: its renderer in a frame, or a viewer that a person started.

The frame runs foreign code. The frame has no origin, and its key opens only the files of one
recording. The files have the addresses of the world's routes, so that its page works unchanged.
Viewers are programs that end with this server.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.errors import ClawbloxError
from clawblox.replay.sources import find_changed_files
from clawblox.rundir.recordings import FoundRecording
from clawblox.supervision.tree import SharedStop
from clawblox.system.regular_files import read_file
from clawblox.web.site import NoSuchPage
from clawblox.world.recorded_worlds import find_recorded_world
from clawblox.world.viewer import HOST, ViewerCommand, find_viewer, run_viewer

_KEY_BYTES: Final = 16
_MAX_BYTES: Final = 64 << 20
"""Maximum size of a file."""
PACKAGE: Final = Path(str(resources.files("clawblox")))
_WORLD_DIRS: Final = {"assets": "assets", "renderer-files": "renderer", "static": "static"}
_SOURCES: Final = (
    *(("script-src", "'unsafe-inline'"), ("style-src", "'unsafe-inline'")),
    *((f"{kind}-src", "blob: data:") for kind in ("img", "font", "media", "connect")),
)
"""Sources that the page of a frame, which has an import map, may use besides its own files."""
_AUTHORITY: Final = re.compile(r"[\w.:\[\]-]+", re.ASCII)
LOOK_S: Final = 10.0
"""Seconds for which an answer about a world is reused; digests of a large world take 0.1 s."""
_MAX_NAMES: Final = 3
_KEPT_BYTES: Final = 4096

RecordingKey: TypeAlias = tuple[str, str]
"""A run's name in addresses, and the number of its recording."""


# -- the world of a recording --------------------------------------------------------------------


@attrs.frozen
class RecordedWorld:
    """The current world of a recording.

    Attributes:
        config: Its ``world.toml``; None if missing or unknown.
        problem: Why ``config`` is None, for people.
        change: Changes since the recording, for people; empty if none are known.
    """

    config: WorldConfig | None = None
    problem: str = ""
    change: str = ""

    @property
    def has_renderer(self) -> bool:
        """True if the engine's page or the world's own module can show the states."""
        config = self.config
        return config is not None and (config.is_engine_world or bool(config.renderer.get("entry")))

    @property
    def viewer(self) -> ViewerCommand | None:
        """The world's program that shows a recording; None if the world has none."""
        return None if self.config is None else find_viewer(self.config.dir)


@functools.lru_cache(maxsize=64)
def find_world(
    found: FoundRecording, run_dir: Path, digest: str | None, _period: int
) -> RecordedWorld:
    """Return the world of a recording. Blocks.

    Args:
        found: The recording.
        run_dir: The run directory that lists it.
        digest: The recorded digest of the world's files.
        _period: Number of the current period of :data:`LOOK_S`; the answer is cached for a period.
    """
    try:
        config = read_world_config(find_recorded_world(found, run_dir))
    except ClawbloxError as error:
        return RecordedWorld(problem=error.headline)
    changed = find_changed_files(found, digest, str(config.dir)) or ()
    names = ", ".join(name for name in changed[:_MAX_NAMES] if name != ".")
    change = f"{config.dir} has changed since this was recorded: {names}".rstrip(": ") + "."
    return RecordedWorld(config, change=change if changed else "")


# -- frames --------------------------------------------------------------------------------------


class FrameKeys:
    """The keys of frames, 128 random bits each. Thread-safe."""

    def __init__(self) -> None:
        self._keys: dict[RecordingKey, str] = {}

    def make(self, run: str, number: str) -> str:
        """Return the key of a recording, given its run's name in addresses and its number."""
        return self._keys.setdefault((run, number), secrets.token_urlsafe(_KEY_BYTES))

    def find(self, key: str) -> RecordingKey:
        """Return the run and the number of a recording.

        Raises:
            NoSuchPage: There is no such key.
        """
        for recording, own in self._keys.copy().items():
            if secrets.compare_digest(own.encode(), key.encode()):
                return recording
        raise NoSuchPage("There is no frame with this key.")


def read_frame_file(world: RecordedWorld, path: str) -> tuple[str, bytes]:
    """Return the file at a path of a frame: a name with the type's suffix, and content. Blocks.

    Args:
        world: The world.
        path: The path below the key.

    Raises:
        NoSuchPage: The file does not exist, is not a regular file, is too large, or is behind a
            link.
    """
    if world.config is None:
        raise NoSuchPage(world.problem)
    if path == "renderer/manifest":
        return "manifest.json", json.dumps(_describe(world.config)).encode()
    if path == "chat/messages":
        return "messages.json", b'{"messages":[]}'
    if path == "ui/feed.js":
        return _read(PACKAGE / "web" / "static", "frame_feed.js")
    first, _, rest = path.partition("/")
    if first in _WORLD_DIRS:
        with suppress(NoSuchPage):
            return _read(world.config.dir / _WORLD_DIRS[first], rest)
    page = {"": "index.html", "ui": rest, "assets": rest}.get(first, "")
    return _read(PACKAGE / "engine" / "page", page)


def _read(root: Path, path: str) -> tuple[str, bytes]:
    names = path.split("/")
    try:
        if any(name in ("", ".", "..") for name in names):
            raise ValueError(path)
        return names[-1], read_file(root, path, max_bytes=_MAX_BYTES)
    except (OSError, ValueError) as error:
        raise NoSuchPage("There is no such file.") from error


def _describe(config: WorldConfig) -> Mapping[str, object]:
    """Return an engine world's answer to ``GET /renderer/manifest``, with relative addresses."""
    entry = config.renderer.get("entry")
    usual = {"api_version": 1, "name": config.name, "mode": "module", "capabilities": []}
    given = {name: config.renderer.get(name, value) for name, value in usual.items()}
    return {"schema_version": 1, "entry_url": entry and f"renderer-files/{entry}", **given}


def frame_headers(host: str, key: str, path: str) -> Mapping[str, str]:
    """Return the headers of a file of a frame, whose page may load only files below its key.

    Only that page runs scripts; other files that are opened as a page run none.

    Args:
        host: The ``Host`` of the request, which the browser compares with addresses.
        key: The key of the frame.
        path: The path below the key.

    Raises:
        NoSuchPage: The host is malformed.
    """
    if _AUTHORITY.fullmatch(host) is None:
        raise NoSuchPage("The Host is malformed.")
    own = f"http://{host}/x/{key}/"
    policy = ["sandbox", "default-src 'none'"]
    if not path:
        sources = (f"{kind} {own} {more}" for kind, more in _SOURCES)
        policy = ["sandbox allow-scripts", "default-src 'none'", *sources]
        policy += ["form-action 'none'", "base-uri 'none'"]
    return {
        "Content-Security-Policy": "; ".join((*policy, f"frame-ancestors http://{host}")),
        # Channels that the policy does not cover: WebRTC, preconnect, DNS.
        "Connection-Allowlist": "(response-origin);webrtc=block",
        # Allows modules and fetch from a page without an origin.
        "Access-Control-Allow-Origin": "null",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }


# -- viewers -------------------------------------------------------------------------------------


@attrs.define(eq=False)
class RunningViewer:
    """A viewer that was started.

    Attributes:
        port: The port that it was given.
        words: The command.
        state: Whether it is running, has ended or has failed.
        why: The reason of its failure, or how it ended.
        output: The last part of its output.
    """

    port: int = 0
    words: list[str] = attrs.field(factory=list)
    state: Literal["running", "ended", "failed"] = "running"
    why: str = ""
    output: bytes = b""

    @property
    def address(self) -> str:
        """The address of the viewer."""
        return f"http://{HOST}:{self.port}/"

    def begin(self, words: list[str], port: int) -> None:
        """Set the command and its port."""
        self.words, self.port = words, port

    async def keep(self, data: bytes) -> None:
        """Add output of the viewer."""
        self.output = (self.output + data)[-_KEPT_BYTES:]


class Viewers:
    """The viewers of this server, at most one for each recording."""

    def __init__(self) -> None:
        self._viewers: dict[RecordingKey, RunningViewer] = {}
        self._tasks: Tasks | None = None

    def find(self, run: str, number: str) -> RunningViewer | None:
        """Return the latest viewer of a recording. Thread-safe."""
        return self._viewers.get((run, number))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Let viewers run while the block runs, and end them with the block.

        Cancellation: ends the viewers.
        """
        async with Tasks(on_error=lambda _error: None) as self._tasks:
            yield

    def start(self, key: RecordingKey, viewer: ViewerCommand, recording: Path) -> None:
        """Start a viewer unless it is running; :meth:`find` reports the outcome.

        Args:
            key: The recording, as in addresses.
            viewer: The command.
            recording: The file of the recording, absolute.
        """
        known = self.find(*key)
        if self._tasks is not None and (known is None or known.state != "running"):
            entry = self._viewers[key] = RunningViewer()
            self._tasks.start_soon(_run, entry, viewer, recording)


async def _run(entry: RunningViewer, viewer: ViewerCommand, recording: Path) -> None:
    try:
        end = await run_viewer(viewer, recording, entry.begin, entry.keep, SharedStop())
        entry.state, entry.why = "ended", end.signal or f"status {end.status}"
    except ClawbloxError as error:
        entry.state, entry.why = "failed", error.headline
