"""Recordings: the events of a world, one JSON object a line, registered in the run's manifest.

A snapshot is state without history; a recording is history without state. A thread writes the
lines, so a slow disk never delays a tick.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import anyio
from anyio import to_thread

from clawblox.foreign_values import parse_document
from clawblox.server.hosted_world import HostedWorld
from clawblox.server.payload import encode_json

FORMAT: Final = "clawblox-events-v1"
LOCK_WAIT_S: Final = 2.0
"""A temporary file that is older was left behind by a writer that died."""

_log = logging.getLogger("clawblox.server")


class Recording:
    """An open recording.

    Args:
        path: Path of its file.
        file: The file, open for writing.

    Attributes:
        path: Path of its file.
    """

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path = path
        self._file = file
        self._lines: list[str] = []
        self._is_cut = False
        self._has_lines = anyio.Event()

    def write(self, event: Mapping[str, object]) -> None:
        """Queue an event; :meth:`run` or :meth:`close` writes it to the file.

        Raises:
            ValueError: A number in it is not finite.
            TypeError: It contains something that is not a JSON value.
        """
        self._lines.append(encode_json(event).decode() + "\n")
        self._has_lines.set()

    async def run(self) -> None:
        """Write queued lines to the file until cancelled.

        Cancellation: no line is lost; :meth:`close` writes the queued lines.
        """
        while True:
            await self._has_lines.wait()
            self._has_lines = anyio.Event()
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._append, self._take())

    def close(self) -> None:
        """Write the queued lines and close the file."""
        self._append(self._take())
        with contextlib.suppress(OSError):  # reported before; the file is closed anyway
            self._file.close()

    def _take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def _append(self, lines: list[str]) -> None:
        if self._is_cut:
            return
        try:
            self._file.writelines(lines)
            self._file.flush()
        except OSError:
            self._is_cut = True  # nothing may follow half a line
            _log.exception("%s: the recording ends here; the world runs on", self.path)


def open_recording(
    directory: Path, world: HostedWorld, *, resumed: bool, reseed: int | None = None
) -> Recording:
    """Create the next free ``recording-NNNN.jsonl`` and write its first line.

    Args:
        directory: Directory of the file; created if absent.
        world: The world that is recorded, before its first tick.
        resumed: Whether it was restored from a snapshot.
        reseed: The seed it was reseeded with; None if it was not.

    Raises:
        OSError: The directory or the file cannot be created.
    """
    directory.mkdir(parents=True, exist_ok=True)
    recording = _create_next(directory)
    recording.write(
        {
            "format": FORMAT,
            "tick": world.tick,
            "time": world.time,
            "event": "start",
            "world_format": world.simulation.format,
            "scene_hash": world.simulation.content_hash(),
            "resumed": resumed,
            "reseed": reseed,
        }
    )
    return recording


def _create_next(directory: Path) -> Recording:
    number = 1
    while True:
        path = directory.resolve() / f"recording-{number:04d}.jsonl"
        try:
            return Recording(path, path.open("x", encoding="ascii"))
        except FileExistsError:
            number += 1


def register_recording(manifest: Path, recording: Path) -> None:
    """Add a recording to the run's manifest.

    The manifest is read, extended, written as ``manifest.json.tmp`` and renamed. Several worlds
    may do this at a time: creating the temporary file exclusively keeps worlds of this kit from
    losing each other's entries. This function blocks.

    Raises:
        OSError: The manifest cannot be read or written.
        ValueError: It is not a manifest; it is left unchanged.
    """
    manifest.parent.mkdir(parents=True, exist_ok=True)
    temporary = manifest.with_name("manifest.json.tmp")
    with _open_exclusively(temporary) as file:
        try:
            document = _with_recording(_read_manifest(manifest), _entry(manifest, recording))
            json.dump(document, file, indent=2, sort_keys=True, allow_nan=False)
            file.write("\n")
        except BaseException:
            temporary.unlink()
            raise
    temporary.replace(manifest)


def _open_exclusively(path: Path) -> TextIO:
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return path.open("x", encoding="utf-8")
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


def _entry(manifest: Path, recording: Path) -> dict[str, str]:
    state_root = manifest.resolve().parent.parent
    is_inside = recording.is_relative_to(state_root)
    path = str(recording.relative_to(state_root) if is_inside else recording)
    return {"path": path, "events": path, "format": FORMAT}


def _with_recording(document: dict[str, Any], entry: dict[str, str]) -> dict[str, Any]:
    recordings = document.get("recordings", [])
    if not isinstance(recordings, list):
        raise ValueError("the manifest's 'recordings' are not a list")
    others = [
        other
        for other in recordings
        if not isinstance(other, dict) or other.get("path") != entry["path"]
    ]
    return {**document, "recordings": [*others, entry]}
