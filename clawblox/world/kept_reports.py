"""Reports that commands leave in the directories that they judged, with digests. Blocks.

The reports are in the state directory, which is not part of a world's sources, so digests and
copies exclude it. Reports are not signed; a report in a directory from a stranger is no evidence.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs
import msgspec

from clawblox.errors import ClawbloxError
from clawblox.foreign_values import clean_value, parse_json
from clawblox.rundir.manifest_entries import is_printable
from clawblox.rundir.paths import state_dir
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.record_file import UPDATE_HINT
from clawblox.system.regular_files import read_regular
from clawblox.telemetry.own_log import OwnLog
from clawblox.typed_values import converter
from clawblox.world.recorded_worlds import find_forger
from clawblox.world.sources import WorldFiles, parse_world_files, read_world_files

OWN: Final = "."
"""Key for the files of the directory that contains the report."""
MAX_REPORT_BYTES: Final = 64 << 20
_SCHEMA_VERSION: Final = 1
_HINT: Final = "remove the file, or run the command again to replace it"

ReadFiles: TypeAlias = Callable[[Path], WorldFiles | None]
"""Returns the current files to judge in a directory; None if they are not known."""

_T = TypeVar("_T")
_log = OwnLog(__name__)


@attrs.frozen
class _Envelope:
    """The file of a report."""

    schema_version: int
    made_at: str
    clawblox: str
    judged: Mapping[str, Mapping[str, Any]]
    report: Mapping[str, Any]


_to_envelope = converter(_Envelope)


@attrs.frozen
class KeptReport(Generic[_T]):
    """A report that a command has left.

    Attributes:
        path: File of the report.
        directory: Current path of the judged directory, resolved.
        made_at: Time of the report in UTC, such as ``2026-06-22T18:59:25Z``.
        clawblox: The version of clawblox that made the report.
        judged: The judged files by their directory, which is relative to ``directory`` or absolute;
            directories too large for digests are left out.
        report: The report.
    """

    path: Path
    directory: Path
    made_at: str
    clawblox: str
    judged: Mapping[str, WorldFiles]
    report: _T
    _read_own: ReadFiles = attrs.field(repr=False, eq=False)

    def find_changes(self) -> tuple[str, ...] | None:
        """Return the files that have changed since, relative to the directory; None if unknown.

        Blocks while all files are read, about a second per gigabyte. A directory that is missing or
        cannot be read is named itself. If another user or an agent may have written the report,
        only files in its own directory are read.
        """
        places = [place for place in self.judged if place != OWN]
        if not self.judged or (places and find_forger(self.directory, self.path) is not None):
            return None
        changes: list[str] = []
        for place, files in self.judged.items():
            read = self._read_own if place == OWN else read_world_files
            now = read(self.directory / place)
            changed = (OWN,) if now is None else files.find_changes(now)
            changes += (str(Path(place) / path) for path in changed)
        return tuple(changes)


def keep_report(
    directory: Path,
    name: str,
    document: Mapping[str, Any],
    judged: Mapping[str, WorldFiles | None],
    version: str,
) -> None:
    """Write a report into a directory, replacing the previous report; a failure only warns.

    Args:
        directory: The directory that was judged.
        name: Name of the file.
        document: The report.
        judged: The files that were judged, as for :class:`KeptReport`; None if unknown.
        version: The version of clawblox.
    """
    entries = {
        place: {"sha256": files.sha256, "files": files.files}
        for place, files in judged.items()
        if files is not None
    }
    envelope = _Envelope(_SCHEMA_VERSION, format_utc(utc_now()), version, entries, document)
    try:
        data = json.dumps(clean_value(attrs.asdict(envelope, recurse=False)), indent=2).encode()
        if len(data) > MAX_REPORT_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_REPORT_BYTES >> 20} MB")
        publish_bytes(make_private_dir(state_dir(directory)) / name, data, durable=False)
    except OSError as error:
        _log.warning("report not kept", file=str(state_dir(directory) / name), error=str(error))


def read_kept(
    directory: Path,
    name: str,
    parse: Callable[[Mapping[str, Any], Path], _T],
    read_own: ReadFiles = read_world_files,
) -> KeptReport[_T] | None:
    """Return the report in a directory; None if there is none.

    Args:
        directory: The directory.
        name: Name of the file.
        parse: Returns the report in a document, given the directory; raises ValueError or msgspec's
            error if the document is not a report.
        read_own: Returns the current files to judge in the directory.

    Raises:
        ClawbloxError: The file cannot be read, is not a report, or was written by a later version
            of clawblox.
    """
    directory = Path(os.path.realpath(directory))
    path = state_dir(directory) / name
    try:
        document = parse_json(read_regular(path, max_bytes=MAX_REPORT_BYTES))
        version = document.get("schema_version") if isinstance(document, dict) else None
        if type(version) is int and version > _SCHEMA_VERSION:
            message = f"it has schema_version {version}, and this clawblox reads {_SCHEMA_VERSION}"
            raise ClawbloxError(f"the report in {path} cannot be read: {message}", hint=UPDATE_HINT)
        envelope = _to_envelope(document)
        judged = {place: _parse_files(place, entry) for place, entry in envelope.judged.items()}
        report = parse(envelope.report, directory)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        message = f"the report in {path} cannot be read: {error}"
        raise ClawbloxError(message, hint=_HINT) from error
    made = envelope.made_at, envelope.clawblox
    return KeptReport(path, directory, *made, judged, report, read_own)


def _parse_files(place: str, entry: Mapping[str, Any]) -> WorldFiles:
    files = parse_world_files(entry.get("files"), entry.get("sha256"))
    if files is None or not is_printable(place):
        raise ValueError(
            f"{place!r} is not a directory, or its files do not match the digest in it"
        )
    return files
