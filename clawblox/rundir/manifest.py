"""The run manifest: its values, its merge rules, and reading it.

``<run dir>/.clawblox/manifest.json`` describes one run and lists its files. Several programs write
the file, so each merges an :class:`Update` into the document instead of owning it. Merging is pure
and idempotent, and keeps unknown keys. ``manifest_writer`` writes the file.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from clawblox.config.arguments import check_read_path
from clawblox.errors import ManifestError
from clawblox.foreign_values import parse_document, whole_number
from clawblox.rundir.manifest_entries import (
    Combine,
    EntryList,
    ManifestEntry,
    fill,
    is_placed,
    normal,
    note_uses,
    overlay,
    without_left,
)
from clawblox.rundir.paths import state_dir
from clawblox.system.record_file import LaterVersionError
from clawblox.system.regular_files import read_regular

MANIFEST_NAME: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 64 << 20
"""Maximum size of a manifest that is read or written."""
SCHEMA_VERSION: Final = 1

_RUN_FIELDS: Final = (
    "id",
    "index",
    "status",
    "started_at",
    "ended_at",
    "resume_from",
    "parent_sha256",
    "resume_archive",
    "labels",
    "seed",
    "script_errors",
)
_PATH_FIELDS: Final = {
    "instances": "dir",
    "agents": "dir",
    "recordings": "path",
    "checkpoints": "path",
    "restarts": "",
    "world_files": "sha256",
}
"""The lists of the document, each with the key of an entry's path. A restart has no path and is
identified by all its fields; the files of a world are identified by a digest."""
_MAX_WORLD_FILES: Final = 20
"""Number of the latest versions of world files that a manifest keeps."""
_LISTS_WITH_RUN_ID: Final = ("agents", "checkpoints", "restarts")
"""The lists whose entries name their run by ``run_id``."""


class Update(msgspec.Struct, frozen=True):
    """The changes that a program makes to a manifest. Paths are absolute until they are merged.

    Attributes:
        run: Fields for the section ``run``; None removes a field.
        instances: Entries for ``instances``, in a run directory with many.
        agents: Entries for ``agents``.
        recordings: Entries for ``recordings``.
        checkpoints: Entries for ``checkpoints``.
        restarts: Entries for ``restarts``.
        world_files: Entries for ``world_files``: the files that worlds were started with.
        renamed_runs: New ids of runs by their old ids, for the entries of these runs.
        retired: Autosaves whose files were removed, each with ``path`` and ``removed_at``. Their
            entries are removed too, unless a restart, a run or a label names them.
        forked: Paths of checkpoints that runs started from; their entries are kept permanently.
        left: Agents whose session is over, each with ``id`` and ``name``; their entries are removed
            before ``agents`` are added.
    """

    run: ManifestEntry = msgspec.field(default_factory=dict)
    instances: tuple[ManifestEntry, ...] = ()
    agents: tuple[ManifestEntry, ...] = ()
    recordings: tuple[ManifestEntry, ...] = ()
    checkpoints: tuple[ManifestEntry, ...] = ()
    restarts: tuple[ManifestEntry, ...] = ()
    world_files: tuple[ManifestEntry, ...] = ()
    renamed_runs: Mapping[str, str] = msgspec.field(default_factory=dict)
    retired: tuple[ManifestEntry, ...] = ()
    forked: tuple[str, ...] = ()
    left: tuple[ManifestEntry, ...] = ()


class _Entries(msgspec.Struct, frozen=True):
    """An attribute of :class:`Manifest`: a list of entries in its document."""

    _name: str

    def __get__(self, manifest: Manifest, _: type[Manifest]) -> list[ManifestEntry]:
        return manifest._entries(self._name)


@attrs.frozen
class Manifest:
    """An immutable state of a run's manifest; merging returns a new value.

    Attributes:
        path: File of the manifest.
        document: The whole document, including unknown keys; read-only.
    """

    path: Path
    document: Mapping[str, Any] = attrs.field(factory=lambda: {"schema_version": SCHEMA_VERSION})

    @property
    def state_root(self) -> Path:
        """The run directory, the base of relative paths in the document."""
        return self.path.parent.parent

    @property
    def run(self) -> ManifestEntry:
        """The recorded run; empty if none was recorded."""
        return self.document.get("run") or {}

    instances = _Entries("instances")
    """The instances in a run directory with many, each with a manifest in its ``dir``."""
    agents = _Entries("agents")
    """The agents of the run, in the order of their registration."""
    recordings = _Entries("recordings")
    """The recordings of the run; their files may be missing."""
    checkpoints = _Entries("checkpoints")
    """The saved snapshots, oldest first; their files may be missing."""
    restarts = _Entries("restarts")
    """The restarts of the instance, oldest first."""
    world_files = _Entries("world_files")
    """The source files of the started worlds, one version for each change, oldest first."""

    def resolve(self, written: str) -> Path:
        """Return the absolute path of a path in the document."""
        return self.state_root / written

    def merged(self, *updates: Update) -> Manifest:
        """Return the manifest with ``updates`` merged in; their values replace existing values.

        Merging the same updates again has no effect.
        """
        if len(updates) > 1 and any(new.retired or new.forked or new.left for new in updates):
            # Removals depend on the current entries.
            return functools.reduce(Manifest.merged, updates, self)
        root = self.state_root
        run = dict(self.run)
        for update in updates:
            run = _merge_run(run, _spelled(update.run, root, "resume_from", "resume_archive"))
        document = {
            "schema_version": SCHEMA_VERSION,
            **self.document,
            **({"run": run} if run or self.run else {}),
        }
        if left := [entry for update in updates for entry in update.left]:
            document["agents"] = without_left(document.get("agents") or (), left)
        base = attrs.evolve(self, document=document)
        for name, field in _PATH_FIELDS.items():
            news = [new for update in updates for new in getattr(update, name)]
            spelled = [_spelled(new, root, field, "resume_from") for new in news]
            document.update(base._with_entries(name, spelled, overlay))
        if "world_files" in document:
            document["world_files"] = document["world_files"][-_MAX_WORLD_FILES:]
        ids = {old: new for update in updates for old, new in update.renamed_runs.items()}
        for name in _LISTS_WITH_RUN_ID if ids else ():
            if document.get(name):
                document[name] = _with_renamed_runs(document[name], ids)
        forked = {normal(path, root) for update in updates for path in update.forked}
        retired = {
            normal(entry["path"], root): entry["removed_at"]
            for update in updates
            for entry in update.retired
        }
        if (forked or retired) and (saves := document.get("checkpoints")):
            document["checkpoints"] = note_uses(saves, root, forked, retired, document)
        return attrs.evolve(self, document=document)

    def filled(self, other: Manifest) -> Manifest:
        """Return the manifest completed with values of ``other``; its own values win.

        Missing sections, list entries and fields of entries are filled in; an existing section
        ``run`` stays unchanged.
        """
        document = {**other.document, **self.document}
        for name in _PATH_FIELDS:
            document.update(self._with_entries(name, self._lacking(name, other), fill))
        return attrs.evolve(self, document=document)

    def _entries(self, name: str) -> list[ManifestEntry]:
        return list(self.document.get(name) or ())

    def _lacking(self, name: str, other: Manifest) -> list[ManifestEntry]:
        """Return the entries of ``other`` without those that are obviously in this manifest.

        Nearly always the result is empty, and a full comparison costs ten times as much.
        """
        field = _PATH_FIELDS[name]
        own = {entry[field]: entry for entry in self._entries(name) if is_placed(entry, field)}

        def may_fill(entry: ManifestEntry) -> bool:
            same = own.get(entry[field]) if is_placed(entry, field) else None
            return (
                same is None or entry.get("id") != same.get("id") or not entry.keys() <= same.keys()
            )

        return [entry for entry in other._entries(name) if may_fill(entry)]

    def _with_entries(
        self, name: str, news: list[ManifestEntry], combine: Combine
    ) -> dict[str, list[ManifestEntry]]:
        if not news:
            return {}
        entries = EntryList(self._entries(name), _PATH_FIELDS[name], self.state_root)
        for new in news:
            entries.put(new, combine)
        return {name: entries.listed()}


# --- merging --------------------------------------------------------------------------------


def _merge_run(old: ManifestEntry, new: ManifestEntry) -> dict[str, Any]:
    if "id" in new and "id" in old and old["id"] != new["id"]:
        old = {key: value for key, value in old.items() if key not in _RUN_FIELDS}
    gone = {key for key, value in new.items() if value is None}
    return {key: value for key, value in overlay(old, new).items() if key not in gone}


def _with_renamed_runs(entries: Iterable[object], ids: Mapping[str, str]) -> list[object]:
    def rename(entry: object) -> object:
        # The world may have written any value.
        old = entry.get("run_id") if isinstance(entry, Mapping) else None
        new = ids.get(old) if isinstance(old, str) else None
        return {**entry, "run_id": new} if isinstance(entry, Mapping) and new else entry

    return [rename(entry) for entry in entries]


def _spelled(entry: ManifestEntry, root: Path, *fields: str) -> ManifestEntry:
    """Return the entry with paths in the form of manifests, relative if inside the root."""
    paths = {field: entry[field] for field in fields if isinstance(entry.get(field), str)}
    return {**entry, **{field: _relative(path, root) for field, path in paths.items()}}


def _relative(path: str, root: Path) -> str:
    inside = f"{root}/"
    if path.startswith(inside) and os.path.normpath(path) == path:
        return path[len(inside) :]
    for spell in (os.path.abspath, os.path.realpath):
        inner, outer = Path(spell(root / path)), Path(spell(root))
        if inner.is_relative_to(outer):
            return inner.relative_to(outer).as_posix()
    return path


# --- the file -------------------------------------------------------------------------------


def manifest_path(run_dir: Path) -> Path:
    """Return the path of the manifest of a run directory."""
    return state_dir(run_dir) / MANIFEST_NAME


def serialise_manifest(manifest: Manifest) -> bytes:
    """Return the content of a manifest's file: indented by 2, sorted keys, final newline."""
    document = manifest.document
    try:
        text = msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2)
    except (ValueError, OverflowError):
        # A path that is not UTF-8 has lone surrogates, which JSON must escape; another program may
        # have written an integer of more than 64 bits.
        text = json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode()
    return text + b"\n"


