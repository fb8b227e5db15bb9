"""Finds the recordings of a run directory through its manifests, and opens them for reading.

Worlds write the entries, and anyone may have written the files, so links below the run directory
are not followed, and only regular files are opened.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from clawblox.errors import ConfigError, ManifestError, RecordingError, UsageError
from clawblox.foreign_values import clean_text, whole_number
from clawblox.recording import FORMAT, OLD_FORMAT
from clawblox.rundir.manifest import Manifest, read_manifest
from clawblox.rundir.manifest_entries import is_placed
from clawblox.rundir.records import InstanceRecord, has_records, path_mover, read_located
from clawblox.rundir.snapshot_files import is_archive
from clawblox.system.files import MAX_DIGEST_BYTES
from clawblox.system.regular_files import closing_fd, digest_open, open_file, open_regular

if TYPE_CHECKING:
    from clawblox.recording.reader import RecordingReader
    from clawblox.recording.writer import FileDigest

Damage: TypeAlias = Literal["incomplete", "changed"]
"""Damage to a finished file: its end is missing, or its content has changed."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAX_INSTANCES: Final = 10_000
_RUN_DEPTH: Final = 4
"""Number of parent directories to search above a recording in ``worlds/w000/recordings``."""


class FoundRecording(msgspec.Struct, frozen=True):
    """A recording that a manifest lists.

    Attributes:
        path: File of the recording, absolute; it may be missing.
        instance: Name of the instance in a run directory with many; empty for a single instance.
        format: Format of the recording.
        manifest: The manifest that lists the recording; None for a file that the user named.
        size_bytes: Size of the finished file; None if unknown.
        sha256: Digest of the finished file, in hexadecimal; None if unknown.
    """

    path: Path
    instance: str = ""
    format: str = FORMAT
    manifest: Path | None = None
    size_bytes: int | None = None
    sha256: str | None = None

    @property
    def is_readable(self) -> bool:
        """True if clawblox can read the format."""
        return self.format in (FORMAT, OLD_FORMAT)


def find_recordings(run_dir: Path) -> Sequence[FoundRecording]:
    """Return the recordings of a run directory in the order of registration. Blocks.

    Recordings in formats of other programs are left out.

    Raises:
        ManifestError: The manifest is missing or cannot be read.
    """
    return [found for found in list_recordings(run_dir) if found.is_readable]


def list_recordings(run_dir: Path) -> Sequence[FoundRecording]:
    """Return the recordings of a run directory in all formats; see :func:`find_recordings`."""
    manifest = read_manifest(run_dir)
    found, move = list(_listed(manifest, "")), path_mover(run_dir)
    for entry in manifest.instances[:_MAX_INSTANCES]:
        if is_placed(entry, "dir"):
            with contextlib.suppress(ManifestError, ConfigError):  # not yet started
                inner = read_manifest(manifest.resolve(entry["dir"]))
                found += _listed(inner, str(entry.get("name", "")))
    return [msgspec.structs.replace(recording, path=move(recording.path)) for recording in found]


def _listed(manifest: Manifest, instance: str) -> Iterator[FoundRecording]:
    for entry in manifest.recordings:
        if is_placed(entry, "path"):
            path = Path(os.path.normpath(manifest.resolve(entry["path"])))
            name = clean_text(str(entry.get("format")))
            size, digest = whole_number(entry.get("size_bytes")), entry.get("sha256")
            if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
                size = digest = None  # written before manifests had digests
            yield FoundRecording(path, instance, name, manifest.path, size, digest)


def find_run_dir(recording: Path) -> Path | None:
    """Return the run directory above a recording whose manifests list it, or None. Blocks.

    Args:
        recording: The file, in a directory whose path is resolved.
    """
    for above in filter(has_records, recording.parents[:_RUN_DEPTH]):
        with contextlib.suppress(ManifestError, ConfigError):  # anyone may have written it
            if any(found.path == recording for found in list_recordings(above)):
                return above
    return None


