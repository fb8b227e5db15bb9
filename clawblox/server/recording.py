"""The recorder of a hosted world: its events, observations of agents, and data of each tick.

Records are made on the thread of the world and written by another one, so a slow disk never delays
a tick. Work that a world does for its recording alone is kept to a small share of the time. The
manifest of the run lists its recordings; several worlds and an orchestrator may write it at a time.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter as monotonic_s
from typing import Any, Final, TextIO, TypeVar

import attrs
from anyio import to_thread

from clawblox.foreign_values import parse_document
from clawblox.recording import FORMAT
from clawblox.recording.background import BackgroundWriter
from clawblox.recording.blocks import (
    KIT_WRITER,
    MAX_START_BYTES,
    Moment,
    Track,
    digest_history,
    digest_value,
    format_moment_utc,
)
from clawblox.recording.writer import (
    FileDigest,
    RecordingFile,
    observation_fields,
)
from clawblox.server.hosted_world import HostedWorld
from clawblox.server.payload import encode_json
from clawblox.server.simulation import Clock
from clawblox.server.snapshot_document import make_snapshot, without_secrets

FRAMES_PER_S: Final = 10
"""Frames per second of simulation time."""
FRAME_SHARE: Final = 0.1
"""Maximum share of real time that is spent on frames."""
STATE_SHARE: Final = 0.0025
"""Maximum share of real time that is spent on digests of the state."""
MAX_STATE_S: Final = 0.005
"""Digests are made only of states whose first digest took less time, in seconds."""
MAX_ROWS_BYTES: Final = MAX_START_BYTES // 4
"""Maximum size of a database that is copied into a recording, in bytes."""
MAX_FINGERPRINTS: Final = 1 << 17
"""Maximum number of ticks whose fingerprints wait for the next frame."""

_BURST_S: Final = 0.01
_UINT64: Final = 2**64 - 1
_T = TypeVar("_T")

_log = logging.getLogger("clawblox.server")


class RecordingWriter:
    """Records a world; a :class:`~clawblox.server.hosted_world.WorldRecorder`.

    Args:
        world: The world.
        file: The file of the recording.
        frames_on_request: Whether frames are recorded where :meth:`frame` asks for them, instead of
            as often as the time of the host allows.

    Attributes:
        path: Path of the file.
    """

    def __init__(
        self, world: HostedWorld, file: RecordingFile, *, frames_on_request: bool = False
    ) -> None:
        self.path = file.path
        self._frames_on_request = frames_on_request
        self._world = world
        self._writer = BackgroundWriter(file, self._note_end)
        self._fingerprints: deque[int | None] = deque(maxlen=MAX_FINGERPRINTS)
        self._frame_slot = _frame_slot(world.time)
        self._frame_budget = _Budget(FRAME_SHARE)
        self._state_budget: _Budget | None = _Budget(STATE_SHARE)
        self._failed: set[str] = set()

    # Records

    def start(
        self,
        *,
        resumed: bool,
        reseed: int | None = None,
        clock: Clock | None = None,
        world_files: str | None = None,
    ) -> None:
        """Write the first record, and the first frame that is not on request. Blocks.

        Args:
            resumed: Whether the world was restored from a snapshot.
            reseed: The seed it was reseeded with; None if it was not.
            clock: What makes its time pass; None for the simulation's own clock.
            world_files: Digest of the world's files, from the program that started it; None for
                none.

        Raises:
            OSError: It cannot be written.
        """
        simulation = self._world.simulation
        fields = {
            "event": "start",
            "format": FORMAT,
            "writer": KIT_WRITER,
            "world_format": simulation.format,
            "scene_hash": simulation.content_hash(),
            "world_files": world_files,
            "resumed": resumed,
            "reseed": reseed,
            "clock": clock or simulation.clock,
            "tick_rate": simulation.tick_rate,
            "ticks_per_input": simulation.ticks_per_input,
            "datastore": simulation.datastore,
            "revision": simulation.revision,
            **self._read_state(),
        }
        try:
            self._writer.start(self._moment(), encode_json(fields))
        except (TypeError, ValueError, RecursionError) as error:
            _log.error("the recording has no snapshot of its start: %s", error)
            unavailable = {"unavailable": f"{type(error).__name__}: {error}"}
            fields |= {"snapshot": unavailable, "rows": unavailable}
            self._writer.start(self._moment(), encode_json(fields))
        if not self._frames_on_request:
            self._add_frame()

    def event(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event; one that is not JSON ends the recording."""
        with self._containing(event):
            self._add(Track.INPUTS, encode_json({"event": event, **fields}))

    def observed(self, agent_id: str, observation: bytes) -> None:
        """Record an observation of an agent.

        Args:
            agent_id: The agent's id.
            observation: The body of the answer.
        """
        with self._containing("observation"):
            after = self._writer.counts[Track.INPUTS]
            fields = observation_fields(encode_json(agent_id), after, observation)
            self._add(Track.OBSERVATIONS, fields)

    def ticked(self) -> None:
        """Record a fingerprint of the tick, and a frame if one is due."""
        if self._writer.is_over:
            return
        with self._containing("tick"):
            self._fingerprints.append(self._ask("fingerprint", self._read_fingerprint))
            if self._frames_on_request:
                return
            slot = _frame_slot(self._world.time)
            if slot != self._frame_slot and self._frame_budget.allows(monotonic_s()):
                self._frame_slot = slot
                self._add_frame()

    def frame(self, *, fingerprints: bool, view: bool, state: bool) -> None:
        """Record a frame on request.

        Args:
            fingerprints: Whether it has the fingerprints since the last one.
            view: Whether it has the view of a spectator.
            state: Whether it has a digest of the state.
        """
        with self._containing("frame"):
            fields = self._take_fingerprints()
            if not fingerprints:
                fields.pop("fingerprints", None)
            digest = self._ask_digest() if state else None
            self._add_parts(fields, digest, self._ask_view() if view else None)

    def digest(self) -> None:
        """Record a digest of state, agents and chat on request, apart from the frames."""
        with self._containing("digest"):
            after = self._writer.counts[Track.INPUTS]
            digest = self._ask("snapshot", lambda: digest_history(make_snapshot(self._world)))
            if digest is not None:
                self._add(Track.FRAMES, encode_json({"after": after, "digest": digest}))

    @contextmanager
    def _containing(self, record: str) -> Iterator[None]:
        """Run a block that makes a record; an error ends the recording, and not the world."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a world calls this in the middle of its work
            self._writer.end(f"{record}: {type(error).__name__}: {error}")

    def _add_frame(self) -> None:
        begun_at = monotonic_s()
        fields = self._take_fingerprints()
        self._add_parts(fields, self._digest_state(), self._ask_view())
        self._frame_budget.spend(begun_at, monotonic_s())

    def _add_parts(self, fields: dict[str, Any], digest: str | None, view: bytes | None) -> None:
        """Add a frame of these parts, unless there is none."""
        if digest is not None:
            fields["state"] = digest
        if len(fields) > 1 or view is not None:
            encoded = encode_json(fields)
            if view is not None:
                encoded = b'%b,"frame":%b}' % (encoded[:-1], view)
            self._add(Track.FRAMES, encoded)

    def _take_fingerprints(self) -> dict[str, Any]:
        fingerprints = list(self._fingerprints)
        self._fingerprints.clear()
        known = any(value is not None for value in fingerprints)
        return {
            "after": self._writer.counts[Track.INPUTS],
            **({"fingerprints": fingerprints} if known else {}),
        }

    def _digest_state(self) -> str | None:
        """Return a digest of the state where it is cheap, and due."""
        budget, begun_at = self._state_budget, monotonic_s()
        if budget is None or not budget.allows(begun_at):
            return None
        digest = self._ask_digest()
        now = monotonic_s()
        is_first = not self._writer.counts[Track.FRAMES]
        if digest is None or (is_first and now - begun_at >= MAX_STATE_S):
            self._state_budget = None
        budget.spend(begun_at, now)
        return digest

    def _read_fingerprint(self) -> int | None:
        value = self._world.simulation.fingerprint()
        return None if value is None else int(value) & _UINT64

    def _ask_digest(self) -> str | None:
        return self._ask("snapshot", lambda: digest_value(self._world.simulation.snapshot()))

    def _ask_view(self) -> bytes | None:
        return self._ask("spectate", self._encode_view)

    def _encode_view(self) -> bytes | None:
        view = self._world.simulation.spectate()
        return None if view is None else encode_json(view)

    def _ask(self, name: str, call: Callable[[], _T | None]) -> _T | None:
        """Make a call of the simulation that changes nothing; None if it fails."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the author's code may raise anything
            if name not in self._failed:
                self._failed.add(name)
                text = "%s failed, so the recording lacks it: %s: %s"
                _log.error(text, name, type(error).__name__, error)
            return None

    def _read_state(self) -> dict[str, Any]:
        """Return the snapshot and the rows, or why they are missing."""
        try:
            snapshot: object = without_secrets(make_snapshot(self._world))
            rows = self._read_rows()
        except Exception as error:  # noqa: BLE001 - the author's code may raise anything
            _log.exception("the recording has no snapshot of its start")
            unavailable = {"unavailable": f"{type(error).__name__}: {error}"}
            return {"snapshot": unavailable, "rows": unavailable}
        return {"snapshot": snapshot, "rows": rows}

    def _read_rows(self) -> str | dict[str, str] | None:
        copy = self._world.simulation.rows_copier()
        if copy is None:
            is_shared = self._world.simulation.has_shared_rows
            return {"unavailable": "the database is shared"} if is_shared else None
        with tempfile.TemporaryDirectory(dir=self.path.parent) as directory:
            path = Path(directory, "rows")
            copy(path)
            size = path.stat().st_size
            if size > MAX_ROWS_BYTES:
                return {"unavailable": f"the database has {size} bytes"}
            return base64.b64encode(path.read_bytes()).decode("ascii")

    def _moment(self) -> Moment:
        world = self._world
        return Moment(world.tick, float(world.time), format_moment_utc(datetime.now(UTC)))

    def _add(self, track: Track, fields: bytes) -> None:
        if not self._writer.is_over and self._writer.add(track, self._moment(), fields):
            self._writer.wake()

    # Writing

    @property
    def is_over(self) -> bool:
        """True if the recording has ended early."""
        return self._writer.is_over

    async def write_due(self) -> None:
        """Write the blocks that have ended, and wait for that; :meth:`run` does so too."""
        await to_thread.run_sync(self._writer.write, self._writer.take())

    async def run(self) -> None:
        """Write blocks when they have ended, until cancelled.

        Cancellation: no record is lost; :meth:`close` writes the rest.
        """
        await self._writer.run(self.write_due)

    def close(self, *, is_clean: bool = True) -> FileDigest | None:
        """Write the rest and close the file. Blocks.

        Args:
            is_clean: Whether the world has ended in order; the last event is then ``end``.

        Returns:
            The digest of the file; None after an error.
        """
        is_rest_known = any(value is not None for value in self._fingerprints)
        if is_rest_known and not self._frames_on_request:
            with self._containing("tick"):
                self._add(Track.FRAMES, encode_json(self._take_fingerprints()))
        if is_clean:
            self.event("end", {})
        return self._writer.close()

    def _note_end(self, reason: str) -> None:
        _log.error("%s: the recording ends here, and the world continues: %s", self.path, reason)


