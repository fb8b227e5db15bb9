"""The display of a recorded world: its renderer in a frame, or a viewer that a person started.

Foreign code runs in such a frame. It has no origin, and a key that opens the files of one recording
alone. Their addresses are those of the world's routes, so that its page works unchanged. Viewers
are programs that end with this server.
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
"""Sources of the page of a frame, besides files below its key. It has an import map."""
_AUTHORITY: Final = re.compile(r"[\w.:\[\]-]+", re.ASCII)
LOOK_S: Final = 10.0
"""How long an answer about a world holds: the digests of a large one take a tenth of a second."""
_MAX_NAMES: Final = 3
_KEPT_BYTES: Final = 4096

RecordingKey: TypeAlias = tuple[str, str]
"""A run's name in addresses, and the number of its recording."""


# -- the world of a recording --------------------------------------------------------------------


@attrs.frozen
class RecordedWorld:
    """The world of a recording as it is now.

    Attributes:
        config: Its ``world.toml``; None if it is gone or not known.
        problem: Why that is so, for people.
        change: Changes since the recording, for people; empty if nothing is known to have.
    """

    config: WorldConfig | None = None
    problem: str = ""
    change: str = ""

    @property
    def has_renderer(self) -> bool:
        """True if the engine's page or a module of its own can show its states."""
        config = self.config
        return config is not None and (config.is_engine_world or bool(config.renderer.get("entry")))

    @property
    def viewer(self) -> ViewerCommand | None:
        """Its own program that shows a recording; None if it has none."""
        return None if self.config is None else find_viewer(self.config.dir)


@functools.lru_cache(maxsize=64)
def find_world(
    found: FoundRecording, run_dir: Path, digest: str | None, _period: int
) -> RecordedWorld:
    """Return the world of a recording. Blocks.

    Args:
        found: The recording.
        run_dir: The run directory that lists it.
        digest: The digest of the world's files, as the recording has it.
        _period: The time in :data:`LOOK_S`; within one of them the answer is the same.
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
        """Return the key of a recording, by its run's name in addresses and its number."""
        return self._keys.setdefault((run, number), secrets.token_urlsafe(_KEY_BYTES))

    def find(self, key: str) -> RecordingKey:
        """Return run and number of a recording.

        Raises:
            NoSuchPage: There is no such key.
        """
        for recording, own in self._keys.copy().items():
            if secrets.compare_digest(own.encode(), key.encode()):
                return recording
        raise NoSuchPage("There is no frame with this key.")


def read_frame_file(world: RecordedWorld, path: str) -> tuple[str, bytes]:
    """Return the file at a path of a frame: a name that tells its type, and its content. Blocks.

    Args:
        world: The world.
        path: The path below the key.

    Raises:
        NoSuchPage: There is none, it is no regular file, too large, or behind a link.
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
    """Return what ``GET /renderer/manifest`` of an engine world says; addresses are relative."""
    entry = config.renderer.get("entry")
    usual = {"api_version": 1, "name": config.name, "mode": "module", "capabilities": []}
    given = {name: config.renderer.get(name, value) for name, value in usual.items()}
    return {"schema_version": 1, "entry_url": entry and f"renderer-files/{entry}", **given}


def frame_headers(host: str, key: str, path: str) -> Mapping[str, str]:
    """Return the headers of a file of a frame: its page may load only files below its key.

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
    policy = ["sandbox", "default-src 'none'"]
    if not path:
        sources = (f"{kind} {own} {more}" for kind, more in _SOURCES)
        policy = ["sandbox allow-scripts", "default-src 'none'", *sources]
        policy += ["form-action 'none'", "base-uri 'none'"]
    return {
        "Content-Security-Policy": "; ".join((*policy, f"frame-ancestors http://{host}")),
        # What that policy does not know: WebRTC, preconnect, DNS.
        "Connection-Allowlist": "(response-origin);webrtc=block",
        "Access-Control-Allow-Origin": "null",  # modules and fetch, from a page without an origin
        "Cross-Origin-Resource-Policy": "cross-origin",
    }


# -- viewers -------------------------------------------------------------------------------------


@attrs.define(eq=False)
class RunningViewer:
    """A viewer that was started.

    Attributes:
        port: The port that it was given.
        words: The command.
        state: Whether it runs.
        why: Why it failed, or how it ended.
        output: The end of what it has written.
    """

    port: int = 0
    words: list[str] = attrs.field(factory=list)
    state: Literal["running", "ended", "failed"] = "running"
    why: str = ""
    output: bytes = b""

    @property
    def address(self) -> str:
        """The address that it was given."""
        return f"http://{HOST}:{self.port}/"

    def begin(self, words: list[str], port: int) -> None:
        """Take over the command that is run, and its port."""
        self.words, self.port = words, port

    async def keep(self, data: bytes) -> None:
        """Take over what it writes."""
        self.output = (self.output + data)[-_KEPT_BYTES:]


class Viewers:
    """The viewers of this server, at most one for each recording."""

    def __init__(self) -> None:
        self._viewers: dict[RecordingKey, RunningViewer] = {}
        self._tasks: Tasks | None = None

    def find(self, run: str, number: str) -> RunningViewer | None:
        """Return the viewer that was started last for a recording. Thread-safe."""
        return self._viewers.get((run, number))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Let viewers run while the block does; they have ended when it is left.

        Cancellation: ends them.
        """
        async with Tasks(on_error=lambda _error: None) as self._tasks:
            yield

    def start(self, key: RecordingKey, viewer: ViewerCommand, recording: Path) -> None:
        """Start a viewer, unless it runs; :meth:`find` reports the outcome.

        Args:
            key: The recording in addresses.
            viewer: Its command.
            recording: Its file, absolute.
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