def parse_manifest(data: bytes, path: Path) -> Manifest:
    """Parse the content of a manifest.

    Args:
        data: The whole file.
        path: Path of the file.

    Raises:
        ManifestError: The content is not JSON, not a manifest, or has a later schema.
    """
    try:
        document = parse_document(data)  # refuses NaN, which a world may write
    except ValueError as error:
        raise ManifestError(f"the manifest is not JSON: {error}", path=path) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is int and version > SCHEMA_VERSION:
        later = LaterVersionError(version, SCHEMA_VERSION)
        raise ManifestError(f"the manifest {later.problem}", path=path, hint=later.hint)
    if (complaint := _complaint(document)) is not None:
        raise ManifestError(f"this is not a manifest: {complaint}", path=path)
    return Manifest(path, document)


def _complaint(document: object) -> str | None:
    if not isinstance(document, dict):
        return "it is not a JSON object"
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        return f"its schema_version must be {SCHEMA_VERSION}, not {version!r}"
    if not isinstance(document.get("run") or {}, dict):
        return "its run is not an object"
    wrong = [name for name in _PATH_FIELDS if not isinstance(document.get(name) or [], list)]
    return f"its {wrong[0]} is not a list" if wrong else None


def read_manifest(path: Path | str) -> Manifest:
    """Read the manifest of one run. Blocks. The listed files need not exist.

    Args:
        path: The run directory, or the manifest itself.

    Raises:
        ManifestError: The manifest is missing or cannot be read.
        ConfigError: ``path`` is not a path.
    """
    file = check_read_path(path, "path")
    try:
        file = manifest_path(file) if file.is_dir() else file
        data = read_regular(file, max_bytes=MAX_MANIFEST_BYTES)
    except (OSError, ValueError) as error:  # a manifest can name a directory that cannot exist
        reason = error.strerror if isinstance(error, OSError) else "the file does not exist"
        raise ManifestError(f"the manifest cannot be read: {reason}", path=file) from error
    return parse_manifest(data, file)