class _Budget:
    """Keeps work below a share of real time, after a short burst."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._free_at = 0.0

    def allows(self, now: float) -> bool:
        return self._free_at <= now

    def spend(self, begun_at: float, ended_at: float) -> None:
        earliest = begun_at - _BURST_S / self._share
        self._free_at = max(self._free_at, earliest) + (ended_at - begun_at) / self._share


def _frame_slot(time_s: float) -> int:
    """Return the number of the latest moment at which a frame was due."""
    return int(time_s * FRAMES_PER_S + 1e-6)  # sums of floats are inexact


# -- entries in the manifest of the run ---------------------------------------------------------

LOCK_WAIT_S: Final = 2.0
"""A temporary file that is older was left behind by a writer that died."""


def register_recording(manifest: Path, recording: Path, digest: FileDigest | None = None) -> None:
    """Add a recording to the run's manifest, or the digest of one that is there.

    The manifest is read, extended, written as ``manifest.json.tmp`` and renamed. Several worlds
    may do this at a time: creating the temporary file exclusively keeps worlds of this kit from
    losing each other's entries. This function blocks.

    Args:
        manifest: The manifest.
        recording: The file.
        digest: Its content, when it is finished; None before, and where it is not known.

    Raises:
        OSError: The manifest cannot be read or written.
        ValueError: It is not a manifest; it is left unchanged.
    """
    manifest.parent.mkdir(parents=True, exist_ok=True)
    temporary = manifest.with_name("manifest.json.tmp")
    with _open_exclusively(temporary) as file:
        try:
            document = _with_recording(
                _read_manifest(manifest), _entry(manifest, recording, digest)
            )
            json.dump(document, file, indent=2, sort_keys=True, allow_nan=False)
            file.write("\n")
        except BaseException:
            temporary.unlink()
            raise
    temporary.replace(manifest)


def _open_exclusively(path: Path) -> TextIO:
    deadline = time.monotonic() + LOCK_WAIT_S
    open_private = partial(os.open, mode=0o600)
    while True:
        try:
            return open(path, "x", encoding="utf-8", opener=open_private)
        except FileExistsError:
            time.sleep(0.01)
        if time.monotonic() > deadline:
            path.unlink(missing_ok=True)
            deadline = time.monotonic() + LOCK_WAIT_S


def _read_manifest(manifest: Path) -> dict[str, Any]:
    try:
        document = parse_document(manifest.read_bytes())
    except FileNotFoundError:
        return {"schema_version": 1}
    if not isinstance(document, dict):
        raise ValueError("the manifest is not a JSON object")
    return document


def _entry(manifest: Path, recording: Path, digest: FileDigest | None) -> dict[str, Any]:
    state_root = manifest.resolve().parent.parent
    is_inside = recording.is_relative_to(state_root)
    path = str(recording.relative_to(state_root) if is_inside else recording)
    content = {} if digest is None else attrs.asdict(digest)
    return {"path": path, "events": path, "format": FORMAT, **content}


def _with_recording(document: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    recordings = document.get("recordings", [])
    if not isinstance(recordings, list):
        raise ValueError("the manifest's 'recordings' are not a list")
    # An entry keeps its place: recordings are numbered in the order of the list.
    kept = [
        {**other, **entry}
        if isinstance(other, dict) and other.get("path") == entry["path"]
        else other
        for other in recordings
    ]
    is_new = all(other is old for other, old in zip(kept, recordings, strict=True))
    return {**document, "recordings": [*kept, entry] if is_new else kept}
