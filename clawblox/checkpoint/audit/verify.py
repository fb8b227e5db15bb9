"""Verifies, searches and compares existing archives."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.checkpoint.archive.layout import ArchiveEntry
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.audit.examine import Examination
from clawblox.checkpoint.model import Allowance, Limits
from clawblox.checkpoint.names import METADATA_NAME
from clawblox.checkpoint.options import check_secrets, label_secrets
from clawblox.checkpoint.progress import Progress
from clawblox.checkpoint.secrets import Scanner, known_values
from clawblox.concurrency.progress import ProgressLike, reporting
from clawblox.config.arguments import check_progress, check_read_path
from clawblox.results import Finding


@attrs.frozen(kw_only=True)
class Verification:
    """Facts of a sound archive, which was read completely.

    Attributes:
        path: The archive.
        is_verified: Whether the archive lists the digests of all members, and they agree. Otherwise
            only checksums were compared, as for archives of other programs.
        members: Number of members, including ``metadata.json``.
        size_bytes: Size of their content.
        metadata: The content of ``metadata.json``.
    """

    path: Path
    is_verified: bool
    members: int
    size_bytes: int
    metadata: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Scan:
    """Result of a search for secrets.

    Attributes:
        path: The archive.
        findings: Places that look like a credential or cannot be searched.
        summary: Summary of the search, as ``secret_scan`` in an archive's metadata.
    """

    path: Path
    findings: tuple[Finding, ...]
    summary: Mapping[str, Any]


def verify_checkpoint(
    path: str | os.PathLike[str],
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: ProgressLike = False,
) -> Verification:
    """Read an entire archive and check it against its checksums and digests. Blocks.

    Args:
        path: The archive.
        limits: Limits for the size of the archive.
        progress: True shows the progress on standard error, in a terminal or a notebook. A function
            is called with the bytes done and the total; an exception from it ends the call. False
            does neither.

    Raises:
        CheckpointFormatError: The archive is not sound.
        CheckpointError: The archive cannot be read.
        ConfigError: An argument is wrong.
    """
    check_progress(progress, "progress")
    with Archive.open(check_read_path(path, "path"), limits) as archive:
        with reporting("Verifying", progress) as report:
            archive.verify(report)
        return Verification(
            path=archive.path,
            is_verified=archive.is_verified,
            members=len(archive.entries),
            size_bytes=sum(entry.size for entry in archive.entries),
            metadata=archive.metadata,
        )


def scan_checkpoint(
    path: str | os.PathLike[str],
    *,
    known_secrets: Iterable[str] = (),
    allow: Iterable[Allowance] = (),
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: ProgressLike = False,
) -> Scan:
    """Search an entire archive for secrets, with the current rules. Blocks.

    Args:
        path: The archive.
        known_secrets: Secrets to search for, in addition to those in this process's environment.
        allow: Findings that are not secrets.
        limits: Limits for the size of the archive.
        progress: True shows the progress on standard error, in a terminal or a notebook. A function
            is called with the bytes done and the total; an exception from it ends the call. False
            does neither.

    Raises:
        ConfigError: An argument is wrong.
        CheckpointFormatError: The archive is not sound.
        CheckpointError: The archive cannot be read.
    """
    known_secrets = check_secrets(known_secrets)
    check_progress(progress, "progress")
    known = known_values(os.environ, ()) | label_secrets(known_secrets)
    scanner = Scanner(known, tuple(allow))
    with (
        Archive.open(check_read_path(path, "path"), limits) as archive,
        reporting("Scanning", progress) as report,
    ):
        counter = Progress(report, sum(entry.size for entry in archive.entries))
        with Examination(scanner, counter) as examination:
            members = [archive.member(entry) for entry in archive.entries]
            for member in members:
                examination.expect(member.sha256, member.entry.size)
            findings = examination.run(archive.fd, archive.path, members)
    return Scan(path=archive.path, findings=tuple(findings), summary=scanner.summary())


_DERIVED_KEYS: Final = ("files", "secret_scan")
"""Keys of the metadata that depend on the members; the members are compared directly."""


@attrs.frozen(kw_only=True)
class Difference:
    """The difference between two archives. Names are sorted.

    Attributes:
        added: Members only in the second archive.
        removed: Members only in the first archive.
        changed: Members in both with different content or mode.
        unchanged: Number of identical members.
        metadata: Keys of ``metadata.json`` whose values differ.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: int
    metadata: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.metadata)


def diff_checkpoints(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Difference:
    """Compare two archives. Blocks.

    Members of the same size, checksum and mode are compared by content.

    Args:
        first: The older archive.
        second: The newer archive, whose changes are described.
        limits: Limits for the size of each archive.

    Raises:
        CheckpointFormatError: A part of an archive that was read is not sound.
        CheckpointError: An archive cannot be read.
        ConfigError: An argument is not a path.
    """
    paths = check_read_path(first, "first"), check_read_path(second, "second")
    with Archive.open(paths[0], limits) as one, Archive.open(paths[1], limits) as other:
        ours, theirs = _members(one), _members(other)
        common = sorted(ours.keys() & theirs.keys())
        changed = [name for name in common if _differs(one, ours[name], other, theirs[name])]
        return Difference(
            added=tuple(sorted(theirs.keys() - ours.keys())),
            removed=tuple(sorted(ours.keys() - theirs.keys())),
            changed=tuple(changed),
            unchanged=len(common) - len(changed),
            metadata=_differing_keys(one, other),
        )


def _members(archive: Archive) -> dict[str, ArchiveEntry]:
    return {entry.name: entry for entry in archive.entries if entry.name != METADATA_NAME}


def _differs(one: Archive, ours: ArchiveEntry, other: Archive, theirs: ArchiveEntry) -> bool:
    if (ours.size, ours.crc, ours.mode) != (theirs.size, theirs.crc, theirs.mode):
        return True
    return _digest(one, ours) != _digest(other, theirs)


def _digest(archive: Archive, entry: ArchiveEntry) -> str:
    # The digest in the metadata has not been checked against the content.
    digest = hashlib.sha256()
    for chunk in archive.stream(entry):
        digest.update(chunk)
    return digest.hexdigest()


def _differing_keys(one: Archive, other: Archive) -> tuple[str, ...]:
    keys = (one.metadata.keys() | other.metadata.keys()).difference(_DERIVED_KEYS)
    first, second = one.metadata, other.metadata  # ``...`` is never a JSON value
    return tuple(key for key in sorted(keys) if first.get(key, ...) != second.get(key, ...))