def try_read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a directory; empty if it cannot be read. Blocks."""
    path = manifest_path(directory)
    try:
        return read_manifest(path)
    except ManifestError:
        return Manifest(path)


def find_checkpoint(path: Path) -> tuple[Manifest, ManifestEntry] | None:
    """Return the innermost manifest above a file that lists it as a checkpoint, and its entry.

    Blocks. Unreadable manifests are skipped.
    """
    place = Path(os.path.realpath(path))
    for directory in place.parents:
        manifest = try_read_manifest(directory)
        for entry in manifest.checkpoints:
            path = manifest.resolve(entry["path"]) if is_placed(entry, "path") else place.parent
            if path.name == place.name and Path(os.path.realpath(path)) == place:
                return manifest, entry
    return None


def read_runs(folder: Path | str) -> list[Manifest]:
    """Read the manifests of the runs in a folder, in the order of the runs. Blocks.

    Args:
        folder: A directory whose sub-directories are run directories; other entries are skipped.

    Returns:
        The runs with an index in the order of the index, then other runs by directory name.

    Raises:
        ManifestError: The folder or one of the manifests cannot be read.
        ConfigError: ``folder`` is not a path.
    """
    place = check_read_path(folder, "folder")
    try:
        directories = [path for path in sorted(place.iterdir()) if manifest_path(path).exists()]
    except OSError as error:
        message = f"the folder of runs cannot be read: {error.strerror}"
        raise ManifestError(message, path=place) from error
    return sorted(map(read_manifest, directories), key=_run_order)


def _run_order(manifest: Manifest) -> tuple[bool, int, str]:
    index = whole_number(manifest.run.get("index"))
    return index is None, index or 0, manifest.state_root.name
