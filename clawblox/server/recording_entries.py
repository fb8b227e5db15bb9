"""Entries of recordings in the manifest of the run.

Several worlds may write one manifest at a time, and an orchestrator writes it too.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final, TextIO

import attrs

from clawblox.foreign_values import parse_document
from clawblox.recording.blocks import FORMAT
from clawblox.recording.writer import FileDigest

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
    while True:
        try:
            return open(path, "x", encoding="utf-8", opener=_open_private)
        except FileExistsError:
            time.sleep(0.01)
        if time.monotonic() > deadline:
            path.unlink(missing_ok=True)
            deadline = time.monotonic() + LOCK_WAIT_S


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


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
