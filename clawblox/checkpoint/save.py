"""Saves an archive, from its options to a complete and registered file.

This module defines the order of the steps: plan, write a partial file, read it again, publish,
register. A failed save leaves no archive.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.checkpoint.archive import registry
from clawblox.checkpoint.archive.earlier import EarlierArchives
from clawblox.checkpoint.archive.intake import VanishedSource
from clawblox.checkpoint.archive.reader import Archive, ArchiveMember
from clawblox.checkpoint.archive.registry import partial_file, publish, refuse_existing
from clawblox.checkpoint.archive.writer import ArchiveWriter, LostSource
from clawblox.checkpoint.audit.examine import Examination
from clawblox.checkpoint.collect import plan as tiers
from clawblox.checkpoint.collect.plan import ArchivePlan
from clawblox.checkpoint.collect.workspace import find_oversized
from clawblox.checkpoint.document import Document, WorldDocument, world_sources
from clawblox.checkpoint.model import Limits, RejectedContent, Source
from clawblox.checkpoint.names import METADATA_NAME, ROWS_NAME, SNAPSHOT_NAME, find_tier
from clawblox.checkpoint.options import ArchiveOptions, label_secrets
from clawblox.checkpoint.progress import Progress, listed
from clawblox.checkpoint.refusals import (
    live_tokens,
    oversized_refusal,
    secret_refusal,
    unarchivable_refusal,
    unreadable_refusal,
    without_secrets,
)
from clawblox.checkpoint.secrets import Scanner, known_values, read_allowances
from clawblox.concurrency.progress import Report, reporting
from clawblox.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointSecretError,
    ManifestError,
)
from clawblox.errors.checkpoint import os_errors_as
from clawblox.printable import quote_words
from clawblox.results import Excluded, Finding, SavedCheckpoint
from clawblox.snapshot.rows import rows_beside
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import read_size

_UNREADABLE: Final = "unreadable"


def write_archive(options: ArchiveOptions) -> SavedCheckpoint:
    """Create the archive described by the options. Blocks.

    Raises:
        CheckpointSecretError: The archive would have contained a secret; its partial file was
            removed.
        CheckpointError: The archive cannot be created, and its partial file was removed; or it is
            complete, but not durable or not registered, as the message states.
        ConfigError: ``secret-allow.json`` is invalid.
    """
    try:
        with os_errors_as("the checkpoint cannot be saved", options.path):
            if not options.overwrite:
                refuse_existing(options.path)
            with (
                reporting("Saving", options.progress) as report,
                listed("Saving", options.path, report) as counted,
            ):
                return _Save(options, counted).run()
    except CheckpointSecretError as error:
        # A traceback may print locals, and names among them may contain the secret.
        raise error.with_traceback(None) from None


class _Save:
    def __init__(self, options: ArchiveOptions, report: Report) -> None:
        self._options = options
        self._report = report
        self._runs = registry.find_runs(options.path)
        self._known = _known_secrets(options)
        files = (directory / "secret-allow.json" for directory in self._runs)
        allowances = (read_allowances(file) for file in files if file.exists())
        self._allow = (*options.allow, *itertools.chain.from_iterable(allowances))

    def run(self) -> SavedCheckpoint:
        if not self._options.workspace_only:
            self._wait()
        document = self._prepare_document()
        with partial_file(self._options.path) as partial:
            try:
                writer, metadata = self._fill(partial.fd, document)
                saved = registry.describe_archive(self._options.path, partial.fd, metadata)
            except BaseException:
                # If the file cannot be removed, it is at least empty.
                with contextlib.suppress(OSError):
                    os.ftruncate(partial.fd, 0)
                raise
            publish(partial, self._options.path, overwrite=self._options.overwrite)
        writer.remember(self._options.path)
        if self._runs:
            _register(self._runs[0], saved)
        return saved

    def _wait(self) -> None:
        options = self._options
        is_idle = partial(tiers.is_idle, options.agents, options.backend)
        for pause in tiers.looks(is_idle, options.idle_wait):
            self._report(0, 0)
            time.sleep(pause)

    def _prepare_document(self) -> Document:
        snapshot = self._options.world_snapshot
        path = None if snapshot is None else snapshot.path
        with WorldDocument(path) if path else contextlib.nullcontext() as world:
            return Document(
                plan=self._plan(),
                created_at=format_utc(utc_now()),
                caller=self._options.metadata,
                world=None if world is None else world.describe(),
                lineage=registry.read_lineage(self._runs, path),
            )

    def _plan(self) -> ArchivePlan:
        options = self._options
        plan = tiers.plan(
            options.agents,
            backend=options.backend,
            workspace_only=options.workspace_only,
            keep=options.keep,
        )
        self._leave_out_impossible(plan)
        self._leave_out_oversized(plan)
        plan.excluded = without_secrets(plan.excluded, Scanner(self._known))
        world = options.world_snapshot
        snapshot = world_sources(world.path) if world else ()
        # Conversations first, because their ``mid_turn`` was determined just now.
        plan.sources.sort(key=lambda source: find_tier(source.name) != "session")
        plan.sources[:0] = snapshot
        return plan

    def _leave_out_oversized(self, plan: ArchivePlan) -> None:
        """List oversized files as excluded, or refuse the save."""
        options = self._options
        sizes = {source.name: read_size(source.path) for source in plan.sources}
        names = find_oversized(
            sizes, max_file_bytes=options.max_file_bytes, max_total_bytes=options.max_total_bytes
        )
        oversized = [source for source in plan.sources if source.name in names]
        if oversized and (options.on_unarchivable == "raise" or any(map(_is_vital, oversized))):
            limits = options.max_file_bytes, options.max_total_bytes
            listed = {source.name: sizes[source.name] for source in oversized}
            raise oversized_refusal(listed, options.path, limits, Scanner(self._known))
        plan.sources = [
            attrs.evolve(source, max_bytes=options.max_file_bytes)
            for source in plan.sources
            if source.name not in names
        ]
        oversized.sort(key=lambda source: source.name)
        plan.excluded += [_list_excluded(source, "too large") for source in oversized]

    def _leave_out_impossible(self, plan: ArchivePlan) -> None:
        """List unreadable files and forbidden names as excluded, or refuse the save."""
        options = self._options
        if plan.unarchivable and options.on_unarchivable == "raise":
            raise unarchivable_refusal(plan.unarchivable, options.path, Scanner(self._known))
        if plan.unreadable and options.on_unarchivable == "raise":
            raise unreadable_refusal(plan.unreadable[0], options.path)
        plan.excluded += [
            Excluded(path=name, reason=tiers.NOT_ALLOWED) for name in plan.unarchivable
        ]
        plan.excluded += [Excluded(path=name, reason=_UNREADABLE) for name in plan.unreadable]

    def _fill(self, fd: int, document: Document) -> tuple[ArchiveWriter, dict[str, Any]]:
        """Write, verify and search the archive; return its writer and its metadata."""
        scanner = Scanner(self._known, self._allow)
        sources = [(source, read_size(source.path)) for source in document.plan.sources]
        progress = Progress(self._report, 2 * sum(size for _, size in sources))
        metadata_bytes = document.largest_bytes(self._allow, scanner.summary())
        self._refuse_too_many(document.plan, metadata_bytes)
        with EarlierArchives() as earlier, Examination(scanner, progress) as examination:
            writer = ArchiveWriter(
                fd,
                metadata_bytes=metadata_bytes,
                progress=progress,
                earlier=earlier,
                on_added=examination.expect,
            )
            excluded: list[Excluded] = []
            writer.add_all(
                sources, lambda source, error: excluded.append(self._exclude(source, error))
            )
            excluded = without_secrets(excluded, Scanner(self._known))
            self._refuse_other_snapshot(writer)
            draft = document.as_bytes(writer.files, excluded, scanner.summary())
            os.fsync(fd)  # read back the bytes on disk
            self._refuse(
                [
                    *scanner.scan(METADATA_NAME, (draft,)),
                    *examination.run(fd, self._options.path, writer.members, writer.copied),
                ]
            )
            writer.finish(document.as_bytes(writer.files, excluded, scanner.summary()))
            metadata = self._examine_whole(fd, writer.members, examination)
        progress.finish()
        return writer, metadata

    def _exclude(self, source: Source, error: LostSource) -> Excluded:
        if isinstance(error, RejectedContent):
            return _list_excluded(source, str(error))
        if isinstance(error, VanishedSource):
            if _is_vital(source):
                message = "a file that the archive needs vanished during the save"
                raise CheckpointError(message, path=source.path, entry=source.name) from error
            return _list_excluded(source, "vanished")
        if self._options.on_unarchivable == "raise" or _is_vital(source):
            raise unreadable_refusal(source.name, source.path) from error
        return _list_excluded(source, _UNREADABLE)

    def _examine_whole(
        self, fd: int, members: Sequence[ArchiveMember], examination: Examination
    ) -> dict[str, Any]:
        """Open the complete archive like a reader, and return its metadata.

        The content of the members is already examined and is not read again.
        """
        os.fsync(fd)
        archive = Archive(fd, self._options.path)
        metadata, *others = map(archive.member, archive.entries)
        if others != members:
            message = "the archive on disk does not have the members that were written"
            raise CheckpointFormatError(message, path=self._options.path)
        # Search it again: it now contains the summary of the scan.
        self._refuse(examination.run(fd, self._options.path, [metadata]))
        return archive.metadata

    def _refuse_too_many(self, plan: ArchivePlan, metadata_bytes: int) -> None:
        """Check, before writing, that readers will accept the archive."""
        limits = Limits()
        count = 1 + len(plan.sources) + len(plan.links) + len(plan.directories)
        if count <= limits.entries and metadata_bytes <= limits.metadata_bytes:
            return
        raise CheckpointLimitError(
            f"the archive would have {count} entries and {metadata_bytes} bytes of metadata, and "
            f"readers accept only {limits.entries} and {limits.metadata_bytes}",
            path=self._options.path,
            hint="remove files, or keep what belongs together in a single file",
        )

    def _refuse_other_snapshot(self, writer: ArchiveWriter) -> None:
        snapshot = self._options.world_snapshot
        if snapshot is None or snapshot.sha256 is None:
            return
        if writer.files[SNAPSHOT_NAME]["sha256"] != snapshot.sha256:
            raise CheckpointError(
                "the file is not the snapshot that was saved, because its digest differs",
                path=snapshot.path,
                entry=SNAPSHOT_NAME,
            )
        rows = writer.files.get(ROWS_NAME, {}).get("sha256")
        if snapshot.rows_sha256 not in (None, rows):
            raise CheckpointError(
                "the rows were not saved with the snapshot, because their digest differs",
                path=rows_beside(snapshot.path),
                entry=ROWS_NAME,
            )

    def _refuse(self, findings: Sequence[Finding]) -> None:
        if findings:
            raise secret_refusal(
                findings, self._options.path, workspace_only=self._options.workspace_only
            )


def _known_secrets(options: ArchiveOptions) -> Mapping[str, str]:
    directories = tuple(options.agents.values())
    snapshot = (options.world_snapshot.path,) if options.world_snapshot else ()
    tokens = live_tokens((options.path, *directories, *snapshot))
    given = label_secrets(options.known_secrets)
    return known_values(os.environ, directories) | tokens | given


def _list_excluded(source: Source, reason: str) -> Excluded:
    return Excluded(path=source.listed_as or source.name, reason=reason)


def _is_vital(source: Source) -> bool:
    name = source.name
    is_conversation = find_tier(name) == "session"
    is_transcript = is_conversation and source.whole_lines and name.endswith(".jsonl")
    return is_transcript or name in (SNAPSHOT_NAME, ROWS_NAME)


def _register(run_dir: Path, saved: SavedCheckpoint) -> None:
    try:
        registry.register(run_dir, saved)
    except ManifestError as error:
        raise CheckpointError(
            f"the archive is complete, but its run's manifest does not list it: {error.message}",
            path=saved.path,
            hint=f"{quote_words(('clawblox', 'ckpt', 'repair', str(run_dir)))} registers it",
        ) from error