def find_record(run_dir: Path, recording: FoundRecording) -> InstanceRecord | None:
    """Return the record of the instance that made a recording; None if unknown. Blocks.

    Raises:
        ManifestError: A later version of clawblox wrote the records.
    """
    records = read_located(run_dir)
    if recording.instance:
        return next((record for record in records if record.name == recording.instance), None)
    alone = [record for record in records if Path(record.instance_dir) == run_dir]
    return next(iter(alone or records), None)


def refuse_archive(path: Path) -> None:
    """Raise an error if a file that should be a recording is an archive. Blocks.

    Args:
        path: The file.

    Raises:
        UsageError: The file is an archive of world and agents; the hint names its run.
    """
    if not is_archive(path):
        return
    run_dir = next(filter(has_records, path.absolute().parents[:_RUN_DEPTH]), None)
    hint = f"give {'the run that it is of' if run_dir is None else f'its run, {run_dir}'}"
    raise UsageError(f"{path} is an archive of a checkpoint, not a recording", hint=hint)


@contextlib.contextmanager
def opened_recording(
    path: Path, run_dir: Path | None = None, known: RecordingReader | None = None
) -> Iterator[RecordingReader]:
    """Open a recording for the duration of the block. Blocks.

    Args:
        path: The file.
        run_dir: The run directory that lists the file; links below it are not followed. None for a
            file that the user named.
        known: A reader of this file from an earlier call, which reads only new blocks.

    Yields:
        The reader.

    Raises:
        RecordingError: The file cannot be opened, is not a recording, or is damaged.
        ModuleNotFoundError: Zstandard is missing; the message contains the command to install it.
    """
    from clawblox.recording.reader import RecordingReader

    with _refusing(path):
        fd = _open(path, run_dir)
    with closing_fd(fd):
        is_same = known is not None and known.reopen(fd)
        yield known if known is not None and is_same else RecordingReader(fd, path)


def find_damage(recording: FoundRecording, run_dir: Path | None = None) -> Damage | None:
    """Return the damage to a finished recording; None if it is intact or this is unknown.

    Blocks for about a second per gigabyte.

    Args:
        recording: The recording.
        run_dir: As for :func:`opened_recording`.

    Raises:
        RecordingError: The file cannot be read.
    """
    wanted, digest = recording.size_bytes, recording.sha256
    if wanted is None or digest is None:
        return None
    with _refusing(recording.path), closing_fd(_open(recording.path, run_dir)) as fd:
        size = os.fstat(fd).st_size
        if size < wanted:
            return "incomplete"
        is_same = size == wanted and digest_open(fd, max_bytes=wanted) == digest
        return None if is_same else "changed"


def read_digest(recording: FoundRecording, run_dir: Path | None = None) -> str:
    """Return the current digest of a recording, in hexadecimal. Blocks.

    Args:
        recording: The recording.
        run_dir: As for :func:`opened_recording`.

    Raises:
        RecordingError: The file cannot be read, or grows beyond all limits.
    """
    with _refusing(recording.path), closing_fd(_open(recording.path, run_dir)) as fd:
        return digest_open(fd, max_bytes=MAX_DIGEST_BYTES)


def digest_recording(
    recording: FoundRecording, run_dir: Path, check: Callable[[], object]
) -> FileDigest | None:
    """Return the digest of another program's recording; None if its entry has one. Blocks.

    Args:
        recording: The recording.
        run_dir: The run directory that lists the file; links below it are not followed.
        check: Called often; ends the call by raising an error.

    Raises:
        OSError: The file cannot be read, is not a regular file, or grows.
    """
    from clawblox.recording.writer import FileDigest

    with closing_fd(_open(recording.path, run_dir)) as fd:
        size = os.fstat(fd).st_size
        if size == recording.size_bytes:
            return None
        return FileDigest(size, digest_open(fd, max_bytes=size, check=check))


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to an error about the recording."""
    try:
        yield
    except (OSError, ValueError) as error:  # a null character in a path is a ValueError
        reason = getattr(error, "strerror", None) or str(error)
        raise RecordingError(f"the recording cannot be read: {reason}", path=path) from error


def _open(path: Path, run_dir: Path | None) -> int:
    """Open the file of a recording without following links."""
    if run_dir is not None and path.is_relative_to(run_dir):
        return open_file(run_dir, str(path.relative_to(run_dir)))
    return open_regular(path)
