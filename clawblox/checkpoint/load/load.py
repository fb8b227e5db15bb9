"""Loads an archive into a run directory, completely or not at all; or only its snapshot.

This module defines the order of the steps: all headers are checked before the first write, and all
bytes before files appear. ``reader`` reads archives, ``placing`` decides the places of members,
``staging`` builds the tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.checkpoint.archive.layout import ArchiveEntry
from clawblox.checkpoint.archive.reader import Archive, located
from clawblox.checkpoint.collect.conversations import Placement
from clawblox.checkpoint.load.placing import Placing, agent_names, split_path
from clawblox.checkpoint.load.staging import Staging, Target
from clawblox.checkpoint.model import RejectedContent
from clawblox.checkpoint.names import METADATA_NAME, ROWS_NAME, SNAPSHOT_NAME
from clawblox.checkpoint.options import LoadOptions
from clawblox.checkpoint.progress import Progress, listed
from clawblox.concurrency.progress import Report, reporting
from clawblox.errors import CheckpointError, CheckpointLimitError
from clawblox.snapshot.rows import rows_beside
from clawblox.system.files import (
    PartialFile,
    has_digest,
    make_private_dir,
    sweep_partials,
    write_all,
)
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_USABLE: Final = 0.9
"""Maximum share of the free disk space that a checkpoint may take."""
_FILE_MODE: Final = 0o600
_AGENTS: Final = "agents"
"""Name of the agents' directory in a run directory."""
_LATEST_NS: Final = 4_102_444_800 * 10**9
"""2100-01-01; every file system can store times up to this date."""


@attrs.frozen
class Loaded:
    """A completed load, which can be undone.

    Attributes:
        result: The result of ``load_checkpoint``.
        target: The run directory before the load.
        names: Paths of the loaded files and directories, below the run directory.
        had_agents: Whether the agents' directory existed before the load.
    """

    result: dict[str, Any]
    target: Target
    names: tuple[tuple[str, ...], ...]
    had_agents: bool


def load(
    options: LoadOptions, *, final_dir: Path | None = None, is_in_place: bool = False
) -> Loaded:
    """Restore the contents of an archive to a run directory. Blocks.

    A failed load has no effect. A killed load leaves at most a directory ``.load.….partial``, which
    a later load removes. If the run directory existed and the load is killed between two renames,
    the first renamed entry remains.

    Args:
        options: The archive and the run directory, which may be missing or have other contents.
        final_dir: Final path of the run directory, which restored files contain; None if it will
            not be moved.
        is_in_place: Whether the agents return to their original directories, so that their usage
            remains their own; otherwise all usage is recorded as inherited.

    Raises:
        CheckpointFormatError: The archive is not sound; also subclasses.
        CheckpointError: The archive cannot be read, the run directory cannot be written, or it
            already contains one of the entries.
    """
    with (
        reporting("Loading", options.progress) as report,
        listed("Loading", options.path, report) as counted,
        Archive.open(options.path, options.limits) as archive,
        located(options.path),
    ):
        target = Target.at(options.run_dir)
        total, free = _total(archive), target.free_bytes()
        if total > free * _USABLE:
            message = f"the archive contains {total} bytes, but only {free} bytes are free"
            raise CheckpointLimitError(message, path=target.path)
        final = target.path if final_dir is None else final_dir.resolve()
        placing = Placing(
            archive.metadata,
            archive.entries,
            final,
            options.keep,
            archive.directories,
            is_in_place=is_in_place,
        )
        return _Load(archive, target, placing).run(counted)


def unload(loaded: Loaded) -> None:
    """Remove all files that a load has added to a run directory. Blocks.

    Files changed since the load are also removed. If this process is killed, a directory
    ``.load.….partial`` may remain, as after a killed load.

    Raises:
        CheckpointError: An entry cannot be moved.
    """
    with Staging(Target.at(loaded.target.path)) as staging:
        staging.withdraw(loaded.names)
        if not loaded.had_agents:
            staging.remove_empty(_AGENTS)


