"""One save, from a request to a complete and registered archive, or to nothing at all.

Owns the order of things: look, write into a partial file, read that again, publish, register.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.archive import registry
from clawblox.checkpoint.archive.ahead import SizedSource
from clawblox.checkpoint.archive.earlier import EarlierArchives
from clawblox.checkpoint.archive.intake import UnreadableSource, VanishedSource
from clawblox.checkpoint.archive.publish import partial_file, publish, refuse_existing
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.archive.writer import ArchiveWriter
from clawblox.checkpoint.audit.examine import Examination
from clawblox.checkpoint.collect import plan as tiers
from clawblox.checkpoint.collect.plan import Plan
from clawblox.checkpoint.document import Document
from clawblox.checkpoint.model import Allowance, Excluded, Source
from clawblox.checkpoint.names import SNAPSHOT_NAME, split_name
from clawblox.checkpoint.progress import Progress, Report
from clawblox.checkpoint.refusals import (
    secret_refusal,
    unarchivable_refusal,
    unreadable_refusal,
)
from clawblox.checkpoint.request import SaveRequest, label_secrets
from clawblox.checkpoint.secrets import Scanner, known_values, read_allowances
from clawblox.checkpoint.tokens import live_tokens
from clawblox.checkpoint.world_document import WorldDocument, world_source
from clawblox.errors import CheckpointError, CheckpointSecretError, ManifestError
from clawblox.results import Finding
from clawblox.system.clock import format_utc, utc_now

__all__ = ["save"]

_ALLOWANCES_NAME: Final = "secret-allow.json"
_IDLE_POLL_S: Final = 0.05
_UNREADABLE: Final = "unreadable"


def save(request: SaveRequest, report: Report | None) -> None:
    """Make an archive of what a request asks for. Blocks.

    Raises:
        CheckpointSecretError: It would have carried a secret; nothing is left of it.
        CheckpointError: It cannot be made, and nothing is left of it; or it is complete, and not
            durable or not registered, as the message says.
        ConfigError: The file of allowances is wrong.
    """
    try:
        with _translated(request.path):
            if not request.overwrite:
                refuse_existing(request.path)
            _Save(request, report).run()
    except CheckpointSecretError as error:
        # Whoever prints the locals of a traceback would show what was found, in a name perhaps.
        raise error.with_traceback(None) from None


class _Save:
    def __init__(self, request: SaveRequest, report: Report | None) -> None:
        self._request = request
        self._report = report
        self._runs = registry.runs_of(request.path)
        self._known = _known_secrets(request)
        self._allow = (*request.allow, *_run_allowances(self._runs))

    def run(self) -> None:
        if not self._request.workspace_only:
            self._wait_until_idle()
        document = self._look()
        with partial_file(self._request.path) as partial:
            try:
                writer = self._fill(partial.fd, document)
                entry = self._entry(partial.fd, document) if self._runs else {}
            except BaseException:
                # Should it not be possible to remove it, there is at least nothing in it.
                with contextlib.suppress(OSError):
                    os.ftruncate(partial.fd, 0)
                raise
            publish(partial, self._request.path, overwrite=self._request.overwrite)
        writer.remember(self._request.path)
        if self._runs:
            _register(self._runs[0], self._request.path, entry)

    def _wait_until_idle(self) -> None:
        deadline = time.monotonic() + self._request.idle_wait
        while time.monotonic() < deadline:
            if tiers.is_idle(self._request.agents, self._request.backend):
                return
            if self._report is not None:
                self._report(0, 0)
            time.sleep(_IDLE_POLL_S)

    def _look(self) -> Document:
        """Return what is to be in the archive."""
        snapshot = self._request.world_snapshot
        with WorldDocument(snapshot) if snapshot else contextlib.nullcontext() as world:
            return Document(
                plan=self._plan(),
                created_at=format_utc(utc_now()),
                caller=self._request.metadata,
                world=None if world is None else world.describe(),
                lineage=registry.read_lineage(self._runs, snapshot),
            )

    def _plan(self) -> Plan:
        request = self._request
        plan = self._without_impossible(
            tiers.plan(
                request.agents, backend=request.backend, workspace_only=request.workspace_only
            )
        )
        snapshot = [world_source(request.world_snapshot)] if request.world_snapshot else []
        # The conversations first: what is said of a turn that is under way was just seen.
        sources = sorted(plan.sources, key=lambda source: not _is_session(source.name))
        return attrs.evolve(plan, sources=(*snapshot, *sources))

    def _without_impossible(self, plan: Plan) -> Plan:
        """List what cannot be in the archive as excluded, or refuse the save."""
        if self._request.on_unarchivable == "raise":
            self._refuse_impossible(plan)
        recorded = [
            Excluded(path=ascii(name)[1:-1], reason="its name cannot stand in an archive")
            for name in plan.unarchivable
        ]
        recorded += [Excluded(path=name, reason=_UNREADABLE) for name in plan.unreadable]
        excluded = (*plan.excluded, *recorded)
        return attrs.evolve(plan, excluded=excluded, unarchivable=(), unreadable=())

    def _refuse_impossible(self, plan: Plan) -> None:
        if plan.unarchivable:
            raise unarchivable_refusal(plan.unarchivable, self._request.path, Scanner(self._known))
        if plan.unreadable:
            raise unreadable_refusal(plan.unreadable[0], self._request.path)

    def _fill(self, fd: int, document: Document) -> ArchiveWriter:
        """Write the archive, and read it again: it is sound, and no secret is in it."""
        scanner = Scanner(self._known, self._allow)
        sources = [(source, _size_of(source)) for source in document.plan.sources]
        progress = Progress(self._report, 2 * sum(size for _, size in sources))
        with EarlierArchives() as earlier, Examination(scanner, progress) as examination:
            writer = ArchiveWriter(
                fd,
                metadata_bytes=document.largest_bytes(self._allow, scanner.summary()),
                progress=progress,
                earlier=earlier,
                on_added=examination.expect,
            )
            excluded = self._add_all(writer, sources)
            writer.finish(document.as_bytes(writer.files, excluded, scanner.summary()))
            with self._reopened(fd) as archive:
                self._refuse(examination.run(archive, archive.entries, writer.copied))
            # Now the scan can say what it saw; that is searched too, for it names what it let pass.
            writer.finish(document.as_bytes(writer.files, excluded, scanner.summary()))
            with self._reopened(fd) as archive:
                self._refuse(examination.run(archive, archive.entries[:1]))
        progress.finish()
        return writer

    def _add_all(self, writer: ArchiveWriter, sources: Sequence[SizedSource]) -> list[Excluded]:
        """Add files; return those that are excluded because they could not be added."""
        excluded: list[Excluded] = []
        writer.add_all(sources, lambda source, error: excluded.append(self._exclude(source, error)))
        self._refuse_other_snapshot(writer)
        return excluded

    def _exclude(self, source: Source, error: VanishedSource | UnreadableSource) -> Excluded:
        if isinstance(error, VanishedSource):
            if _is_vital(source.name):
                message = "a file vanished that the archive would be nothing without"
                raise CheckpointError(message, path=source.path, entry=source.name) from error
            return Excluded(path=source.name, reason="vanished")
        if self._request.on_unarchivable == "raise" or _is_vital(source.name):
            raise unreadable_refusal(source.name, source.path) from error
        return Excluded(path=source.name, reason=_UNREADABLE)

    def _reopened(self, fd: int) -> Archive:
        os.fsync(fd)  # what is read again is what the disk has
        return Archive.from_fd(fd, self._request.path)

    def _entry(self, fd: int, document: Document) -> registry.Entry:
        return registry.checkpoint_entry(
            self._request.path,
            fd,
            created_at=document.created_at,
            world=document.world,
            run_id=document.lineage.get("run_id"),
        )

    def _refuse_other_snapshot(self, writer: ArchiveWriter) -> None:
        known = self._request.world_sha256
        if known is not None and writer.files[SNAPSHOT_NAME]["sha256"] != known:
            raise CheckpointError(
                "the file is not the snapshot that was saved: its digest is another one",
                path=self._request.world_snapshot,
                entry=SNAPSHOT_NAME,
            )

    def _refuse(self, findings: Sequence[Finding]) -> None:
        if findings:
            raise secret_refusal(
                findings, self._request.path, workspace_only=self._request.workspace_only
            )


def _known_secrets(request: SaveRequest) -> Mapping[str, str]:
    directories = tuple(request.agents.values())
    snapshot = (request.world_snapshot,) if request.world_snapshot else ()
    tokens = live_tokens((request.path, *directories, *snapshot))
    given = label_secrets(request.known_secrets)
    return known_values(os.environ, directories) | tokens | given


def _run_allowances(runs: Sequence[Path]) -> list[Allowance]:
    files = (directory / _ALLOWANCES_NAME for directory in runs)
    return [each for file in files if file.exists() for each in read_allowances(file)]


def _is_vital(name: str) -> bool:
    return name == SNAPSHOT_NAME or (_is_session(name) and name.endswith(".jsonl"))


def _is_session(name: str) -> bool:
    parts = split_name(name)
    return parts is not None and parts[1] == "session"


def _size_of(source: Source) -> int:
    try:
        return os.lstat(source.path).st_size
    except OSError:
        return 0


def _register(run_dir: Path, path: Path, entry: registry.Entry) -> None:
    try:
        registry.register(run_dir, entry)
    except ManifestError as error:
        raise CheckpointError(
            f"the archive is complete, but not in the manifest of its run: {error.message}",
            path=path,
            hint=f"clawblox ckpt repair {run_dir} registers it",
        ) from error


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the checkpoint cannot be saved: {error.strerror or error}"
        raise CheckpointError(message, path=path) from error
