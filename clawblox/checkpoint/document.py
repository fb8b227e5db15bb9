"""The contents of ``metadata.json``, and the world's snapshot, which is archived as a file.

``archive.metadata`` serialises ``metadata.json`` and parses it strictly.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs

from clawblox.checkpoint.archive.metadata import path_field, serialise_metadata
from clawblox.checkpoint.collect.plan import ArchivePlan
from clawblox.checkpoint.model import SCHEMA_VERSION, AgentState, Allowance, Source
from clawblox.checkpoint.names import ROWS_NAME, SNAPSHOT_NAME
from clawblox.errors import CheckpointError
from clawblox.protocol import DEFAULT_SNAPSHOT_FORMAT
from clawblox.results import Excluded
from clawblox.snapshot.checker import CheckerLost, DocumentCheck
from clawblox.snapshot.header import Header, InvalidDocument
from clawblox.snapshot.rows import rows_beside
from clawblox.system.regular_files import open_regular

_INT64: Final = 2**63
_LARGEST_FILE: Final = {
    "size": _INT64 - 1,
    "sha256": "f" * 64,
    "mode": 0o700,
    "mtime_ns": -_INT64,
    "unstable": True,
}
_LONGEST_REASON: Final = "x" * 100
"""A reason of the maximum length for a planned file without a member."""

_ROOM_BYTES: Final = 4096
"""Bytes reserved for the numbers of the secret scan."""


@attrs.frozen(kw_only=True)
class Document:
    """The metadata of an archive before its members are read.

    Attributes:
        plan: The planned contents.
        created_at: UTC time of the save.
        caller: The caller's own metadata, for the top level.
        world: Format and time of the world's snapshot; None without a snapshot.
        lineage: The run that the archive belongs to, and the origin of that run.
    """

    plan: ArchivePlan
    created_at: str
    caller: Mapping[str, Any]
    world: Mapping[str, Any] | None
    lineage: Mapping[str, str | None]

    def as_bytes(
        self,
        files: Mapping[str, Mapping[str, Any]],
        excluded: Iterable[Excluded],
        secret_scan: Mapping[str, Any],
    ) -> bytes:
        """Return ``metadata.json`` with the results of the save.

        Args:
            files: The members.
            excluded: Files that could not become members.
            secret_scan: The summary of the scan.
        """
        plan = self.plan
        return serialise_metadata(
            {
                "schema_version": SCHEMA_VERSION,
                "created_at": self.created_at,
                "session_format": _shared_format(plan.agents.values()),
                "agents": {name: attrs.asdict(state) for name, state in plan.agents.items()},
                **self.caller,
                "world": self.world,
                "lineage": self.lineage,
                "files": files,
                "symlinks": [attrs.asdict(link) for link in plan.links],
                "directories": list(plan.directories),
                "repositories": [attrs.asdict(repository) for repository in plan.repositories],
                "excluded": [entry.fields() for entry in (*plan.excluded, *excluded)],
                "secret_scan": secret_scan,
            }
        )

    def largest_bytes(self, allow: Iterable[Allowance], secret_scan: Mapping[str, Any]) -> int:
        """Return a size that :meth:`as_bytes` does not exceed.

        A file is listed as a member or as excluded.

        Args:
            allow: Findings that the scan may accept and must then list.
            secret_scan: The summary of an empty scan.
        """
        files = {
            source.member: {**path_field(source), **_LARGEST_FILE} for source in self.plan.sources
        }
        listed = serialise_metadata({"allowed": [attrs.asdict(allowance) for allowance in allow]})
        largest = len(self.as_bytes(files, (), secret_scan)) + 2 * len(listed) + _ROOM_BYTES
        return largest + sum(map(_more_as_excluded, self.plan.sources))


def _more_as_excluded(source: Source) -> int:
    """Return the maximum number of bytes by which an excluded entry exceeds a member's entry."""
    if source.listed_as is None and source.neutral_name is None:
        return 0  # the same path, without escapes
    member = {source.member: {**path_field(source), **_LARGEST_FILE}}
    excluded = Excluded(path=source.listed_as or source.name, reason=_LONGEST_REASON)
    as_excluded = len(serialise_metadata(excluded.fields())) + len(",")
    return max(0, as_excluded - len(serialise_metadata(member)))


def _shared_format(states: Iterable[AgentState]) -> str | None:
    formats = {state.session_format for state in states}
    return formats.pop() if len(formats) == 1 else None


def world_sources(path: Path) -> Iterator[Source]:
    """Yield the snapshot as a file for the archive, then its rows, if any."""
    yield Source(name=SNAPSHOT_NAME, path=path, open=lambda: _open(path))
    rows = rows_beside(path)
    if os.path.lexists(rows):
        yield Source(name=ROWS_NAME, path=rows, open=lambda: _open(rows))


class WorldDocument:
    """A world's snapshot while a save inspects it; a context manager. Blocks.

    A large snapshot is checked in a separate process; the constructor starts it.

    Args:
        path: Path of the snapshot.

    Raises:
        CheckpointError: The snapshot cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._check = DocumentCheck()
        with self._translated(), contextlib.ExitStack() as stack:
            self._fd = _open(path)
            stack.callback(os.close, self._fd)
            size = os.fstat(self._fd).st_size
            stack.pop_all()
        self._check.prepare(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._check.close()
        os.close(self._fd)

    def describe(self) -> dict[str, Any]:
        """Return the snapshot's ``time`` and its ``format``, or the default format.

        Raises:
            CheckpointError: The snapshot cannot be read.
        """
        with self._translated():
            try:
                header = self._check.read_header(self._fd)
            except InvalidDocument:
                header = Header()
        return {"format": header.format or DEFAULT_SNAPSHOT_FORMAT, "time": header.time}

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (CheckerLost, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"the world's snapshot cannot be read: {reason}"
            raise CheckpointError(message, path=self._path) from error


def _open(path: Path) -> int:
    return open_regular(os.path.realpath(path))  # a caller may name a link