class _Load:
    def __init__(self, archive: Archive, target: Target, placing: Placing) -> None:
        self._archive = archive
        self._target = target
        self._placing = placing
        self._agents = agent_names(archive.metadata, archive.entries, archive.directories)
        self._members = [entry for entry in archive.entries if entry.name != METADATA_NAME]
        present = {entry.name for entry in self._members}
        self._world = [name for name in (SNAPSHOT_NAME, ROWS_NAME) if name in present]

    def run(self, progress: Report) -> Loaded:
        archive, target, placing = self._archive, self._target, self._placing
        names = [*((_AGENTS, agent) for agent in self._agents), *((name,) for name in self._world)]
        had_agents = (target.path / _AGENTS).exists()
        with Staging(target) as staging:
            staging.refuse_existing(names)
            self._build(staging, Progress(progress, _total(archive)))
            staging.publish(names)
        for agent, reason in placing.lost_conversations.items():
            _log.warning("conversation left out", agent=agent, reason=reason)
        for agent, repositories in placing.git_hosts.items():
            for path, hosts in repositories.items():
                _log.warning("git will contact hosts", agent=agent, repository=path, hosts=hosts)
        return Loaded(self._result(), target, tuple(names), had_agents)

    def _build(self, staging: Staging, counter: Progress) -> None:
        placing = self._placing
        staging.new_directory(())
        for agent in self._agents:
            staging.new_directory((_AGENTS, agent, "workspace"))
        for entry in self._members:
            place = placing.place(entry)
            content = counter.counted(self._archive.stream(entry))
            if place is not None:
                try:
                    self._write(staging, entry, place, content)
                except RejectedContent as error:
                    staging.remove_file(split_path(place.path))
                    placing.reject(entry, str(error))
            # Excluded members are verified too, and transforms may not have read to the end.
            for _ in content:
                pass
        for parts, text in (*placing.id_files(), *placing.git_files()):
            with staging.new_file(parts, mode=_FILE_MODE) as write:
                write(text)
        for parts in placing.directories():
            staging.new_directory(parts)
        for parts, target in placing.links():
            staging.new_link(parts, target)

    def _write(
        self, staging: Staging, entry: ArchiveEntry, place: Placement, content: Iterator[bytes]
    ) -> None:
        parts = split_path(place.path)
        chunks = content if place.transform is None else place.transform(content)
        mtime_ns = None
        if self._archive.is_verified:
            recorded = self._archive.metadata["files"][entry.member]["mtime_ns"]
            mtime_ns = max(0, min(recorded, _LATEST_NS))
        mode = entry.mode if place.keeps_mode else _FILE_MODE
        with staging.new_file(parts, mode=mode, mtime_ns=mtime_ns) as write:
            for chunk in chunks:
                write(chunk)

    def _result(self) -> dict[str, Any]:
        root, placing = self._target.path, self._placing
        return {
            "world_snapshot": root / SNAPSHOT_NAME if SNAPSHOT_NAME in self._world else None,
            "agents": {agent: root / _AGENTS / agent for agent in self._agents},
            "metadata": self._archive.metadata,
            "excluded": [excluded.fields() for excluded in placing.excluded],
            "lost_sessions": dict(placing.lost_conversations),
            "git_hosts": placing.git_hosts,
            "verified": self._archive.is_verified,
        }


def _total(archive: Archive) -> int:
    return sum(entry.size for entry in archive.entries if entry.name != METADATA_NAME)


_DIGEST_CHARS: Final = 12
"""Number of digest characters in the name of an extracted snapshot."""


def require_snapshot(path: Path) -> None:
    """Check that an archive contains a world's snapshot. Blocks.

    Args:
        path: The archive.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: The archive has no world snapshot, or cannot be read.
    """
    with listed("Loading", path, None), Archive.open(path) as archive:
        _find_entry(archive)


def extract_snapshot(path: Path, directory: Path, report: Report | None = None) -> tuple[Path, str]:
    """Extract the world's snapshot of an archive and its rows to a directory. Blocks.

    The file is named after the archive and its own digest, and is complete or absent. An existing
    file of that name is reused. The rows are always written, because archives with the same
    snapshot may have different rows.

    Args:
        path: The archive.
        directory: Directory to extract to; created if missing.
        report: Called with the bytes done and the total; an exception from it ends the extraction
            and leaves no file. None makes no calls.

    Returns:
        The path of the file and its digest.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: The archive has no world snapshot or cannot be read, or the file cannot be
            written.
    """
    with (
        listed("Loading", path, report) as counted,
        Archive.open(path) as archive,
        located(path),
        _translated(directory),
    ):
        entry = _find_entry(archive)
        rows = next((other for other in archive.entries if other.name == ROWS_NAME), None)
        progress = Progress(counted, entry.size + (rows.size if rows else 0))
        sha256 = archive.member(entry).sha256
        make_private_dir(directory)
        sweep_partials(directory)

        def place(digest: str) -> Path:
            return directory / f"{path.stem}-{digest[:_DIGEST_CHARS]}.snapshot"

        if sha256 is None or not has_digest(place(sha256), sha256):
            # A file of this name with other content was changed after an earlier extraction.
            sha256 = _extract(progress.counted(archive.stream(entry)), directory, place)
        snapshot = place(sha256)
        if rows is None:
            rows_beside(snapshot).unlink(missing_ok=True)
        else:
            content = progress.counted(archive.stream(rows))
            _extract(content, directory, lambda _: rows_beside(snapshot))
    return snapshot, sha256


def _extract(content: Iterator[bytes], directory: Path, place: Callable[[str], Path]) -> str:
    """Write a file to the path that ``place`` returns for its digest; return the digest."""
    partial = PartialFile(directory, "extracted")
    try:
        digest = hashlib.sha256()
        for chunk in content:
            digest.update(chunk)
            write_all(partial.fd, chunk)
        partial.publish(place(digest.hexdigest()), overwrite=True)
    finally:
        with contextlib.suppress(OSError):  # a later extraction sweeps partial files
            partial.close()
    return digest.hexdigest()


def _find_entry(archive: Archive) -> ArchiveEntry:
    for entry in archive.entries:
        if entry.name == SNAPSHOT_NAME:
            return entry
    raise CheckpointError(
        "the archive has no snapshot of a world, so no world can be started from it",
        path=archive.path,
        hint="load its agents with load_checkpoint(path, run_dir) or clawblox ckpt extract",
    )


@contextlib.contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the snapshot cannot be extracted from the archive: {error.strerror}"
        place = Path(os.fsdecode(error.filename)) if error.filename else directory
        raise CheckpointError(message, path=place) from error
